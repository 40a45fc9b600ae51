# RUN: np=1 timeout=120 tags=fast
"""What plan emits for our own engine is a configuration that check compiles and proves, with the layout
that was found; what the engine has not built yet is refused by name, and by nothing else."""
import json
import os
import subprocess
import sys
import tempfile

ECHELON = os.path.join(os.environ["ECH_BUILD"], "echelon")
failures = []


def echelon(*args):
    return subprocess.run([ECHELON, *args], text=True, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=60)


def expect(what, got, want):
    if got != want:
        failures.append(f"{what}: got {got!r}, wanted {want!r}")


def built(folder):
    asked = ["plan", "--model", "gpt2-124m", "--cluster", "cpu-64c-avx512", "--gpus", "4", "--seq",
             "256", "--global-batch", "16", "--precision", "fp32", "--pp", "2", "--top", "1"]
    path = os.path.join(folder, "built.yaml")
    best = json.loads(echelon(*asked, "--json").stdout)["best"][0]
    with open(path, "w", encoding="utf-8") as f:
        f.write(echelon(*asked, "--emit", "echelon").stdout)
    run = echelon("check", path, "--ranks", "4", "--json")
    expect("check accepts it", run.returncode, 0)
    layout = json.loads(run.stdout)["layout"]
    for key in ("tp", "pp", "dp"):
        expect(key, layout[key], best["layout"][key])


def unbuilt(folder):
    path = os.path.join(folder, "unbuilt.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(echelon("plan", "--model", "llama-3-8b", "--cluster", "h100-sxm-80", "--gpus", "16",
                        "--seq", "4096", "--global-batch", "64", "--emit", "echelon").stdout)
    run = echelon("check", path, "--ranks", "16")
    expect("check refuses it", run.returncode, 2)
    for line in run.stderr.splitlines():
        if "not built" not in line and "is built" not in line and "built:" not in line:
            failures.append(f"refused for something else: {line}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        built(folder)
        unbuilt(folder)
    print("\n".join(failures) or "all as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
