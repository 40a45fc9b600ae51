#!/usr/bin/env python3
# RUN: np=1 timeout=120 tags=fast
"""`echelon train` from the golden weights on the golden batches (three files of 14 tokens with their
masks): loss, dumped gradients and weights after ten steps are those of PyTorch, in fp64 and fp32, with
the fast kernels and the reference ones.

In fp64 with SGD the step from one checkpoint to the next *is* the dumped gradient times the learning
rate: names, row order, scale and padding of both files at once.  The same gradients from three virtual
ranks, from three micro-batches and, after clipping, unclipped in the dump."""
import array
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["ECH_SOURCE"])
ECHELON = os.path.join(os.environ["ECH_BUILD"], "echelon")
LR = 0.05
failures = []


def expect(what, got, limit):
    if not got <= limit:  # a NaN fails too
        failures.append(f"{what}: {got:.3e}, allowed {limit:.0e}")


def read_safetensors(path):
    """Header and data."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return header, raw[8 + length:]


def read_values(path, dtype):
    """{name: (shape, values)} of a file in which everything is of one type."""
    header, data = read_safetensors(path)
    assert {entry["dtype"] for entry in header.values()} == {dtype}, path
    letter = {"F64": "d", "F32": "f"}[dtype]
    return {name: (entry["shape"], array.array(letter, data[slice(*entry["data_offsets"])]))
            for name, entry in header.items()}


def read_doubles(path):
    return read_values(path, "F64")


def prefixed(tensors, prefix):
    return {name[len(prefix):]: t for name, t in tensors.items() if name.startswith(prefix)}


def without(tensors, names):
    return {name: t for name, t in tensors.items() if name not in names}


def norm(values):
    return sum(x * x for x in values) ** 0.5


def difference(a, b):
    """Largest |a - b| / max(|b|, 1e-6 |all b|) over tensors of the same names and shapes."""
    assert {n: s for n, (s, _) in a.items()} == {n: s for n, (s, _) in b.items()}
    floor = 1e-6 * norm([norm(v) for _, v in b.values()])
    return max(norm([x - y for x, y in zip(a[n][1], v)]) / max(norm(v), floor)
               for n, (_, v) in b.items())


class Golden:
    def __init__(self, name, folder):
        self.name, self.folder, self.model = name, folder, SOURCE / "tests" / "golden" / name
        batch = json.loads((self.model / "batch.json").read_text())
        for i, (ids, labels) in enumerate(zip(batch["input_ids"], batch["labels"])):
            # the labels are the ids one on, where there is one; the last one has no id yet
            assert all(y in (-1, x) for x, y in zip(ids[1:], labels))
            whole = ids + [max(labels[-1], 0)]
            (folder / f"{i}.bin").write_bytes(array.array("H", whole).tobytes())
            (folder / f"{i}.mask").write_bytes(bytes([0] + [y >= 0 for y in labels]))
        self.n_labels = batch["num_labels"]

    def train(self, label, ranks=1, micro=3, clip=0, steps=2, compute="fp64", kernels="auto", **optim):
        """Weights after each step, the last step's gradients and events."""
        dtype = {"fp64": "F64", "fp32": "F32"}[compute]
        ckpt, dump = self.folder / label, self.folder / f"{label}.safetensors"
        config = {
            "model": {"hf": str(self.model)},
            "data": {"train": [f"{i}.bin" for i in range(3)],
                     "mask": [f"{i}.mask" for i in range(3)], "dtype": "uint16"},
            "batch": {"global": 3, "micro": micro, "seq": 13},
            "precision": {"compute": compute},
            "optim": {"name": "sgd", "lr": LR, "weight_decay": 0.0, "clip": clip,
                      "schedule": "constant", "warmup_steps": 0, **optim},
            "train": {"steps": steps, "seed": 3},
            "checkpoint": {"dir": str(ckpt), "every_steps": 1, "keep": 0},
            "run": {"dir": str(self.folder / f"run-{label}"), "threads": 1, "bind": "none"},
        }
        path = self.folder / f"{label}.json"
        path.write_text(json.dumps(config))
        done = subprocess.run(
            [ECHELON, "train", path, "--json", "--dump-grads", dump, "--ranks", str(ranks),
             "--kernels", kernels, "--transport", "self" if ranks == 1 else "inproc"],
            capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise SystemExit(f"{self.name} {label}: exit {done.returncode}\n{done.stderr}")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        weights = [read_values(self.exported(ckpt / f"step-{i + 1:08}") / "model.safetensors", dtype)
                   for i in range(steps)]
        return weights, read_values(dump, dtype), [e for e in events if e["event"] == "step"]

    @staticmethod
    def exported(checkpoint):
        out = checkpoint.with_suffix(".hf")
        subprocess.run([ECHELON, "ckpt", "export", checkpoint, out], capture_output=True, check=True)
        return out

    def theirs(self, which, dtype):
        return read_values(self.model / f"golden_{which}.safetensors", dtype)


def rounding(weights, grads):
    """What (w - (w - lr g)) / lr loses of g, relative as in difference: 1e-16 |w| / (lr |g|)."""
    floor = 1e-6 * norm([norm(v) for _, v in grads.values()])
    return max(2e-16 * norm(v) / (LR * max(norm(grads[n][1]), floor))
               for n, (_, v) in weights.items())


def check_against_torch(golden):
    """One step from the golden weights: their loss and every gradient."""
    for compute, dtype, which, kernels, limit in [("fp64", "F64", "f64", "auto", 1e-10),
                                                  ("fp32", "F32", "f32", "auto", 1e-5),
                                                  ("fp32", "F32", "f32", "ref", 1e-5)]:
        what = f"{golden.name}, {compute}, {kernels}"
        _, grads, (step,) = golden.train(f"{which}-{kernels}", steps=1, compute=compute, kernels=kernels)
        theirs = golden.theirs(which, dtype)
        worst = difference(grads, prefixed(theirs, "grad."))
        print(f"{what}: worst gradient {worst:.1e}")
        expect(f"{what}: a gradient", worst, limit)
        expect(f"{what}: loss", abs(step["loss"] / theirs["loss"][1][0] - 1), limit)


def check_ten_steps(golden):
    """Weights after ten steps of SGD in fp32 and of AdamW in fp64, where the golden file has them."""
    theirs = golden.theirs("f32", "F32")
    wanted = prefixed(theirs, "sgd10.")
    if not wanted:
        return
    weights, _, steps = golden.train("sgd10", steps=10, compute="fp32")
    expect(f"{golden.name}: ten steps of SGD", difference(weights[-1], wanted), 1e-5)
    for step, loss in zip(steps, theirs["sgd_losses"][1]):
        expect(f"{golden.name}: loss of step {step['step']}", abs(step["loss"] / loss - 1), 1e-5)
    theirs = golden.theirs("f64", "F64")
    wanted = prefixed(theirs, "adamw10.")
    weights, _, steps = golden.train("adamw10", steps=10, name="adamw", lr=1e-2, betas=[0.9, 0.95],
                                     eps=1e-8, weight_decay=0.1, clip=1.0)
    biases = {n for n in wanted if n.endswith("c_attn.bias")}  # their key part has no gradient but noise
    expect(f"{golden.name}: ten steps of AdamW",
           difference(without(weights[-1], biases), without(wanted, biases)), 1e-9)
    for n in biases:
        expect(f"{golden.name}: {n} after ten steps",
               max(abs(x - y) for x, y in zip(weights[-1][n][1], wanted[n][1])), 1e-9)
    for step, loss, size in zip(steps, theirs["adamw_losses"][1], theirs["adamw_norms"][1]):
        expect(f"{golden.name}: AdamW, loss of step {step['step']}", abs(step["loss"] / loss - 1), 1e-9)
        expect(f"{golden.name}: AdamW, norm of step {step['step']}", abs(step["grad_norm"] / size - 1), 1e-9)


def check(name, folder):
    golden = Golden(name, folder)
    check_against_torch(golden)
    check_ten_steps(golden)
    (before, after), grads, events = golden.train("plain")
    shapes = {n: e["shape"] for n, e in
              read_safetensors(golden.model / "model.safetensors")[0].items()}
    if shapes != {n: s for n, (s, _) in grads.items()}:
        failures.append(f"{name}: names or shapes of the dump are not those of the model's file")
    step = {n: (s, array.array("d", ((x - y) / LR for x, y in zip(v, after[n][1]))))
            for n, (s, v) in before.items()}
    expect(f"{name}: the step over lr against the dump", difference(step, grads),
           1e-12 + rounding(before, grads))
    if [e["tokens"] for e in events] != [golden.n_labels] * 2:
        failures.append(f"{name}: {[e['tokens'] for e in events]} labels a step")
    total = norm([norm(v) for _, v in grads.values()])
    expect(f"{name}: grad_norm", abs(events[1]["grad_norm"] / total - 1.0), 1e-13)
    for other, how in (("ranks", {"ranks": 3, "micro": 1}), ("micro", {"micro": 1})):
        _, again, steps = golden.train(other, **how)
        expect(f"{name}: dump of {how}", difference(again, grads), 1e-11)
        expect(f"{name}: loss of {how}", abs(steps[1]["loss"] / events[1]["loss"] - 1.0), 1e-13)
    clipped = golden.train("clipped", clip=1e-3, steps=1)[1]
    first = golden.train("first", steps=1)[1]
    expect(f"{name}: dump with clipping", difference(clipped, first), 0.0)


for model in ("gpt2", "llama", "llama3rope", "qwen2", "qwen3"):
    with tempfile.TemporaryDirectory() as scratch:
        check(model, Path(scratch))
for failure in failures:
    print(failure, file=sys.stderr)
sys.exit(1 if failures else 0)
