# RUN: np=1 timeout=240 tags=fast
"""Predictions of `echelon check` against closed forms that share nothing with it, over random
legal configurations, two of three of them pipelines: parameters, gradients, optimizer state,
activations, the fullest moment and every rank's traffic to the byte, and which units a stage
holds.  What packing loses in the arena is at most 2 %, but for one case in a hundred of small
models most of which is gathered parameters, and on one pipeline rank in twenty, where sets of many
sizes end one after another.  Mistakes in the derivation are seen."""
import json
import os
import random
import sys
from unittest import mock

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))

from cli import expect, failures, finish  # noqa: E402
import stages  # noqa: E402
from closed_forms import ALIGN, Step  # noqa: E402
from mistakes import MISTAKES, MISTAKES_IN_COSTS  # noqa: E402
from moments import Moments  # noqa: E402
from schedules import Schedule, drawn, written  # noqa: E402
from stages import balanced, layers_of  # noqa: E402
from training import Place  # noqa: E402

# Under sanitizers commands start slowly, and the numbers are the same.
SANITIZED = b"__asan_init" in open(os.path.join(os.environ["ECH_BUILD"], "libechelon.so"),
                                  "rb").read()
CASES = int(os.environ.get("ECH_CASES", "80" if SANITIZED else "240"))
SEED = int(os.environ.get("ECH_SEED", "20261"))
PACKING_LOSS, WORST_LOSS = 0.02, 0.15
RARELY = {False: 0.01, True: 0.05}  # of ranks, with a pipeline


def a_model(r):
    heads, d = r.choice([1, 2, 3, 4, 6]), r.choice([4, 8, 10, 16, 64])
    model = {"layers": r.choice([1, 2, 3, 5]), "heads": heads,
             "vocab": r.choice([50, 97, 128, 129, 1000, 50257]),
             "context": r.choice([8, 17, 32, 64]), "dropout": r.choice([0, 0, 0.1])}
    if r.random() < 0.5:
        model.update(arch="gpt2", hidden=heads * d)
        if r.random() < 0.5:
            model["ffn"] = r.randrange(1, 200)
    else:
        model.update(arch="llama", hidden=r.choice([heads * d, 24, 40]), head_dim=d,
                     ffn=r.randrange(1, 200),
                     kv_heads=r.choice([k for k in range(1, heads + 1) if heads % k == 0]))
        if r.random() < 0.3:
            model["qk_norm"] = True
        elif r.random() < 0.4:
            model["qkv_bias"] = True
    if r.random() < 0.5:
        model["tie_embeddings"] = r.random() < 0.5
    return model


def a_zero(r, data, model):
    """Sharding of state that is legal for so many data parallel ranks."""
    stage = r.choice([0, 1, 2, 3, 3]) if data > 1 else 0
    zero = {"bucket_mb": r.choice([25, 1, 0.1, 0.01, 0.001]), "stage": stage}
    if stage:
        zero["group"] = r.choice([0, *[g for g in range(1, data + 1) if data % g == 0]])
    if stage > 1:
        zero["reduce"] = r.choice(["last", "each"])
    if stage == 3:
        zero["reshard_after_forward"] = r.random() < 0.6
        zero["prefetch"] = r.randrange(0, min(4, model["layers"] + 2))
    return zero


def a_list(r, layers, stages):
    """Layers of every stage, some with none."""
    cuts = sorted(r.randrange(layers + 1) for _ in range(stages - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, layers])]


def a_file(r, model, place):
    """(pipeline ranks, micro-batches, layout) of a table of somebody's own."""
    pp, m = r.randrange(1, 5), r.randrange(1, 6)
    path = place.path(f"{r.randrange(10**9)}.csv")
    with open(path, "w") as file:
        file.write(written(drawn(r, pp, m)))
    model["layers"] = Schedule(path, pp, m).stages + r.randrange(0, 4)
    return pp, m, {"pp": pp, "schedule": path}


def a_pipeline(r, model, place):
    """(pipeline ranks, micro-batches, layout)."""
    if r.random() < 0.15:
        return a_file(r, model, place)
    if r.random() < 0.3:
        return 1, r.choice([1, 1, 2, 3, 7]), {
            "schedule": r.choice(["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"])}
    pp, name = r.choice([2, 2, 3, 4]), r.choice(["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"])
    m, layout = r.randrange(1, 3 * pp + 1), {"pp": pp, "schedule": name}
    stages = pp * (2 if name == "zb-v" else 1)
    if name == "interleaved":
        layout["virtual_stages"] = r.choice([1, 2, 2, 3])
        stages = pp * layout["virtual_stages"]
        group = r.choice([pp, pp, pp + 1]) if layout["virtual_stages"] > 1 else pp
        m = group * r.randrange(1, 4) + r.choice([0, r.randrange(pp, group + 1)])
        layout["schedule_group"] = group if group > pp else 0
    model["layers"] = stages + r.randrange(0, 5)
    if r.random() < 0.4:
        model["layers"] = r.randrange(1, stages + 5)
        layout["stages"] = a_list(r, model["layers"], stages)
    return pp, m, layout


def a_layout(r, model, tokens, place):
    """(ranks, micro-batches, layout): every part of it is legal."""
    pp, m, layout = a_pipeline(r, model, place)
    tp = r.choice([t for t in (1, 2, 3, 4) if model["heads"] % t == 0])
    data = r.choice([1, 1, 2, 3, 4, 5, 6] if tp == 1 else [1, 1, 2, 3, 4, 6])
    data = min(data, 4) if pp > 1 else data
    layout.update(tp=tp, zero=a_zero(r, data, model))
    if tokens % tp == 0 and r.random() < 0.6:
        layout.update(sequence_parallel=True,
                      sequence_parallel_inputs=r.choice(["keep", "regather"]))
    if r.random() < 0.2:
        layout["order"] = r.choice(["dp-tp-cp-ep-pp", "pp-dp-cp-tp-ep", "tp-pp-cp-ep-dp"])
    return tp * data * pp, m, layout


def a_case(r, place):
    """(ranks, configuration); every part of it is legal."""
    model = a_model(r)
    micro = r.randrange(1, 4)
    seq = r.randrange(1, model["context"] + 1)
    ranks, m, layout = a_layout(r, model, micro * seq, place)
    data = ranks // layout["tp"] // layout.get("pp", 1)
    return ranks, {
        "model": model,
        "batch": {"micro": micro, "global": micro * m * data, "seq": seq},
        "layout": layout,
        "precision": {"compute": r.choice(["fp32", "fp64"])},
        "optim": {"name": r.choice(["adamw", "adamw", "sgd"])},
    }


def memory_of(step):
    """Of a pipeline rank, as check says it."""
    moments = Moments(step)
    at_peak = dict(zip(("activations", "buffers"), moments.fullest()))
    own = {"params": step.params(), "grads": step.grads(), "master": 0,
           "optimizer": step.optimizer()}
    return {
        **own,
        "activations": moments.most_activations(),
        "buffers": step.buffer_state() + moments.most_buffers(),
        "at peak": {**own, "activations": at_peak["activations"],
                    "buffers": step.buffer_state() + at_peak["buffers"]},
        "total": step.state() + sum(at_peak.values()),
    }


def steps_of(case, ranks, counts=None):
    """Of every pipeline rank; counts: the product's own choice where several are best."""
    pp = case["layout"].get("pp", 1)
    return [Step(case, ranks, at, counts) for at in range(pp)]


def derived(steps, ranks):
    """What the closed forms say, as check says it: memory by pipeline rank, traffic by rank."""
    memory = [memory_of(step) for step in steps]
    at = [steps[0].layout.place(rank)["pp"] for rank in range(ranks)]
    nonzero = [{axis: n for axis, n in step.payload().items() if n} for step in steps]
    return {
        **{key: [m[key] for m in memory] for key in memory[0]},
        "payload": [nonzero[i] for i in at],
        "wire": [{axis: n for axis, n in steps[i].wire(rank).items() if n}
                 for rank, i in enumerate(at)],
    }


def sent(document, what):
    """Every rank's bytes by axis, where there are any."""
    return [{axis: traffic[what] for axis, traffic in rank["comm_bytes"].items() if traffic[what]}
            for rank in document["by_rank"]]


def first_of_stages(document, step):
    """The first rank of every pipeline rank."""
    at = [step.layout.place(rank)["pp"] for rank in range(len(document["by_rank"]))]
    return [at.index(i) for i in range(step.p)]


def device(document, rank):
    return document["by_rank"][rank]["memory_bytes"]["device"]


def predicted(document, step):
    memory = [device(document, rank) for rank in first_of_stages(document, step)]
    out = {key: [m["own_max"][key] for m in memory] for key in memory[0]["own_max"]}
    return {**out, "at peak": [{c: m[c] for c in m["own_max"]} for m in memory],
            "total": [m["total"] for m in memory], "payload": sent(document, "payload"),
            "wire": sent(document, "wire")}


def check_document(where, document, steps):
    first = first_of_stages(document, steps[0])
    for rank in range(len(document["by_rank"])):
        memory, at = device(document, rank), steps[0].layout.place(rank)["pp"]
        expect(f"{where}: rank {rank}: classes sum to the total",
               sum(memory[c] for c in memory["own_max"]), memory["total"])
        expect(f"{where}: rank {rank}: as on rank {first[at]}", memory,
               device(document, first[at]))
    check_stages(where, document, steps)


def check_stages(where, document, steps):
    """The cut is one of the best, or as listed; what a rank keeps as its schedule says."""
    schedule, told = steps[0].schedule, document["stages"]
    if "stages" not in json.loads(where.split(" ranks ")[0])["layout"]:
        best = balanced(steps[0], schedule.stages)
        if layers_of(document) not in best:
            failures.append(f"{where}: layers {layers_of(document)}, best {best}")
    expect(f"{where}: units", [stage["units"] for stage in told],
           [list(range(*ends)) for ends in steps[0].ends])
    expect(f"{where}: pipeline ranks", [stage["rank"] for stage in told], schedule.place)
    expect(f"{where}: live, deferred", [(stage["live"], stage["deferred"]) for stage in told],
           [schedule.live(rank) for rank in schedule.place])
    first = first_of_stages(document, steps[0])
    expect(f"{where}: arenas", [stage["arena_bytes"] for stage in told],
           [device(document, first[stage["rank"]])["arena"] for stage in told])


def packing_loss(memory, step):
    """Share of the arena that the packing wastes; slots begin at multiples of ALIGN, which is no
    loss of it."""
    live, deferred = step.schedule.live(step.at)
    a_layer = 4 if not step.is_split else 8
    slots = 24 + 2 * (live + deferred) * (a_layer * step.n_layers + 3) + 2 * len(step.held)
    expect("arena holds the total", memory["arena"] >= memory["total"], True)
    return (memory["arena"] - ALIGN * slots) / memory["total"] - 1


def check_packing(losses):
    """Of (is it a pipeline, loss)."""
    for is_pipeline, rarely in RARELY.items():
        these = [loss for is_one, loss in losses if is_one == is_pipeline]
        over = sum(loss > PACKING_LOSS for loss in these)
        what = f"packing {'with' if is_pipeline else 'without'} a pipeline"
        print(f"{what}: worst {100 * max(these):.1f} %, over {100 * PACKING_LOSS:.0f} % in {over} "
              f"of {len(these)}")
        if over > max(1, rarely * len(these)) or max(these) > WORST_LOSS:
            failures.append(f"{what}: {over} of {len(these)} lose more than {PACKING_LOSS}, the "
                            f"worst {max(these)}")


def checked(place, r):
    """(what the case is, ranks, configuration, what check says) of a random case; None: refused."""
    ranks, case = a_case(r, place)
    where = f"{json.dumps(case)} ranks {ranks}"
    run = place.echelon("check", place.config(**case), "--json-ranks", "--ranks", str(ranks))
    if run.code:
        failures.append(f"{where}: {run.stderr}")
        return None
    return where, ranks, case, json.loads(run.stdout)


def differences(got, want):
    """Of all numbers of two documents of the same form, the absolute values; other forms:
    infinite."""
    if isinstance(got, dict) and isinstance(want, dict) and got.keys() == want.keys():
        return [d for key in got for d in differences(got[key], want[key])]
    if isinstance(got, list) and isinstance(want, list) and len(got) == len(want):
        return [d for a, b in zip(got, want) for d in differences(a, b)]
    return [abs(got - want) if isinstance(got, int) and isinstance(want, int) else float("inf")]


def test_random_configurations():
    """What was checked, for the mutants."""
    r, seen, losses, off, pipelines = random.Random(SEED), [], [], [0], 0
    with Place() as place:
        for _ in range(CASES):
            one = checked(place, r)
            if not one:
                continue
            where, ranks, case, document = one
            steps = steps_of(case, ranks, layers_of(document))
            got, want = predicted(document, steps[0]), derived(steps, ranks)
            off += differences(got, want)
            for key in want:
                expect(f"{where}: {key}", got[key], want[key])
            check_document(where, document, steps)
            memory = [device(document, rank) for rank in first_of_stages(document, steps[0])]
            losses += [(len(steps) > 1, packing_loss(m, step)) for m, step in zip(memory, steps)]
            pipelines += len(steps) > 1
            seen.append((ranks, case, layers_of(document), got))
    print(f"{len(seen)} configurations, {pipelines} of them pipelines: {len(off) - 1} numbers "
          f"compared, the worst {max(off)} bytes off")
    expect("pipelines among them", pipelines >= min(150, CASES // 2), True)
    check_packing(losses)
    return seen


def test_parameters_without_padding():
    """The start of the chain: what `train` calls params is what a reader of the paper counts."""
    with Place() as place:
        place.tokens()
        for model in ("gpt2", "llama"):
            config = place.config(model=model, train={"steps": 1})
            with open(config) as file:
                step = Step({"batch": {"global": 1}, **patch_global(json.load(file))}, 1)
            run = place.train(config)
            expect(f"{model}: params", run.of("start")[0]["params"], step.params_without_padding())


def patch_global(config):
    config["batch"]["global"] = config["batch"]["micro"]
    return config


def test_closed_forms_see_another_configuration():
    """A witness that cannot differ shows nothing: each change moves exactly what it should."""
    model = {"arch": "llama", "layers": 2, "hidden": 25, "heads": 4, "kv_heads": 2, "ffn": 41,
             "head_dim": 6, "vocab": 97, "context": 16}
    batch, layout = {"micro": 2, "global": 12, "seq": 16}, {"zero": {"bucket_mb": 0.01}}
    tp = {"tp": 2, "sequence_parallel": True, "zero": {"stage": 3}}
    pp = {"pp": 2, "stages": [2, 2]}
    interleaved = {"pp": 2, "schedule": "interleaved", "virtual_stages": 2}
    state, sends = {"params", "grads", "optimizer"}, {"payload", "wire"}
    kept, rest = {"activations"}, {"buffers", "at peak", "total"}
    every = state | sends | kept | rest
    changes = [
        (3, layout, {"model": {**model, "ffn": 42}}, every),
        (3, layout, {"model": {**model, "qk_norm": True}}, every),
        (3, layout, {"model": {**model, "tie_embeddings": True}}, every - kept),
        (3, layout, {"layout": {**layout, "schedule": "gpipe"}}, kept | {"at peak", "total"}),
        (3, layout, {"layout": {"zero": {"bucket_mb": 25}}}, rest | {"wire"}),
        (3, layout, {"precision": {"compute": "fp64"}}, every),
        (3, layout, {"optim": {"name": "sgd"}}, {"optimizer", "at peak", "total"}),
        (3, layout, {"batch": {**batch, "global": 6}}, rest),
        (3, layout, {"layout": {"zero": {"stage": 1}}}, every - kept - {"buffers"}),  # padded
        (4, tp, {"layout": {**tp, "zero": {"stage": 2}}}, {"params"} | sends | rest),
        (4, tp, {"layout": {**tp, "zero": {"stage": 3, "reduce": "each"}}},
         {"grads"} | sends | rest),
        (4, tp, {"layout": {**tp, "zero": {"stage": 3, "reshard_after_forward": False}}},
         sends | {"at peak", "total"}),
        (4, tp, {"layout": {**tp, "zero": {"stage": 3, "prefetch": 3}}}, rest),
        (4, tp, {"layout": {**tp, "sequence_parallel": False}}, sends | kept | rest),
        (4, tp, {"layout": {**tp, "sequence_parallel_inputs": "keep"}}, sends | kept | rest),
        (4, tp, {"model": {**model, "kv_heads": 1}}, sends),  # copies of one
        (2, pp, {"layout": {**pp, "schedule": "gpipe"}}, kept | rest),
        (2, pp, {"layout": {**pp, "schedule": "zb-h1"}}, kept | rest),
        (2, pp, {"layout": {**pp, "schedule": "zb-v", "stages": [1] * 4}}, every),
        (2, pp, {"layout": {**pp, "stages": [3, 1]}},
         state | kept | {"at peak", "total"}),
        (2, pp, {"model": {**model, "layers": 4, "tie_embeddings": True}},  # a table on both
         sends | {"buffers"}),
        (2, interleaved, {"layout": pp}, every - state),
        (2, interleaved, {"layout": {**interleaved, "schedule_group": 3}}, kept | rest),
    ]
    with Place() as place:
        for ranks, base, change, moved in changes:
            case = {"model": model, "batch": batch, "layout": base}
            if ranks == 4:
                case["batch"] = {**batch, "global": 8}
            if "pp" in base:
                case["model"] = {**model, "layers": 4}
            got = predicted(place.check(place.config(**case), "--ranks", str(ranks),
                                        "--json-ranks"), Step(case, ranks))
            other = derived(steps_of({**case, **change}, ranks), ranks)
            expect(f"{base} moved by {change}", {k for k in other if other[k] != got[k]}, moved)


def says(ranks, case, counts):
    """None: it comes to no end, or contradicts itself."""
    try:
        return derived(steps_of(case, ranks, counts), ranks)
    except (AssertionError, IndexError, KeyError):
        return None


def test_mistakes_are_seen(seen):
    """Each mistake differs from what check says in at least one of the random cases."""
    for name, (owner, what, wrong) in MISTAKES.items():
        with mock.patch.object(owner, what, wrong):
            if all(says(ranks, case, counts) == got for ranks, case, counts, got in seen):
                failures.append(f"mistake not seen in {len(seen)} cases: {name}")
    print(f"{len(MISTAKES)} mistakes tried in {len(seen)} cases")


def long_sequences():
    """Where attention costs more than weights: (step, layers of the stages)."""
    model = {"arch": "llama", "layers": 6, "hidden": 8, "heads": 1, "head_dim": 8, "ffn": 8,
             "vocab": 4096, "context": 2048}
    case = {"model": model, "batch": {"micro": 1, "global": 2, "seq": 2048}, "layout": {"pp": 2}}
    with Place() as place:
        document = place.check(place.config(**case), "--ranks", "2", "--json-ranks")
    counts = layers_of(document)
    expect("long sequences: balanced", counts in balanced(Step(case, 2), 2), True)
    return Step(case, 2, 0, counts), counts


def test_mistakes_in_costs_are_seen(seen):
    """Each makes other stages the best ones in at least one case."""
    told = [long_sequences()]
    told += [(Step(case, ranks, 0, counts), counts) for ranks, case, counts, _ in seen
            if "stages" not in case["layout"] and len(counts) > 1]
    for name, (what, wrong) in MISTAKES_IN_COSTS.items():
        with mock.patch.object(stages, what, wrong):
            if all(counts in balanced(step, len(counts)) for step, counts in told):
                failures.append(f"mistake not seen in {len(told)} cases: {name}")
    print(f"{len(MISTAKES_IN_COSTS)} mistakes in costs tried in {len(told)} cases")


cases = test_random_configurations()
test_parameters_without_padding()
test_closed_forms_see_another_configuration()
if not failures:
    test_mistakes_are_seen(cases)
    test_mistakes_in_costs_are_seen(cases)
finish()
