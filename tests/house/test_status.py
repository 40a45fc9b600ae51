#!/usr/bin/env python3
# RUN: np=1 timeout=20 tags=fast,house
"""Every test that docs/status.md names exists, and every folder of tests is named there."""
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ["ECH_SOURCE"])
TESTS = SOURCE / "tests"
FOLDERS = {p.name for p in TESTS.iterdir() if any(p.glob("test_*"))} | {"fuzz"}


def files(name):
    """Files of a test by its CTest name, in which * stands for anything."""
    folder, _, unit = name.partition("_")
    if folder == "fuzz":
        return list((TESTS / folder).glob(f"fuzz_{unit}.c"))
    return list((TESTS / folder).glob(f"test_{unit}.[cps]*"))


def named(text):
    return {n for n in re.findall(r"`([a-z0-9_*]+)`", text) if n.split("_")[0] in FOLDERS and "_" in n}


def main():
    assert files("house_status") and files("house_st*") and not files("house_other") and files("fuzz_config")
    assert named("`engine_masks`, `plan`, `engine`, engine_fuzz, `fuzz_*`") == {"engine_masks", "fuzz_*"}
    names = named((SOURCE / "docs" / "status.md").read_text(encoding="utf-8"))
    absent = sorted(n for n in names if not files(n))
    unnamed = sorted(FOLDERS - {n.split("_")[0] for n in names})
    for n in absent:
        print(f"docs/status.md names {n}: there is no such test", file=sys.stderr)
    for n in unnamed:
        print(f"docs/status.md names no test of tests/{n}", file=sys.stderr)
    return 1 if absent or unnamed or len(names) < 40 else 0


sys.exit(main())
