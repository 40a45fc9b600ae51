# RUN: np=1 timeout=240 tags=fast,mpi
"""Runs that go wrong: numbers that are not finite, signals, ranks that die, ranks that do not fit
or do not agree.  Every process ends, in time, with the exit status that says why."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from cli import ECHELON, clean_environment, expect, expect_in, failures, finish
from training import MPI_KEEPS_MEMORY, Place, has_mpi, step_name

SAMPLES, SEQ = 8, 16


# --- not a number ---------------------------------------------------------------------------------


def masked(place, samples, **sections):
    """A configuration of two steps on four rows in which only these samples bear loss, and whose
    first update leaves no finite weights."""
    labels = [1 if (i - 1) // SEQ in samples else 0 for i in range(SAMPLES * SEQ + 1)]
    place.ids("mask.bin", labels, "uint8")
    return place.config(data={"train": "few.bin", "mask": "mask.bin"}, batch={"global": 4},
                        optim={"name": "sgd", "lr": 1e30, "clip": 0}, train={"steps": 2},
                        **sections)


def steps_of_samples(place):
    """Which of the two steps each sample is in."""
    where = {}
    for k in range(SAMPLES):
        run = place.train(masked(place, [k]), "--ranks", "4", "--transport", "inproc")
        where[k] = [e["tokens"] for e in run.of("step")].index(SEQ) + 1
    return where


def test_each_sample_once_and_named(place):
    """One rank's loss is not finite: all skip alike, it is counted once, and the report names rank,
    step and sample; over an epoch every sample is on one rank of one step."""
    where = steps_of_samples(place)
    expect("samples of each step", sorted(where.values()), [1] * 4 + [2] * 4)
    first = next(k for k in where if where[k] == 1)
    seen = set()
    for k in (k for k in where if where[k] == 2):
        config = masked(place, [first, k], faults={"nan": "skip"})
        run = place.train(config, "--ranks", "4", "--transport", "inproc")
        expect("skip: exit", run.code, 0)
        fault, = run.of("fault")
        expect("fault", (fault["kind"], fault["step"], fault["action"]), ("nan", 2, "skip"))
        expect_in("sample", f"sample {k}", fault["detail"])
        expect("counted", (run.end["nonfinite"], run.end["skipped"], run.end["steps"]), (1, 1, 2))
        expect("skipped", [e["skipped"] for e in run.of("step")], [False, True])
        seen.add(fault["rank"])
    expect("one row each", seen, {0, 1, 2, 3})
    return first, next(k for k in where if where[k] == 2)


def test_decision_is_common(place, first, bad):
    """The same on real ranks: skip goes on, stop ends with 1 and says so once in the stream."""
    for policy, code in (("skip", 0), ("stop", 1)):
        config = masked(place, [first, bad], faults={"nan": policy})
        run = place.train(config, "--ranks", "4")
        expect(f"{policy}: exit", run.code, code)
        fault, = run.of("fault")
        expect(f"{policy}: action", (fault["action"], fault["step"]), (policy, 2))
        expect_in(f"{policy}: sample", f"sample {bad}", fault["detail"])
        expect_in(f"{policy}: rank", f"the loss of rank {fault['rank']},", fault["detail"])
        expect(f"{policy}: last event", run.events[-1]["event"], "end" if code == 0 else "fault")
        if code:
            expect_in("stop: words", "faults.nan: stop", run.stderr)


def test_skips_are_bounded(place):
    """Weights that are not finite make no step finite again: ten in a row are enough, said once."""
    config = place.config(optim={"name": "sgd", "lr": 1e30, "clip": 0}, faults={"nan": "skip"},
                          train={"steps": 30}, batch={"global": 2})
    for more in [["--transport", "inproc"]] + ([[]] if has_mpi() else []):
        run = place.train(config, "--ranks", "2", *more)
        actions = [e["action"] for e in run.of("fault")]
        expect("bounded: exit", run.code, 1)
        expect("bounded: actions", actions, ["skip"] * 9 + ["stop"])
        expect("bounded: updates", [e["skipped"] for e in run.of("step")], [False] + [True] * 9)
        expect_in("bounded: words", "faults.nan: skip gives up after 10 in a row", run.stderr)
        expect("bounded: a step is said once",
               len([x for x in run.stderr.splitlines() if "step 3: the loss of" in x]), 1)


def test_gradient_alone(place):
    """Loss finite, gradient not: a tensor is named, nothing is multiplied by zero in silence."""
    config = place.config(optim={"name": "sgd", "lr": 1e6, "clip": 1, "weight_decay": 0})
    run = place.train(config, "--kernels", "ref")
    fault, = run.of("fault")
    expect("gradient: exit", (run.code, fault["rank"], fault["step"]), (1, None, 2))
    expect_in("gradient: words", "the loss is finite, the gradient of ", fault["detail"])


# --- signals --------------------------------------------------------------------------------------


def about(pid):
    """Parent and command line of a process, -1 and "" where it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/cmdline") as words:
            return int(stat.read().rsplit(")", 1)[1].split()[1]), words.read().replace("\0", " ")
    except OSError:
        return -1, ""


class Job:
    """A run that would not end by itself; reading up to its first steps."""

    def __init__(self, place, ranks, *args):
        self.config = place.config(train={"steps": 10**9}, batch={"global": 12},
                                   checkpoint={"dir": "ckpt", "every_steps": 10**8})
        command = [ECHELON, "train", self.config, "--json", *args]
        command += ["--ranks", str(ranks)] if ranks > 1 else []
        env = clean_environment(**MPI_KEEPS_MEMORY)
        self.process = subprocess.Popen(command, cwd=place.folder, env=env, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=open(place.path("stderr"), "w"))
        self.place, self.last = place, ""

    def wait_for(self, kind, n=3):
        while n:
            self.last = self.process.stdout.readline()
            assert self.last, "the job ended by itself"
            n -= json.loads(self.last)["event"] == kind

    def family(self):
        """All processes below the one that was started: (pid, command line)."""
        rows = [(int(pid), *about(pid)) for pid in os.listdir("/proc") if pid.isdigit()]
        found, level = [], {self.process.pid}
        while level:
            below = [(pid, words) for pid, parent, words in rows if parent in level]
            found, level = found + below, {pid for pid, _ in below}
        return found

    def ranks(self):
        return [p for p, args in self.family() if args.startswith(ECHELON)
                or args.startswith(os.path.realpath(ECHELON))]

    def finish(self, limit_s=20):
        """Exit status, events, seconds; no process may be left."""
        family, began = self.family(), time.monotonic()
        out, _ = self.process.communicate(timeout=limit_s)
        took = time.monotonic() - began
        for _ in range(100):
            left = [f for f in family if is_alive(f[0])]
            if not left:
                break
            time.sleep(0.05)
        else:
            failures.append(f"left behind: {left}")
        # what readline() had buffered is lost, and with it the start of a line
        lines = [s for s in out.splitlines() if s.startswith('{"event"') and s.endswith("}")]
        return self.process.returncode, [json.loads(line) for line in lines], took


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def stopped_well(what, place, job):
    code, events, _ = job.finish()
    expect(f"{what}: exit", code, 5)
    expect(f"{what}: last events", [e["event"] for e in events[-2:]], ["checkpoint", "end"])
    if code != 5:
        with open(place.path("stderr")) as file:
            failures.append(f"{what}: standard error:\n{file.read()}")
        return
    step = events[-1]["steps"]
    expect(f"{what}: checkpoints", os.listdir(place.path("ckpt")), [step_name(step)])
    expect(f"{what}: complete", place.echelon("ckpt", "verify", "ckpt").code, 0)


def clean(place):
    for name in ("ckpt", "run"):
        shutil.rmtree(place.path(name), ignore_errors=True)


def test_stop_alone(place):
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        clean(place)
        job = Job(place, 1)
        job.wait_for("step")
        job.process.send_signal(sig)
        stopped_well(f"{sig.name} to one process", place, job)


def test_stop_ranks(place):
    """To the process that was started, or to one rank of three: all stop at the same step."""
    for to, sig in (("launcher", signal.SIGTERM), (2, signal.SIGUSR1), ("launcher", signal.SIGINT)):
        clean(place)
        job = Job(place, 3)
        job.wait_for("step")
        ranks = job.ranks()
        expect("ranks", len(ranks), 3)
        os.kill(job.process.pid if to == "launcher" else ranks[to], sig)
        stopped_well(f"{sig.name} to {to}", place, job)


def test_stop_during_evaluation(place):
    """Evaluation is cut short, not waited for."""
    clean(place)
    place.tokens("long.bin", n=2 * 10**6, seed=3)
    job = Job(place, 1, "--set", "data.valid=long.bin", "--set", "train.eval_every=1")
    job.wait_for("step", 1)
    time.sleep(0.05)
    job.process.send_signal(signal.SIGTERM)
    code, events, took = job.finish()
    expect("stop in evaluation", (code, [e["event"] for e in events]), (5, ["checkpoint", "end"]))
    expect("stop in evaluation: in time", took < 5, True)


def test_stop_without_checkpoints(place):
    clean(place)
    job = Job(place, 1, "--set", "checkpoint.every_steps=0")
    job.wait_for("step")
    job.process.send_signal(signal.SIGTERM)
    code, events, _ = job.finish()
    expect("no checkpoints asked for",
           (code, events[-1]["event"], os.path.exists(place.path("ckpt"))), (5, "end", False))
    with open(place.path("stderr")) as file:
        expect("nothing saved: said once",
               file.read().count("nothing was saved (checkpoint.every_steps: 0)"), 1)


def test_stop_while_nobody_reads(place):
    """The signal meets a write to a pipe that is full: the write goes on when there is a reader
    again, and the run stops in order."""
    clean(place)
    job = Job(place, 1)
    job.wait_for("step", 1)
    used, still = -1, 0
    while still < 20:  # no processor time for a second: asleep in the write
        time.sleep(0.05)
        with open(f"/proc/{job.process.pid}/stat") as file:
            now = sum(int(x) for x in file.read().rsplit(")", 1)[1].split()[11:13])
        used, still = now, still + 1 if now == used else 0
    job.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    stopped_well("SIGTERM in a write", place, job)


def test_second_signal_ends_now(place):
    """The evaluation of a large model would not notice; the second signal does not ask."""
    clean(place)
    job = Job(place, 1)
    job.wait_for("step")
    job.process.send_signal(signal.SIGSTOP)  # so that both arrive before it can act on the first
    job.process.send_signal(signal.SIGTERM)
    job.process.send_signal(signal.SIGINT)
    job.process.send_signal(signal.SIGCONT)
    code, events, took = job.finish()
    expect("second signal", (code in (-signal.SIGTERM, -signal.SIGINT), took < 5), (True, True))
    expect("second signal: nothing half-written", os.listdir(place.path("ckpt")), ["lock"])


# --- death ----------------------------------------------------------------------------------------


def test_a_rank_dies(place):
    for victim in (1, 0):
        clean(place)
        job = Job(place, 3)
        job.wait_for("step")
        os.kill(job.ranks()[victim], signal.SIGKILL)
        code, _, took = job.finish()
        expect(f"rank {victim} killed: exit", code, 1)
        expect(f"rank {victim} killed: in time", took < 15, True)
        with open(place.path("stderr")) as file:
            expect_in(f"rank {victim} killed: words", "a rank died", file.read())


def test_the_launcher_dies(place):
    clean(place)
    job = Job(place, 3)
    job.wait_for("step")
    os.kill(job.process.pid, signal.SIGKILL)
    code, _, _ = job.finish()
    expect("launcher killed", code, -signal.SIGKILL)


def test_a_rank_hangs(place):
    """A rank that stands still is missed within the deadline, by name."""
    clean(place)
    job = Job(place, 3, "--set", "faults.watchdog_s=2")
    job.wait_for("step")
    ranks = job.ranks()
    os.kill(ranks[1], signal.SIGSTOP)
    try:
        code, _, took = job.finish(40)
    finally:
        if is_alive(ranks[1]):
            os.kill(ranks[1], signal.SIGKILL)
    expect("a rank hangs: exit", code, 1)
    expect("a rank hangs: in time", took < 20, True)
    with open(place.path("stderr")) as file:
        words = file.read()
    expect_in("a rank hangs: words", "no progress for 2 s: rank 1 stands ", words)


# --- ranks that do not fit ------------------------------------------------------------------------


def mpirun(place, *words):
    command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    began = time.monotonic()
    run = place.echelon(*words, program=command, timeout=60)
    expect("refused in seconds", time.monotonic() - began < 30, True)
    return run


def nothing_written(what, place):
    expect(f"{what}: nothing written",
           [n for n in ("run", "ckpt") if os.path.exists(place.path(n))], [])


def test_layout_and_ranks(place):
    clean(place)
    config = place.config(layout={"dp": 2})
    run = mpirun(place, "-n", "3", ECHELON, "train", config, "--json")
    expect("three ranks for dp 2", run.code, 2)
    for words in ("dp 2", "= 2 ranks", "= 3 ranks", "legal dp for 3 ranks: 3"):
        expect_in("table", words, run.stderr)
    run = place.train(config, "--ranks", "3")
    expect("--ranks 3 for dp 2", (run.code, run.stdout), (2, ""))
    run = mpirun(place, "-n", "2", ECHELON, "train", place.config(), "--ranks", "3")
    expect("--ranks under mpirun", run.code, 2)
    nothing_written("layout", place)


def test_one_process_transports_under_mpirun(place):
    """Each rank would be a whole run in the same folders."""
    clean(place)
    for name in ("inproc", "self"):
        run = mpirun(place, "-n", "2", ECHELON, "train", place.config(), "--transport", name)
        expect(f"{name} under mpirun", run.code, 2)
        expect_in(f"{name} under mpirun", f"--transport {name} is one process", run.stderr)
        nothing_written(f"{name} under mpirun", place)


def test_ranks_that_disagree(place):
    """Ranks that would train different models say so instead of waiting for each other."""
    clean(place)
    config = place.config(batch={"global": 6})
    for other, words in ((["--set", "optim.lr=0.5"], "optim.lr than rank 0: 0.5, rank 0 0.001"),
                         (["--set", "layout.zero.stage=1", "--set", "optim.clip=3"],
                          "layout.zero.stage than rank 0: 1, rank 0 0"),
                         (["--set", "model.layers=3"], "model than rank 0: "),
                         (["--set", "data.train=other.bin"], "data.train than rank 0: "),
                         (["--set", "train.seed=7"], "train.seed than rank 0: 7, rank 0 42"),
                         (["--steps", "2"], "--steps than rank 0: 2, rank 0 0"),
                         (["--resume", "no"], "--resume than rank 0: no, rank 0 auto"),
                         (["--kernels", "ref"], "--kernels than rank 0: ref, rank 0 auto")):
        run = mpirun(place, "-n", "2", ECHELON, "train", config, ":",
                     "-n", "1", ECHELON, "train", config, *other)
        expect(f"disagree {other}: exit", run.code, 2)
        expect_in(f"disagree {other}", "rank 2 was started with another " + words, run.stderr)
    nothing_written("disagree", place)


def test_a_rank_lacks_its_file(place):
    """The same path, another file behind it, as on another host: the rank without it is named and
    says what is wrong, and nobody waits."""
    clean(place)
    for name in ("here", "there"):
        os.mkdir(place.path(name))
    shutil.copy(place.path("t.bin"), place.path("here"))
    config = place.config(data={"train": "/proc/self/cwd/t.bin"}, batch={"global": 3})
    run = mpirun(place, "-n", "1", "-wdir", place.path("here"), ECHELON, "train", config, ":",
                 "-n", "1", "-wdir", place.path("there"), ECHELON, "train", config, ":",
                 "-n", "1", "-wdir", place.path("here"), ECHELON, "train", config)
    expect("a rank lacks its file: exit", run.code, 2)
    expect_in("a rank lacks its file", "rank 1 could not start", run.stderr)
    expect_in("a rank lacks its file", "t.bin' does not exist", run.stderr)
    nothing_written("a rank lacks its file", place)


def test_a_rank_fails_before_the_first_word(place):
    """Alone with its failure, before anything could be agreed on: the others do not wait for it."""
    clean(place)
    run = mpirun(place, "-n", "2", ECHELON, "train", place.config(), ":",
                 "-n", "1", "env", "OMPI_COMM_WORLD_SIZE=4", ECHELON, "train", place.config())
    expect("a rank miscounts: exit", run.code, 4)
    expect_in("a rank miscounts", "MPI has 3 ranks, the launcher said 4", run.stderr)
    nothing_written("a rank miscounts", place)


SLOW_FSYNC = """
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd)
{
    static int n_record, n_weights;
    char link[64], path[4096] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 &&
        ((strstr(path, "run.json") && !n_record++) || (strstr(path, "step-00000001") && !n_weights++)))
        sleep(3);
    return (int)syscall(SYS_fsync, fd);
}
"""


def slow_module(place):
    """An fsync for LD_PRELOAD that takes three seconds for the run's record and the first weights."""
    source = place.path("slow.c")
    with open(source, "w") as file:
        file.write(SLOW_FSYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", place.path("slow.so"), source], check=True)
    return place.path("slow.so")


def test_a_long_save_is_no_hang(place):
    """Longer than the deadline of a wait: the ranks that wait for rank 0 go on afterwards."""
    clean(place)
    if not shutil.which("cc"):
        return
    env = clean_environment(LD_PRELOAD=slow_module(place), ASAN_OPTIONS="verify_asan_link_order=0")
    config = place.config(train={"steps": 2}, batch={"global": 2}, faults={"watchdog_s": 2},
                          checkpoint={"every_steps": 1})
    run = place.train(config, "--ranks", "2", env=env)
    expect("a long save: exit", (run.code, run.stderr if run.code else ""), (0, ""))
    expect("a long save: it was", [e["write_s"] > 2.9 for e in run.of("checkpoint")],
           [True, False])


def timed(test, *args):
    began = time.monotonic()
    out = test(*args)
    print(f"{test.__name__}: {time.monotonic() - began:.1f} s")
    return out


with Place() as place:
    place.tokens()
    place.ids("few.bin", [i % 97 for i in range(SAMPLES * SEQ + 1)])
    first, bad = timed(test_each_sample_once_and_named, place)
    timed(test_skips_are_bounded, place)
    timed(test_gradient_alone, place)
    timed(test_stop_alone, place)
    timed(test_stop_during_evaluation, place)
    timed(test_stop_without_checkpoints, place)
    timed(test_stop_while_nobody_reads, place)
    timed(test_second_signal_ends_now, place)
    if has_mpi():
        timed(test_decision_is_common, place, first, bad)
        timed(test_stop_ranks, place)
        timed(test_a_rank_dies, place)
        timed(test_the_launcher_dies, place)
        timed(test_a_rank_hangs, place)
        timed(test_layout_and_ranks, place)
        timed(test_one_process_transports_under_mpirun, place)
        timed(test_ranks_that_disagree, place)
        timed(test_a_rank_lacks_its_file, place)
        timed(test_a_rank_fails_before_the_first_word, place)
        timed(test_a_long_save_is_no_hang, place)
    else:
        print("without MPI: the cases of several processes are left out", file=sys.stderr)
finish()
