# RUN: np=1 timeout=120 tags=fast
"""The launcher: what mpirun is given, and how the status of ranks comes back.  A small program plays
mpirun, so that each of its ways to end can be had; the real one follows where there is one."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from cli import ECHELON, clean_environment, expect, expect_in, finish, run

FAKE = """#!/usr/bin/env python3
import os, signal, subprocess, sys, time
if "--version" in sys.argv:
    print(os.environ["FAKE_VERSION"])
    sys.exit(0)
with open(os.environ["FAKE_LOG"], "w") as log:
    log.write("\\n".join(sys.argv[1:]))
mode = os.environ["FAKE_MODE"]
size = int(sys.argv[sys.argv.index("-n") + 1])
program = sys.argv[next(i for i, a in enumerate(sys.argv) if a.endswith("/echelon")):]
if mode == "nothing":
    sys.exit(213)
if mode == "lies":
    sys.exit(0)
if mode == "wait":
    got = []
    signal.signal(signal.SIGUSR1, lambda *_: got.append("usr1"))
    signal.signal(signal.SIGTERM, lambda *_: got.append("term"))
    open(os.environ["FAKE_LOG"] + ".ready", "w").close()
    while len(got) < int(os.environ["FAKE_SIGNALS"]):
        time.sleep(0.01)
    with open(os.environ["FAKE_LOG"], "w") as log:
        log.write(" ".join(got))
shown = size + 1 if mode == "mismatch" else size
for rank in range(size):
    env = dict(os.environ, OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE=str(shown))
    subprocess.run(program, env=env)
sys.exit({"well": 0, "mismatch": 137, "dies": 137, "wait": 0}[mode])
"""


class Fake:
    """A folder with a fake mpirun in front of PATH, and a TMPDIR of its own."""

    def __init__(self, mode, version="mpirun (Open MPI) 4.1.4", **more):
        self.folder = tempfile.mkdtemp()
        path = os.path.join(self.folder, "mpirun")
        with open(path, "w") as file:
            file.write(FAKE)
        os.chmod(path, 0o755)
        self.log = os.path.join(self.folder, "log")
        self.tmp = os.path.join(self.folder, "tmp")
        os.mkdir(self.tmp)
        self.env = clean_environment(PATH=self.folder + ":" + os.environ["PATH"], FAKE_MODE=mode,
                                     FAKE_VERSION=version, FAKE_LOG=self.log, TMPDIR=self.tmp, **more)

    def arguments(self):
        with open(self.log) as file:
            return file.read().split("\n")

    def close(self):
        expect("left behind in TMPDIR", os.listdir(self.tmp), [])
        shutil.rmtree(self.folder)


def trial(mode, code, words, ranks="3", **more):
    fake = Fake(mode, **more)
    got = run("doctor", "--json", "--ranks", ranks, env=fake.env)
    expect(f"exit, {mode}", got.returncode, code)
    expect_in(f"stderr, {mode}", words, got.stderr)
    document = json.loads(got.stdout)
    expect(f"trial, {mode}", (document["trial"]["ranks"], document["trial"]["exit_code"]),
           (int(ranks), code))
    arguments = fake.arguments()
    fake.close()
    return arguments


def test_arguments():
    arguments = trial("well", 0, "starting 3 ranks: ")
    want = ["-n", "3", "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        want.append("--allow-run-as-root")
    want += [os.path.realpath(ECHELON), "doctor", "--json", "--ranks", "3"]
    expect("arguments for Open MPI", arguments, want)
    arguments = trial("well", 0, "starting 2 ranks: ", ranks="2", version="HYDRA build details:")
    expect("arguments for MPICH", arguments, ["-n", "2", os.path.realpath(ECHELON), "doctor", "--json",
                                              "--ranks", "2"])


def test_ends():
    trial("nothing", 4, "no rank came up")
    trial("lies", 4, "no rank came up")
    trial("dies", 1, "a rank died without a word")
    # every rank ends with 2, mpirun with 137: the ranks' word counts
    trial("mismatch", 2, "the ranks asked for are not those that were started")


def test_signals():
    for n, want in [(1, "usr1"), (2, "usr1 term")]:
        fake = Fake("wait", FAKE_SIGNALS=str(n))
        process = subprocess.Popen([ECHELON, "doctor", "--ranks", "1"], env=fake.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(fake.log + ".ready"):
            time.sleep(0.01)
        for _ in range(n):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        expect("exit after signals", process.wait(timeout=20), 0)
        expect("signals passed on", fake.arguments(), [want])
        fake.close()


def test_launchers_are_told_apart():
    for env, who in [
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, "Open MPI's mpirun: 4"),
        ({"PMI_RANK": "0", "PMI_SIZE": "5"}, "started by mpirun: 5"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "6"}, "started by srun: 6"),
    ]:
        got = run("doctor", "--ranks", "3", env=clean_environment(**env))
        expect(f"exit under {who}", got.returncode, 2)
        expect_in("who started it", who, got.stderr)
        other = {k: v.replace("0", "1") for k, v in env.items()}
        got = run("doctor", "--ranks", "3", env=clean_environment(**other))
        expect("one rank alone speaks", (got.returncode, got.stderr), (2, ""))
    # an allocation alone has started nothing
    allocation = clean_environment(SLURM_PROCID="0", SLURM_NTASKS="6", SLURM_JOB_ID="1")
    expect("in an allocation", run("doctor", "--ranks", "0", env=allocation).returncode, 0)


def test_real_mpirun():
    if not shutil.which("mpirun"):
        return
    got = run("doctor", "--json", "--ranks", "4")
    expect("real mpirun", (got.returncode, json.loads(got.stdout)["trial"]["exit_code"]), (0, 0))


test_arguments()
test_ends()
test_signals()
test_launchers_are_told_apart()
test_real_mpirun()
finish()
