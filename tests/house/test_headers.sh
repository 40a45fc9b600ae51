#!/bin/bash
# RUN: timeout=120 tags=fast,house
# Every header compiles alone, and twice (its guard works).  NAME.inc.h is no header but the body of
# functions for one type, included once per type.
set -uo pipefail
source=${ECH_SOURCE:?}
cd "$source" || exit 1

flags=(-std=c17 -D_GNU_SOURCE -Isrc -Iinclude -Wall -Wextra -Wstrict-prototypes -Werror)
failed=0
n=0
while IFS= read -r header; do
    extra=()
    case $header in
    src/comm/mpi*)
        command -v mpicc >/dev/null || continue
        read -ra extra < <(mpicc --showme:compile)
        ;;
    src/kernels/cpu*) extra=(-fopenmp -Wno-psabi) ;; # vector types; its sources choose the CPU
    esac
    n=$((n + 1))
    if ! printf '#include "%s"\n#include "%s"\n' "$PWD/$header" "$PWD/$header" |
        "${CC:-gcc}" "${flags[@]}" ${extra[@]+"${extra[@]}"} -fsyntax-only -x c -; then
        echo "$header does not compile alone" >&2
        failed=1
    fi
done < <(find src include -name '*.h' ! -name '*.inc.h' 2>/dev/null | sort)

[[ $n -ge 10 ]] || { echo "only $n headers found" >&2; exit 1; }
# The check itself must be able to fail.
if printf 'ech_status f(int);\n' | "${CC:-gcc}" "${flags[@]}" -fsyntax-only -x c - 2>/dev/null; then
    echo "a header without its include passed" >&2
    exit 1
fi
exit $failed
