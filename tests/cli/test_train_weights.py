# RUN: np=1 timeout=120 tags=fast,mpi
"""Training from given weights: `model.hf` names a folder with safetensors.  They are what the first step
sees, on every rank; a config.json alone is a shape; what does not fit is refused before anything is
written."""
import json
import os
import shutil

from cli import SOURCE, expect, expect_in, failures, finish
from training import Place, has_mpi, step_name

GOLDEN = os.path.join(SOURCE, "tests", "golden")
FROZEN = {"optim": {"name": "sgd", "lr": 0}, "train": {"steps": 1},
          "checkpoint": {"dir": "ckpt", "every_steps": 1}}


def contents(*names):
    with open(os.path.join(*names), "rb") as file:
        return file.read()


def tensors(data):
    """{name: bytes of the tensor} of a safetensors file."""
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]] for name, t in header.items()}


def config(place, hf, **sections):
    return place.config(model={"hf": hf}, batch={"seq": 13, "micro": 1, "global": 6}, **sections)


def record(place):
    with open(place.path("run", "run.json")) as file:
        return json.load(file)


def clean(place):
    for name in ("run", "ckpt"):
        shutil.rmtree(place.path(name), ignore_errors=True)


def test_first_step_sees_them(place):
    """A step of size zero writes what it started from, byte for byte."""
    transports = [("1", "self"), ("3", "inproc")] + ([("2", "mpi")] if has_mpi() else [])
    for model in ("gpt2", "llama", "qwen2"):
        folder = os.path.join(GOLDEN, model)
        source, losses = tensors(contents(folder, "model.safetensors")), []
        for ranks, transport in transports:
            clean(place)
            run = place.train(config(place, folder, **FROZEN), "--ranks", ranks, "--transport", transport)
            where = f"{model} on {ranks} by {transport}"
            expect(f"{where}: exit", (run.code, run.stderr if run.code else ""), (0, ""))
            saved = tensors(contents(place.exported(place.path("ckpt", step_name(1))), "model.safetensors"))
            expect(f"{where}: names", set(saved), set(source))
            expect(f"{where}: bytes", [n for n in source if saved[n] != source[n]], [])
            expect_in(f"{where}: said", folder, run.stderr)
            expect(f"{where}: recorded", record(place)["start"]["weights"], folder)
            losses += run.losses
        if max(losses) - min(losses) > 1e-6:
            failures.append(f"{model}: losses {losses} on {transports}")


def test_a_config_alone_is_a_shape(place):
    clean(place)
    folder = os.path.join(GOLDEN, "llama")
    given = place.train(config(place, folder, **FROZEN))
    hashes = [record(place)["start"]["xxh64"]]
    clean(place)
    shape = place.train(config(place, os.path.join(folder, "config.json"), **FROZEN))
    expect("shape: recorded", record(place)["start"]["weights"], None)
    hashes.append(record(place)["start"]["xxh64"])
    expect("shape: exit", (given.code, shape.code), (0, 0))
    expect("shape: other weights", (given.losses != shape.losses, hashes[0] != hashes[1]), (True, True))
    clean(place)
    other = place.train(config(place, folder, **FROZEN), "--set", "train.seed=7")
    expect("given weights do not depend on the seed", other.losses, given.losses)


def test_a_run_continues_anothers_weights(place):
    """Held-out loss at the end of one run is that before the first step of the next."""
    clean(place)
    place.tokens("v.bin", n=200, seed=2)
    first = place.train(place.config(data={"train": "t.bin", "valid": "v.bin"}, batch={"global": 4},
                                     checkpoint={"dir": "ckpt", "every_steps": 3}))
    place.exported("ckpt", "kept")
    sections = {**FROZEN, "data": {"train": "t.bin", "valid": "v.bin"}, "batch": {"global": 4},
                "checkpoint": {"every_steps": 0}}
    second = place.train(place.config(model={"hf": "kept"}, **sections))
    expect("continued: exit", (first.code, second.code), (0, 0))
    expect("continued: held-out loss", second.of("eval")[-1]["loss"], first.of("eval")[-1]["loss"])


def test_refusals(place):
    clean(place)
    shutil.copytree(os.path.join(GOLDEN, "llama"), place.path("hf"))
    whole = contents(place.path("hf", "model.safetensors"))
    ranks = [("--ranks", "1"), ("--ranks", "3", "--transport", "inproc")]
    ranks += [("--ranks", "2")] if has_mpi() else []
    for what, data, keys, code, words in [
            ("cut", whole[:-4], {}, 1, "model.safetensors"),
            ("hostile length", b"\xff" * 8 + whole[8:], {}, 1, "model.safetensors"),
            ("another tensor", whole.replace(b"model.norm.weight", b"model.norm.weighs"), {}, 1, "model.norm.weigh"),
            ("more layers", whole, {"layers": 3}, 2, "layers.2"),
            ("another width", whole, {"ffn": 32}, 2, "mlp")]:
        with open(place.path("hf", "model.safetensors"), "wb") as file:
            file.write(data)
        path = place.config(model={"hf": "hf", **keys}, batch={"seq": 13, "global": 6}, train={"steps": 1})
        for how in ranks:
            run = place.train(path, *how)
            where = f"{what} on {how[1]}"
            expect(f"{where}: exit", (run.code, run.stdout), (code, ""))
            expect_in(f"{where}: words", words, run.stderr)
            expect(f"{where}: one error", run.stderr.count("error:"), 1)
            expect(f"{where}: nothing written", os.path.exists(place.path("run")), False)
    with open(place.path("hf", "model.safetensors"), "wb") as file:
        file.write(whole)
    run = place.train(place.config(model={"hf": "hf", "dropout": 0.1, "rope": {"theta": 500}},
                                   batch={"seq": 13}, train={"steps": 1}))
    expect("keys that change no tensor", run.code, 0)


with Place() as place:
    place.tokens(vocab=61)
    test_first_step_sees_them(place)
    test_a_config_alone_is_a_shape(place)
    test_refusals(place)
    place.tokens()
    test_a_run_continues_anothers_weights(place)
finish()
