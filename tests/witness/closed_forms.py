"""Parameters, state, kept activations and traffic of a training step, from the configuration
alone.

A second derivation, on paper and in another language: it knows what a GPT-2 and a Llama block keep
and send under tensor and sequence parallelism, pipelines, ZeRO and replicas of a shard group, and
nothing of the program that Echelon compiles.  Letters: N tokens of a micro-batch, H hidden, a
heads, g key-value heads, d head size, F inner width, V vocabulary padded to 128, L layers, w bytes
of a number, m micro-batches of a rank and step, t tensor parallel ranks, p pipeline ranks, D ranks
of a shard group, R replicas of it.

Every part begins at a multiple of 64 bytes; that is the one thing taken over from the product."""
from math import gcd

from schedules import Schedule
from stages import balanced, units_of

ALIGN = 64
CELLS = 21      # scalars of the step, 8 bytes each
SUM_BYTES = 168  # an exact sum of squares: 21 words
# Over tp: cut; whole, its gradient a partial sum; whole; cut, and on the first and the last stage.
CUT, SUMMED, WHOLE, TIED = PARTS = range(4)


def up(n, to=ALIGN):
    return -(-n // to) * to


def ceil_div(n, k):
    return -(-n // k)


def packed(parts):
    """Bytes of parts one after another, each at a multiple of ALIGN."""
    end = 0
    for part in parts:
        end = up(end) + part
    return end


def deal(n, ranks, i):
    """Elements of member i when n are dealt out as evenly as can be, longer parts first."""
    return n // ranks + (1 if i < n % ranks else 0)


class Message:
    """`times` messages of `elems` elements over a group: what is whole in it, on every rank."""

    def __init__(self, kind, axis, elems, width, times=1):
        self.kind, self.axis, self.elems, self.width, self.times = kind, axis, elems, width, times

    def payload(self):
        return self.elems * self.width * self.times

    def wire(self, ranks, i):
        """What member i sends."""
        n, others = self.elems, ranks - 1
        mine = deal(n, ranks, i)
        sent = {
            "all-reduce": n - mine + others * mine,  # parts out, then the sum of mine to the others
            "reduce-scatter": n - mine,
            "all-gather": others * mine,
            "sum": others * n,
            "send": n,
        }[self.kind]
        return sent * self.width * self.times


class Layout:
    """Degrees, and where a rank stands."""

    def __init__(self, config, ranks):
        zero = config.get("zero", {})
        self.t = config.get("tp", 1)
        self.p = config.get("pp", 1)
        self.data = ranks // self.t // self.p
        self.D = zero.get("group", 0) or self.data
        self.R = self.data // self.D
        self.is_sp = config.get("sequence_parallel", False) and self.t > 1
        self.keeps = self.is_sp and config.get("sequence_parallel_inputs") == "keep"
        self.order = [a for a in config.get("order", "tp-cp-ep-dp-pp").split("-")
                      if a in ("tp", "dp", "pp")]

    def place(self, rank):
        """Index of a rank in its groups."""
        at = {}
        for axis in self.order:
            n = {"tp": self.t, "pp": self.p, "dp": self.data}[axis]
            at[axis], rank = rank % n, rank // n
        return {"tp": at["tp"], "dp": at["dp"] % self.D, "hsdp": at["dp"] // self.D,
                "pp": at["pp"]}


class Step:
    """One training step of a pipeline rank, of a configuration whose model is written out;
    `counts`: of several best ways to balance the stages, which one."""

    def __init__(self, c, ranks, at=0, counts=None):
        m, batch, layout = c["model"], c["batch"], c.get("layout", {})
        zero = layout.get("zero", {})
        self.layout = Layout(layout, ranks)
        self.t, self.D, self.R = self.layout.t, self.layout.D, self.layout.R
        self.is_sp, self.keeps = self.layout.is_sp, self.layout.keeps
        self.is_gpt = m["arch"] == "gpt2"
        self.H, self.L, self.a = m["hidden"], m["layers"], m["heads"]
        self.g = m.get("kv_heads", self.a)
        self.d = m.get("head_dim", self.H // self.a)
        self.F = m.get("ffn", 4 * self.H)
        self.V = up(m["vocab"], 128)
        self.context, self.vocab = m["context"], m["vocab"]
        self.is_tied = m.get("tie_embeddings", self.is_gpt)
        self.qkv_bias = m.get("qkv_bias", self.is_gpt)
        self.qk_norm = m.get("qk_norm", False)
        self.dropout = m.get("dropout", 0) > 0
        self.w = 8 if c.get("precision", {}).get("compute") == "fp64" else 4
        self.seq, self.rows = batch["seq"], batch["micro"]
        self.N = self.rows * self.seq
        self.m = batch["global"] // (self.rows * self.layout.data)
        self.lay_stages(layout, at, counts)
        self.bucket = zero.get("bucket_mb", 25) * 2**20
        self.adam = c.get("optim", {}).get("name", "adamw") == "adamw"
        stage = zero.get("stage", 0) if self.D > 1 else 0
        once = self.m > 1 and zero.get("reduce", "last") == "last"
        self.shards_state, self.shards_grads = stage >= 1, stage >= 2 and not once
        self.shards_params = stage == 3
        self.reshards = zero.get("reshard_after_forward", True)
        self.prefetch = zero.get("prefetch", 1)
        self.deal_out_heads()
        self.units = [self.embedding(), *[self.layer()] * self.L, self.head()]

    def lay_stages(self, layout, at, counts):
        """What the pipeline rank `at` holds: units, in virtual stages."""
        self.at, self.p = at, self.layout.p
        self.schedule = Schedule(layout.get("schedule", "1f1b"), self.p, self.m,
                                 layout.get("virtual_stages", 1), layout.get("schedule_group", 0))
        self.is_split = self.schedule.is_split
        self.counts = layout.get("stages") or counts or balanced(self, self.schedule.stages)[0]
        self.ends = units_of(self.counts)
        self.mine = [s for s, rank in enumerate(self.schedule.place) if rank == at]
        self.held = [unit for s in self.mine for unit in range(*self.ends[s])]
        self.n_layers = sum(0 < unit <= self.L for unit in self.held)
        first, last = self.schedule.place[0], self.schedule.place[-1]
        self.is_apart = self.is_tied and first != last
        self.is_borrowed = self.is_tied and first == last
        self.n_tied = 2 if self.is_apart and at in (first, last) else 1

    def has(self, unit):
        """The embedding is unit 0, the head -1."""
        return unit % (self.L + 2) in self.held

    def deal_out_heads(self):
        """Query heads of a rank come in groups of `per` with one key and value; each of the g key
        and value heads is held by `copies` neighbouring ranks."""
        mine, of_one = self.a // self.t, self.a // self.g
        self.per = gcd(mine, of_one)
        self.groups, self.copies = mine // self.per, of_one // self.per

    def ranks_of(self, axis):
        return {"tp": self.t, "dp": self.D, "hsdp": self.R, "kv": self.copies, "pp": self.p,
                "tied": self.n_tied}.get(axis, 1)

    # --- elements of a rank: what is cut is ceil(n / t) long, and parts make whole flat ranges

    def unit(self, cut, whole, of_heads=0, tied=0):
        """Elements of a unit's parts from those that tp cuts and those it does not."""
        if self.t == 1:
            parts = [cut + whole + of_heads, 0, 0, tied]
        elif self.is_sp:
            parts = [cut, whole + of_heads, 0, tied]
        else:
            parts = [cut, of_heads, whole, tied]
        return [up(n, self.D) if self.shards_state else n for n in parts]

    def norm(self):
        return self.H * (2 if self.is_gpt else 1)

    def table(self):
        return ceil_div(self.V, self.t) * self.H

    def inner(self):
        return ceil_div(self.F, self.t)

    def qkv_width(self):
        return self.groups * (self.per + 2) * self.d

    def embedding(self):
        positions = self.context * self.H if self.is_gpt else 0
        return self.unit(0 if self.is_apart else self.table(), positions, tied=self.copy())

    def copy(self):
        """The tied table, where two pipeline ranks have it."""
        return self.table() if self.is_apart else 0

    def layer(self):
        heads = self.H * (self.qkv_width() + self.a // self.t * self.d)
        heads += self.qkv_width() if self.qkv_bias else 0
        of_heads = 2 * self.d if self.qk_norm else 0
        if self.is_gpt:
            mlp = 2 * self.H * self.inner() + self.inner()
            return self.unit(heads + mlp, 2 * self.norm() + 2 * self.H, of_heads)
        return self.unit(heads + 3 * self.H * self.inner(), 2 * self.norm(), of_heads)

    def head(self):
        return self.unit(0 if self.is_tied else self.table(), self.norm(), tied=self.copy())

    def elems(self):
        """Of a rank's model, padding included."""
        return sum(sum(self.units[unit]) for unit in self.held)

    def params_without_padding(self):
        """Of the model; on one rank."""
        return self.elems() - (self.V - self.vocab) * self.H * (1 if self.is_tied else 2)

    # --- state, bytes of a rank

    def share(self, is_sharded):
        return self.elems() * self.w // (self.D if is_sharded else 1)

    def params(self):
        return self.share(self.shards_params)

    def grads(self):
        return self.share(self.shards_grads)

    def optimizer(self):
        return 2 * self.share(self.shards_state) if self.adam else 0

    def buffer_state(self):
        tokens = labels = 4 * self.m * self.N
        parts = [8 * CELLS, tokens if self.has(0) else 0, labels, 8 * self.m if self.has(-1) else 0,
                 3 * SUM_BYTES]
        if not self.is_gpt:
            parts.append(8 * self.seq * (self.d // 2 * 2))  # sine and cosine, fp64
        return sum(parts)

    def state(self):
        return self.params() + self.grads() + self.optimizer() + self.buffer_state()

    # --- what is kept, bytes of a micro-batch: from F to I (or B), from F to W, from I to W

    def own(self):
        """Tokens of a rank outside the parts that tp cuts."""
        return self.N // self.t if self.is_sp else self.N

    def stream(self):
        """The residual stream between two blocks."""
        return self.own() * self.H * self.w

    def normed(self):
        """Output of a norm, for the weight gradient behind it."""
        return self.N * self.H * self.w if self.keeps else self.stream()

    def statistics(self):
        """1/std, and a mean."""
        return [self.own() * self.w] * (2 if self.is_gpt else 1)

    def in_attention(self):
        """(for the gradient of the input, of weights)."""
        n = self.N * self.w
        qkv, mine = n * self.qkv_width(), self.a // self.t
        before = [qkv, n * self.groups * (self.per + 1)] if self.qk_norm else []
        return before + [qkv], [n * mine * self.d], [n * mine]  # out, lse

    def in_mlp(self):
        n = self.N * self.w * self.inner()
        return [n * (1 if self.is_gpt else 2)], [n], []

    def in_head(self):
        n = self.N * self.w
        return [], [n * ceil_div(self.V, self.t)], [n]  # logits, logsumexp

    def kept_sets(self, block):
        """Of a block, where backward is split: two sets; else all in one and nothing."""
        before, weights, after = {"attention": self.in_attention, "mlp": self.in_mlp,
                                  "head": self.in_head}[block]()
        if self.is_split:
            return (packed(self.statistics() + before + after), packed([self.normed()] + weights))
        return packed([self.normed()] + self.statistics() + before + weights + after), 0

    def handed_on(self, block):
        """From I to W: gradients in front of the matrix products that are not the stream's own.
        The head leaves its one in the logits' place."""
        if not self.is_split or block == "head":
            return 0
        inner = self.qkv_width() if block == "attention" else \
            self.inner() * (1 if self.is_gpt else 2)
        outer = [self.N * self.H * self.w] if self.dropout or self.is_sp else []
        return packed([self.N * inner * self.w, *outer])

    def weights_read_stream(self, block):
        """Does W read the gradient of the block's output as it came."""
        return self.is_split and block != "head" and not (self.dropout or self.is_sp)

    # --- reductions of gradients: what a message holds

    def buckets(self, part):
        """(elements, lowest unit) of whole units from the head down, closed when full."""
        out, now = [], 0
        for unit in self.held[::-1]:
            now += self.units[unit][part]
            if now * self.w >= self.bucket or unit == self.held[0]:
                out.append((now, unit))
                now = 0
        return out

    def sum_axes(self, part):
        """Over which a part's gradient is summed, one after the other."""
        axes = ["dp", "hsdp"] + {SUMMED: ["tp"], TIED: ["tied"]}.get(part, [])
        return [axis for axis in axes if self.ranks_of(axis) > 1]

    # --- traffic of a step

    def messages(self):
        """Everything that is sent over groups of more than one rank."""
        return self.between_ranks([
            *self.layer_messages() * self.n_layers, *self.embedding_messages(),
            *self.head_messages(), *self.border_messages(), *self.gradient_messages(),
            *self.parameter_messages(), *self.small_messages()])

    def between_ranks(self, sent):
        return [m for m in sent if self.ranks_of(m.axis) > 1 and m.elems]

    def over_tp(self, kind, times):
        return Message(kind, "tp", self.N * self.H, self.w, times * self.m)

    def in_and_out(self, sums, gathers, again):
        """A passage of tp: sums; with sequence parallelism each is a reduce-scatter, and the inputs
        are gathered, those for weight gradients again where they are not kept."""
        if not self.is_sp:
            return [self.over_tp("all-reduce", sums)]
        return [self.over_tp("reduce-scatter", sums),
                self.over_tp("all-gather", gathers + (0 if self.keeps else again))]

    def layer_messages(self):
        """Attention and MLP, forward and backward; copies of keys and values summed."""
        width = 2 * self.groups * self.d
        times = self.m if self.shards_grads else 1
        return self.in_and_out(sums=4, gathers=4, again=2) + [
            Message("all-reduce", "kv", width * self.H, self.w, times),
            Message("all-reduce", "kv", width if self.qkv_bias else 0, self.w, times)]

    def embedding_messages(self):
        """Its sum forward, its gradient gathered."""
        return self.in_and_out(sums=1, gathers=1, again=0) if self.has(0) else []

    def head_messages(self):
        """Its gradient's sum; its loss from two fp64 numbers a token and rank."""
        loss = Message("all-gather", "tp", 2 * self.N * self.t, 8, self.m)
        return self.in_and_out(sums=1, gathers=1, again=1) + [loss] if self.has(-1) else []

    def borders(self, step):
        """Of this rank's stages to those after (1) or before (-1) on other ranks."""
        place = self.schedule.place
        return sum(0 <= s + step < len(place) and place[s + step] != self.at for s in self.mine)

    def border_messages(self, is_forward_only=False):
        """The stream to the next stage; its gradient to the one before."""
        sent = self.borders(1) + (0 if is_forward_only else self.borders(-1))
        return [Message("send", "pp", self.own() * self.H, self.w, sent * self.m)]

    def gradient_messages(self):
        out = []
        for part in PARTS:
            if self.shards_state:
                times = self.m if self.shards_grads else 1
                for unit in self.held:
                    n = self.units[unit][part]
                    out.append(Message("reduce-scatter", "dp", n, self.w, times))
                    out += [Message("all-reduce", axis, n // self.D, self.w)
                            for axis in self.sum_axes(part) if axis != "dp"]
            else:
                out += [Message("all-reduce", axis, n, self.w)
                        for n, _ in self.buckets(part) for axis in self.sum_axes(part)]
        return out

    def parameter_messages(self):
        """Updated ones once a step; or for every use."""
        uses = self.m * (2 if self.reshards else 1) if self.shards_params else 1
        return [Message("all-gather", "dp", n, self.w, uses)
                for unit in self.held for n in self.units[unit] if self.shards_state]

    def exact_sums(self):
        """Of squares: cut, copies of keys and values, whole over tp; True: partial over tp."""
        return [True] + [True] * (self.copies > 1) + [False] * (self.t > 1)

    def scalar_messages(self):
        """Tokens, the loss and the wish to stop over data parallel ranks; the loss, which is the
        last stage's, and the wish over stages; the wish over tp."""
        return [Message("sum", "dp", 3, 8), Message("sum", "hsdp", 3, 8),
                Message("sum", "pp", 2, 8), Message("sum", "tp", 1, 8)]

    def small_messages(self):
        out = self.scalar_messages()
        for is_partial in self.exact_sums():
            out += [Message("sum", "dp", SUM_BYTES, 1)] if self.shards_state else []
            out += [Message("sum", "tp", SUM_BYTES, 1)] if is_partial else []
            out.append(Message("sum", "pp", SUM_BYTES, 1))
        return out

    def payload(self, messages=None):
        """By axis."""
        out = {}
        for m in self.messages() if messages is None else messages:
            out[m.axis] = out.get(m.axis, 0) + m.payload()
        return out

    def wire(self, rank, messages=None):
        """Sent by a rank, by axis."""
        at, out = self.layout.place(rank), {}
        at.update(kv=at["tp"] % self.copies, tied=0)  # of two, both send as much
        for m in self.messages() if messages is None else messages:
            out[m.axis] = out.get(m.axis, 0) + m.wire(self.ranks_of(m.axis), at[m.axis])
        return out

    def eval_messages(self):
        """Of one global batch of held-out data: forward only."""
        sums = self.has(0) + 2 * self.n_layers
        gathers = self.has(-1) + 2 * self.n_layers
        sent = self.in_and_out(sums=sums, gathers=gathers, again=0)
        sent += self.head_messages()[-1:] + self.border_messages(is_forward_only=True)
        sent += self.scalar_messages()
        sent += [Message("all-gather", "dp", n, self.w, self.m)
                 for unit in self.held for n in self.units[unit] if self.shards_params]
        return self.between_ranks(sent)
