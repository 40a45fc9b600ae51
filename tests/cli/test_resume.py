# RUN: np=1 timeout=240 tags=fast,mpi
"""Runs that go on: on the same layout bit for bit, on others within rounding, with the same samples in
the same order; after a request to stop; which checkpoint is taken, and what is refused."""
import json
import os
import shutil
import signal
import subprocess
import time

from cli import ECHELON, SOURCE, clean_environment, expect, expect_in, failures, finish
from training import MODELS, MPI_KEEPS_MEMORY, Place, has_mpi, step_name

MODEL = {**MODELS["llama"], "vocab": 256}
SAVED, AFTER = 6, 20
# Layouts of one run of 8 sequences a step, and how they are started.
LAYOUTS = {
    "tp2 dp2 zero 3": (4, {"tp": 2, "sequence_parallel": True, "zero": {"stage": 3}}),
    "dp4": (4, {"zero": {"stage": 1}}),
    "tp4": (4, {"tp": 4}),
    "one rank": (1, {}),
    "hsdp": (4, {"zero": {"stage": 3, "group": 2}}),
}


def text(place):
    """A real text, a token a byte."""
    with open(os.path.join(SOURCE, "docs", "architecture.md"), "rb") as file:
        place.ids("text.bin", list(file.read()))


def config(place, layout, name="c.json", **sections):
    base = {"model": MODEL, "data": {"train": "text.bin"}, "batch": {"micro": 1, "global": 8},
            "optim": {"lr": 3e-3, "schedule": "cosine", "warmup_steps": 4, "weight_decay": 0.1},
            "train": {"steps": SAVED + AFTER}, "layout": layout,
            "checkpoint": {"dir": "ckpt", "every_steps": SAVED, "keep": 1}}
    for section, keys in sections.items():
        base[section] = {**base.get(section, {}), **keys}
    return place.config(name, **base)


def virtual(ranks):
    return ("--ranks", str(ranks), "--transport", "inproc")


def clean(place, *names):
    for name in ("ckpt", "run", *names):
        shutil.rmtree(place.path(name), ignore_errors=True)


def good(what, run):
    expect(f"{what}: exit", (run.code, run.stderr if run.code else ""), (0, ""))
    return run


def curve(run):
    """Everything that a step comes to."""
    return [(e["step"], e["loss"], e["grad_norm"], e["lr"], e["tokens"]) for e in run.of("step")]


def furthest(a, b):
    return max(abs(x - y) / abs(y) for p, q in zip(a, b) for x, y in zip(p[1:3], q[1:3]))


def test_on_other_layouts(place):
    """The next 20 steps are those of the run that was never interrupted.  In fp64 the layouts differ by
    rounding of 1e-16 that training enlarges, so another sample or moment would show at once."""
    ranks, layout = LAYOUTS["tp2 dp2 zero 3"]
    for compute, limit in (("fp64", 1e-12), ("fp32", 5e-6)):
        precision = {"compute": compute}
        clean(place)
        path = config(place, layout, precision=precision, checkpoint={"every_steps": 0})
        want = curve(good("whole", place.train(path, *virtual(ranks))))
        path = config(place, layout, precision=precision)
        first = good("first", place.train(path, *virtual(ranks), "--steps", str(SAVED)))
        expect(f"{compute}: the first part", curve(first), want[:SAVED])
        shutil.move(place.path("ckpt"), place.path("saved"))
        for name, (n, other) in LAYOUTS.items():
            clean(place)
            shutil.copytree(place.path("saved"), place.path("ckpt"))
            run = good(name, place.train(config(place, other, precision=precision), *virtual(n)))
            where = f"{compute}, {name}"
            start = run.of("start")[0]
            expect(f"{where}: from", (start["step"], start["resumed_from"][-13:]),
                   (SAVED, step_name(SAVED)))
            got = curve(run)
            expect(f"{where}: steps, rates, tokens", [(e[0], *e[3:]) for e in got],
                   [(e[0], *e[3:]) for e in want[SAVED:]])
            far = furthest(got, want[SAVED:])
            if name == "tp2 dp2 zero 3":
                expect(f"{where}: bit for bit", got, want[SAVED:])
            elif not far <= limit:
                failures.append(f"{where}: differs by {far}")
        shutil.rmtree(place.path("saved"))


def test_over_mpi(place):
    """Two processes save what four go on from, and back; bit for bit what virtual ranks come to."""
    clean(place)
    layout = {"tp": 2, "zero": {"stage": 3}}
    runs = []
    for transport in ("mpi", "inproc"):
        clean(place)
        for ranks, stop in (("4", 2), ("2", 4), ("4", 6)):
            runs.append(good(transport, place.train(config(place, layout, train={"steps": 6}),
                                                    "--ranks", ranks, "--transport", transport,
                                                    "--steps", str(stop))))
            expect(f"{transport}: starts", runs[-1].of("start")[0]["step"], stop - 2)
    expect("MPI and virtual ranks", [curve(r) for r in runs[:3]], [curve(r) for r in runs[3:]])
    # damage that another rank than 0 finds, and tells it of
    path = three(place, {"tp": 2}, 2)
    newest = place.path("ckpt", step_name(6))
    DAMAGES["a bit of a piece"][0](newest)
    run = place.train(path, "--ranks", "2", "--resume", newest)
    expect("damage: exit", (run.code, run.stdout), (1, ""))
    expect_in("damage", f"rank 1: {newest}/rank-00001.bin: damaged", run.stderr)
    run = good("damage", place.train(path, "--ranks", "2"))
    expect("damage: from", run.of("start")[0]["step"], 4)
    expect_in("damage: fault", "rank-00001.bin: damaged", run.of("fault")[0]["detail"])


def test_evaluation_and_skips(place):
    """Held-out loss, dropout and steps without a token go on as they would have."""
    place.ids("m.bin", [1] * 17 + [0] * 200 + [1] * 1784, "uint8")
    base = {"model": {**MODELS["gpt2"], "dropout": 0.2},
            "data": {"train": "t.bin", "valid": "t.bin", "mask": "m.bin"}, "batch": {"micro": 1},
            "train": {"steps": 40, "eval_every": 10}, "optim": {"lr": 1e-2, "warmup_steps": 30}}
    clean(place)
    whole = good("whole", place.train(place.config(**base)))
    expect("some are skipped", whole.end["skipped"] > 0, True)
    path = place.config(**base, checkpoint={"dir": "ckpt", "every_steps": 7})
    first = good("part", place.train(path, "--steps", "23"))
    second = good("rest", place.train(path))
    expect("steps", curve(first) + curve(second), curve(whole))
    expect("evaluations", [e["loss"] for r in (first, second) for e in r.of("eval") if e["step"] != 23],
           [e["loss"] for e in whole.of("eval")])
    expect("skipped, counted on", second.end["skipped"], whole.end["skipped"])
    with open(place.path("run", "metrics.jsonl")) as file:
        events = [json.loads(line) for line in file]
    expect("metrics go on", [e["step"] for e in events if e["event"] == "step"], list(range(1, 41)))


def test_stop_and_go_on(place):
    """SIGUSR1: the state is saved, exit 5; what follows is the run that was never stopped."""
    for ranks, more in (("1", {}), ("2", {"tp": 2})) if has_mpi() else (("1", {}),):
        clean(place)
        steps = {"steps": 4000}
        path = config(place, more, train=steps, checkpoint={"every_steps": 10**6})
        job = subprocess.Popen([ECHELON, "train", path, "--json", "--ranks", ranks], text=True,
                               cwd=place.folder, env=clean_environment(**MPI_KEEPS_MEMORY),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
        lines = []
        while sum('"step"' in line for line in lines) < 12:
            lines.append(job.stdout.readline())
        job.send_signal(signal.SIGUSR1)
        lines += job.stdout.read().splitlines()
        expect(f"{ranks}: exit", job.wait(60), 5)
        events = [json.loads(line) for line in lines]
        stopped = events[-1]["steps"]
        expect(f"{ranks}: last events", [e["event"] for e in events[-2:]], ["checkpoint", "end"])
        rest = good("rest", place.train(path, "--ranks", ranks, "--steps", str(stopped + 5)))
        expect(f"{ranks}: from", rest.of("start")[0]["step"], stopped)
        path = config(place, more, train=steps, checkpoint={"every_steps": 0})
        whole = good("whole", place.train(path, "--ranks", ranks, "--steps", str(stopped + 5)))
        got = [(e["step"], e["loss"]) for e in events if e["event"] == "step"]
        expect(f"{ranks}: bit for bit", got + [e[:2] for e in curve(rest)],
               [e[:2] for e in curve(whole)])


# --- which is taken, and what is refused ------------------------------------------------------------


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def contents(place):
    """Every file of what a run writes, and when it was written."""
    return {(root, name): os.stat(os.path.join(root, name)).st_mtime_ns
            for top in ("ckpt", "run") for root, _, names in os.walk(place.path(top)) for name in names}


def three(place, layout=None, ranks=1):
    """Checkpoints of steps 2, 4 and 6, and their configuration."""
    clean(place)
    path = config(place, layout or {}, train={"steps": 8}, checkpoint={"every_steps": 2, "keep": 0})
    good("three", place.train(path, "--steps", "6", *virtual(ranks)))
    return path


DAMAGES = {
    "a bit of the manifest": (lambda f: flip(os.path.join(f, "manifest.json"), 300), "damaged"),
    "the manifest": (lambda f: os.remove(os.path.join(f, "manifest.json")), "manifest.json"),
    "a piece file": (lambda f: os.remove(os.path.join(f, "rank-00001.bin")), "rank 1 is missing"),
    "its end": (lambda f: os.truncate(os.path.join(f, "rank-00001.bin"), 99), "rank 1 has 99 bytes"),
    "a bit of a piece": (lambda f: flip(os.path.join(f, "rank-00001.bin"), 4321), "rank 1: "),
}


def test_damage(place):
    """The one before is taken and it is said; asked for by its path, a damaged one is refused; so is a
    folder with no whole one; nothing is written then.  Loaded by another layout, which reads pieces in
    part, a flipped bit is found too."""
    for what, (damage, words) in DAMAGES.items():
        path = three(place, {"tp": 2}, 2)
        newest = place.path("ckpt", step_name(6))
        damage(newest)
        before = contents(place)
        for ranks in (1, 2):
            run = place.train(path, "--set", f"layout.tp={ranks}", "--resume", newest, *virtual(ranks))
            expect(f"{what}, by its path: exit", (run.code, run.stdout), (1, ""))
            expect_in(f"{what}, by its path", words, run.stderr)
        expect(f"{what}, by its path: nothing written", contents(place), before)
        run = good(what, place.train(path, "--set", "layout.tp=1"))
        expect(f"{what}: from", run.of("start")[0]["resumed_from"], place.path("ckpt", step_name(4)))
        expect(f"{what}: steps", [e["step"] for e in run.of("step")], [5, 6, 7, 8])
        fault, = run.of("fault")
        expect(f"{what}: fault", (fault["kind"], fault["action"]), ("checkpoint", "pass over"))
        expect_in(f"{what}: fault", words, fault["detail"])
        expect_in(f"{what}: said", "passed over: ", run.stderr)
        again = good("again", place.train(path, "--set", "layout.tp=1", "--steps", "9"))
        expect(f"{what}: the newest is now the last run's", again.of("start")[0]["step"], 8)


def test_none_left(place):
    path = three(place)
    for step in (2, 4, 6):
        os.truncate(place.path("ckpt", step_name(step), "rank-00000.bin"), 9)
    before = contents(place)
    for how in ([], ["--resume", "ckpt"], ["--ranks", "2"]):
        run = place.train(path, *how)
        expect(f"none is whole {how}: exit", (run.code, run.stdout), (1, ""))
        for words in ("--resume no starts anew", *map(step_name, (2, 4, 6))):
            expect_in(f"none is whole {how}", words, run.stderr)
        heads = [line for line in run.stderr.splitlines() if "error: " in line]
        expect(f"none is whole {how}: headlines", {"no checkpoint in " in line for line in heads}, {True})
        if "--ranks" not in how:  # mpirun has words of its own
            expect(f"none is whole {how}: empty lines",
                   [x for x in run.stderr.splitlines() if not x.strip()], [])
    expect("none is whole: nothing written", contents(place), before)
    run = good("anew", place.train(path, "--resume", "no", "--steps", "2"))
    expect("anew: from", (run.of("start")[0]["step"], run.of("start")[0]["resumed_from"]), (0, None))


def test_other_data(place):
    """A data file changed at its path is told; the same contents elsewhere only as another key."""
    clean(place)
    for name in ("d1.bin", "d2.bin"):
        place.tokens(name, seed=5)
    place.ids("m.bin", [1] * 2001, "uint8")
    data = {"train": ["d1.bin", "d2.bin"], "valid": ["d1.bin"], "mask": ["m.bin", "m.bin"]}
    path = config(place, {}, data=data, train={"steps": 8}, checkpoint={"every_steps": 2})
    good("first", place.train(path, "--steps", "2"))
    run = good("the same", place.train(path, "--steps", "3"))
    expect("nothing changed", "other data" in run.stderr, False)
    place.tokens("d2.bin", seed=6)
    run = good("another file", place.train(path, "--steps", "4"))
    expect_in("another file", "goes on with other data than ckpt/step-00000003 was saved with: "
              "data.train " + place.path("d2.bin"), run.stderr.replace(place.path(""), "", 1))
    expect("another file: once", run.stderr.count("d2.bin"), 1)
    place.ids("m.bin", [1] * 2000 + [0], "uint8")
    run = good("mask", place.train(path, "--steps", "5"))
    expect_in("mask", "was saved with: data.mask " + place.path("m.bin") + ", data.mask", run.stderr)
    shown = json.loads(place.echelon("ckpt", "show", "ckpt", "--json").stdout)
    with open(place.path("run", "run.json")) as file:
        record = json.load(file)["data"]
    expect("as in the run record", shown["data"]["train"],
           [f["tokens_hash"] for f in record["train"]])
    expect("masks", shown["data"]["mask"], [f["xxh128"] for f in record["mask"]])


def test_unreadable(place):
    """What may not be read is not damaged: nothing older is taken in its place."""
    path = three(place)
    newest = place.path("ckpt", step_name(6))

    def as_nobody(*args):
        return subprocess.run([ECHELON, *args], cwd=place.folder, env=clean_environment(), text=True,
                              capture_output=True, timeout=60,
                              **({"user": 65534, "group": 65534} if os.geteuid() == 0 else {}))

    if os.geteuid() == 0:
        subprocess.run(["chmod", "-R", "a+rwX", place.folder], check=True)
    try:
        if as_nobody("--version").returncode:
            return
    except (OSError, subprocess.SubprocessError):
        return
    for file in ("manifest.json", "rank-00000.bin", ""):
        mode = os.stat(os.path.join(newest, file)).st_mode
        os.chmod(os.path.join(newest, file), 0)
        for args in (("train", path, "--json"), ("train", path, "--json", "--resume", newest),
                     ("ckpt", "verify", "ckpt"), ("ckpt", "verify", newest),
                     ("ckpt", "export", "ckpt", "out"), ("ckpt", "show", "ckpt")):
            if args[:3] == ("ckpt", "show", "ckpt") and file:
                continue
            run = as_nobody(*args)
            expect(f"{file} {args}: exit", run.returncode, 4)
            expect_in(f"{file} {args}", "Permission denied", run.stderr)
            expect(f"{file} {args}: not damaged", "damaged" in run.stderr, False)
        os.chmod(os.path.join(newest, file), mode)


def test_another_model(place):
    path = three(place)
    before = contents(place)
    for key in ("model.layers=3", "model.ffn=48", "model.vocab=300", "model.rope.theta=500000",
                "model.norm_eps=1e-6", "model.rope.partial=1 model.rope.kind=linear model.rope.factor=2"):
        sets = [x for one in key.split() for x in ("--set", one)]
        for wish in ([], ["--resume", "ckpt"], ["--resume", "ckpt/" + step_name(6)]):
            run = place.train(path, *sets, *wish)
            expect(f"{key} {wish}: exit", (run.code, run.stdout), (1, ""))
            expect_in(f"{key} {wish}", "is of another model", run.stderr)
            if "=" in key[11:] and len(wish) == 2 and "step" in wish[1]:
                expect(f"{key} {wish}: once", run.stderr.count("is of another model"), 1)
            if key.startswith("model.rope.theta"):
                expect_in(key, "its model.rope.theta is 10000, this one's 500000", run.stderr)
    expect("another model: nothing written", contents(place), before)


def test_positions(place):
    """Another global batch would go on with other samples; an own offset is not carried."""
    path = three(place)
    before = contents(place)
    run = place.train(path, "--set", "batch.global=4")
    expect("batch: exit", (run.code, run.stdout), (2, ""))
    expect_in("batch", "has consumed 48 samples in 6 steps: its data goes on with batch.global 8",
              run.stderr)
    expect("batch: nothing written", contents(place), before)
    for key in ("data.seed=9", "optim.lr=0.5", "train.seed=3"):
        clean(place, "run")
        path = three(place)
        run = good(key, place.train(path, "--set", key))
        expect_in(key, "step-00000006 was saved with: "
                  + key.split("=")[0], run.stderr)
    for key, words in (("train.steps=30", "train.steps (the learning rate falls over 30 steps, not 8)"),
                       ("model.dropout=0.1", "with: model.dropout"),
                       ("model.context=32", "with: model.context")):
        run = good(key, place.train(three(place), "--set", key, "--steps", "7"))
        expect_in(key, words, run.stderr)
    path = config(place, {}, optim={"schedule": "constant"}, train={"steps": 8},
                  checkpoint={"every_steps": 2})
    clean(place)
    good("constant", place.train(path, "--steps", "2"))
    run = good("constant", place.train(path, "--set", "train.steps=9", "--steps", "3"))
    expect("constant: no horizon", "other values" in run.stderr, False)
    run = good("the same", place.train(three(place), "--set", "batch.micro=2"))
    expect("nothing changed", "other values" in run.stderr, False)


def test_paths_and_ends(place):
    """By path from elsewhere; at the step to stop at already; what is not there."""
    path = three(place)
    before = {k: v for k, v in contents(place).items() if "ckpt" in k[0]}
    run = good("at its end", place.train(path, "--steps", "6"))
    expect("at its end", [e["event"] for e in run.events], ["start", "end"])
    expect("at its end: memory", (run.end["memory_diff_bytes"], run.end["allocated"]["device"]["total"]),
           (0, run.end["predicted"]["memory_bytes"]["device"]["total"]))
    expect("at its end: no time", set(run.end["time_share"].values()), {None})
    plain = place.echelon("train", path, "--steps", "6")
    expect("at its end, for people", (plain.code, "nan" in plain.stdout.lower(), "%" in plain.stdout),
           (0, False, False))
    expect_in("at its end, for people", "largest difference over ranks and classes 0", plain.stdout)
    expect_in("at its end", "nothing is left to do", run.stderr)
    run = good("beyond", place.train(path, "--steps", "3"))
    expect("beyond", (run.end["steps"], run.end["loss"]), (6, None))
    run = place.train(path, "--steps", "6", "--dump-grads", "g")
    expect("no gradients: exit", run.code, 2)
    expect_in("no gradients", "is at step 6 already", run.stderr)
    expect("nothing saved", {k: v for k, v in contents(place).items() if "ckpt" in k[0]}, before)
    for wish, step in (("ckpt", 6), ("ckpt/" + step_name(2), 2)):
        run = good(wish, place.train(path, "--resume", wish, "--steps", "7", "--set",
                                     "checkpoint.dir=other"))
        expect(f"{wish}: from", run.of("start")[0]["step"], step)
        expect(f"{wish}: saved elsewhere", step_name(7) in os.listdir(place.path("other")), True)
        shutil.rmtree(place.path("other"))
        run = good(wish, place.train(path, "--resume", wish, "--steps", "7", "--set",
                                     "checkpoint.every_steps=0"))
        expect(f"{wish}: from, keeping nothing", run.of("start")[0]["step"], step)
    run = good("branch", place.train(path, "--resume", "ckpt/" + step_name(2), "--steps", "3"))
    run = good("auto", place.train(path, "--steps", "5", "--set", "checkpoint.every_steps=5"))
    expect("a branch is the newest", run.of("start")[0]["step"], 3)
    os.mkdir(place.path("empty"))
    for wish, code, words in (("none", 2, "--resume none: no such file or folder"),
                              ("empty", 1, "neither a manifest.json nor step-N folders")):
        run = place.train(path, "--resume", wish)
        expect(f"{wish}: exit", (run.code, run.stdout), (code, ""))
        expect_in(wish, words, run.stderr)
    run = place.train(path, "--set", "optim.name=sgd", "--set", "checkpoint.dir=sgd", "--steps", "2",
                      "--resume", "no")
    run = place.train(path, "--resume", "sgd", "--set", "checkpoint.dir=adamw")
    expect("no moments: exit", (run.code, run.stdout), (2, ""))
    expect_in("no moments", "no moment_m were saved", run.stderr)


def test_earlier_runs_stay(place):
    """A run that would save over an earlier one's checkpoint is refused before it trains; where one
    turns up later the save fails; a damaged one may be replaced."""
    path = three(place)
    before = contents(place)
    for how, words in ((("--resume", "no"), "or go on from the newest with --resume auto"),
                       (("--resume", "ckpt/" + step_name(2)), "saves its step 4"),
                       (("--resume", "no", "--steps", "4", "--set", "checkpoint.every_steps=9"),
                        step_name(4))):
        run = place.train(path, *how)
        expect(f"{how}: exit", (run.code, run.stdout), (2, ""))
        words = words.replace("saves its step", "would save its step")
        expect_in(f"{how}", words, run.stderr)
        expect_in(f"{how}", "another checkpoint.dir", run.stderr)
    expect("refused: nothing written", contents(place), before)
    run = good("between", place.train(path, "--resume", "no", "--steps", "5", "--set",
                                      "checkpoint.every_steps=5", "--set", "checkpoint.keep=1"))
    expect("between: all stand", sorted(os.listdir(place.path("ckpt"))),
           [step_name(n) for n in (2, 4, 5, 6)])
    run = place.train(path, "--steps", "8", "--set", "checkpoint.every_steps=3")  # run 2, step 6 of 1
    expect("auto: exit", (run.code, run.stdout), (2, ""))
    expect("auto: not its own advice", "--resume auto" in run.stderr, False)
    flip(place.path("ckpt", step_name(6), "rank-00000.bin"), 4321)
    run = good("damaged", place.train(path, "--steps", "6", "--set", "checkpoint.every_steps=3"))
    expect("damaged: replaced", run.of("start")[0]["step"], 5)
    expect("damaged: whole now", place.echelon("ckpt", "verify", "ckpt").code, 0)


def started(place, path, *args):
    """A run that has saved once, and goes on."""
    job = subprocess.Popen([ECHELON, "train", path, "--json", *args], cwd=place.folder, text=True,
                           env=clean_environment(**MPI_KEEPS_MEMORY), stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while '"checkpoint"' not in job.stdout.readline():
        assert job.poll() is None
    return job


def test_two_at_once(place):
    """A second run in the folder is refused and told who is there; what a killed one left is taken
    over, and nothing is left of a hold at the end."""
    clean(place)
    path = config(place, {}, train={"steps": 10**6}, checkpoint={"every_steps": 1, "keep": 2})
    job = started(place, path)
    for how in (("--resume", "auto"), ("--resume", "no")):
        run = place.train(path, *how)
        expect(f"second {how}: exit", (run.code, run.stdout), (4, ""))
        expect_in(f"second {how}", f"process {job.pid}, run.dir {place.path('run')}, since 2",
                  run.stderr)
    job.kill()
    job.stdout.close()
    job.wait()
    expect("left by the dead", "lock" in os.listdir(place.path("ckpt")), True)
    newest = max(n for n in os.listdir(place.path("ckpt")) if n.startswith("step-"))
    run = good("taken over", place.train(path, "--steps", str(int(newest[5:]) + 2)))
    expect("taken over: goes on", run.of("start")[0]["step"] >= int(newest[5:]), True)
    expect("let go", [n for n in os.listdir(place.path("ckpt")) if not n.startswith("step-")], [])


with Place() as place:
    text(place)
    place.tokens()
    for test in (test_on_other_layouts, test_evaluation_and_skips, test_stop_and_go_on, test_damage,
                 test_none_left, test_another_model, test_other_data,
                 test_unreadable, test_positions, test_paths_and_ends,
                 test_earlier_runs_stay, test_two_at_once, *((test_over_mpi,) if has_mpi() else ())):
        began = time.monotonic()
        test(place)
        print(f"{test.__name__}: {time.monotonic() - began:.1f} s")
finish()
