# RUN: np=1 timeout=240 tags=fast,mpi
"""All ranks killed at once, at chance moments while every step saves: a whole checkpoint is always
there, none older than the last that was told, and the run goes on to the end that it would have had,
to the last bit."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

from cli import ECHELON, clean_environment, expect, failures, finish
from training import MPI_KEEPS_MEMORY, Place, has_mpi

SEED = 7
KILLS = 6


def processes():
    """{pid: parent} of all, as /proc tells."""
    out = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                out[int(pid)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass
    return out


def family(pid):
    parents, found = processes(), [pid]
    for one in found:
        found += [p for p, parent in parents.items() if parent == one]
    return found


def kill_all(pid):
    """SIGKILL to a process that was started here and all below it; the ranks first, at one moment."""
    everyone = family(pid)
    for one in everyone:  # nobody sees another's death before its own
        stop(one, signal.SIGSTOP)
    for one in reversed(everyone):
        stop(one, signal.SIGKILL)


def stop(pid, sig):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


def killed(place, config, args, delay):
    """Start, wait for the first checkpoint of this start, then for `delay`, then kill.  Steps told as
    saved, and whether a save was in progress."""
    job = subprocess.Popen([ECHELON, "train", config, "--json", *args], cwd=place.folder, text=True,
                           env=clean_environment(**MPI_KEEPS_MEMORY), stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    lines = []
    while not lines or '"checkpoint"' not in lines[-1]:
        lines.append(job.stdout.readline())
        assert lines[-1], "the job ended by itself"
    time.sleep(delay)
    kill_all(job.pid)
    lines += job.stdout.read().splitlines()
    job.wait(20)
    events = [json.loads(line) for line in lines if line.rstrip().endswith("}")]
    inside = any(".tmp-" in name for name in os.listdir(place.path("ckpt")))
    return [e["step"] for e in events if e["event"] == "checkpoint"], inside


def go_on(place, what, config, args, told, want):
    """Two more steps than the newest checkpoint: they are those of the run that nobody killed.  A save
    that only lacked its name when it was killed is put in place, so that may be one step more."""
    listed = json.loads(place.echelon("ckpt", "ls", "ckpt", "--json").stdout)["checkpoints"]
    newest = listed[0]["step"]
    expect(f"{what}: newest", (listed[0]["valid"], newest >= told[-1]), (True, True))
    run = place.train(config, *args, "--steps", str(newest + 2))
    expect(f"{what}: exit", run.code, 0)
    if run.code:
        failures.append(run.stderr)
        return
    begin = run.of("start")[0]["step"]
    expect(f"{what}: from {begin}, newest {newest}", newest <= begin <= newest + 1, True)
    expect(f"{what}: loss", run.losses, want[begin:newest + 2])
    expect(f"{what}: swept", [n for n in os.listdir(place.path("ckpt")) if n.startswith(".")], [])
    expect(f"{what}: whole", place.echelon("ckpt", "verify", "ckpt").code, 0)


def test_kills(place, what, args, kills, layout):
    base = {"batch": {"micro": 1, "global": 4}, "layout": layout, "train": {"steps": 2000}}
    config = place.config("none.json", **base, checkpoint={"every_steps": 0})
    want = place.train(config, *args).losses
    config = place.config(**base, checkpoint={"dir": "ckpt", "every_steps": 1, "keep": 2})
    shutil.rmtree(place.path("ckpt"), ignore_errors=True)
    source, hits = random.Random(SEED), 0
    for i in range(kills):
        told, inside = killed(place, config, args, source.uniform(0, 0.12))
        hits += inside
        go_on(place, f"{what}, kill {i} of seed {SEED}, told {told[-1]}", config, args, told, want)
    return hits


with Place() as place:
    place.tokens()
    n_hits = test_kills(place, "virtual ranks", ("--ranks", "4", "--transport", "inproc"), KILLS,
                        {"tp": 2, "zero": {"stage": 1}})
    if has_mpi():
        n_hits += test_kills(place, "mpi", ("--ranks", "2"), KILLS // 2, {"zero": {"stage": 3}})
    print(f"{n_hits} kills were inside a save")
    expect("some kills were inside a save", n_hits > 0, True)
finish()
