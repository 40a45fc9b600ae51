"""The fullest moment of a step: what is alive when, from the configuration alone (closed_forms.py).

Buffers are held from their first use to their last, in the order of a step: forward and backward
unit by unit, reductions started as soon as a unit's gradient is complete with two in flight,
parameters of a sharded model gathered ahead of their use."""
from closed_forms import PARTS, SUM_BYTES, ceil_div, up

ROW_BLOCKS, CHUNK, WINDOW = 16, 65536, 2


class Buffer:
    def __init__(self, size, is_activation=False):
        self.size, self.is_activation = size, is_activation
        self.first = self.last = None


class Timeline:
    """Moments and the buffers that each of them uses."""

    def __init__(self):
        self.buffers, self.n = set(), 0

    def moment(self, *used, work=0):
        for buffer in [b for b in used if b] + ([Buffer(work)] if work else []):
            buffer.first = self.n if buffer.first is None else buffer.first
            buffer.last = self.n
            self.buffers.add(buffer)
        self.n += 1

    def alive(self):
        """(activations, buffers) in bytes at each moment."""
        change = [[0, 0] for _ in range(self.n + 1)]
        for b in self.buffers:
            change[b.first][not b.is_activation] += b.size
            change[b.last + 1][not b.is_activation] -= b.size
        out, now = [], [0, 0]
        for a, b in change[:-1]:
            now = [now[0] + a, now[1] + b]
            out.append(tuple(now))
        return out


def peak(lives):
    """Most bytes alive at once; lives are (bytes, first, last)."""
    times = range(max(last for _, _, last in lives) + 1) if lives else ()
    return max((sum(up(b) for b, i, k in lives if i <= t <= k) for t in times), default=0)


class Scratch:
    """Temporaries of one block: ops in their order, and what lives from one to another."""

    def __init__(self, step, *ops):
        self.at = {op: i for i, op in enumerate(op for op in ops if op)}
        self.step, self.lives = step, []

    def live(self, elems, first, last, width=None):
        self.lives.append((elems * (width or self.step.w), self.at[first], self.at[last]))

    def staging(self, elems, ranks):
        """Of a reduction, in elements: a chunk of every rank, in two rounds."""
        return 2 * ranks * min(ceil_div(elems, ranks), CHUNK)

    def sum_over_tp(self, start, wait, made):
        """A row-parallel product, made by `made`, summed over tp."""
        s = self.step
        if s.t > 1:
            self.live(self.staging(s.N * s.H, s.t), start, wait)
        if s.is_sp:
            self.live(s.N * s.H, made, wait)

    def peak(self):
        return peak(self.lives)


class Blocks:
    """Bytes of scratch of every block."""

    def __init__(self, step):
        self.s = step

    # --- forward

    def embedding(self):
        b = Scratch(self.s, "embed", "sum")
        b.sum_over_tp("sum", "sum", "embed")
        return b.peak()

    def gathered_norm(self, b):
        """norm(x) of a rank's tokens, gathered for a column-parallel product."""
        s = self.s
        if s.keeps:
            b.live(s.own() * s.H, "norm", "gather")
        elif s.is_sp:
            b.live(s.N * s.H, "gather", "linear")

    def layer_half(self):
        b = Scratch(self.s, "norm", "gather", "linear", "inside", "out", "sum")
        self.gathered_norm(b)
        b.sum_over_tp("sum", "sum", "out")
        return b.peak()

    def head(self):
        s = self.s
        b = Scratch(s, "norm", "gather", "linear", "parts", "gather parts", "loss")
        self.gathered_norm(b)
        b.live(2 * s.N, "parts", "gather parts" if s.t > 1 else "loss", 8)
        if s.t > 1:
            b.live(2 * s.N * s.t, "gather parts", "loss", 8)
        b.live(s.N, "loss", "loss", 8)
        return b.peak()

    # --- backward

    def output_grad(self, b, has_bias):
        """Gradient behind the last product of a block: dropped out, gathered, summed for a bias."""
        s = self.s
        if s.dropout:
            last = "wgrad" if not s.is_sp else "bias" if has_bias else "gather"
            b.live(s.own() * s.H, "dropout", last)
        if s.is_sp:
            b.live(s.N * s.H, "gather", "wgrad")
        if s.t > 1 and has_bias:
            b.live(ROW_BLOCKS * s.H, "bias", "bias")

    def input_grad(self, b):
        """Gradient through a column-parallel product, summed over tp under the weight gradient, and
        through the norm before it."""
        s = self.s
        b.live(s.own() * s.H, "sum" if s.is_sp else "dgrad in", "norm")
        b.live(ROW_BLOCKS * s.norm(), "norm", "norm")
        b.sum_over_tp("sum", "wait", "dgrad in")
        if s.is_sp and not s.keeps:
            b.live(s.N * s.H, "gather again", "wgrad in")

    def backward(self, *inside):
        return Scratch(self.s, "dropout", "gather", "bias", "dgrad", "wgrad", *inside,
                       "gather again", "dgrad in", "sum", "wgrad in", "wait", "norm")

    def attention_backward(self):
        s = self.s
        b = self.backward("attention", "rope", "qk norm")
        self.output_grad(b, s.is_gpt)
        b.live(s.N * (s.a // s.t) * s.d, "dgrad", "attention")
        b.live(s.N * s.qkv_width(), "attention", "wgrad in")
        if s.qk_norm:
            b.live(ROW_BLOCKS * 2 * s.d, "qk norm", "qk norm")
        self.input_grad(b)
        return b.peak()

    def mlp_backward(self):
        s = self.s
        b = self.backward("act")
        self.output_grad(b, s.is_gpt)
        b.live(s.N * s.inner(), "dgrad", "wgrad in" if s.is_gpt else "act")
        if not s.is_gpt:
            b.live(2 * s.N * s.inner(), "act", "wgrad in")
        self.input_grad(b)
        return b.peak()

    def head_backward(self):
        b = self.backward()
        self.input_grad(b)
        return b.peak()

    def embedding_backward(self):
        s = self.s
        b = Scratch(s, "dropout", "positions", "gather", "embed")
        if s.dropout:
            b.live(s.own() * s.H, "dropout", "gather" if s.is_sp else "embed")
        if s.is_sp:
            b.live(s.N * s.H, "gather", "embed")
        return b.peak()

    # --- between steps of the model

    def copies_sum(self):
        """Keys and values that several ranks hold: weights, then the bias."""
        s = self.s
        b = Scratch(s, "fold", "sum", "spread", "fold bias", "sum bias", "spread bias")
        n = 2 * s.groups * s.d
        for elems, suffix in ((n * s.H, ""), (n if s.qkv_bias else 0, " bias")):
            b.live(elems, "fold" + suffix, "spread" + suffix)
            b.live(b.staging(elems, s.copies), "sum" + suffix, "sum" + suffix)
        return b.peak()

    def exact_sums(self):
        """Every rank's sum of squares over dp, then tp; results stay to the end."""
        s, ops = self.s, []
        for k, is_partial in enumerate(s.exact_sums()):
            ops += [("dp", k, s.D)] if s.shards_state else []
            ops += [("tp", k, s.t)] if is_partial and s.t > 1 else []
        b = Scratch(s, *[op[:2] for op in ops], "clip")
        for i, (axis, k, ranks) in enumerate(ops):
            after = ops[i + 1][:2] if i + 1 < len(ops) and ops[i + 1][1] == k else "clip"
            b.live(SUM_BYTES * ranks, (axis, k), (axis, k), 1)
            b.live(SUM_BYTES, (axis, k), after, 1)
        return b.peak()


class Moments:
    """A step of Echelon's policy as a time line."""

    def __init__(self, step):
        self.s, self.line, self.blocks = step, Timeline(), Blocks(step)
        self.in_flight, self.grads, self.params = [], {}, {}
        self.bucket_at = [dict((low, n) for n, low in step.buckets(part)) for part in PARTS]
        self.now, self.gathers, self.n_started = 0, self.uses() if step.shards_params else [], 0
        self.step()

    def fullest(self):
        """Bytes of activations and of buffers that do not outlive a step."""
        return max(self.line.alive(), key=sum)

    def most_buffers(self):
        return max(b for _, b in self.line.alive())

    # --- parameters gathered

    def uses(self):
        """[first, last, unit, buffer] of whole parameters in units of work, by first use."""
        s, n, out = self.s, len(self.s.units), []
        for micro in range(s.m):
            forward = micro * n if s.is_gpipe else 2 * micro * n
            backward = (s.m + micro) * n if s.is_gpipe else forward + n
            for unit in range(n):
                is_lent = unit == 0 and s.is_tied  # to the head
                last = forward + (n - 1 if is_lent else unit)
                end = backward + n - 1 - unit
                if s.reshards:
                    out.append([forward + unit, last, unit, None])
                    out.append([backward if is_lent else end, end, unit, None])
                else:
                    out.append([forward + unit, end, unit, None])
        return sorted(out, key=lambda use: use[0])

    def whole_unit(self, unit):
        return Buffer(sum(up(n * self.s.w) for n in self.s.units[unit]))

    def gather(self, use):
        use[3] = self.whole_unit(use[2])
        for _ in filter(None, self.s.units[use[2]]):
            self.line.moment(use[3])

    def ahead(self):
        return self.s.prefetch

    def begin_unit(self):
        begun = sum(use[0] <= self.now for use in self.gathers)
        for use in self.gathers[self.n_started:begun + self.ahead()]:
            self.gather(use)
            self.n_started += 1
        for use in self.gathers:
            if use[0] == self.now:
                self.params[use[2]] = use[3]
                for _ in filter(None, self.s.units[use[2]]):
                    self.line.moment(use[3])

    def end_unit(self):
        for first, last, unit, buffer in self.gathers:
            if last == self.now and self.params.get(unit) is buffer:
                del self.params[unit]
        self.now += 1

    # --- gradients

    def open_grads(self, unit):
        if self.s.shards_grads and unit not in self.grads:
            self.grads[unit] = self.whole_unit(unit)
            self.line.moment(self.grads[unit])

    def start(self, axes, elems, after, *held):
        """A reduction of elems(axis) elements over the first of axes, then over the others."""
        while len(self.in_flight) >= WINDOW:
            self.await_oldest()
        axis, ranks = axes[0], self.s.ranks_of(axes[0])
        staging = Buffer(2 * ranks * min(ceil_div(elems(axis), ranks), CHUNK) * self.s.w)
        self.line.moment(staging, *held)
        self.in_flight.append((axes, elems, after, staging, held))

    def await_oldest(self):
        axes, elems, after, *held = self.in_flight.pop(0)
        self.line.moment(held[0], *held[1])
        if after:  # what has landed is added to the micro-batches before
            self.line.moment(after)
        if axes[1:]:
            self.start(axes[1:], elems, None)

    def scatter(self, unit, micro):
        s = self.s
        for part in PARTS:
            n = s.units[unit][part]
            if not n:
                continue
            axes = s.sum_axes(part) if micro == s.m - 1 else ["dp"]
            landing = Buffer(n // s.D * s.w) if s.shards_grads and micro > 0 else None
            self.start(axes, lambda axis, n=n: n if axis == "dp" else n // s.D, landing,
                       self.grads.get(unit), landing)
        self.grads.pop(unit, None)

    def reduce(self, unit, micro):
        s = self.s
        if micro < s.m - 1 and not s.shards_grads:
            return
        if s.copies > 1 and 0 < unit <= s.L:
            self.line.moment(self.grads.get(unit), work=self.blocks.copies_sum())
        if s.shards_state:
            self.scatter(unit, micro)
            return
        for part in PARTS:
            n = self.bucket_at[part].get(unit, 0)
            if n and s.sum_axes(part):
                self.start(s.sum_axes(part), lambda axis, n=n: n, None)

    # --- the model

    def activation(self, size):
        return Buffer(size, is_activation=True)

    def forward(self):
        s, blocks, line = self.s, self.blocks, self.line
        kept = [[self.activation(s.stream())]]
        for unit in range(len(s.units)):
            self.begin_unit()
            params = self.params.get(unit)
            if unit == 0:
                line.moment(params, kept[0][0], work=blocks.embedding())
            elif unit <= s.L:
                for size in (s.kept_attention(), s.kept_mlp()):
                    x, saved = kept[-1][0], self.activation(size)
                    kept[-1].append(saved)
                    kept.append([self.activation(s.stream())])
                    line.moment(params, x, saved, kept[-1][0], work=blocks.layer_half())
            else:
                kept[-1].append(self.activation(s.kept_head()))
                line.moment(params, self.lent(), *kept[-1], work=blocks.head())
            self.end_unit()
        return kept

    def lent(self):
        """The token table, for a head that has none."""
        return self.params.get(0) if self.s.is_tied else None

    def backward(self, kept, micro):
        s, blocks = self.s, self.blocks
        grad = None
        for unit in range(len(s.units) - 1, -1, -1):
            self.begin_unit()
            params = self.params.get(unit)
            self.open_grads(unit)
            if unit > s.L:
                if s.is_tied:
                    self.open_grads(0)
                lent = (self.lent(), self.grads.get(0) if s.is_tied else None)
                grad = self.step_back(kept.pop(), grad, blocks.head_backward(), params,
                                      self.grads.get(unit), *lent)
            elif unit > 0:
                for work in (blocks.mlp_backward(), blocks.attention_backward()):
                    grad = self.step_back(kept.pop(), grad, work, params, self.grads.get(unit))
            else:
                self.line.moment(grad, self.grads.get(0), work=blocks.embedding_backward())
            self.end_unit()
            self.reduce(unit, micro)

    def step_back(self, kept, grad, work, *others):
        out = Buffer(self.s.stream())
        self.line.moment(*kept, grad, out, *others, work=work)
        return out

    # --- the step

    def step(self):
        s = self.s
        data = next((n for n in (s.D, s.R) if n > 1), 0)
        tokens, ahead = Buffer(8 * data), []
        self.line.moment(tokens)
        if s.is_gpipe:
            ahead = [self.forward() for _ in range(s.m)]
        for micro in range(s.m):
            kept = ahead[micro] if ahead else self.forward()
            if micro == 0:
                self.line.moment(tokens, work=up(8 * s.R) if s.D > 1 and s.R > 1 else 0)
            self.backward(kept, micro)
        while self.in_flight:
            self.await_oldest()
        self.line.moment(work=max(up(8 * n) if n > 1 else 0 for n in (s.D, s.R, s.t)))
        self.line.moment(work=self.blocks.exact_sums())
