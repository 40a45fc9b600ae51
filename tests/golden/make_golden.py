#!/usr/bin/env python3
"""Write the golden tensors of Echelon's model tests, from PyTorch and Hugging Face Transformers.

usage: make_golden.py [--out DIR]      write all fixtures (default: the folder of this script)
       make_golden.py --verify [DIR]   recompute, compare with the fixtures on disk, write nothing

Five tiny models with random but reproducible weights; see README.md for the files and the tensors
in them.  The weights, tokens and masks come from Python's own generator, so they are the same bits
on every machine and under every version of PyTorch.

golden_f32 comes from Transformers as it is.  golden_f64 needs help: Transformers computes RMSNorm,
the rotary tables, the softmax of Llama and Qwen attention, and the loss in float32 even when the
model is double.  plain_precision() puts the textbook formula in their place; what it computes is
asserted to agree with the unpatched model in float32, and every operation of a double run is
watched, so that no float32 tensor can slip in.
"""

import argparse
import contextlib
import importlib
import json
import math
import platform
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy
import safetensors
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

VOCAB, BATCH, SEQ = 61, 3, 13
STEPS = 10
SGD_LR = 0.05
ADAMW_LR, ADAMW_BETAS, ADAMW_EPS, WEIGHT_DECAY = 1e-2, (0.9, 0.95), 1e-8, 0.1
CLIP_NORM = 1.0

# Positions without a label, per sequence: a prompt and a hole, scattered ones, and nearly all of
# it.  The counts differ, so a mean of per-sequence means is not the loss.
MASKED = ({0, 1, 2, 3, 8}, {5, 12}, {0, 1, 2, 3, 4, 5, 7, 8, 11, 12})

LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                   high_freq_factor=4.0, original_max_position_embeddings=64)


@dataclass(frozen=True)
class Case:
    """One model: its folder, its configuration, and what to record of it."""

    name: str
    seed: int
    config: transformers.PreTrainedConfig
    optimizers: bool = False    # also record ten steps of SGD and AdamW
    classic_rope: bool = False  # write rope_theta/rope_scaling, as configs before Transformers 5


def make_cases():
    shape = dict(vocab_size=VOCAB, num_hidden_layers=2, bos_token_id=None, eos_token_id=None)
    gpt2 = GPT2Config(
        vocab_size=VOCAB, n_positions=16, n_embd=18, n_layer=2, n_head=3, bos_token_id=None,
        eos_token_id=None, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    llama = LlamaConfig(
        **shape, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=28, rms_norm_eps=1e-5, max_position_embeddings=32,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0), tie_word_embeddings=False)
    llama3rope = LlamaConfig(
        **shape, hidden_size=12, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=20, rms_norm_eps=1e-5, max_position_embeddings=512,
        rope_parameters=dict(LLAMA3_ROPE), tie_word_embeddings=True)
    qwen2 = Qwen2Config(
        **shape, hidden_size=12, num_attention_heads=3, num_key_value_heads=1,
        intermediate_size=20, rms_norm_eps=1e-6, max_position_embeddings=32,
        rope_parameters=dict(rope_type="default", rope_theta=1e6), tie_word_embeddings=False)
    qwen3 = Qwen3Config(
        **shape, hidden_size=12, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=20, rms_norm_eps=1e-6, max_position_embeddings=32,
        rope_parameters=dict(rope_type="default", rope_theta=1e6), tie_word_embeddings=True)
    return (
        Case("gpt2", 5, gpt2, optimizers=True),
        Case("llama", 2, llama, optimizers=True),
        Case("llama3rope", 3, llama3rope, classic_rope=True),
        Case("qwen2", 4, qwen2, classic_rope=True),
        Case("qwen3", 1, qwen3),
    )


# --- Weights and batch -----------------------------------------------------------------------

def uniform(rng, shape, std):
    """A float32 tensor of the given standard deviation, the same bits on every machine."""
    half_width = std * math.sqrt(3.0)
    values = [rng.uniform(-half_width, half_width) for _ in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).reshape(shape).to(torch.float32)


def is_embedding(name):
    return name.endswith(("embed_tokens.weight", "wte.weight", "wpe.weight"))


def initial_weight(rng, name, shape):
    """No norm weight is one, no bias zero, no attention uniform: every gradient counts."""
    if name.endswith("bias"):
        return uniform(rng, shape, 0.2)
    if len(shape) == 1:
        return 1.0 + uniform(rng, shape, 0.3)
    if is_embedding(name):
        return uniform(rng, shape, 0.3)
    # GPT-2's Conv1D stores [in, out], nn.Linear [out, in].
    fan_in = shape[0] if ".c_" in name else shape[1]
    return uniform(rng, shape, 1.2 / math.sqrt(fan_in))


def make_weights(case, rng):
    """Float32 weights by Hugging Face name; a tied table appears once."""
    model = AutoModelForCausalLM.from_config(case.config)
    return {name: initial_weight(rng, name, p.shape) for name, p in model.named_parameters()}


def make_batch(rng):
    """Input ids and next-token labels: labels[b][t] is the target of position t, -1 if masked."""
    tokens = [[rng.randrange(VOCAB) for _ in range(SEQ + 1)] for _ in range(BATCH)]
    inputs = [row[:-1] for row in tokens]
    labels = [[-1 if t in MASKED[b] else row[t + 1] for t in range(SEQ)]
              for b, row in enumerate(tokens)]
    return {"input_ids": inputs, "labels": labels,
            "num_labels": sum(y >= 0 for row in labels for y in row)}


# --- Plain formulas where Transformers rounds to float32 -------------------------------------

def rope_inv_freq(config):
    """Rotary frequencies in double; Llama-3 scaling as in Meta's apply_scaling."""
    rope = config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    freqs = [rope["rope_theta"] ** (-i / head_dim) for i in range(0, head_dim, 2)]
    if rope["rope_type"] == "llama3":
        freqs = [llama3_scaled(f, rope) for f in freqs]
    else:
        assert rope["rope_type"] == "default", rope
    return torch.tensor(freqs, dtype=torch.float64)


def llama3_scaled(freq, rope):
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * freq / (2.0 * math.pi)
    if turns > high:
        return freq
    if turns < low:
        return freq / rope["factor"]
    smooth = (turns - low) / (high - low)
    return (1.0 - smooth) * freq / rope["factor"] + smooth * freq


def plain_rotary(self, x, position_ids):
    angles = position_ids[..., None].double() * rope_inv_freq(self.config)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def plain_rmsnorm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def plain_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    assert dropout == 0.0 and attention_mask is not None
    key = key.repeat_interleave(module.num_key_value_groups, dim=1)
    value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    weights = torch.softmax(query @ key.transpose(2, 3) * scaling + attention_mask, dim=-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


@contextlib.contextmanager
def plain_precision(case):
    """Within it, the case's model computes in the type of its weights throughout."""
    kind = case.config.model_type
    if kind == "gpt2":  # rounds nowhere; NoFloat32 is the witness
        yield
        return
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    prefix = kind.capitalize()
    with mock.patch.object(getattr(module, prefix + "RMSNorm"), "forward", plain_rmsnorm), \
         mock.patch.object(getattr(module, prefix + "RotaryEmbedding"), "forward", plain_rotary), \
         mock.patch.object(module, "eager_attention_forward", plain_attention):
        yield


class NoFloat32(TorchDispatchMode):
    """Raises when any operation, forward or backward, returns a tensor of less than double."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                assert leaf.dtype == torch.float64, f"{func} returned {leaf.dtype}"
        return out


# --- Running a model -------------------------------------------------------------------------

def build_model(case, weights, dtype):
    model = AutoModelForCausalLM.from_config(case.config, attn_implementation="eager").to(dtype)
    assert model.config._attn_implementation == "eager"
    params = dict(model.named_parameters())
    assert params.keys() == weights.keys()
    with torch.no_grad():
        for name, p in params.items():
            p.copy_(weights[name])
    return model.train()  # dropout is zero everywhere; train mode as in training


def batch_tensors(batch):
    labels = torch.tensor(batch["labels"])
    return torch.tensor(batch["input_ids"]), labels.masked_fill(labels < 0, -100)


def token_loss(logits, labels):
    """Sum of the unmasked tokens' negative log-likelihoods over their number."""
    nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100,
                          reduction="sum")
    return nll / (labels >= 0).sum().item()


def forward(model, batch):
    inputs, labels = batch_tensors(batch)
    logits = model(input_ids=inputs, use_cache=False).logits
    return logits, token_loss(logits, labels)


def gradients(model, batch):
    """Logits, loss [1] and grad.<name> of every parameter."""
    model.zero_grad(set_to_none=True)
    logits, loss = forward(model, batch)
    loss.backward()
    out = {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    out.update({f"grad.{name}": p.grad for name, p in model.named_parameters()})
    return {name: t.clone() for name, t in out.items()}


def train(model, batch, optimizer, clip_norm=None):
    """Ten steps on one batch; losses before each step and gradient norms before clipping."""
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        _, loss = forward(model, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm or math.inf)
        optimizer.step()
        losses.append(loss.detach())
        norms.append(norm.detach())
    return torch.stack(losses), torch.stack(norms)


def named_weights(model, prefix):
    return {f"{prefix}.{name}": p.detach().clone() for name, p in model.named_parameters()}


def train_sgd(case, weights, batch):
    model = build_model(case, weights, torch.float32)
    losses, _ = train(model, batch, torch.optim.SGD(model.parameters(), lr=SGD_LR))
    return {"sgd_losses": losses, **named_weights(model, "sgd10")}


def is_decayed(name, p):
    """Matrices that are no embeddings; an untied lm_head is a matrix, a tied table an embedding."""
    return p.dim() == 2 and not is_embedding(name)


def train_adamw(case, weights, batch):
    model = build_model(case, weights, torch.float64)
    named = list(model.named_parameters())
    groups = [dict(params=[p for n, p in named if is_decayed(n, p)], weight_decay=WEIGHT_DECAY),
              dict(params=[p for n, p in named if not is_decayed(n, p)], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=ADAMW_LR, betas=ADAMW_BETAS, eps=ADAMW_EPS,
                                  foreach=False)
    losses, norms = train(model, batch, optimizer, CLIP_NORM)
    assert norms.max() > CLIP_NORM > norms.min(), f"{case.name}: some steps clipped, not all"
    by_hand = adamw_by_hand(case, weights, batch)
    for name, p in named:
        ours, theirs = (without_key_bias(name, t) for t in (by_hand[name], p.detach()))
        assert relative(ours, theirs) < 1e-13, f"{case.name}: AdamW of {name}"
    return {"adamw_losses": losses, "adamw_norms": norms, **named_weights(model, "adamw10")}


def without_key_bias(name, t):
    """GPT-2's c_attn.bias without its middle third, whose gradient is zero in exact arithmetic.

    Softmax ignores what is added to all scores of a query, so what is left is rounding noise, and
    AdamW divides noise by its own size: only eps keeps the key bias within 1e-10 of its start."""
    return torch.cat((t.chunk(3)[0], t.chunk(3)[2])) if name.endswith("c_attn.bias") else t


def adamw_by_hand(case, weights, batch):
    """The rule that adamw10 follows, written out; torch.optim is asserted to agree with it."""
    model = build_model(case, weights, torch.float64)
    params = dict(model.named_parameters())
    m = {name: torch.zeros_like(p) for name, p in params.items()}
    v = {name: torch.zeros_like(p) for name, p in params.items()}
    b1, b2 = ADAMW_BETAS
    for step in range(1, STEPS + 1):
        golden = gradients(model, batch)
        coef = min(1.0, CLIP_NORM / (grad_scale(golden) + 1e-6))
        with torch.no_grad():
            for name, p in params.items():
                g = coef * golden[f"grad.{name}"]
                m[name] = b1 * m[name] + (1.0 - b1) * g
                v[name] = b2 * v[name] + (1.0 - b2) * g * g
                m_hat, v_hat = m[name] / (1.0 - b1 ** step), v[name] / (1.0 - b2 ** step)
                if is_decayed(name, p):
                    p.mul_(1.0 - ADAMW_LR * WEIGHT_DECAY)
                p.sub_(ADAMW_LR * m_hat / (v_hat.sqrt() + ADAMW_EPS))
    return {name: p.detach() for name, p in params.items()}


# --- Checks ----------------------------------------------------------------------------------

def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def grad_scale(golden):
    return math.sqrt(sum(t.double().pow(2).sum().item()
                         for name, t in golden.items() if name.startswith("grad.")))


def worst_difference(got, want):
    """Largest ||got - want|| / max(||want||, 1e-6 * ||all gradients||), and the tensor it is in.

    The floor is for gradients; logits, losses and weights are far above it."""
    floor = 1e-6 * grad_scale(want)
    assert got.keys() == want.keys()
    return max(((got[n].double() - want[n].double()).norm().item()
                / max(want[n].double().norm().item(), floor), n) for n in want)


def check_patches(case, patched, stock):
    """In float32 the plain formulas are those of Transformers, up to rounding.

    A single small tensor (Qwen2's key bias) is allowed a little more than all of them together."""
    def joined(golden):
        return torch.cat([t.flatten() for n, t in golden.items() if n.startswith("grad.")])

    for what, error in (("logits", relative(patched["logits"], stock["logits"])),
                        ("loss", relative(patched["loss"], stock["loss"])),
                        ("all gradients", relative(joined(patched), joined(stock)))):
        assert error <= 1e-6, f"{case.name}: patched and stock {what} differ by {error:.1e}"
    error, where = worst_difference(patched, stock)
    assert error <= 4e-6, f"{case.name}: patched and stock {where} differ by {error:.1e}"
    return error


def check_library_loss(case, model, batch):
    """Our loss is Transformers' own, given the labels shifted by us or by it."""
    inputs, labels = batch_tensors(batch)
    ours = forward(model, batch)[1].item()
    theirs = model(input_ids=inputs, labels=labels, shift_labels=labels,
                   use_cache=False).loss.item()
    assert abs(ours - theirs) < 1e-6 * ours, f"{case.name}: loss {ours}, Transformers {theirs}"

    last_masked = {**batch, "labels": [row[:-1] + [-1] for row in batch["labels"]]}
    unshifted = torch.cat((torch.full((BATCH, 1), -100), labels[:, :-1]), dim=1)
    ours = forward(model, last_masked)[1].item()
    theirs = model(input_ids=inputs, labels=unshifted, use_cache=False).loss.item()
    assert abs(ours - theirs) < 1e-6 * ours, f"{case.name}: loss {ours}, Transformers {theirs}"


def check_gradients_count(case, golden):
    """No parameter's gradient may be so small that an error in it could hide."""
    scale = grad_scale(golden)
    for name, t in golden.items():
        if name.startswith("grad."):
            assert t.norm().item() > 1e-3 * scale, f"{case.name}: {name} is tiny"


def check_rope_scaling_bites(case, weights, batch, golden):
    config = LlamaConfig.from_dict(case.config.to_dict())
    config.rope_parameters = dict(rope_type="default", rope_theta=LLAMA3_ROPE["rope_theta"])
    unscaled = build_model(Case(case.name, case.seed, config), weights, torch.float32)
    difference = relative(forward(unscaled, batch)[0], golden["logits"])
    assert difference > 1e-2, f"{case.name}: scaling moves the logits by {difference:.1e} only"


def check_reload(case, folder, golden):
    """A reader that knows nothing of this script gets the same model from the folder."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                 dtype=torch.float32)
    batch = json.loads((folder / "batch.json").read_text())
    logits, loss = forward(model, batch)
    assert torch.equal(logits, golden["logits"]) and loss.item() == golden["loss"].item(), case.name


# --- Files -----------------------------------------------------------------------------------

def config_json(case):
    config = case.config.to_diff_dict()
    config.update(architectures=[type(AutoModelForCausalLM.from_config(case.config)).__name__],
                  dtype="float32")
    if case.classic_rope:
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
        config["torch_dtype"] = config.pop("dtype")
    return config


def batch_text(batch):
    rows = [f'  "{key}": [\n' + ",\n".join(f"    {json.dumps(row)}" for row in batch[key]) + "\n  ]"
            for key in ("input_ids", "labels")]
    return "{\n" + ",\n".join(rows) + f',\n  "num_labels": {batch["num_labels"]}\n}}\n'


def write_tensors(path, tensors):
    tensors = {name: t.contiguous() for name, t in tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})


def write_case(case, out):
    """Compute, check and write one folder; return a line about it."""
    rng = random.Random(case.seed)
    weights, batch = make_weights(case, rng), make_batch(rng)

    stock = build_model(case, weights, torch.float32)
    golden_f32 = gradients(stock, batch)
    check_library_loss(case, stock, batch)
    with plain_precision(case):
        patched_f32 = gradients(build_model(case, weights, torch.float32), batch)
        model = build_model(case, weights, torch.float64)
        with NoFloat32():
            golden_f64 = gradients(model, batch)
        if case.optimizers:
            golden_f64.update(train_adamw(case, weights, batch))
    patch_error = check_patches(case, patched_f32, golden_f32)
    round_error, _ = worst_difference(golden_f32, {n: golden_f64[n] for n in golden_f32})
    assert round_error < 1e-5, f"{case.name}: float32 and float64 differ by {round_error}"
    check_gradients_count(case, golden_f64)
    if case.optimizers:
        golden_f32.update(train_sgd(case, weights, batch))
    if case.config.model_type == "llama" and case.config.rope_parameters["rope_type"] == "llama3":
        check_rope_scaling_bites(case, weights, batch, golden_f32)

    folder = out / case.name
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "model.safetensors", weights)
    write_tensors(folder / "golden_f32.safetensors", golden_f32)
    write_tensors(folder / "golden_f64.safetensors", golden_f64)
    config = json.dumps(config_json(case), indent=2, sort_keys=True)
    (folder / "config.json").write_text(config + "\n")
    (folder / "batch.json").write_text(batch_text(batch))
    check_reload(case, folder, golden_f32)
    loss = golden_f64["loss"].item()
    return (f"{case.name:10s} loss {loss:.15f}  |grad| {grad_scale(golden_f64):.4f}"
            f"  patched vs stock f32 {patch_error:.1e}  f32 vs f64 {round_error:.1e}")


def write_all(out):
    for case in make_cases():
        print(write_case(case, out))
    versions = dict(python=platform.python_version(), torch=torch.__version__.split("+")[0],
                    transformers=transformers.__version__, safetensors=safetensors.__version__,
                    numpy=numpy.__version__, machine=platform.machine())
    (out / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")


def verify(stored):
    """Recompute with this machine's versions; weights and batch exact, goldens within rounding."""
    with tempfile.TemporaryDirectory() as tmp:
        fresh = Path(tmp)
        write_all(fresh)
        for case in make_cases():
            old, new = stored / case.name, fresh / case.name
            assert (old / "batch.json").read_bytes() == (new / "batch.json").read_bytes(), case.name
            want, got = load_file(old / "model.safetensors"), load_file(new / "model.safetensors")
            assert want.keys() == got.keys() and all(torch.equal(want[n], got[n]) for n in want)
            for bits, tolerance in (("f32", 1e-5), ("f64", 1e-11)):
                want, got = (load_file(d / f"golden_{bits}.safetensors") for d in (old, new))
                error, where = worst_difference(got, want)
                assert error <= tolerance, f"{case.name} {bits}: {where} differs by {error:.1e}"
                print(f"{case.name:10s} {bits} reproduced within {error:.1e}")


def main():
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=here, metavar="DIR")
    parser.add_argument("--verify", type=Path, nargs="?", const=here, metavar="DIR")
    args = parser.parse_args()

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if args.verify:
        verify(args.verify)
    else:
        write_all(args.out)


if __name__ == "__main__":
    sys.exit(main())
