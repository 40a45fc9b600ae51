#!/usr/bin/env python3
"""Floors: a folder of src/ includes only itself and the folders above it.

usage: check_floors.py [ROOT]     exit 0: clean; 1: findings, one a line

Also: which files may see an outside library, and what library code must not do (print, exit, read
the environment, go round the I/O layer).
"""
import pathlib
import re
import sys

ORDER = """base catalog layout program price plan comm kernels storage data engine measure train
report cli""".split()

# Outside headers that only some files may include (path relative to src/).
OUTSIDE = [
    (r"mpi\.h$|mpi-ext\.h$|pmpi", r"comm/mpi"),
    (r"(oneapi/)?dnnl", r"kernels/cpu"),
    (r"omp\.h$", r"kernels/cpu"),
    (r"cuda|cublas|nccl", r"(comm|kernels)/(cuda|nccl)"),
    (r"jansson", r"base/node_json"),
    (r"yaml\.h$", r"base/node_yaml"),
    (r"xxhash", r"base/hash"),
    (r"pcre2", r"data/"),
    (r"zstd|zlib", r"(data|storage)/"),
    (r"hwloc", r"measure/cores"),
]

# Calls that library code must not make, and the folders that may.
CALLS = [
    (r"exit|abort|getenv|secure_getenv|setenv|putenv", {"base", "cli"}, "belongs to base and cli"),
    (r"v?f?printf|dprintf|f?puts|putchar|perror", {"base", "cli"}, "log through base/log.h"),
    (r"fopen|creat|rename|unlink|mkdir|rmdir|fsync|opendir|mkstemp", {"base"}, "use base/io.h"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(text):
    """The text with comments and literals made empty, line numbers kept."""
    return NOISE.sub(lambda m: "\n" * m.group().count("\n"), text)


def check_quoted(folder, name):
    target = name.split("/")[0] if "/" in name else None
    if target is None:
        return f'"{name}" names no folder: write "{folder}/{name}"'
    if target == "echelon":  # the public interface
        return None
    if target not in ORDER:
        return f'"{name}": {target} is no folder of src/'
    if ORDER.index(target) > ORDER.index(folder):
        return f'"{name}": {folder} may not include {target}, which is a floor below it'
    return None


def check_outside(path, name):
    for pattern, allowed in OUTSIDE:
        if re.match(pattern, name) and not re.match(allowed, path):
            return f"<{name}> may be included by src/{allowed}* only"
    return None


def check_file(path, text):
    """Findings of one file; path is relative to src/."""
    folder = path.split("/")[0]
    if folder not in ORDER:
        yield 1, f"{folder} is not one of the floors: {' '.join(ORDER)}"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            own = match.group(1) == '"' and check_quoted(folder, match.group(2))
            wrong = own or check_outside(path, match.group(2))
            if wrong:
                yield number, wrong
    for number, line in enumerate(blank(text).splitlines(), 1):
        for names, allowed, why in CALLS:
            match = re.search(rf"(?<![\w.>])({names})\s*\(", line)
            if match and folder not in allowed:
                yield number, f"{match.group(1)}() in {folder}: {why}"


def check_public(text):
    """Findings of a header of include/: it stands on nothing of src/."""
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match and match.group(1) == '"' and not match.group(2).startswith("echelon/"):
            yield number, f'"{match.group(2)}": a public header includes public headers only'


def check_tree(root):
    findings = []
    for base, check in (("src", check_file), ("include", lambda path, text: check_public(text))):
        for file in sorted((root / base).rglob("*.[ch]")):
            relative = file.relative_to(root / base).as_posix()
            for number, what in check(relative, file.read_text(encoding="utf-8")):
                findings.append(f"{base}/{relative}:{number}: {what}")
    return findings


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    if not (root / "src").is_dir():
        sys.exit(f"check_floors: {root}/src is not there")
    findings = check_tree(root)
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
