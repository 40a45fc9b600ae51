# RUN: np=1 timeout=180 tags=fast,mpi
"""The stream of `train --json` and what a run leaves: fields, numbering, nulls, the run folder and
a replay from it, where a run stops, what may not change with ranks, transport or accumulation."""
import json
import math
import os

from cli import expect, expect_in, failures, finish
from training import MODELS, Place, has_mpi

SEQ = 16
MEMORY = {"params", "grads", "master", "optimizer", "activations", "buffers"}
GROUPS = {"dp", "edp", "hsdp", "tp", "kv", "pp", "cp", "ep", "tied", "world"}
FIELDS = {
    "start": {"ranks", "layout", "costs", "step", "resumed_from", "params", "params_active", "flops_per_token", "flops_convention",
              "peak_flops", "predicted"},
    "step": {"step", "loss", "grad_norm", "lr", "tokens", "tokens_per_s", "mfu", "hfu", "step_s",
             "exposed_comm_s", "loss_scale", "skipped"},
    "eval": {"step", "loss", "perplexity"},
    "checkpoint": {"step", "path", "bytes", "stall_s", "write_s"},
    "fault": {"kind", "rank", "step", "action"},
    "end": {"steps", "loss", "predicted", "allocated", "touched", "rss_bytes", "sent",
            "memory_diff_bytes", "comm_diff_bytes"},
}
NULLS = {"start": {"peak_flops", "resumed_from"}, "step": {"mfu", "hfu"}}  # not calibrated, not resumed


def kinds(run):
    return [e["event"] for e in run.events]


def good(what, run):
    expect(f"{what}: exit", (run.code, run.stderr if run.code else ""), (0, ""))
    return run


def check_fields(run):
    for e in run.events:
        expect(f"fields of {e['event']}", FIELDS[e["event"]] - set(e), set())
        null = {k for k, v in e.items() if v is None}
        expect(f"nulls of {e['event']}", null, NULLS.get(e["event"], set()))


def check_prediction(p):
    expect("step_s before calibration", p["step_s"], None)
    device = p["memory_bytes"]["device"]
    expect("classes", MEMORY - set(device), set())
    expect("classes, own", set(device["own_max"]), MEMORY)
    expect("exact or bound", set(device["kind"].values()) <= {"exact", "bound"}, True)
    expect("sum of classes", sum(device[c] for c in MEMORY), device["total"])
    expect("groups", set(p["comm_bytes"]), GROUPS)
    expect("both counts", {frozenset(t) for t in p["comm_bytes"].values()},
           {frozenset({"payload", "wire"})})


def test_stream(place):
    config = place.config(data={"train": "t.bin", "valid": "v.bin"}, batch={"global": 2},
                          train={"steps": 5, "eval_every": 2},
                          checkpoint={"dir": "ckpt", "every_steps": 3})
    run = good("stream", place.train(config))
    expect("order of events", kinds(run),
           ["start", "step", "step", "eval", "step", "checkpoint", "step", "eval", "step", "eval",
            "checkpoint", "end"])
    check_fields(run)
    expect("steps", [e["step"] for e in run.of("step")], [1, 2, 3, 4, 5])
    expect("steps of evaluations", [e["step"] for e in run.of("eval")], [2, 4, 5])
    expect("steps of checkpoints", [e["step"] for e in run.of("checkpoint")], [3, 5])
    start, end = run.of("start")[0], run.end
    expect("layout", start["layout"], {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 1,
                                       "shard_group": 1})
    expect("costs", start["costs"], [])
    for e in (start, end):
        check_prediction(e["predicted"])
    expect("predicted twice", start["predicted"], end["predicted"])
    expect("tokens", [e["tokens"] for e in run.of("step")], [32] * 5)
    expect("last loss", end["loss"], run.losses[-1])
    for e in run.of("eval"):
        expect("perplexity", math.isclose(e["perplexity"], math.exp(e["loss"]), rel_tol=1e-12),
               True)
    for e in run.of("step"):
        expect("tokens a second", math.isclose(e["tokens_per_s"], 32 / e["step_s"], rel_tol=1e-9),
               True)
    for e in run.of("checkpoint"):
        expect("a whole checkpoint is there", place.echelon("ckpt", "verify", e["path"]).code, 0)
    expect("first loss is that of an untrained model",
           abs(run.losses[0] - math.log(97)) < 0.2, True)
    expect("training helps", run.losses[-1] < run.losses[0], True)
    return config, run


def test_check_says_the_same(place, config, run):
    """`check` knows before what the start event tells, run facts and predictions."""
    start = run.of("start")[0]
    document = place.check(config)
    for key in FIELDS["start"] - {"step", "resumed_from"}:
        expect(f"check: {key}", document[key], start[key])
    expect("check: ranks only where asked for", "by_rank" in document, False)


def test_every_rank(place):
    """--json-ranks: each rank's prediction beside what it had and sent, equal to the byte."""
    model = {**MODELS["llama"], "layers": 3, "hidden": 40, "head_dim": 10}  # its parameters are no multiple of 3
    config = place.config(model=model, batch={"global": 6})
    by_rank = place.check(config, "--ranks", "3", "--json-ranks")["by_rank"]
    expect("check: ranks", len(by_rank), 3)
    expect("ranks send unlike amounts", len({r["comm_bytes"]["dp"]["wire"] for r in by_rank}) > 1, True)
    for transport in ("inproc", "mpi") if has_mpi() else ("inproc",):
        run = good("ranks", place.train(config, "--json-ranks", "--ranks", "3", "--transport", transport))
        start, end = run.of("start")[0], run.end
        expect(f"{transport}: start", start["by_rank"], by_rank)
        expect(f"{transport}: end", [r["predicted"] for r in end["by_rank"]], by_rank)
        for rank, figures in enumerate(end["by_rank"]):
            where = f"{transport}, rank {rank}"
            device = figures["predicted"]["memory_bytes"]["device"]
            expect(f"{where}: allocated", figures["allocated"]["device"],
                   {k: device[k] for k in (*MEMORY, "total", "arena")})
            expect(f"{where}: sent", figures["sent"], figures["predicted"]["comm_bytes"])
            expect(f"{where}: resident", figures["rss_bytes"] > device["arena"], True)
            touched = figures["touched"]["device"]
            for k in ("params", "grads", "optimizer"):
                expect(f"{where}: touched {k}", touched["state"][k], device[k])
            expect(f"{where}: touched", sum(touched["state"].values()) < touched["total"] <= device["arena"],
                   True)
        first = {k: end[k] for k in ("predicted", "allocated", "touched", "rss_bytes", "sent")}
        expect(f"{transport}: rank 0's stand beside", end["by_rank"][0], first)
    expect("without it", "by_rank" in good("plain", place.train(config)).end, False)


def test_log_every(place):
    run = good("log_every", place.train(place.config(train={"steps": 7, "log_every": 3})))
    expect("logged steps, the last among them", [e["step"] for e in run.of("step")], [3, 6, 7])


def test_run_folder(place, config, run):
    """Enough to replay: its configuration alone gives the same losses to the last bit."""
    with open(place.path("run", "run.json")) as file:
        record = json.load(file)
    with open(place.path("run", "metrics.jsonl")) as file:
        expect("metrics are the stream", file.read(), run.stdout)
    for key in ("versions", "machine", "layout", "seeds", "data", "config", "command", "started"):
        expect(f"run record has {key}", key in record, True)
    expect("data hash", len(record["data"]["train"][0]["tokens_hash"]), 32)
    expect("data tokens", 2 * record["data"]["train"][0]["tokens"],
           os.path.getsize(place.path("t.bin")))
    with open(place.path("again.json"), "w") as file:
        json.dump(record["config"], file)
    again = good("replay", place.train("again.json", "--set", "run.dir=elsewhere",
                                       "--set", "checkpoint.dir=other"))
    expect("replayed losses", again.losses, run.losses)
    with open(place.path("elsewhere", "run.json")) as file:
        second = json.load(file)["config"]
    for key, section in record["config"].items():
        if key not in ("run", "checkpoint"):
            expect(f"replayed {key}", second[key], section)


def test_repeats(place, config, run):
    again = good("again", place.train(config, "--set", "checkpoint.dir=ckpt2"))
    expect("two runs, losses", again.losses, run.losses)
    expect("two runs, norms", [e["grad_norm"] for e in again.of("step")],
           [e["grad_norm"] for e in run.of("step")])
    expect("two runs, evaluation", [e["loss"] for e in again.of("eval")],
           [e["loss"] for e in run.of("eval")])
    other = good("other seed", place.train(config, "--set", "train.seed=43", "--set",
                                      "checkpoint.dir=ckpt3"))
    expect("another seed, another run", other.losses[0] != run.losses[0], True)


def test_set_and_steps(place):
    """--steps is where to stop, not the horizon of the rate; --set is read as the file is."""
    optim = {"lr": 1e-2, "schedule": "cosine", "warmup_steps": 4, "min_lr": 1e-3}
    config = place.config(optim=optim, train={"steps": 12})
    whole, part = (good("steps", place.train(config, *more)) for more in ((), ("--steps", "5")))
    expect("where it stops", [e["step"] for e in part.of("step")], [1, 2, 3, 4, 5])
    expect("same rates", [e["lr"] for e in part.of("step")],
           [e["lr"] for e in whole.of("step")][:5])
    expect("same losses", part.losses, whole.losses[:5])
    want = [1e-2 * s / 4 for s in range(1, 5)]
    want += [1e-3 + 9e-3 * 0.5 * (1 + math.cos(math.pi * (s - 4) / 8)) for s in range(5, 13)]
    got = [e["lr"] for e in whole.of("step")]
    expect("rates", [math.isclose(a, b, rel_tol=1e-12) for a, b in zip(got, want)], [True] * 12)
    changed = good("set",
                   place.train(config, "--set", "optim.lr=0", "--set=optim.min_lr=0", "--steps=3"))
    expect("set: no rate", [e["lr"] for e in changed.of("step")], [0, 0, 0])
    with open(place.path("run", "run.json")) as file:
        optim = json.load(file)["config"]["optim"]
    expect("set is in the record", (optim["lr"], optim["warmup_steps"]), (0, 4))


def test_schedule_counts_steps(place):
    """The rate of a step depends on neither accumulation nor ranks."""
    optim = {"lr": 1e-2, "schedule": "linear", "warmup_steps": 3}
    rates = []
    for ranks, micro, total in [(1, 1, 1), (1, 1, 4), (1, 2, 8), (2, 1, 8), (4, 2, 8)]:
        config = place.config(optim=optim, train={"steps": 6},
                              batch={"micro": micro, "global": total})
        run = good("rates", place.train(config, "--ranks", str(ranks), "--transport", "inproc"))
        rates.append([e["lr"] for e in run.of("step")])
    expect("rates alike", rates[1:], rates[:1] * 4)


def test_skipped_step_keeps_the_rate(place):
    """A step without a token makes no update, so the next one has its rate."""
    place.ids("m.bin", [1] * 17 + [0] * 16 + [1] * 1968, "uint8")
    config = place.config(optim={"lr": 1e-2, "warmup_steps": 1000}, train={"steps": 124},
                          data={"train": "t.bin", "mask": "m.bin"}, batch={"global": 1})
    run = good("skipped", place.train(config))
    skipped = [e["step"] for e in run.of("step") if e["skipped"]]
    expect("one step of an epoch without a token", (len(skipped), run.end["skipped"]), (1, 1))
    at = skipped[0]
    expect("it is told", [(f["kind"], f["step"], f["action"]) for f in run.of("fault")],
           [("no tokens", at, "skip")])
    expect("its loss", run.of("step")[at - 1]["loss"], None)
    want = [1e-5 * (s if s <= at else s - 1) for s in range(1, 125)]
    got = [e["lr"] for e in run.of("step")]
    expect("rates", [i for i in range(124) if not math.isclose(got[i], want[i], rel_tol=1e-12)], [])


def norms(run):
    return [e["grad_norm"] for e in run.of("step")]


def far(a, b, limit):
    return max(abs(x - y) / max(abs(x), 1e-30) for x, y in zip(a, b)) > limit


def test_order_of_samples_and_sums(place):
    """The same samples in the same steps for any number of ranks and any accumulation, each token
    weighing the same: losses and norms of one rank, in fp64."""
    place.ids("m.bin", [1 if i % 7 else 0 for i in range(900)] + [0] * 1101, "uint8")
    for data in ({"train": "t.bin"}, {"train": "t.bin", "mask": "m.bin"}):
        base = None
        for ranks, micro in [(1, 12), (1, 1), (2, 3), (3, 1), (4, 1), (6, 2)]:
            config = place.config(data=data, batch={"global": 12, "micro": micro},
                                  precision={"compute": "fp64"}, optim={"name": "sgd", "lr": 0.1})
            run = good("sums", place.train(config, "--ranks", str(ranks), "--transport", "inproc"))
            base = base or run
            where = f"{data} on {ranks} x {micro}"
            expect(f"{where}: tokens", [e["tokens"] for e in run.of("step")],
                   [e["tokens"] for e in base.of("step")])
            if far(run.losses, base.losses, 1e-12) or far(norms(run), norms(base), 1e-11):
                failures.append(f"{where}: {run.losses} {norms(run)}, one rank {base.losses} "
                                f"{norms(base)}")


def test_bitwise_claims(place):
    """Bucket sizes and schedules move data, not results; virtual ranks are MPI's to the bit."""
    batch, steps = {"global": 12}, {"steps": 3}
    base = None
    for bucket in (1e-6, 0.01, 25):
        for schedule in ("1f1b", "gpipe"):
            config = place.config(batch=batch, train=steps,
                                  layout={"schedule": schedule, "zero": {"bucket_mb": bucket}})
            run = good("bitwise", place.train(config, "--ranks", "3", "--transport", "inproc"))
            base = base or run
            expect(f"bucket {bucket}, {schedule}", (run.losses, norms(run)),
                   (base.losses, norms(base)))
    if not has_mpi():
        return
    config = place.config(batch=batch, train=steps, data={"train": "t.bin", "valid": "v.bin"})
    mpi = good("mpi", place.train(config, "--ranks", "3"))
    expect("virtual ranks and MPI", (mpi.losses, norms(mpi)), (base.losses, norms(base)))
    expect("transports", (mpi.of("start")[0]["transport"], base.of("start")[0]["transport"]),
           ("mpi", "inproc"))
    expect("differences", (mpi.end["memory_diff_bytes"], mpi.end["comm_diff_bytes"]), (0, 0))
    expect_in("ranks are announced once", "starting 3 ranks", mpi.stderr)


def test_no_accumulation_error(place):
    """Equal micro-batches: the gradient does not grow with their number."""
    place.ids("same.bin", list(range(16)) * 40 + [0])
    seen = []
    for m in (1, 2, 16, 40):
        config = place.config(data={"train": "same.bin"}, batch={"global": m}, train={"steps": 1},
                              precision={"compute": "fp64"}, optim={"clip": 0})
        run = good("accumulation", place.train(config))
        seen.append((run.losses[0], norms(run)[0]))
    expect("norms", [far(s, seen[0], 1e-12) for s in seen], [False] * 4)


def test_dropout_depends_on_the_seed_alone(place):
    config = place.config(model={**MODELS["gpt2"], "dropout": 0.3}, batch={"global": 4},
                          precision={"compute": "fp64"})
    a, b = (good("dropout", place.train(config, "--ranks", r, "--transport", "inproc"))
            for r in ("1", "4"))
    expect("dropout on 1 and 4 ranks", far(a.losses, b.losses, 1e-12), False)
    none = good("none", place.train(config, "--set", "model.dropout=0"))
    expect("dropout does something", none.losses[0] != a.losses[0], True)


def test_evaluation(place):
    """Held-out loss is the mean over every sample once, whatever the ranks: with a rate of 0 and
    the training file as held-out one, it is the loss of a step that takes the whole file."""
    place.tokens("all.bin", n=26 * SEQ + 1, seed=5)
    base = None
    for ranks, total, micro, zero in [(1, 26, 13, {}), (1, 4, 2, {}), (2, 12, 3, {}), (3, 9, 1, {}),
                                      (4, 40, 5, {}), (4, 8, 1, {"stage": 1, "group": 2})]:
        config = place.config(data={"train": "all.bin", "valid": "all.bin"},
                              batch={"global": total, "micro": micro}, optim={"lr": 0},
                              layout={"zero": zero},
                              precision={"compute": "fp64"}, train={"steps": 2, "eval_every": 1})
        more = ("--ranks", str(ranks), "--transport", "inproc")
        run = good("evaluation", place.train(config, *more))
        base = base or run
        got = [e["loss"] for e in run.of("eval")]
        if len(got) != 2 or far(got, base.losses, 1e-12):
            failures.append(f"evaluation on {ranks} ranks of {total}: {got}, step {base.losses}")


def test_epochs(place):
    """Every sample once an epoch, in another order each time, also where batches and epochs do not
    end together."""
    samples, epochs = 8, 6
    place.tokens("few.bin", n=samples * SEQ + 1)
    orders = [[None] * samples for _ in range(epochs)]
    for k in range(samples):
        inside = [k * SEQ < i <= (k + 1) * SEQ for i in range(samples * SEQ + 1)]
        place.ids("one.bin", [int(x) for x in inside], "uint8")
        for total in (1, 3):
            config = place.config(data={"train": "few.bin", "mask": "one.bin"}, optim={"lr": 0},
                                  batch={"global": total},
                                  train={"steps": samples * epochs // total})
            run = good("epochs", place.train(config))
            steps = [e["step"] - 1 for e in run.of("step") for _ in range(e["tokens"] // SEQ)]
            expect(f"sample {k}, batches of {total}: times", len(steps), epochs)
            if total == 1:
                expect(f"sample {k}: once an epoch", [s // samples for s in steps],
                       list(range(epochs)))
                rows = steps
                for s in steps:
                    orders[s // samples][s % samples] = k
            else:
                expect(f"sample {k}: the same order", steps, [row // total for row in rows])
    expect("orders differ", len({tuple(o) for o in orders}), epochs)
    expect("nothing is missing", {tuple(sorted(o)) for o in orders}, {tuple(range(samples))})
    config = place.config(data={"train": "few.bin", "mask": "one.bin"}, batch={"global": 1},
                          optim={"lr": 0}, train={"steps": samples * epochs})
    other = good("epochs", place.train(config, "--set", "data.seed=2"))
    steps = [e["step"] - 1 for e in other.of("step") if e["tokens"]]
    expect("data.seed makes the order", (len(steps), steps != rows), (epochs, True))


def test_ignored_labels(place):
    """Labels of ignore_id bear no loss and are not counted."""
    ids = [i * 7 % 5 for i in range(5 * SEQ + 1)]
    place.ids("five.bin", ids)
    config = place.config(data={"train": "five.bin", "ignore_id": 3}, batch={"global": 5},
                          train={"steps": 1})
    run = good("ignored", place.train(config))
    expect("tokens that count", [e["tokens"] for e in run.of("step")],
           [sum(i != 3 for i in ids[1:])])


def test_edges(place):
    """A stop beyond the horizon; names with spaces; threads."""
    config = place.config(optim={"lr": 1e-3, "schedule": "linear"})
    run = good("beyond", place.train(config, "--steps", "5"))
    expect("beyond the horizon", [e["lr"] for e in run.of("step")][2:], [0, 0, 0])
    config = place.config("a name with spaces.json", batch={"global": 2})
    runs = [good("threads", place.train(config, "--set", f"run.threads={n}")) for n in (1, 2, 3)]
    expect("threads change nothing", [r.losses for r in runs[1:]], [runs[0].losses] * 2)
    if has_mpi():
        run = good("spaces", place.train(config, "--ranks", "2", "--set", "run.dir=a b"))
        expect("spaces", os.path.exists(place.path("a b", "run.json")), True)


def test_words_for_people(place):
    """Without --json: plain lines, no colour where there is no terminal."""
    run = place.echelon("train", place.config(data={"train": "t.bin", "valid": "v.bin"}))
    expect("exit", run.code, 0)
    for words in ("step 3/3", "loss", "held-out", "predicted", "allocated", "perplexity"):
        expect_in("words", words, run.stdout)
    expect("no escapes", "\033" in run.stdout + run.stderr, False)


with Place() as place:
    place.tokens()
    place.tokens("v.bin", n=200, seed=2)
    config, run = test_stream(place)
    test_check_says_the_same(place, config, run)
    test_run_folder(place, config, run)
    test_repeats(place, config, run)
    test_every_rank(place)
    test_log_every(place)
    test_set_and_steps(place)
    test_schedule_counts_steps(place)
    test_skipped_step_keeps_the_rate(place)
    test_order_of_samples_and_sums(place)
    test_bitwise_claims(place)
    test_no_accumulation_error(place)
    test_dropout_depends_on_the_seed_alone(place)
    test_evaluation(place)
    test_epochs(place)
    test_ignored_labels(place)
    test_edges(place)
    test_words_for_people(place)
finish()
