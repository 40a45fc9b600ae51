"""Memory and traffic of a training step, derived from the configuration alone.

A second derivation, on paper and in another language: it knows what a GPT-2 and a Llama block keep
and send, and nothing of the program that Echelon compiles.  Letters: N tokens of a micro-batch,
H hidden, a heads, g key-value heads, d head size, F inner width, V vocabulary padded to 128,
L layers, w bytes of a number, m micro-batches of a rank and step, D data-parallel ranks.

Every part begins at a multiple of 64 bytes; that is the one thing taken over from the product."""

ALIGN, ROW_BLOCKS, SUM_BLOCK, CHUNK, WINDOW = 64, 16, 4096, 65536, 2
CELLS = 15  # scalars of the step, 8 bytes each


def up(n, to=ALIGN):
    return -(-n // to) * to


def packed(parts):
    """Bytes of parts one after another, each at a multiple of ALIGN."""
    end = 0
    for part in parts:
        end = up(end) + part
    return end


def peak(lives):
    """Most bytes alive at once; lives are (bytes, first, last)."""
    times = range(max(last for _, _, last in lives) + 1) if lives else ()
    return max((sum(up(b) for b, i, k in lives if i <= t <= k) for t in times), default=0)


def deal(n, ranks, i):
    """Elements of member i when n are dealt out as evenly as can be, longer parts first."""
    return n // ranks + (1 if i < n % ranks else 0)


class Step:
    """One training step of a configuration whose model is written out."""

    def __init__(self, c, ranks):
        m, batch = c["model"], c["batch"]
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
        self.D = ranks
        self.seq, self.rows = batch["seq"], batch["micro"]
        self.N = self.rows * self.seq
        self.m = batch["global"] // (self.rows * ranks)
        layout = c.get("layout", {})
        self.m_live = self.m if layout.get("schedule") == "gpipe" else 1
        self.bucket = layout.get("zero", {}).get("bucket_mb", 25) * 2**20
        self.adam = c.get("optim", {}).get("name", "adamw") == "adamw"
        self.units = [self.embedding(), *[self.layer()] * self.L, self.head()]
        self.elems = sum(self.units)

    # --- parameters

    def norm(self):
        return self.H * (2 if self.is_gpt else 1)

    def embedding(self):
        return self.V * self.H + (self.context * self.H if self.is_gpt else 0)

    def qkv_width(self):
        return (self.a + 2 * self.g) * self.d

    def layer(self):
        attention = self.norm() + self.H * self.qkv_width() + self.H * self.a * self.d
        attention += self.qkv_width() if self.qkv_bias else 0
        attention += 2 * self.d if self.qk_norm else 0
        attention += self.H if self.is_gpt else 0
        if self.is_gpt:
            return attention + self.norm() + 2 * self.H * self.F + self.F + self.H
        return attention + self.norm() + 3 * self.H * self.F

    def head(self):
        return self.norm() + (0 if self.is_tied else self.V * self.H)

    def params_without_padding(self):
        return self.elems - (self.V - self.vocab) * self.H * (1 if self.is_tied else 2)

    # --- what forward keeps for backward, bytes of a micro-batch

    def kept_norm(self):
        n = self.N * self.w
        return [n * self.H, n] + ([n] if self.is_gpt else [])  # output, 1/std, mean

    def kept_attention(self):
        n, heads = self.N * self.w, self.a + 2 * self.g
        before = [n * heads * self.d, n * (self.a + self.g)] if self.qk_norm else []
        return packed(self.kept_norm() + before + [n * heads * self.d, n * self.a * self.d,
                                                   n * self.a])  # q k v, output, logsumexp

    def kept_mlp(self):
        n = self.N * self.w
        return packed(self.kept_norm() + [n * self.F * (1 if self.is_gpt else 2), n * self.F])

    def kept_head(self):
        n = self.N * self.w
        return packed(self.kept_norm() + [n * self.V, n])  # logits, logsumexp

    def stream(self):
        """The residual stream between two blocks."""
        return self.N * self.H * self.w

    def activations(self):
        return self.m_live * ((2 * self.L + 1) * self.stream() + self.kept_head() +
                              self.L * (self.kept_attention() + self.kept_mlp()))

    # --- buffers

    def buffer_state(self):
        parts = [8 * CELLS, 4 * self.m * self.N, 4 * self.m * self.N, 8 * self.m]
        if not self.is_gpt:
            parts.append(8 * self.seq * (self.d // 2 * 2))  # sine and cosine, fp64
        if self.D > 1:
            parts += [16 * self.D, 8 * self.D]
        return sum(parts)

    def state(self):
        return self.elems * self.w * (4 if self.adam else 2) + self.buffer_state()

    def buckets(self):
        """Elements of each gradient bucket: whole units from the head down, closed when full."""
        out, now = [], 0
        for unit in range(len(self.units) - 1, -1, -1):
            now += self.units[unit]
            if now * self.w >= self.bucket or unit == 0:
                out.append((now, unit))
                now = 0
        return out if self.D > 1 else []

    def staging(self, elems):
        return 2 * self.D * min(-(-elems // self.D), CHUNK) * self.w

    # --- scratch of backward blocks: (bytes, first op, last op)

    def norm_scratch(self):
        return ROW_BLOCKS * self.norm() * self.w

    def scratch_attention(self):
        n = self.N * self.w
        ops = (["dropout"] if self.dropout else []) + ["dgrad", "wgrad", "attention"]
        ops += [] if self.is_gpt else ["rope"]
        ops += ["qk_norm"] if self.qk_norm else []
        ops += ["dgrad_qkv", "wgrad_qkv", "norm"]
        at = {op: i for i, op in enumerate(ops)}
        lives = [(n * self.a * self.d, at["dgrad"], at["attention"]),
                 (n * self.qkv_width(), at["attention"], at["wgrad_qkv"]),
                 (n * self.H, at["dgrad_qkv"], at["norm"]),
                 (self.norm_scratch(), at["norm"], at["norm"])]
        if self.dropout:
            lives.append((n * self.H, at["dropout"], at["wgrad"]))
        if self.qk_norm:
            lives.append((ROW_BLOCKS * 2 * self.d * self.w, at["qk_norm"], at["qk_norm"]))
        return peak(lives)

    def scratch_mlp(self):
        n, gated = self.N * self.w, not self.is_gpt
        ops = (["dropout"] if self.dropout else []) + ["dgrad", "wgrad", "act", "dgrad_up",
                                                       "wgrad_up", "norm"]
        at = {op: i for i, op in enumerate(ops)}
        lives = [(n * self.F, at["dgrad"], at["act"] if gated else at["wgrad_up"]),
                 (n * self.H, at["dgrad_up"], at["norm"]),
                 (self.norm_scratch(), at["norm"], at["norm"])]
        if gated:
            lives.append((n * 2 * self.F, at["act"], at["wgrad_up"]))
        if self.dropout:
            lives.append((n * self.H, at["dropout"], at["wgrad"]))
        return peak(lives)

    def scratch_head(self):
        n = self.N * self.w
        return peak([(n * self.H, 0, 2), (self.norm_scratch(), 2, 2)])

    # --- the fullest moment

    def moments(self):
        """Transient bytes at every moment that can be the fullest, as (activations, buffers)."""
        x, keep = self.stream(), {"a": self.kept_attention(), "m": self.kept_mlp()}
        blocks = ["a", "m"] * self.L
        scratch = {"a": self.scratch_attention(), "m": self.scratch_mlp()}
        whole = (2 * self.L + 1) * x + self.kept_head() + sum(keep[b] for b in blocks)
        others = whole * (self.m_live - 1)
        embed = up(x) if self.dropout else 0
        out = [(others + whole, 8 * self.N)]  # the last forward: one loss a token
        for is_last in ([False, True] if self.m > 1 else [True]):
            live = whole
            rest = 0 if is_last and self.m_live > 1 else others
            started, buckets = [], self.buckets() if is_last else []
            gone = dict((unit, self.staging(elems)) for elems, unit in buckets)

            def staged(unit):
                """Staging held once a unit is done: that of the last WINDOW buckets started."""
                started.extend([gone[unit]] if unit in gone else [])
                return sum(started[-WINDOW:])

            out.append((rest + live, x + self.scratch_head()))
            live -= self.kept_head() + x
            held = staged(self.L + 1)
            out.append((rest + live, x + held))
            for k in range(2 * self.L - 1, -1, -1):
                out.append((rest + live, 2 * x + scratch[blocks[k]] + held))
                live -= keep[blocks[k]] + x
                if k % 2 == 0:
                    held = staged(k // 2 + 1)
                out.append((rest + live, x + held))
            out.append((rest + live, x + embed + held))
            out.append((rest + live, staged(0)))
        out.append((0, -(-self.elems // SUM_BLOCK) * 8))  # squares of the gradient, block by block
        return out

    def total(self):
        return self.state() + max(a + b for a, b in self.moments())

    # --- traffic of one rank and step

    def payload(self):
        return 0 if self.D == 1 else self.elems * self.w + 8 + 16

    def wire(self, rank):
        if self.D == 1:
            return 0
        others, total = self.D - 1, (8 + 16) * (self.D - 1)  # tokens; loss and wish to stop
        for elems, _ in self.buckets():
            mine = deal(elems, self.D, rank)
            total += (elems - mine + others * mine) * self.w
        return total

    def eval_wire(self):
        return (8 + 16) * (self.D - 1)
