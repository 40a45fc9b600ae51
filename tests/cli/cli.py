"""What the tests of the command line share: running it and saying what differs."""
import os
import subprocess
import sys

BUILD = os.environ["ECH_BUILD"]
SOURCE = os.environ["ECH_SOURCE"]
ECHELON = os.path.join(BUILD, "echelon")
LAUNCHERS = ("OMPI_", "PMI", "SLURM_", "MPI_LOCAL")

failures = []


def clean_environment(**changes):
    """The environment without a launcher's variables; None removes one."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    env.pop("ECHELON_LOG", None)
    for name, value in changes.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return env


def run(*args, env=None, cwd=None, program=ECHELON):
    return subprocess.run([program, *args], env=env or clean_environment(), cwd=cwd, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60)


def expect(what, got, want):
    if got != want:
        failures.append(f"{what}: got {got!r}, wanted {want!r}")


def expect_in(what, words, text):
    if words not in text:
        failures.append(f"{what}: wanted {words!r} in:\n{text}")


def finish():
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(1 if failures else 0)
