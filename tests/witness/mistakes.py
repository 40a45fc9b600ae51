"""Mistakes in the closed forms, made on purpose: each has to differ from what the product says in
at least one of many configurations (test_closed_forms.py)."""
import schedules
import stages
from closed_forms import SUM_BYTES, Layout, Message, Step, ceil_div
from moments import Blocks, Buffer, Moments, Scratch
from schedules import Schedule, in_turn, one_f_one_b, through_chunks, zb_v

# As they are, for mistakes that change them.
kept_sets, sum_axes, buffer_state = Step.kept_sets, Step.sum_axes, Step.buffer_state
small_messages, messages, list_messages = Step.small_messages, Step.messages, Moments.list_messages
layer_cost = stages.layer_cost

# What is replaced, and by what.
MISTAKES = {
    "vocabulary cut short": (Step, "table", lambda s: s.V // s.t * s.H),
    "inner width cut short": (Step, "inner", lambda s: s.F // s.t),
    "keys and values cut like queries": (Step, "qkv_width",
                                         lambda s: (s.a + 2 * s.g) * s.d // s.t),
    "statistics of all tokens": (Step, "own", lambda s: s.N),
    "logits whole": (Step, "in_head", lambda s: ([], [s.N * s.w * s.V], [s.N * s.w])),
    "grads whole until the update": (Step, "grads", lambda s: s.share(False)),
    "moments whole": (Step, "optimizer", lambda s: 2 * s.share(False) if s.adam else 0),
    "a bucket for each unit": (Step, "buckets",
                               lambda s, part: [(s.units[i][part], i) for i in s.held]),
    "norms not summed over tp": (Step, "sum_axes", lambda s, part: [
        axis for axis in sum_axes(s, part) if axis != "tp"]),
    "replicas not summed": (Step, "sum_axes", lambda s, part: [
        axis for axis in sum_axes(s, part) if axis != "hsdp"]),
    "one sum a layer": (Step, "layer_messages",
                        lambda s: s.in_and_out(sums=2, gathers=2, again=2)),
    "head's loss not gathered": (Step, "head_messages", lambda s: (
        s.in_and_out(sums=1, gathers=1, again=1) if s.has(-1) else [])),
    "parameters gathered once": (Step, "parameter_messages", lambda s: [
        Message("all-gather", "dp", n, s.w) for i in s.held for n in s.units[i]
        if s.shards_state]),
    "one exact sum": (Step, "exact_sums", lambda s: [True]),
    "an all-reduce at half price": (Message, "wire", lambda m, ranks, i:
                                    m.elems * m.width * m.times),
    "ranks numbered the other way": (Layout, "place", lambda layout, rank: {
        "tp": rank // layout.data % layout.t, "dp": rank % layout.D,
        "hsdp": rank // layout.D % layout.R, "pp": rank // layout.data // layout.t}),
    "one unit less gathered ahead": (Moments, "ahead", lambda m: m.s.prefetch - 1),
    "the table not lent": (Moments, "lent", lambda m: None),
    "gathered units never freed": (Moments, "whole_unit",
                                   lambda m, unit: Buffer(m.s.elems() * m.s.w)),
    "whole gradients for nothing": (Moments, "open_grads", lambda m, unit, micro: None),
    "copies summed in place": (Blocks, "copies_sum", lambda b: 0),
    "staging of one round": (Scratch, "staging",
                             lambda b, elems, ranks: ranks * ceil_div(elems, ranks)),
    "products summed in place": (Scratch, "sum_over_tp", lambda b, start, wait, made: None),

    # --- schedules
    "one forward too many ahead": (schedules, "one_f_one_b", lambda p, m, rank, v=1, group=0: (
        one_f_one_b(p, m, rank, v, group) if v > 1 or rank == 0 else
        [(kind, rank, j) for kind, _, j in one_f_one_b(p, m, rank - 1)])),
    "chunks half as far ahead": (schedules, "one_f_one_b", lambda p, m, rank, v=1, group=0: (
        one_f_one_b(p, m, rank) if v == 1 else
        in_turn(*(through_chunks(kind, p, m, v, group, rank) for kind in "FB"),
                p - 1 - rank + (v - 1) * group))),
    "chunks one further ahead": (schedules, "one_f_one_b", lambda p, m, rank, v=1, group=0: (
        one_f_one_b(p, m, rank) if v == 1 else
        in_turn(*(through_chunks(kind, p, m, v, group, rank) for kind in "FB"),
                2 * (p - 1 - rank) + (v - 1) * group + 1))),
    "W at once": (schedules, "zb_h1", lambda p, m, rank: [
        cell for kind, s, j in one_f_one_b(p, m, rank)
        for cell in ([("F", s, j)] if kind == "F" else [("I", s, j), ("W", s, j)])]),
    "W at the end": (schedules, "zb_v", lambda p, m, rank: sorted(
        zb_v(p, m, rank), key=lambda cell: cell[0] == "W")),
    "few micro-batches as many": (schedules, "zb_v_of_few", lambda p, m: [
        zb_v(p, m, rank) for rank in range(p)]),
    "stages on ranks in turn": (Schedule, "rank_of", lambda s, stage: stage % s.p),
    "groups of p": (schedules, "through_chunks", lambda kind, p, m, v, group, rank: (
        through_chunks(kind, p, m, v, p if v > 1 else group, rank))),

    # --- what is kept
    "everything kept to W": (Step, "kept_sets", lambda s, block: (
        (0, sum(kept_sets(s, block))) if s.is_split else kept_sets(s, block))),
    "nothing handed on": (Step, "handed_on", lambda s, block: 0),
    "W reads the stream's gradient": (Step, "weights_read_stream", lambda s, block: s.is_split),
    "one table for both": (Step, "copy", lambda s: s.table() if s.is_apart and s.has(0) else 0),
    "tokens on every stage": (Step, "buffer_state", lambda s: (
        buffer_state(s) + (0 if s.has(0) else 4 * s.m * s.N))),

    # --- what moves between stages
    "what is sent is let go at once": (Moments, "start_message", lambda m, message: (
        None if message[1] else start_message(m, message))),
    "what is sent is kept to the end": (Moments, "await_sent", lambda m: (
        None if m.now < len(m.tasks) else await_sent(m))),
    "no wrap-around": (Step, "borders", lambda s, step: sum(
        0 <= stage + step < s.schedule.stages and
        s.schedule.place[stage + step] - s.at == step for stage in s.mine)),
    "borders within a rank": (Step, "borders", lambda s, step: sum(
        0 <= stage + step < s.schedule.stages for stage in s.mine)),
    "borders whole under sp": (Step, "border_messages", lambda s: [
        Message("send", "pp", s.N * s.H, s.w, (s.borders(1) + s.borders(-1)) * s.m)]),
    "gradients not sent back": (Step, "border_messages", lambda s: [
        Message("send", "pp", s.own() * s.H, s.w, 2 * s.borders(1) * s.m)]),
    "a tied table not summed": (Step, "sum_axes", lambda s, part: [
        axis for axis in sum_axes(s, part) if axis != "tied"]),
    "a tied table summed at once": (Moments, "start_sum", lambda m, axes, elems: (
        m.start(axes, elems, None))),
    "a bucket for a stage": (Step, "buckets", lambda s, part: [
        (sum(s.units[unit][part] for unit in s.held), s.held[0])] if s.held else []),
    "the loss on the last stage only": (Step, "scalar_messages", lambda s: [
        Message("sum", axis, n, 8) for axis, n in (("dp", 3), ("hsdp", 3), ("pp", 1), ("tp", 1))]),
    "norms of a stage": (Step, "small_messages", lambda s: [
        m for m in small_messages(s) if (m.axis, m.elems) != ("pp", SUM_BYTES)]),
    "layers of all stages": (Step, "messages", lambda s: s.between_ranks(
        messages(s) + s.layer_messages() * (s.L - s.n_layers))),
}
start_message, await_sent = Moments.start_message, Moments.await_sent

# In what a unit costs where stages are balanced.
MISTAKES_IN_COSTS = {
    "an embedding for nothing": ("embedding_cost", lambda s: 0),
    "a head for nothing": ("head_cost", lambda s: 0),
    "layers by their number": ("layer_cost", lambda s: 1),
    "attention for nothing": ("layer_cost", lambda s: layer_cost(s) - 6 * s.seq * s.a * s.d),
}
