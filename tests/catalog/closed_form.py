"""Parameter counts of HF config.json files as closed formulas, apart from the product's tensor list.

h hidden, a heads, g key-value heads, d head size, f inner width, v vocabulary, n layers.
counts(config) -> (total, active, matmul): all parameters; those one token uses; of those, the ones
in matrix products, with the output head even where it is tied and without the input tables.
"""


def first(c, *keys, default=None):
    for k in keys:
        if c.get(k) is not None:
            return c[k]
    return default


def plain(c, t):
    """GPT-2, GPT-J, GPT-NeoX, Phi: LayerNorm, two matrices in the MLP."""
    h, n = first(c, "hidden_size", "n_embd"), first(c, "num_hidden_layers", "n_layer")
    a, v = first(c, "num_attention_heads", "n_head"), c["vocab_size"]
    f = first(c, "intermediate_size", "n_inner", default=4 * h)
    g = first(c, "num_key_value_heads", "n_head_kv", default=a) if t == "phi" else a
    d = first(c, "head_dim", default=h // a) if t == "phi" else h // a
    attention_bias = t in ("gpt2", "phi") or (t == "gpt_neox" and c.get("attention_bias", True))
    matrices = h * d * (2 * a + 2 * g) + 2 * h * f
    biases = f + h + (d * (a + 2 * g) + h if attention_bias else 0)
    norms = 2 * h * (1 if t in ("gptj", "phi") else 2)
    if t == "phi" and c.get("qk_layernorm"):
        norms += 4 * d
    tied = c.get("tie_word_embeddings", t == "gpt2")
    positions = first(c, "n_positions", default=1024) * h if t == "gpt2" else 0
    head_bias = v if t in ("gptj", "phi") else 0
    total = n * (matrices + biases + norms) + 2 * h + v * h * (1 if tied else 2) + positions + head_bias
    return total, total, n * matrices + v * h


def gated(c, t):
    """Llama and its kin: RMSNorm, three matrices in the MLP, perhaps experts."""
    h, n, a, v = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"], c["vocab_size"]
    f = c.get("intermediate_size") or 0
    g = first(c, "num_key_value_heads", default=a)
    fixed = {"qwen3": 128, "gemma": 256, "gemma2": 256, "gemma3_text": 256, "gpt_oss": 64}
    d = first(c, "head_dim", default=fixed.get(t, h // a))
    bias = c.get("attention_bias", t == "gpt_oss") if t in (
        "llama", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "gpt_oss",
        "deepseek_v2", "deepseek_v3", "phimoe") else False
    qkv_bias = bias or t == "qwen2" or (t == "qwen2_moe" and c.get("qkv_bias", True))
    attention = h * d * (2 * a + 2 * g)
    small = (d * (a + 2 * g) if qkv_bias else 0) + (h if bias else 0)
    if t in ("qwen3", "qwen3_moe", "gemma3_text"):
        small += 2 * d
    if t == "gpt_oss":
        small += a
    if t in ("deepseek_v2", "deepseek_v3"):
        attention, small = latent(c, h, a, bias)
    small += h * (4 if t in ("gemma2", "gemma3_text", "phimoe") else 2)
    mlp_bias = c.get("mlp_bias", False) if t in ("llama", "deepseek_v2") else False
    total = active = matmul = 0
    for layer in range(n):
        total += attention + small
        active += attention + small
        matmul += attention
        if not is_sparse(c, t, layer):
            mlp = 3 * h * f
            vectors = 2 * f + h if mlp_bias else 0
            total += mlp + vectors
            active += mlp + vectors
            matmul += mlp
        else:
            e, m, av, am = experts(c, t, h, mlp_bias)
            total += e
            active += av
            matmul += am
    tied = c.get("tie_word_embeddings", t.startswith("gemma"))
    tables = v * h * (1 if tied else 2) + h
    if t == "phimoe":  # LayerNorms have biases, the head may have one
        tables += h + (v if c.get("lm_head_bias") else 0)
    return total + tables, active + tables, matmul + v * h


def opt(c):
    """Two rows of positions that nothing uses; the narrow table of the 350M form."""
    h, n, f, v = c["hidden_size"], c["num_hidden_layers"], c["ffn_dim"], c["vocab_size"]
    e = c.get("word_embed_proj_dim") or h
    layer = 4 * h * h + 2 * h * f
    vectors = 4 * h + ((5 * h + f) if c.get("enable_bias", True) else 0)
    project = 2 * e * h if e != h else 0
    final = 2 * h if c.get("do_layer_norm_before", True) and not c.get("_remove_final_layer_norm") else 0
    tables = v * e * (1 if c.get("tie_word_embeddings", True) else 2)
    total = n * (layer + vectors) + tables + project + final
    total += (first(c, "max_position_embeddings", default=2048) + 2) * h
    return total, total, n * layer + v * e + project


def bloom(c):
    h, n, v = first(c, "hidden_size", "n_embed"), first(c, "n_layer", "num_hidden_layers"), c["vocab_size"]
    layer = 12 * h * h
    total = n * (layer + 13 * h) + 4 * h + v * h * (1 if c.get("tie_word_embeddings", True) else 2)
    return total, total, n * layer + v * h


def falcon(c):
    h, n, a, v = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"], c["vocab_size"]
    f, new, parallel = c.get("ffn_hidden_size") or 4 * h, c.get("new_decoder_architecture", False), \
        c.get("parallel_attn", True)
    g = first(c, "num_kv_heads", default=a) if new else 1 if c.get("multi_query", True) else a
    kv = 2 * g * (h // a)
    layer = 2 * h * h + h * kv + 2 * h * f
    norms = 1 if parallel and first(c, "num_ln_in_parallel_attn", default=2 if new else 1) != 2 else 2
    vectors = 2 * h * norms + (h + kv + h + f + h if c.get("bias") else 0)
    total = n * (layer + vectors) + 2 * h + v * h * (1 if c.get("tie_word_embeddings", True) else 2)
    return total, total, n * layer + v * h


def dbrx(c):
    h, n, a, v = c["d_model"], c["n_layers"], c["n_heads"], c["vocab_size"]
    inner, ffn = c.get("attn_config") or {}, c.get("ffn_config") or {}
    e, k, f = ffn.get("moe_num_experts", 4), ffn.get("moe_top_k", 1), ffn.get("ffn_hidden_size", 3584)
    shared = 2 * h * h + 2 * h * (h // a) * inner.get("kv_n_heads", 1) + h * e
    active = n * (shared + k * 3 * h * f + 2 * h) + h + 2 * v * h
    return (n * (shared + e * 3 * h * f + 2 * h) + h + 2 * v * h, active,
            n * (shared + k * 3 * h * f) + v * h)


def latent(c, h, a, bias):
    nope, rope, vd, kv = (c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"],
                          c["kv_lora_rank"])
    q = c.get("q_lora_rank", 1536)
    matrices = h * (kv + rope) + kv * a * (nope + vd) + a * vd * h
    small = kv + (kv + rope + h if bias else 0)
    if q:
        return matrices + h * q + q * a * (nope + rope), small + q + (q if bias else 0)
    return matrices + h * a * (nope + rope), small


def n_experts(c):
    return first(c, "num_experts", "num_local_experts", "n_routed_experts", default=0)


def is_sparse(c, t, layer):
    if n_experts(c) == 0:
        return False
    if t in ("qwen2_moe", "qwen3_moe"):
        only = c.get("mlp_only_layers") or []
        return layer not in only and (layer + 1) % c.get("decoder_sparse_step", 1) == 0
    if t in ("deepseek_v2", "deepseek_v3"):
        dense = c.get("first_k_dense_replace", 3 if t == "deepseek_v3" else 0)
        return layer >= dense and layer % c.get("moe_layer_freq", 1) == 0
    return True


def experts(c, t, h, mlp_bias):
    """(all, matrices, active, active matrices) of one sparse MLP."""
    e, k = n_experts(c), first(c, "num_experts_per_tok", "experts_per_token")
    m = c.get("moe_intermediate_size", c.get("intermediate_size"))
    one, one_bias = 3 * h * m, (2 * m + h if t == "gpt_oss" else 0)
    router, router_bias = h * e, (e if t in ("gpt_oss", "deepseek_v3") else 0)
    shared = 0
    if t == "qwen2_moe":
        shared = 3 * h * c["shared_expert_intermediate_size"] + h
    shared_bias = 0
    if t in ("deepseek_v2", "deepseek_v3"):
        width = c.get("n_shared_experts", 1 if t == "deepseek_v3" else 2) * m
        shared = 3 * h * width
        shared_bias = 2 * width + h if mlp_bias and width else 0
    rest = router + router_bias + shared + shared_bias
    return (e * (one + one_bias) + rest, e * one + router + shared,
            k * (one + one_bias) + rest, k * one + router + shared)


CLASSES = {"PhiForCausalLM": "phi", "DeepseekV3ForCausalLM": "deepseek_v3"}


def counts(c):
    t = c["model_type"]
    own = {"opt": opt, "bloom": bloom, "falcon": falcon, "dbrx": dbrx}
    if t in own:
        return own[t](c)
    known = ("gpt2", "gptj", "gpt_neox", "phi", "llama", "mistral", "mixtral", "qwen2", "qwen2_moe",
             "qwen3", "qwen3_moe", "phi3", "phimoe", "gemma", "gemma2", "gemma3_text", "deepseek_v2",
             "deepseek_v3", "gpt_oss")
    if t not in known:
        t = CLASSES[c["architectures"][0]]
    return plain(c, t) if t in ("gpt2", "gptj", "gpt_neox", "phi") else gated(c, t)
