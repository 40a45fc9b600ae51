# RUN: np=1 timeout=120 tags=fast
"""Vocabularies that no number of ranks divides, over tensor parallel ranks: the padding behind them has
no probability and no gradient, is in no file, and goes on on other layouts."""
import json
import math
import os
import shutil
import struct

from cli import expect, failures, finish
from training import MODELS, Place

VOCABS = (37, 1001)
TENSOR = (1, 2, 4)


def read(path):
    """{name: (shape, bytes)} of a safetensors file."""
    with open(path, "rb") as file:
        n, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(n)), file.read()
    header.pop("__metadata__", None)
    return {k: (t["shape"], data[slice(*t["data_offsets"])]) for k, t in header.items()}


def config(place, vocab, model="llama", **sections):
    base = {"model": {**MODELS["llama"], "vocab": vocab}, "batch": {"micro": 1, "global": 4},
            "data": {"train": f"{vocab}.bin"}, "precision": {"compute": "fp64"},
            "checkpoint": {"dir": "ckpt", "every_steps": 3}, "train": {"steps": 3},
            "optim": {"lr": 1e-2, "weight_decay": 0.1}}
    if model == "tied":
        base["model"]["tie_embeddings"] = True
    elif model != "llama":
        base["model"] = model
    for section, keys in sections.items():
        base[section] = {**base.get(section, {}), **keys}
    return place.config(**base)


def train(place, path, tp, *args):
    run = place.train(path, "--set", f"layout.tp={tp}", "--ranks", str(tp), "--transport", "inproc", *args)
    expect(f"tp {tp}: exit", (run.code, run.stderr if run.code else ""), (0, ""))
    return run


def rows_of(tensors):
    return {t[0][0] for name, t in tensors.items() if "embed_tokens" in name or "lm_head" in name}


def far(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def clean(place):
    shutil.rmtree(place.path("ckpt"), ignore_errors=True)


def test_rows(place, vocab, model):
    """Rows of weights and gradients on file; the same training on every number of ranks; on from 4 ranks
    to 2.  (That padding is zero in weights and moments the save itself checks, or refuses.)"""
    curves = []
    clean(place)
    for tp in TENSOR:
        clean(place)
        run = train(place, config(place, vocab, model), tp, "--dump-grads", "g.safetensors")
        expect(f"{vocab} {model} tp {tp}: gradients", rows_of(read(place.path("g.safetensors"))), {vocab})
        tensors = read(os.path.join(place.exported("ckpt"), "model.safetensors"))
        expect(f"{vocab} {model} tp {tp}: rows", rows_of(tensors), {vocab})
        with open(place.path("exported", "config.json")) as file:
            expect(f"{vocab} {model} tp {tp}: vocab_size", json.load(file)["vocab_size"], vocab)
        curves.append(run.losses)
    more = {"train": {"steps": 6}}
    rest = train(place, config(place, vocab, model, **more), 2)
    expect(f"{vocab} {model}: from", rest.of("start")[0]["step"], 3)
    clean(place)
    whole = train(place, config(place, vocab, model, **more, checkpoint={"every_steps": 0}), 1)
    curves = [c + rest.losses if i == 2 else c for i, c in enumerate(curves)]
    for tp, curve in zip(TENSOR, curves):
        if not far(curve, whole.losses) <= 1e-11:
            failures.append(f"{vocab} {model} tp {tp}: {curve}, one rank {whole.losses}")


def test_elsewhere(place, vocab):
    """Exported, read by another run on other ranks: held-out loss at the end of one is that before the
    first update of the next."""
    clean(place)
    held = {"train": f"{vocab}.bin", "valid": f"{vocab}.bin"}
    first = train(place, config(place, vocab, data=held), 4)
    place.exported("ckpt", "hf")
    for tp in TENSOR:
        path = config(place, vocab, model={"hf": "hf"}, data=held, optim={"lr": 0, "name": "sgd"},
                      checkpoint={"every_steps": 0}, train={"steps": 1})
        run = train(place, path, tp)
        if not far([e["loss"] for e in run.of("eval")], [first.of("eval")[-1]["loss"]]) <= 1e-13:
            failures.append(f"{vocab} tp {tp}: {run.of('eval')}, exported at {first.of('eval')}")


def test_no_probability(place, vocab):
    """All weights zero: every id is as likely as any other, and there are exactly so many."""
    clean(place)
    train(place, config(place, vocab), 1)
    folder = place.exported("ckpt", "zero")
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        whole = file.read()
    head = 8 + struct.unpack("<Q", whole[:8])[0]
    with open(path, "wb") as file:
        file.write(whole[:head] + bytes(len(whole) - head))
    for tp in TENSOR:
        run = train(place, config(place, vocab, model={"hf": "zero"}, checkpoint={"every_steps": 0}), tp,
                    "--steps", "1")
        expect(f"{vocab} tp {tp}: loss of {run.losses}",
               math.isclose(run.losses[0], math.log(vocab), rel_tol=1e-14), True)


with Place() as place:
    for size in VOCABS:
        place.tokens(f"{size}.bin", vocab=size)
        for kind in ("llama", "tied"):
            test_rows(place, size, kind)
        test_elsewhere(place, size)
        test_no_probability(place, size)
finish()
