"""The fullest moment of a step: what is alive when, from the configuration alone (closed_forms.py).

Buffers are held from their first use to their last, in the order of a pipeline rank's schedule
(schedules.py): each cell unit by unit, reductions started as soon as a unit's gradient is complete
with two in flight, parameters of a sharded model gathered ahead of their use.  What a stage makes
begins to move, and a place for it to arrive in is taken, before the first cell that begins when it
is made or later; what is sent is let go behind that cell."""
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
        """Left out where its ops are: a block of one purpose has not all."""
        if first not in self.at and last not in self.at:
            return
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

    # --- backward, `role`: B, or I or W alone; what W wants of I is not scratch but kept

    OPS = {"I": ("dropout", "gather", "dgrad", "attention", "rope", "qk norm", "act", "dgrad in",
                 "sum", "wait", "norm"),
           "W": ("bias", "wgrad", "gather again", "wgrad in"),
           "B": ("dropout", "gather", "bias", "dgrad", "wgrad", "attention", "rope", "qk norm",
                 "act", "gather again", "dgrad in", "sum", "wgrad in", "wait", "norm")}

    def backward_of(self, role):
        return Scratch(self.s, *self.OPS[role])

    def live_between(self, b, elems, first, last):
        """From one op to another, of other purposes: where backward is split it is handed on."""
        if not self.s.is_split:
            b.live(elems, first, last)

    def output_grad(self, b, has_bias):
        """Gradient behind the last product of a block: dropped out, gathered."""
        s = self.s
        if s.dropout and s.is_sp:
            b.live(s.own() * s.H, "dropout", "bias" if has_bias and not s.is_split else "gather")
        elif s.dropout:
            self.live_between(b, s.own() * s.H, "dropout", "wgrad")
        if s.is_sp:
            self.live_between(b, s.N * s.H, "gather", "wgrad")

    def input_grad(self, b):
        """Gradient through a column-parallel product, summed over tp under the weight gradient, and
        through the norm before it."""
        s = self.s
        b.live(s.own() * s.H, "sum" if s.is_sp else "dgrad in", "norm")
        b.live(ROW_BLOCKS * s.norm(), "norm", "norm")
        b.sum_over_tp("sum", "wait", "dgrad in")
        if s.is_sp and not s.keeps:
            b.live(s.N * s.H, "gather again", "wgrad in")

    def attention_backward(self, role):
        s = self.s
        b = self.backward_of(role)
        self.output_grad(b, s.is_gpt)
        b.live(s.N * (s.a // s.t) * s.d, "dgrad", "attention")
        self.live_between(b, s.N * s.qkv_width(), "attention", "wgrad in")
        if s.qk_norm:
            b.live(ROW_BLOCKS * 2 * s.d, "qk norm", "qk norm")
        self.input_grad(b)
        return b.peak()

    def mlp_backward(self, role):
        s = self.s
        b = self.backward_of(role)
        self.output_grad(b, s.is_gpt)
        if s.is_gpt:
            self.live_between(b, s.N * s.inner(), "dgrad", "wgrad in")
        else:
            b.live(s.N * s.inner(), "dgrad", "act")
            self.live_between(b, 2 * s.N * s.inner(), "act", "wgrad in")
        self.input_grad(b)
        return b.peak()

    def head_backward(self, role):
        b = self.backward_of(role)
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
            ops += [("pp", k, s.p)] if s.p > 1 else []
        b = Scratch(s, *[op[:2] for op in ops], "clip")
        for i, (axis, k, ranks) in enumerate(ops):
            after = ops[i + 1][:2] if i + 1 < len(ops) and ops[i + 1][1] == k else "clip"
            b.live(SUM_BYTES * ranks, (axis, k), (axis, k), 1)
            b.live(SUM_BYTES, (axis, k), after, 1)
        return b.peak()


class Kept:
    """What a rank holds of a stage and micro-batch: the stream as far as it has come, its gradient,
    and of each block its input and three sets."""

    def __init__(self):
        self.stream = self.grad = None
        self.blocks = []


class Saved:
    def __init__(self, name, x, sets):
        self.name, self.x, self.sets = name, x, sets
        self.handed_on = self.out_grad = None
        self.has_input = self.has_weights = False


class Moments:
    """A step of Echelon's policy as a time line."""

    def __init__(self, step):
        self.s, self.line, self.blocks = step, Timeline(), Blocks(step)
        self.in_flight, self.grads, self.params, self.scattered = [], {}, {}, set()
        self.bucket_at = [dict((low, n) for n, low in step.buckets(part)) for part in PARTS]
        self.complete, self.n_bucketed = set(), 0
        self.tied_sum, self.is_accumulating = None, True
        self.kept, self.tasks = {}, self.list_tasks()
        self.now, self.n_started = 0, 0
        self.gathers = self.uses() if step.shards_params else []
        self.step()

    def fullest(self):
        """Bytes of activations and of buffers that do not outlive a step."""
        return max(self.line.alive(), key=sum)

    def most_activations(self):
        return max(a for a, _ in self.line.alive())

    def most_buffers(self):
        return max(b for _, b in self.line.alive())

    # --- the order of work

    def work_of(self, cell):
        """(kind, unit) in the order in which a cell goes through its units.  A whole backward among
        split ones is I and W of each unit; the embedding is all I."""
        kind, stage, _ = cell
        units = list(range(*self.s.ends[stage]))
        if kind == "F":
            return [(kind, u) for u in units]
        kinds = "IW" if kind == "B" and self.s.is_split else kind
        return [(k, u) for u in units[::-1] for k in kinds if u or k != "W"]

    def list_tasks(self):
        """(kind, unit, micro-batch) in the order of the rank's cells."""
        cells = self.s.schedule.table[self.s.at]
        return [(*work, cell[2]) for cell in cells for work in self.work_of(cell)]

    def adders(self, unit):
        """Units whose backwards add to a unit's gradient: the head to a table that it borrows."""
        return {unit, len(self.s.units) - 1} if unit == 0 and self.s.is_borrowed else {unit}

    def completed(self, done):
        """[unit, does nothing come after it in the step] of units whose gradients a task
        completes: of its micro-batch, if those are reduced each time."""
        _, unit, micro = self.tasks[done]
        later = [task for task in self.tasks[done + 1:] if task[0] != "F"]
        out = []
        for u in [unit] + [0] * (unit > 0 and unit in self.adders(0) and 0 in self.s.held):
            left = [j for _, v, j in later if v in self.adders(u)]
            if not left or self.s.shards_grads and micro not in left:
                out.append((u, not left))
        return out

    # --- parameters gathered

    def uses(self):
        """[first, last, unit, buffer] of whole parameters in units of work, by first use."""
        s, out = self.s, []
        place = {(u, j, kind == "F"): i for i, (kind, u, j) in enumerate(self.tasks) if kind != "W"}
        for unit in s.held:
            lender = len(s.units) - 1 if unit == 0 and s.is_borrowed else unit
            for j in range(s.m):
                first, last = place[unit, j, True], place[lender, j, True]
                begin, end = place[lender, j, False], place[unit, j, False]
                if s.reshards:
                    out += [[first, last, unit, None], [begin, end, unit, None]]
                else:
                    out.append([first, end, unit, None])
        return sorted(out, key=lambda use: (use[0], use[2]))

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
                open_ones = [use[3] for use in self.gathers
                             if use[2] == unit and use[0] <= self.now < use[1]]
                self.params[unit] = open_ones[0] if open_ones else None
        self.now += 1

    # --- gradients

    def open_grads(self, unit, micro):
        if self.s.shards_grads and (unit, micro) not in self.grads:
            self.grads[unit, micro] = self.whole_unit(unit)
            self.line.moment(self.grads[unit, micro])

    def start(self, axes, elems, after, *held):
        """A reduction of elems(axis) elements over the first of axes, then over the others."""
        while len(self.in_flight) >= WINDOW:
            self.await_oldest()
        axis, ranks = axes[0], self.s.ranks_of(axes[0])
        staging = Buffer(2 * ranks * min(ceil_div(elems(axis), ranks), CHUNK) * self.s.w)
        self.line.moment(staging, *held)
        self.in_flight.append((axes, elems, after, staging, held))

    def start_sum(self, axes, elems):
        """Between the two ranks of a tied table behind everything else."""
        if axes[0] == "tied" and self.is_accumulating:
            self.tied_sum = (axes, elems, None)
        else:
            self.start(axes, elems, None)

    def await_oldest(self):
        axes, elems, after, *held = self.in_flight.pop(0)
        self.line.moment(held[0], *held[1])
        if after:  # what has landed is added to the micro-batches before
            self.line.moment(after)
        if axes[1:]:
            self.start_sum(axes[1:], elems)

    def await_all(self):
        self.is_accumulating = False
        while self.in_flight:
            self.await_oldest()
        if self.tied_sum:
            self.start(*self.tied_sum)
            self.await_oldest()

    def scatter(self, unit, micro, is_last):
        s = self.s
        for part in PARTS:
            n = s.units[unit][part]
            if not n:
                continue
            axes = s.sum_axes(part) if is_last else ["dp"]
            is_first = unit not in self.scattered
            landing = Buffer(n // s.D * s.w) if s.shards_grads and not is_first else None
            self.start(axes, lambda axis, n=n: n if axis == "dp" else n // s.D, landing,
                       self.grads.get((unit, micro)), landing)
        self.scattered.add(unit)

    def sum_complete(self, unit):
        """Buckets from the last unit down, as far as all units are complete."""
        s = self.s
        self.complete.add(unit)
        for unit in s.held[::-1][self.n_bucketed:]:
            if unit not in self.complete:
                return
            self.n_bucketed += 1
            for part in PARTS:
                n = self.bucket_at[part].get(unit, 0)
                if n and s.sum_axes(part):
                    self.start_sum(s.sum_axes(part), lambda axis, n=n: n)

    def reduce(self, micro):
        """Behind a task, the one before that in hand."""
        s = self.s
        for unit, is_last in self.completed(self.now - 1):
            if s.copies > 1 and 0 < unit <= s.L:
                self.line.moment(self.grads.get((unit, micro)), work=self.blocks.copies_sum())
            if s.shards_state:
                self.scatter(unit, micro, is_last)
            else:
                self.sum_complete(unit)

    # --- the model

    def activation(self, size):
        return Buffer(size, is_activation=True) if size else None

    def forward_block(self, kept, name, work, *others):
        saved = Saved(name, kept.stream, [self.activation(n) for n in self.s.kept_sets(name)])
        kept.blocks.append(saved)
        kept.stream = None if name == "head" else self.activation(self.s.stream())
        self.line.moment(saved.x, *saved.sets, kept.stream, *others, work=work)

    def forward(self, unit, kept):
        s, blocks = self.s, self.blocks
        params = self.params.get(unit)
        if unit == 0:
            kept.stream = self.activation(s.stream())
            self.line.moment(params, kept.stream, work=blocks.embedding())
        elif unit <= s.L:
            for name in ("attention", "mlp"):
                self.forward_block(kept, name, blocks.layer_half(), params)
        else:
            self.forward_block(kept, "head", blocks.head(), params, self.lent())

    def lent(self):
        """The token table, for a head that has none."""
        return self.params.get(0) if self.s.is_borrowed else None

    def backward(self, kind, unit, kept, micro):
        s, blocks = self.s, self.blocks
        is_borrowing = unit > s.L and s.is_borrowed
        self.open_grads(unit, micro)
        if is_borrowing:
            self.open_grads(0, micro)
        grads = [self.grads.get((unit, micro))]
        if is_borrowing and kind != "I":
            grads.append(self.grads.get((0, micro)))
        if unit == 0:
            self.line.moment(kept.grad, *grads, work=blocks.embedding_backward())
            return
        for name in ["head"] if unit > s.L else ["mlp", "attention"]:
            block = self.block_of(kept, kind, name)
            work = getattr(blocks, name + "_backward")(kind)
            if kind == "W":
                self.weight_block(block, work, *grads)
                continue
            params = [self.params.get(unit), self.lent() if is_borrowing else None]
            self.input_block(kept, block, work, *params, *grads)

    def block_of(self, kept, kind, name):
        """The last block that B or I, or W, has not been through."""
        done = [b for b in kept.blocks if b.name == name and
                not (b.has_weights if kind == "W" else b.has_input)]
        return done[-1]

    def input_block(self, kept, block, work, *state):
        out = Buffer(self.s.stream())
        block.handed_on = self.activation(self.s.handed_on(block.name))
        block.out_grad, block.has_input = kept.grad, True
        self.line.moment(block.x, *block.sets, block.handed_on, kept.grad, out, *state, work=work)
        kept.grad = out

    def weight_block(self, block, work, *grads):
        block.has_weights = True
        came = block.out_grad if self.s.weights_read_stream(block.name) else None
        self.line.moment(block.sets[1], block.handed_on, came, *grads, work=work)

    # --- messages

    def list_messages(self):
        """(made at, is it sent, is it a gradient, stage, micro-batch) of what crosses this rank's
        borders; the stage is this rank's own."""
        s, (_, end) = self.s, self.s.schedule.times()
        place, out = s.schedule.place, []
        for stage in s.mine:
            for step, is_grad, is_sent in ((1, False, True), (-1, False, False), (-1, True, True),
                                           (1, True, False)):
                other = stage + step
                if not 0 <= other < len(place) or place[other] == s.at:
                    continue
                maker = stage if is_sent else other
                out += [(end[maker, j, is_grad], is_sent, is_grad, stage, j) for j in range(s.m)]
        return sorted(out)

    def start_message(self, message):
        _, is_sent, is_grad, stage, j = message
        kept = self.kept_of(stage, j)
        if not is_sent and is_grad:
            kept.grad = Buffer(self.s.stream())
        elif not is_sent:
            kept.stream = self.activation(self.s.stream())
        buffer = kept.grad if is_grad else kept.stream
        self.line.moment(buffer)
        if is_sent:
            self.sent.append(buffer)

    def await_sent(self):
        for buffer in self.sent:
            self.line.moment(buffer)
        self.sent = []

    def kept_of(self, stage, j):
        return self.kept.setdefault((stage, j), Kept())

    # --- the step

    def end_tokens(self):
        """The loss is scaled by the count of tokens, which is waited for before the first
        backward."""
        s = self.s
        if self.tokens:
            self.line.moment(self.tokens, work=up(8 * s.R) if s.D > 1 and s.R > 1 else 0)
        self.tokens = None

    def do_cell(self, cell):
        kind, stage, j = cell
        kept, place = self.kept_of(stage, j), self.s.schedule.place
        if kind != "W":  # what has arrived is waited for
            self.line.moment(kept.stream if kind == "F" else kept.grad)
        work = self.work_of(cell)
        if kind != "F" and work:
            self.end_tokens()
        for part, unit in work:
            self.begin_unit()
            if kind == "F":
                self.forward(unit, kept)
            else:
                self.backward(part, unit, kept, j)
            self.end_unit()
            if kind != "F":
                self.reduce(j)
        other = stage + (1 if kind == "F" else -1)
        if kind != "W" and 0 <= other < len(place) and place[other] == self.s.at:
            if kind == "F":  # the next chunk is this rank's own
                self.kept_of(other, j).stream = kept.stream
            else:
                self.kept_of(other, j).grad = kept.grad

    def step(self):
        s = self.s
        data = next((n for n in (s.D, s.R) if n > 1), 0)
        self.tokens, self.sent = Buffer(8 * data), []
        self.line.moment(self.tokens)
        begins, messages = s.schedule.times()[0][s.at], self.list_messages()
        for cell, begin in zip(s.schedule.table[s.at], begins):
            while messages and messages[0][0] <= begin:
                self.start_message(messages.pop(0))
            self.do_cell(cell)
            self.await_sent()
        for message in messages:
            self.start_message(message)
        self.await_sent()
        self.end_tokens()
        self.await_all()
        ranks = (s.D, s.R, s.t, s.p)
        self.line.moment(work=max(up(8 * n) if n > 1 else 0 for n in ranks))
        self.line.moment(work=self.blocks.exact_sums())
