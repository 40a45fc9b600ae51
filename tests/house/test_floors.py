#!/usr/bin/env python3
# RUN: timeout=20 tags=fast,house
"""The floors check passes on this tree and does find what it is there to find."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get("ECH_SOURCE", pathlib.Path(__file__).parents[2]))
CHECK = SOURCE / "scripts" / "check_floors.py"

# file, its text, words of the finding wanted (None: clean)
CASES = [
    ("src/plan/a.c", '#include "program/op.h"\n#include "plan/b.h"\n#include <stdio.h>\n', None),
    ("src/program/a.c", '#include "plan/b.h"\n', "program may not include plan"),
    ("src/base/a.h", '  #  include   "cli/b.h" /* why */\n', "src/base/a.h:1: "),
    ("src/train/a.c", '#include "report/metrics.h"\n', "train may not include report"),
    ("src/cli/a.c", '#include "report/metrics.h"\n', None),
    ("src/base/a.c", '#include "a.h"\n', "names no folder"),
    ("src/base/a.c", '#include "wherever/a.h"\n', "wherever is no folder"),
    ("src/other/a.c", "", "other is not one of the floors"),
    ("src/engine/a.c", '#include "echelon/echelon.h"\n', None),
    ("src/comm/mpi_world.c", "#include <mpi.h>\n", None),
    ("src/comm/mpi/world.c", "#include <mpi.h>\n", None),
    ("src/comm/inproc.c", "#include <mpi.h>\n", "<mpi.h> may be included by"),
    ("src/engine/a.c", "\n\n#include <mpi.h>\n", "src/engine/a.c:3: "),
    ("src/kernels/cpu_gemm.c", "#include <oneapi/dnnl/dnnl.h>\n#include <omp.h>\n", None),
    ("src/kernels/ref.c", "#include <dnnl.h>\n", "kernels/cpu"),
    ("src/catalog/a.c", "#include <jansson.h>\n", "base/node_json"),
    ("src/catalog/a.c", "void f(void)\n{\n    exit(1);\n}\n", "src/catalog/a.c:3: exit()"),
    ("src/catalog/a.c", 'void f(void)\n{\n    printf("x");\n}\n', "log through"),
    ("src/catalog/a.c", 'void f(void)\n{\n    fprintf(stderr, "x");\n}\n', "log through"),
    ("src/catalog/a.c", 'int x = getenv("X") != 0;\n', "belongs to base and cli"),
    ("src/data/a.c", 'void *f = fopen("a", "r");\n', "use base/io.h"),
    ("src/cli/a.c", 'void f(void)\n{\n    printf("x");\n    exit(1);\n}\n', None),
    ("src/data/a.c", "/* exit(1) in words,\n printf() too */\n// exit(1)\n", None),
    ("src/data/a.c", 'const char *s = "exit(1) \\" printf(x)";\n', None),
    ("src/data/a.c", "int n = snprintf(b, 1, f);\nint x = p->rename(1);\n_exit(1);\n", None),
    ("include/echelon/a.h", '#include "echelon/b.h"\n#include <stddef.h>\n', None),
    ("include/echelon/a.h", '#include "base/status.h"\n', "public headers only"),
]


def run(root):
    done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def check_case(path, text, wanted):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "src").mkdir()
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
        status, words = run(root)
    ok = status == 0 and not words if wanted is None else status == 1 and wanted in words
    if not ok:
        print(f"{path}: {text!r}: got {status} {words!r}, wanted {wanted!r}", file=sys.stderr)
    return ok


def main():
    ok = all([check_case(*case) for case in CASES])
    status, words = run(SOURCE)
    if status != 0:
        print(words, file=sys.stderr)
    return 0 if ok and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
