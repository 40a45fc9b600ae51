#!/usr/bin/env python3
# RUN: np=1 timeout=30 tags=fast
"""The table of measurements in bench/fit is what its import makes of the shared one, and both give
the same jobs: every prediction and every filled-in setting is the same."""
import json
import os
import subprocess
import sys
import tempfile

SHARED = os.path.join(os.environ.get("ECH_SHARED", "../shared"), "groundtruth", "published.csv")
FIT = os.path.join(os.environ["ECH_SOURCE"], "bench", "fit")
ECHELON = os.path.join(os.environ["ECH_BUILD"], "echelon")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def validate(path):
    done = subprocess.run([ECHELON, "validate", path, "--json"], capture_output=True, text=True,
                          check=True, timeout=20)
    return json.loads(done.stdout)


def main():
    if not os.path.exists(SHARED):
        print(f"skipped: no {SHARED}")
        return 77
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(FIT, "import.py"), SHARED, folder], check=True)
        for name in ("published.csv", "sources.csv"):
            if read(os.path.join(folder, name)) != read(os.path.join(FIT, name)):
                failures.append(f"bench/fit/{name} is not what import.py makes")
    one, other = validate(SHARED), validate(os.path.join(FIT, "published.csv"))
    if len(one["rows"]) != len(other["rows"]):
        failures.append(f"{len(one['rows'])} rows of {len(other['rows'])}")
    for a, b in zip(one["rows"], other["rows"]):
        if a != b:
            failures.append(f"with notes {a}, without {b}")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
