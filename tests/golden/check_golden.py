#!/usr/bin/env python3
"""A second opinion on the golden files: the five models written again in NumPy, without PyTorch.

usage: check_golden.py [DIR]    (default: the folder of this script)

For each model the logits and the loss are recomputed in double, and every gradient is tested along
a random direction by complex steps: loss(w + ih*d) = loss + ih*<grad, d> + O(h^2), so with
h = 1e-40 the imaginary part is the derivative to full double precision, with no difference taken.
(NumPy's functions used here all accept complex arguments and none of them conjugates.)

Of the ten optimizer steps only the ends are tested: the first loss and norm, and that the recorded
weights give a lower loss than the last recorded one.  (make_golden.py writes AdamW out by hand.)
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

TOLERANCE = 1e-10
H = 1e-40
DTYPES = {"F32": "<f4", "F64": "<f8"}


def read_safetensors(path):
    """{name: array} of a file: u64 header length, JSON header, raw little-endian data."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = raw[8 + length + begin:8 + length + end]
        tensors[name] = np.frombuffer(data, DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


# --- Building blocks; x is [B, T, C], all may be complex --------------------------------------

def softmax(scores):
    e = np.exp(scores - scores.real.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layernorm(x, weight, bias, eps):
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight + bias


def rmsnorm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x ** 3)))


def silu(x):
    return x / (1.0 + np.exp(-x))


def attention(q, k, v):
    """Causal; q [B, T, H, D], k and v [B, T, G, D]; query head h reads key head h // (H/G)."""
    B, T, H_, D = q.shape
    group = H_ // k.shape[2]
    out = np.empty(q.shape, np.result_type(q, k, v))
    future = np.triu(np.ones((T, T), dtype=bool), 1)
    for h in range(H_):
        kh, vh = k[:, :, h // group], v[:, :, h // group]
        scores = q[:, :, h] @ kh.transpose(0, 2, 1) / np.sqrt(D)
        out[:, :, h] = softmax(np.where(future, -np.inf, scores)) @ vh
    return out.reshape(B, T, H_ * D)


def loss_of(logits, labels):
    """Mean negative log-likelihood over the labels that are not -1."""
    rows, targets = logits[labels >= 0], labels[labels >= 0]
    top = rows.real.max(axis=-1)
    log_sum = top + np.log(np.exp(rows - top[:, None]).sum(axis=-1))
    return (log_sum - rows[np.arange(len(targets)), targets]).sum() / len(targets)


# --- Models ----------------------------------------------------------------------------------

def gpt2_logits(w, config, ids):
    heads, eps = config["n_head"], config["layer_norm_epsilon"]
    B, T = ids.shape
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:T]
    for layer in range(config["n_layer"]):
        def affine(y, name, at=f"transformer.h.{layer}."):
            return y @ w[at + name + ".weight"] + w[at + name + ".bias"]  # Conv1D: [in, out]

        def norm(y, name, at=f"transformer.h.{layer}."):
            return layernorm(y, w[at + name + ".weight"], w[at + name + ".bias"], eps)

        qkv = affine(norm(x, "ln_1"), "attn.c_attn")
        q, k, v = (part.reshape(B, T, heads, -1) for part in np.split(qkv, 3, axis=-1))
        x = x + affine(attention(q, k, v), "attn.c_proj")
        x = x + affine(gelu_tanh(affine(norm(x, "ln_2"), "mlp.c_fc")), "mlp.c_proj")
    x = layernorm(x, w["transformer.ln_f.weight"], w["transformer.ln_f.bias"], eps)
    return x @ w["transformer.wte.weight"].T


def rope_of(config):
    """Rotary settings from either spelling of config.json."""
    if "rope_parameters" in config:
        return config["rope_parameters"]
    scaling = config["rope_scaling"] or {"rope_type": "default"}
    return {"rope_theta": config["rope_theta"], **scaling}


def rotary_frequencies(rope, head_dim):
    freq = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    if rope["rope_type"] == "default":
        return freq
    # Llama 3: whole wavelengths in the original context decide; a ramp lies between the two ends.
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * freq / (2.0 * np.pi)
    ramp = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return freq * (ramp + (1.0 - ramp) / rope["factor"])


def rotate(x, freq):
    """x [B, T, H, D]: pairs (i, i + D/2) turned by t * freq[i]."""
    angle = np.arange(x.shape[1])[:, None, None] * freq
    c, s = np.cos(angle), np.sin(angle)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate((a * c - b * s, a * s + b * c), axis=-1)


def llama_logits(w, config, ids):
    """Llama, Qwen2 (biases on q, k, v) and Qwen3 (RMSNorm on each head's q and k)."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    eps = config["rms_norm_eps"]
    freq = rotary_frequencies(rope_of(config), head_dim)
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."

        def linear(y, name, at=at):
            return y @ w[at + name + ".weight"].T + w.get(at + name + ".bias", 0.0)

        def project(y, which, n, at=at):
            z = linear(y, f"self_attn.{which}_proj").reshape(*ids.shape, n, head_dim)
            norm = w.get(f"{at}self_attn.{which}_norm.weight")
            return z if norm is None else rmsnorm(z, norm, eps)

        y = rmsnorm(x, w[at + "input_layernorm.weight"], eps)
        q, k = rotate(project(y, "q", heads), freq), rotate(project(y, "k", kv_heads), freq)
        x = x + linear(attention(q, k, project(y, "v", kv_heads)), "self_attn.o_proj")
        y = rmsnorm(x, w[at + "post_attention_layernorm.weight"], eps)
        x = x + linear(silu(linear(y, "mlp.gate_proj")) * linear(y, "mlp.up_proj"), "mlp.down_proj")
    x = rmsnorm(x, w["model.norm.weight"], eps)
    tied = config["tie_word_embeddings"]
    return x @ w["model.embed_tokens.weight" if tied else "lm_head.weight"].T


# --- Checks ----------------------------------------------------------------------------------

def check(error, tolerance, what):
    if not error <= tolerance:  # a NaN fails too
        raise SystemExit(f"FAIL {what}: {error:.2e}, allowed {tolerance:.0e}")
    return error


def check_gradients(name, forward, weights, golden, labels):
    """Largest error of <grad, d> over all parameters, relative to |grad||d| or the floor."""
    rng = np.random.default_rng(0)
    total = np.sqrt(sum((g ** 2).sum() for n, g in golden.items() if n.startswith("grad.")))
    worst = 0.0
    for parameter, value in weights.items():
        grad = golden[f"grad.{parameter}"]
        direction = rng.standard_normal(value.shape)
        stepped = {**weights, parameter: value + 1j * H * direction}
        slope = loss_of(forward(stepped), labels).imag / H
        scale = max(np.linalg.norm(grad), 1e-6 * total) * np.linalg.norm(direction)
        error = abs(slope - (grad * direction).sum()) / scale
        worst = max(worst, check(error, TOLERANCE, f"{name} grad.{parameter}"))
    return worst


def check_steps(name, forward, golden, weights, labels, prefix, tolerance):
    """The first recorded loss and norm are those of the start, and the steps went on downhill."""
    losses = golden[f"{prefix}_losses"]
    check(abs(losses[0] / golden["loss"][0] - 1.0), tolerance, f"{name} {prefix}: first loss")
    if f"{prefix}_norms" in golden:
        total = np.sqrt(sum((g ** 2).sum() for n, g in golden.items() if n.startswith("grad.")))
        check(abs(golden[f"{prefix}_norms"][0] / total - 1.0), tolerance, f"{name} {prefix}: norm")
    after = {n: golden[f"{prefix}10.{n}"].astype(np.float64) for n in weights}
    final = loss_of(forward(after), labels)
    check(final / losses[-1], 1.0, f"{name} {prefix}: last loss over the one before")
    return losses[0], final


def check_model(folder):
    config, batch = (json.loads((folder / f).read_text()) for f in ("config.json", "batch.json"))
    weights = {n: t.astype(np.float64)
               for n, t in read_safetensors(folder / "model.safetensors").items()}
    f32, f64 = (read_safetensors(folder / f"golden_{bits}.safetensors") for bits in ("f32", "f64"))
    ids, labels = np.array(batch["input_ids"]), np.array(batch["labels"])
    assert (labels >= 0).sum() == batch["num_labels"]
    logits_of = gpt2_logits if config["model_type"] == "gpt2" else llama_logits

    def forward(w):
        return logits_of(w, config, ids)

    logits = forward(weights)
    loss = loss_of(logits, labels)
    errors = {}
    for bits, golden, tolerance in (("f64", f64, TOLERANCE), ("f32", f32, 2e-6)):
        check(abs(loss - golden["loss"][0]) / loss, tolerance, f"{folder.name} {bits} loss")
        error = np.linalg.norm(logits - golden["logits"]) / np.linalg.norm(logits)
        errors[bits] = check(error, tolerance, f"{folder.name} {bits} logits")
    gradient_error = check_gradients(folder.name, forward, weights, f64, labels)
    print(f"{folder.name:10s} loss {loss:.15f}  off by {abs(loss - f64['loss'][0]):.1e}  logits f64"
          f" {errors['f64']:.1e} f32 {errors['f32']:.1e}  gradients {gradient_error:.1e}")
    for prefix, golden, tolerance in (("sgd", f32, 2e-6), ("adamw", f64, TOLERANCE)):
        if f"{prefix}_losses" in golden:
            first, last = check_steps(folder.name, forward, golden, weights, labels, prefix,
                                      tolerance)
            print(f"{'':10s} {prefix}: loss {first:.4f} -> {last:.4f} in ten steps")


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    for name in ("gpt2", "llama", "llama3rope", "qwen2", "qwen3"):
        check_model(root / name)
    print("all golden files agree")


if __name__ == "__main__":
    main()
