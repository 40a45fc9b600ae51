#!/usr/bin/env python3
"""Measures of style, for people: it never fails.

usage: check_style.py [ROOT]

Function lengths (median, 90th percentile, the ones over 80 lines), files over 700 lines, parameter
lists over 6, comment density of headers, and declarations in headers without a comment of theirs.
The code is clang-formatted, which is what makes these patterns reliable.
"""
import pathlib
import re
import sys

FUNCTION = re.compile(r"^(?!typedef|struct|enum|union|static const|#)[A-Za-z_][^;={}]*\([^;{}]*\)\n\{\n",
                      re.M)
PROTOTYPE = re.compile(r"^(?!typedef|#|\s|\}|static inline|/|\*)[A-Za-z_][^;={}()]*\b(\w+)\(([^;{}]*)\)"
                       r"[^;{}]*;", re.M)


def functions(text):
    """(line, name, body lines, parameters) of each function."""
    for match in FUNCTION.finditer(text):
        end = text.find("\n}\n", match.end() - 1)
        head = match.group()
        name = re.search(r"(\w+)\s*\(", head)
        arguments = head[head.index("(") + 1 : head.rindex(")")]
        depth = 0
        parameters = 1
        for c in arguments:
            depth += (c == "(") - (c == ")")
            parameters += c == "," and depth == 0
        yield (text.count("\n", 0, match.start()) + 1, name.group(1) if name else "?",
               text.count("\n", match.end(), end + 1), parameters)


def share(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0


def undocumented(text):
    """Names of prototypes that follow neither a comment nor another documented prototype."""
    for match in PROTOTYPE.finditer(text):
        before = text[: match.start()].rstrip("\n")
        last = before.splitlines()[-1] if before else ""
        grouped = text[: match.start()].endswith("\n") and not text[: match.start()].endswith("\n\n")
        if not last.rstrip().endswith("*/") and not (grouped and last.rstrip().endswith(";")):
            yield match.group(1)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    lengths, notes, missing = [], [], []
    prototypes = comments = code = 0
    for file in sorted(p for d in ("src", "include") for p in (root / d).rglob("*.[ch]")):
        text = file.read_text(encoding="utf-8")
        path = file.relative_to(root).as_posix()
        lines = text.count("\n")
        if lines > 700:
            notes.append(f"{path}: {lines} lines")
        for line, name, length, parameters in functions(text):
            lengths.append(length)
            if length > 80:
                notes.append(f"{path}:{line}: {name} has {length} lines")
            if parameters > 6:
                notes.append(f"{path}:{line}: {name} has {parameters} parameters")
        if file.suffix == ".h" and not file.name.endswith(".inc.h"):
            prototypes += len(PROTOTYPE.findall(text))
            missing += [f"{path}: {name} has no comment" for name in undocumented(text)]
            words = sum(m.group().count("\n") + 1 for m in re.finditer(r"/\*.*?\*/", text, re.S))
            comments += words
            code += sum(1 for s in re.sub(r"/\*.*?\*/", "", text, flags=re.S).splitlines() if s.strip())
    for note in notes + missing:
        print(note)
    print(f"style: {len(lengths)} functions, median {share(lengths, 0.5)} lines, "
          f"90 % within {share(lengths, 0.9)}; {prototypes - len(missing)} of {prototypes} "
          f"declarations documented; {comments / max(code, 1):.2f} comment lines a code line in headers")


if __name__ == "__main__":
    main()
