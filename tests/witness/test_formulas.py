# RUN: np=1 timeout=120 tags=fast
"""Formulas of the field against what `echelon check` counts: state by ZeRO stage, traffic of state
by stage, gathers, micro-batches and replicas, activations of a layer, traffic of tensor
parallelism and of pipelines, and how many micro-batches each pipeline rank keeps.

Sizes divide here, so that nothing is padded and every formula holds to the byte.  P parameters of
a rank's model, N ranks of a shard group, w bytes of a weight, q of a gradient, m micro-batches, u
= seq x micro x hidden, t ranks of tp, p pipeline ranks with v chunks each.  What a layer takes is
the difference that one more layer makes."""
import os
import sys
from fractions import Fraction as F

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))

from cli import expect, failures, finish  # noqa: E402
from training import Place  # noqa: E402

W = Q = 4  # fp32
H, HEADS, KV, DIM, FFN, VOCAB, SEQ, MICRO = 48, 12, 6, 4, 96, 384, 24, 4
TOKENS = SEQ * MICRO
LLAMA = {"arch": "llama", "layers": 2, "hidden": H, "heads": HEADS, "kv_heads": KV,
         "head_dim": DIM, "ffn": FFN, "vocab": VOCAB, "context": SEQ}
GPT = {"arch": "gpt2", "layers": 2, "hidden": H, "heads": HEADS, "vocab": VOCAB, "context": SEQ}
SP = {"sequence_parallel": True}


class Counted:
    """What check says of rank 0."""

    def __init__(self, place, model, data, tp=1, m=1, zero=None, **layout):
        config = place.config(model=model, layout={"tp": tp, "zero": zero or {}, **layout},
                              batch={"micro": MICRO, "seq": SEQ, "global": MICRO * m * data})
        ranks = tp * data * layout.get("pp", 1)
        self.document = place.check(config, "--ranks", str(ranks), "--json-ranks")
        self.ranks, self.stages = self.document["by_rank"], self.document["stages"]
        first = self.ranks[0]
        self.memory = first["memory_bytes"]["device"]["own_max"]
        self.sent = {axis: t["wire"] for axis, t in first["comm_bytes"].items()}
        self.payload = {axis: t["payload"] for axis, t in first["comm_bytes"].items()}

    def all_sent(self, axis):
        return [rank["comm_bytes"][axis]["wire"] for rank in self.ranks]

    def all_kept(self):
        return [rank["memory_bytes"]["device"]["own_max"]["activations"] for rank in self.ranks]

    def state(self):
        return sum(self.memory[c] for c in ("params", "grads", "master", "optimizer"))


def params(model, layers=None):
    """Elements of a model by the paper; the vocabulary is a multiple of 128."""
    layers = model["layers"] if layers is None else layers
    if model is GPT:
        layer = 12 * H * H + 13 * H
        return layers * layer + (VOCAB + SEQ) * H + 2 * H
    layer = H * (HEADS + 2 * KV) * DIM + HEADS * DIM * H + 3 * H * FFN + 2 * H
    return layers * layer + 2 * VOCAB * H + H


def close(what, got, want):
    """A formula that holds to the byte."""
    if got != want and (isinstance(got, list) or F(got) != F(want)):
        failures.append(f"{what}: counted {got}, the formula says {want}")


# --- state

def state_formula(stage, p, n):
    """Pure fp32: weights and gradients 4 bytes, Adam's moments 8, no second copy of the weights."""
    whole, sharded = [(16, 0), (8, 8), (4, 12), (0, 16)][stage]
    return whole * p + F(sharded * p, n)


def test_state(place):
    for model in (LLAMA, GPT):
        for n in (1, 2, 4):
            for stage in range(4):
                got = Counted(place, model, n, zero={"stage": stage}).state()
                close(f"state of {model['arch']}, stage {stage}, {n} ranks", got,
                      state_formula(stage, params(model), n))
        # gradients that wait for the last micro-batch are whole: stage 1's bytes
        late = Counted(place, model, 4, m=2, zero={"stage": 2}).state()
        close("stage 2 that reduces last", late, state_formula(1, params(model), 4))
        each = Counted(place, model, 4, m=2, zero={"stage": 2, "reduce": "each"}).state()
        close("stage 2 that reduces each", each, state_formula(2, params(model), 4))


def test_tp_shrinks_first(place):
    """N is the data parallel degree, never the number of ranks, and P a rank's own."""
    norms = (2 * LLAMA["layers"] + 1) * H
    mine = F(params(LLAMA) - norms, 2) + norms
    for stage in range(4):
        got = Counted(place, LLAMA, 4, tp=2, zero={"stage": stage}).state()
        close(f"state of tp 2 x dp 4, stage {stage}", got, state_formula(stage, mine, 4))
    got = Counted(place, LLAMA, 4, tp=2, zero={"stage": 3, "group": 2}).state()
    close("state of tp 2 x dp 4 in groups of 2", got, state_formula(3, mine, 2))


# --- traffic of state

def small_sums(n, sharded):
    """Counts of tokens, the loss, the wish to stop; the exact sum of squares of sharded state."""
    return (3 * 8 + (168 if sharded else 0)) * (n - 1)


def state_traffic(stage, p, n, m=1, each=False, reshard=True):
    if stage == 0:
        return 2 * Q * p * F(n - 1, n)
    reductions = m if each else 1
    gathers = 1 if stage < 3 else m * (2 if reshard else 1)
    return (gathers * W + reductions * Q) * p * F(n - 1, n)


def sent_by_state(place, n, m=1, **zero):
    model = {**LLAMA}
    counted = Counted(place, model, n, m=m, zero=zero)
    return counted.sent["dp"] - small_sums(n, zero.get("stage", 0) > 0)


def test_traffic_of_state(place):
    p = params(LLAMA)
    for n in (2, 4):
        for stage in range(4):
            close(f"traffic of stage {stage}, {n} ranks", sent_by_state(place, n, stage=stage),
                  state_traffic(stage, p, n))
    for m in (1, 2, 3):
        for each in (False, True):
            for reshard in (False, True):
                zero = {"reduce": "each" if each else "last", "reshard_after_forward": reshard}
                close(f"traffic of stage 3, {m} micro-batches, {zero}",
                      sent_by_state(place, 4, m=m, stage=3, **zero),
                      state_traffic(3, p, 4, m, each, reshard))
            close(f"traffic of stage 2, {m} micro-batches, each {each}",
                  sent_by_state(place, 4, m=m, stage=2, reduce="each" if each else "last"),
                  state_traffic(2, p, 4, m, each))


def test_rules_of_thumb(place):
    """Stage 3 sends 1.5 times what plain data parallelism does; stages 1, 2 and a stage 3 that
    keeps what it has gathered as much."""
    plain = sent_by_state(place, 4)
    for what, zero, factor in [("stage 1", {"stage": 1}, 1), ("stage 2", {"stage": 2}, 1),
                               ("stage 3", {"stage": 3}, F(3, 2)),
                               ("stage 3 without resharding",
                                {"stage": 3, "reshard_after_forward": False}, 1)]:
        close(f"{what} against plain", sent_by_state(place, 4, **zero), factor * plain)


def test_traffic_of_replicas(place):
    """Hybrid: the same within the group, and the shard summed over replicas."""
    p = params(LLAMA)
    for stage in (1, 2, 3):
        for m in (1, 2):
            got = Counted(place, LLAMA, 8, m=m, zero={"stage": stage, "group": 4})
            close(f"hybrid stage {stage}, in the group", got.sent["dp"] - small_sums(4, True),
                  state_traffic(stage, p, 4, m))
            close(f"hybrid stage {stage}, over replicas", got.sent["hsdp"] - small_sums(2, False),
                  2 * Q * F(p, 4) * F(1, 2))


# --- a layer

def one_more(place, model, what, **how):
    """What the third layer adds."""
    more = Counted(place, {**model, "layers": 3}, 1, **how)
    less = Counted(place, model, 1, **how)
    return what(more) - what(less)


def kept(counted):
    return counted.memory["activations"]


def test_activations_of_a_layer(place):
    """No scores are stored, and dropout's masks are computed again (2 u of the 34 u at 16 bit)."""
    for t in (1, 2, 3):
        for layout in [{}] + ([SP, {**SP, "sequence_parallel_inputs": "keep"}] if t > 1 else []):
            is_sp, keeps = bool(layout), "sequence_parallel_inputs" in layout
            # two inputs of blocks; outputs of two norms, with their statistics
            inputs, outputs = 2 * H, 2 * H
            if is_sp:
                inputs, outputs = F(inputs, t), outputs if keeps else F(outputs, t)
            statistics = F(2, t) if is_sp else 2
            gpt = F(12 * H + HEADS, t) + inputs + outputs + 2 * statistics
            close(f"GPT layer, tp {t}, {layout}", one_more(place, GPT, kept, tp=t, **layout),
                  W * TOKENS * gpt)
            modern = F(2 * HEADS * DIM + 2 * KV * DIM + 3 * FFN + HEADS, t) + inputs + outputs
            close(f"Llama layer, tp {t}, {layout}", one_more(place, LLAMA, kept, tp=t, **layout),
                  W * TOKENS * (modern + statistics))
            if keeps or (t > 1 and not is_sp):
                continue
            # the same from the 16-bit formulas of the literature
            u, half = TOKENS * H, F(W, 2)
            rest = W * TOKENS * (F(HEADS, t) + 2 * statistics)  # log-sum-exp, mean and 1/std
            close(f"GPT layer, tp {t}, {layout}: (34 - 2) u / t",
                  one_more(place, GPT, kept, tp=t, **layout), half * F((34 - 2) * u, t) + rest)
    u = TOKENS * H
    close("GPT layer, tp 2: u (10 - 2 + 24 / t)", one_more(place, GPT, kept, tp=2),
          F(W, 2) * u * (10 - 2 + F(24, 2)) + W * TOKENS * (F(HEADS, 2) + 4))


def test_traffic_of_a_layer(place):
    """Two sums forward and two backward of u elements, 4 (t - 1) / t u each way round."""
    u, half = TOKENS * H, F(W, 2)
    for t in (2, 3, 4):
        for m in (1, 2):
            per = m * F(t - 1, t)
            got = one_more(place, LLAMA, lambda c: c.sent["tp"], tp=t, m=m)
            close(f"wire of a layer, tp {t}, {m} micro-batches", got, half * 16 * u * per)
            got = one_more(place, LLAMA, lambda c: c.payload["tp"], tp=t, m=m)
            close(f"payload of a layer, tp {t}, {m} micro-batches", got, half * 8 * u * m)
            norms = 2 * W * 2 * H * F(t - 1, t)  # their gradients are partial sums, once a step
            for keep, again in (("keep", 0), ("regather", 4)):
                got = one_more(place, LLAMA, lambda c: c.sent["tp"], tp=t, m=m, **SP,
                               sequence_parallel_inputs=keep)
                close(f"wire of a layer, tp {t} with sp, {keep}", got,
                      half * (16 + again) * u * per + norms)


# --- pipelines

PIPELINES = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3), ("zb-h1", 1),
             ("zb-v", 2)]


def pipelined(place, name, p, v, m, model=LLAMA, a_stage=1, **how):
    """So many layers in every virtual stage."""
    chunks = {"virtual_stages": v} if name == "interleaved" else {}
    return Counted(place, {**model, "layers": a_stage * p * v}, how.pop("data", 1), m=m, pp=p,
                   schedule=name, stages=[a_stage] * (p * v), **chunks, **how)


def numbers_of_micro_batches(name, p):
    """1 to 3 p; interleaved goes in groups of p."""
    return range(p, 3 * p + 1, p) if name == "interleaved" else range(1, 3 * p + 1)


def live_formula(name, p, v, m, i):
    """Micro-batches of its stages that rank i keeps at its fullest; None: no more than p."""
    if name == "gpipe":
        return m
    if name in ("1f1b", "zb-h1"):
        return min(m, p - i)
    if name == "interleaved":
        return min(F(m), F((v - 1) * p + 2 * (p - 1 - i) + 1, v))
    return F(p) if m >= 2 * p - 1 else None


def check_live(place, name, p, v, m, formula=live_formula):
    stages = pipelined(place, name, p, v, m).stages
    close(f"{name}, pp {p} x {v}, {m}: stages", len(stages), p * v)
    for stage in stages:
        want = formula(name, p, v, m, stage["rank"])
        where = f"live of {name}, pp {p} x {v}, {m} micro-batches, rank {stage['rank']}"
        got = F(stage["live"], v)
        if want is not None:
            close(where, got, want)
        elif got > min(m, p):
            failures.append(f"{where}: counted {got}, at most {min(m, p)}")
        late = 0 if name in ("gpipe", "1f1b", "interleaved") else min(m, p)
        if F(stage["deferred"], v) > late:
            failures.append(f"{where}: {stage['deferred']} wait for W, at most {late}")


def test_live_micro_batches(place):
    for name, v in PIPELINES:
        for p in (2, 3, 4):
            for m in numbers_of_micro_batches(name, p):
                check_live(place, name, p, v, m)


def layer_kept():
    """Of a Llama layer without tp: as in test_activations_of_a_layer."""
    return W * TOKENS * (2 * HEADS * DIM + 2 * KV * DIM + 3 * FFN + HEADS + 4 * H + 2)


def test_activations_of_stages(place):
    """One more layer in every stage adds a layer for each micro-batch that is kept."""
    for name, p, v, m in (("gpipe", 2, 1, 5), ("1f1b", 4, 1, 6), ("1f1b", 3, 1, 2),
                          ("interleaved", 2, 2, 4), ("interleaved", 3, 2, 6)):
        more = pipelined(place, name, p, v, m, a_stage=2).all_kept()
        less = pipelined(place, name, p, v, m).all_kept()
        for i in range(p):
            close(f"a layer more in each stage of {name}, pp {p} x {v}, {m}, rank {i}",
                  more[i] - less[i], live_formula(name, p, v, m, i) * v * layer_kept())


def pipeline_scalars(p, tp):
    """The loss and the wish to stop; the exact sums of squares, of what is whole over tp too."""
    return (2 * 8 + 168 * (1 + (tp > 1))) * (p - 1)


def border_formula(name, p, v, m, tp=1, is_sp=False):
    """Of all ranks: 2 u forward and 2 u back (16 bit) a micro-batch and border, p v - 1 borders
    with the wraps from the last rank to the first; that at the bottom of a V is within a rank."""
    borders = p * v - 1 - (name == "zb-v")
    u, half = TOKENS * H, F(W, 2)
    ranks = 1 if is_sp else tp  # each of tp sends it whole, or its share
    return borders * m * (2 * u + 2 * u) * half * ranks


def borders_sent(place, name, p, v, m, tp=1, **layout):
    sent = pipelined(place, name, p, v, m, tp=tp, **layout).all_sent("pp")
    return sum(sent) - len(sent) * pipeline_scalars(p, tp)


def test_traffic_between_stages(place):
    for name, v in PIPELINES:
        for p in (2, 3, 4):
            m = 2 * p
            close(f"borders of {name}, pp {p} x {v}", borders_sent(place, name, p, v, m),
                  border_formula(name, p, v, m))
        for is_sp in (False, True):
            close(f"borders of {name}, pp 2 x {v}, tp 2, sp {is_sp}",
                  borders_sent(place, name, 2, v, 4, 2, **(SP if is_sp else {})),
                  border_formula(name, 2, v, 4, 2, is_sp))
    sent = pipelined(place, "1f1b", 4, 1, 3).all_sent("pp")
    u = TOKENS * H * W * 3
    for rank, borders in enumerate((1, 2, 2, 1)):
        close(f"borders of rank {rank} of 4", sent[rank] - pipeline_scalars(4, 1), borders * u)


def test_traffic_of_a_tied_table(place):
    """q V h / t between first and last stage once a step, whatever the number of micro-batches; the
    shares of it with sharded state; nothing where both are on one rank."""
    model = {**LLAMA, "tie_embeddings": True}
    for tp in (1, 2):
        table = F(Q * VOCAB * H, tp)
        for m in (1, 3):
            sent = pipelined(place, "1f1b", 3, 1, m, model, tp=tp).all_sent("tied")
            close(f"tied, tp {tp}, {m}", sent, [table] * tp + [0] * tp + [table] * tp)
        for stage in (0, 1, 2, 3):
            share = table / (2 if stage else 1)
            sent = pipelined(place, "1f1b", 2, 1, 2, model, tp=tp, data=2,
                             zero={"stage": stage}).all_sent("tied")
            close(f"tied, tp {tp}, dp 2, stage {stage}", sent, [share] * 4 * tp)
        sent = pipelined(place, "zb-v", 2, 2, 2, model, tp=tp).all_sent("tied")
        close(f"tied in a V, tp {tp}", sent, [0] * 2 * tp)


def test_a_wrong_rule_of_pipelines_is_seen(place):
    """Each in circulation, and wrong: what the formulas above say of it differs."""
    def wrong_live(name, p, v, m, i):
        return {"gpipe": min(m, p), "1f1b": min(m, p), "zb-h1": p, "zb-v": 2 * p}.get(
            name, min(m, p - i))
    before = len(failures)
    for name, v in PIPELINES:
        check_live(place, name, 3, v, 6, wrong_live)
    wrong = {s.split(",")[0] for s in failures[before:]}
    close("the wrap forgotten", borders_sent(place, "interleaved", 2, 2, 4),
          border_formula("1f1b", 2, 1, 4) * 2)
    close("a V as one way", borders_sent(place, "zb-v", 2, 2, 4),
          border_formula("interleaved", 2, 2, 4))
    close("sp has no effect", borders_sent(place, "1f1b", 2, 1, 4, 2, **SP),
          border_formula("1f1b", 2, 1, 4, 2))
    n = len(failures) - before
    seen = failures[-3:]
    del failures[before:]
    expect("wrong rules seen", wrong, {f"live of {name}" for name, _ in PIPELINES})
    expect("wrong borders seen", [s.split(":")[0] for s in seen],
           ["the wrap forgotten", "a V as one way", "sp has no effect"])
    expect("wrong rules", n > 8, True)


def test_a_wrong_factor_is_seen(place):
    """Each formula, given a factor in circulation that is wrong, differs from what is counted."""
    p, sent = params(LLAMA), sent_by_state(place, 4, stage=3)
    counted = Counted(place, LLAMA, 4, zero={"stage": 2})
    layer = one_more(place, LLAMA, lambda c: c.sent["tp"], tp=2)
    wrong = [("stage 3 sends twice", sent, 2 * state_traffic(0, p, 4)),
             ("sharding sends P / N", sent, F(3 * W * p, 4)),
             ("stage 2 shards weights", counted.state(), state_formula(3, p, 4)),
             ("two sums a layer", layer, F(W, 2) * 8 * TOKENS * H * F(1, 2))]
    before = len(failures)
    for what, got, want in wrong:
        close(what, got, want)
    seen = failures[before:]
    del failures[before:]
    expect("wrong factors seen", [s.split(":")[0] for s in seen], [w[0] for w in wrong])


with Place() as place:
    test_state(place)
    test_tp_shrinks_first(place)
    test_traffic_of_state(place)
    test_rules_of_thumb(place)
    test_traffic_of_replicas(place)
    test_activations_of_a_layer(place)
    test_traffic_of_a_layer(place)
    test_a_wrong_factor_is_seen(place)
    test_live_micro_batches(place)
    test_activations_of_stages(place)
    test_traffic_between_stages(place)
    test_traffic_of_a_tied_table(place)
    test_a_wrong_rule_of_pipelines_is_seen(place)
finish()
