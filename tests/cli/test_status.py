# RUN: np=1 timeout=120 tags=fast
"""echelon status: a run that runs, has ended, has failed, has been killed, does not move; by its run
folder and by that of its checkpoints; what is no run is refused."""
import json
import os
import shutil
import signal
import subprocess
import time

from cli import BUILD, ECHELON, clean_environment, expect, expect_in, failures, finish
from training import MPI_KEEPS_MEMORY, Place, has_mpi


def status(place, run="run"):
    got = place.echelon("status", run, "--json")
    if got.code != 0:
        return {"state": f"exit {got.code}: {got.stderr}", "step": -1, "ranks": [], "supervisor": {}}
    return json.loads(got.stdout)


def start(place, *args, **sections):
    config = place.config(train={"steps": 10**9}, batch={"global": 12}, **sections)
    out = open(place.path("out"), "w")
    return subprocess.Popen([ECHELON, "train", config, "--json", *args], cwd=place.folder, text=True,
                            env=clean_environment(**MPI_KEEPS_MEMORY), stdin=subprocess.DEVNULL,
                            stdout=out, stderr=open(place.path("err"), "w"))


def steps_told(place):
    with open(place.path("out")) as file:
        return sum('"event": "step"' in line for line in file)


def wait_until(place, what, holds, run="run"):
    for _ in range(600):
        seen = status(place, run)
        if holds(seen):
            return seen
        time.sleep(0.05)
    failures.append(f"{what}: never seen, but {seen}")
    return seen


def end(job, sig=signal.SIGKILL):
    job.send_signal(sig)
    return job.wait(30)


def test_alone(place):
    """A step that the run itself has told of is behind or in work; the process is the one started."""
    job = start(place, checkpoint={"dir": "ckpt", "every_steps": 2})
    seen = wait_until(place, "alone", lambda s: s["step"] >= 4)
    told = steps_told(place)
    later = status(place)
    expect("alone: state", seen["state"], "running")
    expect("alone: keys", sorted(seen), ["ranks", "state", "step", "supervisor"])
    expect("alone: supervisor", seen["supervisor"], {"pid": None})
    expect("alone: rank", [(r["rank"], r["pid"], r["process"], r["host"]) for r in seen["ranks"]],
           [(0, job.pid, "running", os.uname().nodename)])
    expect("alone: steps", told <= later["step"], True)
    expect("alone: age", 0 <= seen["ranks"][0]["for_s"] < 10, True)
    by_checkpoints = wait_until(place, "by the checkpoints' folder", lambda s: s["step"] >= 5, "ckpt")
    expect("by the checkpoints' folder", by_checkpoints["ranks"][0]["pid"], job.pid)
    words = place.echelon("status", "run")
    expect_in("in words", "running, step ", words.stdout)
    expect_in("in words", str(job.pid), words.stdout)
    job.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    stopped = status(place)
    expect("stopped", (stopped["state"], stopped["ranks"][0]["process"]), ("running", "stopped"))
    job.send_signal(signal.SIGCONT)
    expect("asked to stop", end(job, signal.SIGTERM), 5)
    seen = status(place)
    with open(place.path("out")) as file:
        last = json.loads(file.read().splitlines()[-1])
    expect("after it: state", (seen["state"], seen["step"]), ("finished", last["steps"]))
    expect("after it: op", seen["ranks"][0]["op"], "ended with exit 5")
    expect("after it, by the checkpoints", status(place, "ckpt")["state"], "finished")
    newest = sorted(n for n in os.listdir(place.path("ckpt")) if n.startswith("step-"))[-1]
    expect("after it, by a checkpoint", status(place, os.path.join("ckpt", newest))["state"],
           "finished")


def test_killed(place):
    job = start(place)
    wait_until(place, "killed", lambda s: s["state"] == "running" and s["step"] >= 1)
    end(job)
    seen = status(place)
    expect("killed", (seen["state"], seen["ranks"][0]["process"]), ("dead", "gone"))


def test_no_progress(place):
    """Stopped for longer than the watchdog's time, where nobody is there to end it."""
    job = start(place, faults={"watchdog_s": 1})
    wait_until(place, "hung", lambda s: s["state"] == "running" and s["step"] >= 1)
    job.send_signal(signal.SIGSTOP)
    expect("at once", status(place)["state"], "running")
    began = time.monotonic()
    wait_until(place, "hung", lambda s: s["state"] == "hung")
    expect("after the watchdog's time", 0.5 < time.monotonic() - began < 5, True)
    job.send_signal(signal.SIGCONT)
    wait_until(place, "goes on", lambda s: s["state"] == "running")
    end(job)


def test_failed(place):
    config = place.config(optim={"name": "sgd", "lr": 1e30, "clip": 0}, train={"steps": 4})
    run = place.train(config, "--ranks", "2", "--transport", "inproc")
    expect("diverges", run.code, 1)
    seen = status(place)
    expect("failed", (seen["state"], [r["op"] for r in seen["ranks"]]),
           ("failed", ["ended with exit 1"] * 2))


def test_virtual_ranks(place):
    config = place.config(batch={"global": 4}, train={"steps": 3})
    run = place.train(config, "--ranks", "4", "--transport", "inproc")
    seen = status(place)
    expect("virtual ranks", (run.code, seen["state"], seen["step"], len(seen["ranks"])),
           (0, "finished", 3, 4))
    expect("one process", len({r["pid"] for r in seen["ranks"]}), 1)


def test_ranks(place):
    job = start(place, "--ranks", "3")
    seen = wait_until(place, "ranks", lambda s: s["state"] == "running" and s["step"] >= 2)
    expect("ranks: supervisor", seen["supervisor"], {"pid": job.pid})
    expect("ranks: numbers", [r["rank"] for r in seen["ranks"]], [0, 1, 2])
    expect("ranks: own processes", len({r["pid"] for r in seen["ranks"]} | {job.pid}), 4)
    for r in seen["ranks"]:
        with open(f"/proc/{r['pid']}/cmdline") as file:
            expect_in("a rank's command", "echelon", file.read())
    expect("ranks: end", end(job, signal.SIGTERM), 5)
    seen = status(place)
    expect("ranks: afterwards", (seen["state"], seen["supervisor"]), ("finished", {"pid": None}))


def test_refusals(place):
    os.makedirs(place.path("empty"), exist_ok=True)
    for args, words in (((), "status wants one run folder, got 0"),
                        (("run", "run"), "got 2"),
                        (("nowhere",), "nowhere"),
                        (("c.json",), "wanted a run folder"),
                        (("empty",), "is no run folder")):
        run = place.echelon("status", *args)
        expect(f"status {args}", (run.code, run.stdout), (2, ""))
        expect_in(f"status {args}", words, run.stderr)
    flight, = [n for n in os.listdir(place.path("run")) if n.startswith("flight-")]
    shutil.copytree(place.path("run"), place.path("cut"))
    with open(place.path("cut", flight), "r+b") as file:
        file.truncate(100)
    run = place.echelon("status", "cut")
    expect("a damaged file", run.code, 1)
    expect_in("a damaged file", flight, run.stderr)


def test_starts_fast(place):
    took = []
    for _ in range(10):
        began = time.monotonic()
        place.echelon("status", "run")
        took.append(time.monotonic() - began)
    print(f"status: {1000 * min(took):.1f} ms, the process included")
    if "asan" not in BUILD:
        expect("status starts in milliseconds", min(took) < 0.05, True)
    linked = subprocess.run(["ldd", ECHELON], capture_output=True, text=True, check=True).stdout
    expect("no MPI", "libmpi" in linked, False)


with Place() as place:
    place.tokens()
    test_alone(place)
    test_killed(place)
    test_no_progress(place)
    test_failed(place)
    test_virtual_ranks(place)
    if has_mpi():
        test_ranks(place)
    test_refusals(place)
    test_starts_fast(place)
finish()
