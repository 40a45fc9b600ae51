# RUN: np=1 timeout=120 tags=fast
"""Predictions of `echelon check` against closed forms that share nothing with it, over random legal
configurations: parameters, gradients, optimizer state, activations, the fullest moment and every
rank's traffic to the byte; what packing loses in the arena is at most 2 %."""
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))

from cli import expect, failures, finish  # noqa: E402
from closed_forms import ALIGN, Step  # noqa: E402
from training import Place  # noqa: E402

CASES = int(os.environ.get("ECH_CASES", "240"))
SEED = int(os.environ.get("ECH_SEED", "20261"))
PACKING_LOSS = 0.02


def a_model(r):
    heads, d = r.choice([1, 2, 3, 4, 6]), r.choice([4, 8, 10, 16, 64])
    model = {"layers": r.choice([1, 2, 3, 5]), "heads": heads,
             "vocab": r.choice([50, 97, 128, 129, 1000, 50257]),
             "context": r.choice([8, 17, 32, 64]), "dropout": r.choice([0, 0, 0.1])}
    if r.random() < 0.5:
        model.update(arch="gpt2", hidden=heads * d)
        if r.random() < 0.5:
            model["ffn"] = r.randrange(1, 200)
    else:
        model.update(arch="llama", hidden=r.choice([heads * d, 24, 40]), head_dim=d,
                     ffn=r.randrange(1, 200),
                     kv_heads=r.choice([k for k in range(1, heads + 1) if heads % k == 0]))
        if r.random() < 0.3:
            model["qk_norm"] = True
        elif r.random() < 0.4:
            model["qkv_bias"] = True
    if r.random() < 0.5:
        model["tie_embeddings"] = r.random() < 0.5
    return model


def a_case(r):
    """(ranks, configuration); every part of it is legal."""
    model = a_model(r)
    ranks, micro, m = r.choice([1, 1, 2, 3, 4, 5, 8]), r.randrange(1, 4), r.choice([1, 1, 2, 3, 7])
    return ranks, {
        "model": model,
        "batch": {"micro": micro, "global": micro * m * ranks,
                  "seq": r.randrange(1, model["context"] + 1)},
        "layout": {"schedule": r.choice(["gpipe", "1f1b", "interleaved"]),
                   "zero": {"bucket_mb": r.choice([25, 1, 0.1, 0.01, 0.001])}},
        "precision": {"compute": r.choice(["fp32", "fp64"])},
        "optim": {"name": r.choice(["adamw", "adamw", "sgd"])},
    }


def derived(step, ranks):
    """What the closed forms say, as check says it."""
    bytes_of_state = step.elems * step.w
    return {
        "params": bytes_of_state,
        "grads": bytes_of_state,
        "optimizer": 2 * bytes_of_state if step.adam else 0,
        "activations": step.activations(),
        "total": step.total(),
        "payload": step.payload(),
        "wire": [step.wire(rank) for rank in range(ranks)],
    }


def predicted(document):
    memory = document["by_rank"][0]["memory_bytes"]["device"]
    traffic = [rank["comm_bytes"]["dp"] for rank in document["by_rank"]]
    out = {c: memory["own_max"][c] for c in ("params", "grads", "optimizer", "activations")}
    return {**out, "total": memory["total"], "payload": traffic[0]["payload"],
            "wire": [t["wire"] for t in traffic]}


def check_document(where, document, step):
    for rank, prediction in enumerate(document["by_rank"]):
        memory = prediction["memory_bytes"]["device"]
        classes = memory["own_max"].keys()
        expect(f"{where}: rank {rank}: classes sum to the total", sum(memory[c] for c in classes),
               memory["total"])
        others = {a: t for a, t in prediction["comm_bytes"].items() if a != "dp"}
        expect(f"{where}: rank {rank}: groups of one send nothing",
               sum(t["wire"] + t["payload"] for t in others.values()), 0)
        # slots begin at multiples of ALIGN, which is no loss of the packing
        slots = 10 + step.m_live * (4 * step.L + 3) + 2 * len(step.units)
        if not memory["total"] <= memory["arena"] <= \
                memory["total"] * (1 + PACKING_LOSS) + ALIGN * slots:
            failures.append(f"{where}: rank {rank}: arena {memory['arena']} for {memory['total']}")


def test_random_configurations():
    r = random.Random(SEED)
    with Place() as place:
        for i in range(CASES):
            ranks, case = a_case(r)
            document = place.check(place.config(**case), "--ranks", str(ranks), "--json-ranks")
            where = f"case {i} {json.dumps(case)} ranks {ranks}"
            step = Step(case, ranks)
            expect(where, predicted(document), derived(step, ranks))
            check_document(where, document, step)


def test_parameters_without_padding():
    """The start of the chain: what `train` calls params is what a reader of the paper counts."""
    with Place() as place:
        place.tokens()
        for model in ("gpt2", "llama"):
            config = place.config(model=model, train={"steps": 1})
            with open(config) as file:
                step = Step({"batch": {"global": 1}, **patch_global(json.load(file))}, 1)
            run = place.train(config)
            expect(f"{model}: params", run.of("start")[0]["params"], step.params_without_padding())


def patch_global(config):
    config["batch"]["global"] = config["batch"]["micro"]
    return config


def test_closed_forms_see_a_wrong_program():
    """A witness that cannot differ shows nothing: each change moves exactly what it should."""
    model = {"arch": "llama", "layers": 2, "hidden": 25, "heads": 4, "kv_heads": 2, "ffn": 41,
             "head_dim": 6, "vocab": 97, "context": 16}
    case = {"model": model, "batch": {"micro": 2, "global": 12, "seq": 16},
            "layout": {"zero": {"bucket_mb": 0.01}}}
    all_sizes = {"params", "grads", "optimizer", "activations", "total", "payload", "wire"}
    changes = [
        ({"model": {**model, "ffn": 42}}, all_sizes),
        ({"model": {**model, "qk_norm": True}}, all_sizes),
        ({"model": {**model, "tie_embeddings": True}}, all_sizes - {"activations"}),
        ({"layout": {"schedule": "gpipe"}}, {"activations", "total", "wire"}),
        ({"layout": {"zero": {"bucket_mb": 25}}}, {"total", "wire"}),
        ({"precision": {"compute": "fp64"}}, all_sizes),
        ({"optim": {"name": "sgd"}}, {"optimizer", "total"}),
        ({"batch": {"micro": 2, "global": 6, "seq": 16}}, {"total"}),
    ]
    with Place() as place:
        got = predicted(place.check(place.config(**case), "--ranks", "3", "--json-ranks"))
    for change, moved in changes:
        other = derived(Step({**case, **change}, 3), 3)
        expect(f"moved by {change}", {k for k in other if other[k] != got[k]}, moved)


test_random_configurations()
test_parameters_without_padding()
test_closed_forms_see_a_wrong_program()
finish()
