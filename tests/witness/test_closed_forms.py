# RUN: np=1 timeout=120 tags=fast
"""Predictions of `echelon check` against closed forms that share nothing with it, over random legal
configurations: parameters, gradients, optimizer state, activations, the fullest moment and every
rank's traffic to the byte.  What packing loses in the arena is at most 2 %, but for one case in a
hundred of small models most of which is gathered parameters.  Mistakes in the derivation are
seen."""
import json
import os
import random
import sys
from unittest import mock

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))

from cli import expect, failures, finish  # noqa: E402
from closed_forms import ALIGN, Layout, Message, Step, ceil_div, packed  # noqa: E402
from moments import Blocks, Buffer, Moments, Scratch  # noqa: E402
from training import Place  # noqa: E402

CASES = int(os.environ.get("ECH_CASES", "240"))
SEED = int(os.environ.get("ECH_SEED", "20261"))
PACKING_LOSS, RARELY, WORST_LOSS = 0.02, 0.01, 0.15


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


def a_layout(r, model, tokens):
    """(ranks, layout): every part of it is legal."""
    tp = r.choice([t for t in (1, 2, 3, 4) if model["heads"] % t == 0])
    data = r.choice([1, 1, 2, 3, 4, 5, 6] if tp == 1 else [1, 1, 2, 3, 4, 6])
    layout = {"schedule": r.choice(["gpipe", "1f1b", "interleaved"]), "tp": tp,
              "zero": a_zero(r, data, model)}
    if tokens % tp == 0 and r.random() < 0.6:
        layout.update(sequence_parallel=True,
                      sequence_parallel_inputs=r.choice(["keep", "regather"]))
    if r.random() < 0.2:
        layout["order"] = r.choice(["dp-tp-cp-ep-pp", "pp-dp-cp-tp-ep"])
    return tp * data, layout


def a_case(r):
    """(ranks, configuration); every part of it is legal."""
    model = a_model(r)
    micro, m = r.randrange(1, 4), r.choice([1, 1, 2, 3, 7])
    seq = r.randrange(1, model["context"] + 1)
    ranks, layout = a_layout(r, model, micro * seq)
    return ranks, {
        "model": model,
        "batch": {"micro": micro, "global": micro * m * (ranks // layout["tp"]), "seq": seq},
        "layout": layout,
        "precision": {"compute": r.choice(["fp32", "fp64"])},
        "optim": {"name": r.choice(["adamw", "adamw", "sgd"])},
    }


def derived(step, ranks):
    """What the closed forms say, as check says it."""
    moments = Moments(step)
    at_peak = dict(zip(("activations", "buffers"), moments.fullest()))
    own = {"params": step.params(), "grads": step.grads(), "master": 0,
           "optimizer": step.optimizer()}
    return {
        **own,
        "activations": step.activations(),
        "buffers": step.buffer_state() + moments.most_buffers(),
        "at peak": {**own, "activations": at_peak["activations"],
                    "buffers": step.buffer_state() + at_peak["buffers"]},
        "total": step.state() + sum(at_peak.values()),
        "payload": step.payload(),
        "wire": [step.wire(rank) for rank in range(ranks)],
    }


def sent(document, what):
    """Every rank's bytes by axis, where there are any."""
    return [{axis: traffic[what] for axis, traffic in rank["comm_bytes"].items() if traffic[what]}
            for rank in document["by_rank"]]


def predicted(document):
    memory = document["by_rank"][0]["memory_bytes"]["device"]
    return {**memory["own_max"], "at peak": {c: memory[c] for c in memory["own_max"]},
            "total": memory["total"], "payload": sent(document, "payload")[0],
            "wire": sent(document, "wire")}


def check_document(where, document):
    for rank, prediction in enumerate(document["by_rank"]):
        memory = prediction["memory_bytes"]["device"]
        expect(f"{where}: rank {rank}: classes sum to the total",
               sum(memory[c] for c in memory["own_max"]), memory["total"])
        expect(f"{where}: rank {rank}: as on rank 0", memory,
               document["by_rank"][0]["memory_bytes"]["device"])


def packing_loss(document, step):
    """Share of the arena that the packing wastes; slots begin at multiples of ALIGN, which is no
    loss of it."""
    memory = document["by_rank"][0]["memory_bytes"]["device"]
    live = step.m if step.is_gpipe else 1
    slots = 20 + live * (4 * step.L + 3) + 2 * len(step.units)
    expect("arena holds the total", memory["arena"] >= memory["total"], True)
    return (memory["arena"] - ALIGN * slots) / memory["total"] - 1


def check_packing(losses):
    over = sum(loss > PACKING_LOSS for loss in losses)
    print(f"packing: worst {100 * max(losses):.1f} %, over {100 * PACKING_LOSS:.0f} % in {over} of "
          f"{len(losses)}")
    if over > RARELY * len(losses) or max(losses) > WORST_LOSS:
        failures.append(f"packing: {over} of {len(losses)} lose more than {PACKING_LOSS}, the "
                        f"worst {max(losses)}")


def checked(place, r):
    """(what the case is, ranks, configuration, what check says) of a random case; None: refused."""
    ranks, case = a_case(r)
    where = f"{json.dumps(case)} ranks {ranks}"
    run = place.echelon("check", place.config(**case), "--json-ranks", "--ranks", str(ranks))
    if run.code:
        failures.append(f"{where}: {run.stderr}")
        return None
    return where, ranks, case, json.loads(run.stdout)


def test_random_configurations():
    """What was checked, for the mutants."""
    r, seen, losses = random.Random(SEED), [], []
    with Place() as place:
        for _ in range(CASES):
            one = checked(place, r)
            if not one:
                continue
            where, ranks, case, document = one
            step = Step(case, ranks)
            expect(where, predicted(document), derived(step, ranks))
            check_document(where, document)
            losses.append(packing_loss(document, step))
            seen.append((ranks, case, predicted(document)))
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
    ]
    with Place() as place:
        for ranks, base, change, moved in changes:
            case = {"model": model, "batch": batch, "layout": base}
            if ranks == 4:
                case["batch"] = {**batch, "global": 8}
            got = predicted(place.check(place.config(**case), "--ranks", str(ranks),
                                        "--json-ranks"))
            other = derived(Step({**case, **change}, ranks), ranks)
            expect(f"{base} moved by {change}", {k for k in other if other[k] != got[k]}, moved)


# Mistakes in the derivation: what is replaced, and by what.
MUTANTS = {
    "vocabulary cut short": (Step, "table", lambda s: s.V // s.t * s.H),
    "inner width cut short": (Step, "inner", lambda s: s.F // s.t),
    "keys and values cut like queries": (Step, "qkv_width",
                                         lambda s: (s.a + 2 * s.g) * s.d // s.t),
    "statistics of all tokens": (Step, "own", lambda s: s.N),
    "logits whole": (Step, "kept_head", lambda s: packed(
        s.kept_norm() + [s.N * s.w * s.V, s.N * s.w])),
    "grads whole until the update": (Step, "grads", lambda s: s.share(False)),
    "moments whole": (Step, "optimizer", lambda s: 2 * s.share(False) if s.adam else 0),
    "a bucket for each unit": (Step, "buckets",
                               lambda s, part: [(u[part], i) for i, u in enumerate(s.units)]),
    "norms not summed over tp": (Step, "sum_axes", lambda s, part: [
        axis for axis in ("dp", "hsdp") if s.ranks_of(axis) > 1]),
    "replicas not summed": (Step, "sum_axes", lambda s, part: ["dp"] if s.D > 1 else []),
    "one sum a layer": (Step, "layer_messages",
                        lambda s: s.in_and_out(sums=2, gathers=2, again=2)),
    "head's loss not gathered": (Step, "end_messages",
                                 lambda s: s.in_and_out(sums=2, gathers=2, again=1)),
    "parameters gathered once": (Step, "parameter_messages", lambda s: [
        Message("all-gather", "dp", n, s.w) for u in s.units for n in u if s.shards_state]),
    "one exact sum": (Step, "exact_sums", lambda s: [True]),
    "an all-reduce at half price": (Message, "wire", lambda m, ranks, i:
                                    m.elems * m.width * m.times),
    "ranks numbered the other way": (Layout, "place", lambda layout, rank: {
        "tp": rank // layout.data, "dp": rank % layout.D,
        "hsdp": rank // layout.D % layout.R}),
    "one unit less gathered ahead": (Moments, "ahead", lambda m: m.s.prefetch - 1),
    "the table not lent": (Moments, "lent", lambda m: None),
    "gathered units never freed": (Moments, "whole_unit",
                                   lambda m, unit: Buffer(m.s.elems() * m.s.w)),
    "whole gradients for nothing": (Moments, "open_grads", lambda m, unit: None),
    "copies summed in place": (Blocks, "copies_sum", lambda b: 0),
    "staging of one round": (Scratch, "staging",
                             lambda b, elems, ranks: ranks * ceil_div(elems, ranks)),
    "products summed in place": (Scratch, "sum_over_tp", lambda b, start, wait, made: None),
}


def test_mistakes_are_seen(seen):
    """Each mistake differs from what check says in at least one of the random cases."""
    for name, (owner, what, wrong) in MUTANTS.items():
        with mock.patch.object(owner, what, wrong):
            if all(derived(Step(case, ranks), ranks) == got for ranks, case, got in seen):
                failures.append(f"mistake not seen in {len(seen)} cases: {name}")
    print(f"{len(MUTANTS)} mistakes tried in {len(seen)} cases")


cases = test_random_configurations()
test_parameters_without_padding()
test_closed_forms_see_another_configuration()
if not failures:
    test_mistakes_are_seen(cases)
finish()
