# RUN: np=1 timeout=300 tags=fast,mpi
"""A rank that is stopped: within the watchdog's time one line says which, where it stands and who
waits for it; the job ends with exit 1 and leaves no process behind, the stopped one included."""
import json
import os
import re
import signal
import subprocess
import sys
import time

from cli import ECHELON, clean_environment, expect, expect_in, failures, finish
from training import MODELS, MPI_KEEPS_MEMORY, Place, has_mpi

RANKS, WATCHDOG = 4, 3.0
STANDS = re.compile(r"rank (\d) stands (?:in|outside of a step:) (.*?), for ([0-9.]+) s \(stopped: state T\); "
                    r"ranks? ([0-9, ]+) waits? for it: rank (\d) (?:in|outside of a step:) (.*)$")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def await_gone(pids, seconds):
    """Those that are still there after so long: what was killed takes a moment to go."""
    until = time.monotonic() + seconds
    left = [pid for pid in pids if is_alive(pid)]
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left = [pid for pid in left if is_alive(pid)]
    return left


class Hang:
    """A run of four ranks, tp 2 x dp 2, of which one will be stopped."""

    def __init__(self, place, env=None, launch=(), **sections):
        self.place = place
        sections = {"train": {"steps": 10**9}, "layout": {"tp": 2}, **sections}
        self.config = place.config(batch={"global": 8}, faults={"watchdog_s": WATCHDOG}, **sections)
        command = [*launch, ECHELON, "train", self.config, "--json", "--kernels", "ref"]
        command += [] if launch else ["--ranks", str(RANKS)]
        self.process = subprocess.Popen(command, cwd=place.folder, text=True,
                                        env=env or clean_environment(**MPI_KEEPS_MEMORY),
                                        stdin=subprocess.DEVNULL,
                                        stdout=open(place.path("stdout"), "w"),
                                        stderr=open(place.path("stderr"), "w"))

    def status(self):
        run = self.place.echelon("status", "run", "--json")
        return json.loads(run.stdout) if run.code == 0 else None

    def wait_until(self, what, holds):
        for _ in range(1500):
            seen = self.status()
            if seen and len(seen["ranks"]) == RANKS and self.is_of_this_run(seen) and holds(seen):
                return seen
            assert self.process.poll() is None, f"{what}: the job ended by itself: {self.words()}"
            time.sleep(0.02)
        raise AssertionError(f"{what}: never seen: {seen}")

    def is_of_this_run(self, seen):
        return all(r["pid"] and r["process"] in ("running", "stopped") for r in seen["ranks"])

    def words(self):
        with open(self.place.path("stderr")) as file:
            return file.read()

    def wait_for_line(self, began):
        while "stands" not in self.words() and time.monotonic() < began + 60:
            time.sleep(0.01)
        return time.monotonic() - began

    def stop(self, rank):
        """Stop a rank and see the job to its end: (status while it stood, seconds to the line)."""
        pids = [r["pid"] for r in sorted(self.status()["ranks"], key=lambda r: r["rank"])]
        began = time.monotonic()
        os.kill(pids[rank], signal.SIGSTOP)
        time.sleep(WATCHDOG / 2)
        stood = self.status()
        took = self.wait_for_line(began)
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            code = "still there"
        ended = time.monotonic() - began
        left = await_gone(pids, 5.0)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if code == "still there":
            self.process.kill()
        return stood, took, ended, code, left


def check_end(what, hang, rank, after=0.0):
    """after: seconds of work before the others come to wait."""
    stood, took, ended, code, left = hang.stop(rank)
    expect(f"{what}: exit", code, 1)
    expect(f"{what}: left behind", left, [])
    expect(f"{what}: in time", (took < 1.25 * WATCHDOG + after, ended < 1.25 * WATCHDOG + after + 10),
           (True, True))
    lines = [s for s in hang.words().splitlines() if "stands" in s]
    expect(f"{what}: lines", len(lines), 1)
    errors = [s for s in hang.words().splitlines() if "echelon:" in s and "error" in s]
    expect(f"{what}: errors told", len(errors), 1)
    print(f"{what}: a line after {took:.2f} s, the end after {ended:.2f} s")
    found = STANDS.search(lines[0]) if lines else None
    if not found:
        failures.append(f"{what}: not the words wanted: {lines}")
        return None
    where = {r["rank"]: r for r in stood["ranks"]}
    others = [r for r in range(RANKS) if r != rank]
    waiter = int(found[5])
    expect(f"{what}: rank", int(found[1]), rank)
    expect(f"{what}: where it stands", found[2], where[rank]["op"])
    expect(f"{what}: state before", where[rank]["process"], "stopped")
    expect(f"{what}: who waits", [int(r) for r in found[4].split(",")], others)
    expect_in(f"{what}: where the waiter stands", where[waiter]["op"], found[6])
    with open(hang.place.path("stdout")) as file:
        faults = [json.loads(s) for s in file if s.startswith('{"event": "fault"') or '"fault"' in s]
    expect(f"{what}: event", [(e["kind"], e["rank"], e["action"]) for e in faults],
           [("hang", rank, "stop")])
    expect_in(f"{what}: event's words", found[0], faults[0]["detail"] if faults else "")
    with open(hang.place.path("run", "metrics.jsonl")) as file:
        expect(f"{what}: event in the run folder", file.read().count('"hang"'), 1)
    return found, where, waiter


def test_each_rank(place):
    for rank in range(RANKS):
        hang = Hang(place)
        hang.wait_until("steps", lambda s: s["step"] >= 3)
        got = check_end(f"rank {rank} stopped", hang, rank)
        if not got:
            continue
        found, where, waiter = got
        # the way from the waiter to the rank is one message: of their tp or their dp group
        axis = "tp" if waiter // 2 == rank // 2 else "dp" if waiter % 2 == rank % 2 else "world"
        op = re.search(r"op (\w+_wait) over (\w+)", found[6])
        expect(f"rank {rank} stopped: a wait over", op and op[2] in (axis, "world"), True)
        expect_in("micro-batch or reduction", "(", found[6])
        after = place.echelon("status", "run", "--json")
        expect("afterwards", json.loads(after.stdout)["state"], "dead")


def test_in_evaluation(place):
    place.tokens("long.bin", n=2 * 10**5, seed=3)
    hang = Hang(place, data={"valid": "long.bin"}, train={"steps": 10**9, "eval_every": 1})
    hang.wait_until("evaluation",
                    lambda s: all("evaluation" in r["op"] for r in s["ranks"]))
    got = check_end("stopped in evaluation", hang, 2)
    if got:
        expect_in("in evaluation", "evaluation, item", got[0][2] + got[0][6])


def test_in_a_pipeline(place):
    """The stopped rank runs another program than those that wait for its messages."""
    hang = Hang(place, layout={"pp": 4}, model={**MODELS["llama"], "layers": 4})
    hang.wait_until("steps", lambda s: s["step"] >= 3)
    got = check_end("a pipeline rank stopped", hang, 2)
    if got:
        expect_in("a pipeline", "over pp", got[0][6])
        waits = got[0][6]  # within a micro-batch, or in the sums at the step's end
        expect("a pipeline: where", "micro-batch" in waits or "sum_small" in waits, True)


SLOW_FSYNC = """
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd)
{
    char link[64], path[4096] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "step-00000002"))
        sleep(1);
    return (int)syscall(SYS_fsync, fd);
}
"""


def test_in_a_checkpoint(place):
    """Rank 0 is waited for without a deadline while it writes; not once it is stopped."""
    with open(place.path("slow.c"), "w") as file:
        file.write(SLOW_FSYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", place.path("slow.so"), place.path("slow.c")],
                   check=True)
    env = clean_environment(LD_PRELOAD=place.path("slow.so"), **MPI_KEEPS_MEMORY)
    env["ASAN_OPTIONS"] += ":verify_asan_link_order=0"
    for rank in (0, 3):
        hang = Hang(place, env, checkpoint={"dir": f"ckpt{rank}", "every_steps": 2})
        hang.wait_until("checkpoint", lambda s: s["step"] == 2 and all(
            r["op"] == "writing a checkpoint" and r["for_s"] > 0.2 for r in s["ranks"]))
        got = check_end(f"rank {rank} stopped in a checkpoint", hang, rank, after=5.0)
        if got:
            expect(f"rank {rank} in a checkpoint", got[0][2], "writing a checkpoint")
        if rank == 0:  # killed: what it held of the folder still says whose it was
            run = place.echelon("status", f"ckpt{rank}", "--json")
            expect("status of the checkpoints' folder", run.code, 0)


def test_under_mpirun(place):
    """Without a process of ours around the ranks."""
    launch = ["mpirun", "-n", str(RANKS), "--oversubscribe", "--bind-to", "none"]
    launch += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    hang = Hang(place, launch=launch)
    seen = hang.wait_until("steps", lambda s: s["step"] >= 3)
    expect("supervisor", seen["supervisor"], {"pid": None})
    hang_words = check_end("under mpirun", hang, 1)
    expect("under mpirun: told", hang_words is not None, True)


with Place() as place:
    if not has_mpi():
        print("no MPI: nothing to stop", file=sys.stderr)
        sys.exit(77)
    place.tokens()
    test_each_rank(place)
    test_in_evaluation(place)
    test_in_a_pipeline(place)
    test_in_a_checkpoint(place)
    test_under_mpirun(place)
finish()
