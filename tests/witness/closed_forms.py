"""Parameters, state, kept activations and traffic of a training step, from the configuration alone.

A second derivation, on paper and in another language: it knows what a GPT-2 and a Llama block
keep and send under tensor and sequence parallelism, ZeRO and replicas of a shard group, and
nothing of the program that Echelon compiles.  Letters: N tokens of a micro-batch, H hidden,
a heads, g key-value heads, d head size, F inner width, V vocabulary padded to 128, L layers,
w bytes of a number, m micro-batches of a rank and step, t tensor parallel ranks, D ranks of a
shard group, R replicas of it.

Every part begins at a multiple of 64 bytes; that is the one thing taken over from the product."""
from math import gcd

ALIGN = 64
CELLS = 19      # scalars of the step, 8 bytes each
SUM_BYTES = 168  # an exact sum of squares: 21 words
CUT, SUMMED, WHOLE = PARTS = range(3)  # over tp: cut; whole, its gradient a partial sum; whole


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
        }[self.kind]
        return sent * self.width * self.times


class Layout:
    """Degrees, and where a rank stands."""

    def __init__(self, config, ranks):
        zero = config.get("zero", {})
        self.t = config.get("tp", 1)
        self.data = ranks // self.t
        self.D = zero.get("group", 0) or self.data
        self.R = self.data // self.D
        self.is_sp = config.get("sequence_parallel", False) and self.t > 1
        self.keeps = self.is_sp and config.get("sequence_parallel_inputs") == "keep"
        self.order = [a for a in config.get("order", "tp-cp-ep-dp-pp").split("-")
                      if a in ("tp", "dp")]

    def place(self, rank):
        """Index of a rank in its groups."""
        at = {}
        for axis in self.order:
            n = self.t if axis == "tp" else self.data
            at[axis], rank = rank % n, rank // n
        return {"tp": at["tp"], "dp": at["dp"] % self.D, "hsdp": at["dp"] // self.D}


class Step:
    """One training step of a configuration whose model is written out."""

    def __init__(self, c, ranks):
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
        self.is_gpipe = layout.get("schedule") == "gpipe"
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

    def deal_out_heads(self):
        """Query heads of a rank come in groups of `per` with one key and value; each of the g key
        and value heads is held by `copies` neighbouring ranks."""
        mine, of_one = self.a // self.t, self.a // self.g
        self.per = gcd(mine, of_one)
        self.groups, self.copies = mine // self.per, of_one // self.per

    def ranks_of(self, axis):
        return {"tp": self.t, "dp": self.D, "hsdp": self.R, "kv": self.copies}.get(axis, 1)

    # --- elements of a rank: what is cut is ceil(n / t) long, and parts make whole flat ranges

    def unit(self, cut, whole, of_heads=0):
        """Elements of a unit's parts from those that tp cuts and those it does not."""
        if self.t == 1:
            parts = [cut + whole + of_heads, 0, 0]
        elif self.is_sp:
            parts = [cut, whole + of_heads, 0]
        else:
            parts = [cut, of_heads, whole]
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
        return self.unit(self.table(), self.context * self.H if self.is_gpt else 0)

    def layer(self):
        heads = self.H * (self.qkv_width() + self.a // self.t * self.d)
        heads += self.qkv_width() if self.qkv_bias else 0
        of_heads = 2 * self.d if self.qk_norm else 0
        if self.is_gpt:
            mlp = 2 * self.H * self.inner() + self.inner()
            return self.unit(heads + mlp, 2 * self.norm() + 2 * self.H, of_heads)
        return self.unit(heads + 3 * self.H * self.inner(), 2 * self.norm(), of_heads)

    def head(self):
        return self.unit(0 if self.is_tied else self.table(), self.norm())

    def elems(self, part=None):
        """Of a rank's model, padding included."""
        return sum(sum(u) if part is None else u[part] for u in self.units)

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
        parts = [8 * CELLS, 4 * self.m * self.N, 4 * self.m * self.N, 8 * self.m, 3 * SUM_BYTES]
        if not self.is_gpt:
            parts.append(8 * self.seq * (self.d // 2 * 2))  # sine and cosine, fp64
        return sum(parts)

    def state(self):
        return self.params() + self.grads() + self.optimizer() + self.buffer_state()

    # --- what forward keeps for backward, bytes of a micro-batch

    def own(self):
        """Tokens of a rank outside the parts that tp cuts."""
        return self.N // self.t if self.is_sp else self.N

    def stream(self):
        """The residual stream between two blocks."""
        return self.own() * self.H * self.w

    def kept_norm(self):
        n = self.own() * self.w
        out = self.N * self.H * self.w if self.keeps else self.stream()
        return [out, n] + ([n] if self.is_gpt else [])  # output, 1/std, mean

    def kept_attention(self):
        n = self.N * self.w
        qkv, mine = n * self.qkv_width(), self.a // self.t
        before = [qkv, n * self.groups * (self.per + 1)] if self.qk_norm else []
        return packed(self.kept_norm() + before + [qkv, n * mine * self.d, n * mine])  # out, lse

    def kept_mlp(self):
        n = self.N * self.w * self.inner()
        return packed(self.kept_norm() + [n * (1 if self.is_gpt else 2), n])

    def kept_head(self):
        n = self.N * self.w
        return packed(self.kept_norm() + [n * ceil_div(self.V, self.t), n])  # logits, logsumexp

    def kept_layer(self):
        """Of a layer: two inputs of blocks, and what each of them keeps."""
        return 2 * self.stream() + self.kept_attention() + self.kept_mlp()

    def activations(self):
        live = self.m if self.is_gpipe else 1
        return live * (self.L * self.kept_layer() + self.stream() + self.kept_head())

    # --- reductions of gradients: what a message holds

    def buckets(self, part):
        """(elements, lowest unit) of whole units from the head down, closed when full."""
        out, now = [], 0
        for unit in range(len(self.units) - 1, -1, -1):
            now += self.units[unit][part]
            if now * self.w >= self.bucket or unit == 0:
                out.append((now, unit))
                now = 0
        return out

    def sum_axes(self, part):
        """Over which a part's gradient is summed, one after the other."""
        axes = ["dp", "hsdp"] + (["tp"] if part == SUMMED else [])
        return [axis for axis in axes if self.ranks_of(axis) > 1]

    # --- traffic of a step

    def messages(self):
        """Everything that is sent over groups of more than one rank."""
        return self.between_ranks([
            *self.layer_messages() * self.L, *self.end_messages(), *self.gradient_messages(),
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

    def end_messages(self):
        """Embedding forward and head backward; a head's loss from two fp64 numbers a token and
        rank."""
        loss = Message("all-gather", "tp", 2 * self.N * self.t, 8, self.m)
        return self.in_and_out(sums=2, gathers=2, again=1) + [loss]

    def gradient_messages(self):
        out = []
        for part in PARTS:
            if self.shards_state:
                times = self.m if self.shards_grads else 1
                for unit in self.units:
                    out.append(Message("reduce-scatter", "dp", unit[part], self.w, times))
                    out += [Message("all-reduce", axis, unit[part] // self.D, self.w)
                            for axis in self.sum_axes(part) if axis != "dp"]
            else:
                out += [Message("all-reduce", axis, n, self.w)
                        for n, _ in self.buckets(part) for axis in self.sum_axes(part)]
        return out

    def parameter_messages(self):
        """Updated ones once a step; or for every use."""
        uses = self.m * (2 if self.reshards else 1) if self.shards_params else 1
        return [Message("all-gather", "dp", n, self.w, uses)
                for unit in self.units for n in unit if self.shards_state]

    def exact_sums(self):
        """Of squares: cut, copies of keys and values, whole over tp; True: partial over tp."""
        return [True] + [True] * (self.copies > 1) + [False] * (self.t > 1)

    def small_messages(self):
        tokens_loss_stop = 3
        out = [Message("sum", axis, tokens_loss_stop, 8) for axis in ("dp", "hsdp")]
        out.append(Message("sum", "tp", 1, 8))  # the wish to stop
        for is_partial in self.exact_sums():
            out += [Message("sum", "dp", SUM_BYTES, 1)] if self.shards_state else []
            out += [Message("sum", "tp", SUM_BYTES, 1)] if is_partial else []
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
        at["kv"] = at["tp"] % self.copies
        for m in self.messages() if messages is None else messages:
            out[m.axis] = out.get(m.axis, 0) + m.wire(self.ranks_of(m.axis), at[m.axis])
        return out

    def eval_messages(self):
        """Of one global batch of held-out data: forward only."""
        sent = self.in_and_out(sums=1 + 2 * self.L, gathers=1 + 2 * self.L, again=0)
        sent += self.end_messages()[-1:] + self.small_messages()[:3]
        sent += [Message("all-gather", "dp", n, self.w, self.m)
                 for unit in self.units for n in unit if self.shards_params]
        return self.between_ranks(sent)
