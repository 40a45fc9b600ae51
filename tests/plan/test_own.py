#!/usr/bin/env python3
# RUN: np=1 timeout=60 tags=fast
"""Echelon's own answers: fit and sim read memory and traffic off the programs that check proves and
train runs, so they agree byte for byte; times come from a measured machine's file."""
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))
from cli import expect, expect_in, finish  # noqa: E402
from training import Place  # noqa: E402

SEQ = 16
MODELS = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32,
              "intermediate_size": 44, "num_hidden_layers": 8, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 16,
              "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "silu",
              "rope_theta": 10000.0},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 24,
             "n_layer": 8, "n_head": 4, "n_positions": 16, "vocab_size": 97,
             "activation_function": "gelu_new", "attn_pdrop": 0.0, "embd_pdrop": 0.0,
             "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
}
CLUSTER = ["--cluster", "cpu-64c-avx512", "--precision", "fp32", "--engine", "echelon"]


def model_files(place):
    for name, config in MODELS.items():
        os.makedirs(place.path(name), exist_ok=True)
        with open(place.path(name, "config.json"), "w") as file:
            json.dump(config, file)


class Layout:
    """A random layout, as a configuration and as options."""

    def __init__(self, dice):
        self.model = dice.choice(["llama", "llama", "gpt2"])
        self.tp, self.pp = dice.choice([1, 1, 2, 4]), dice.choice([1, 1, 2, 4])
        self.dp = dice.choice([1, 2, 2, 4])
        self.micro = dice.choice([1, 2])
        self.micros = dice.choice([1, 2, 4, 8])
        self.zero = dice.choice([0, 1, 2, 3])
        self.group = dice.choice([0, 0, 2]) if self.zero and self.dp == 4 else 0
        self.sp = self.tp > 1 and dice.random() < 0.5
        self.reshard = dice.random() < 0.5
        self.each = self.zero >= 2 and dice.random() < 0.3
        self.schedule = "1f1b"
        self.vpp = 1
        if self.pp > 1:
            self.schedule = dice.choice(["1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"])
        if self.schedule == "interleaved":
            self.vpp, self.micros = 2, self.pp * dice.choice([1, 2])

    @property
    def ranks(self):
        return self.tp * self.pp * self.dp

    @property
    def batch(self):
        return self.dp * self.micro * self.micros

    def config(self, place, name="c.json", **more):
        zero = {"stage": self.zero, "group": self.group, "reshard_after_forward": self.reshard,
                "reduce": "each" if self.each else "last"}
        layout = {"tp": self.tp, "pp": self.pp, "dp": self.dp, "sequence_parallel": self.sp,
                  "zero": zero, "schedule": self.schedule, "virtual_stages": self.vpp}
        return place.config(name, model={"hf": place.path(self.model)}, layout=layout,
                            batch={"global": self.batch, "micro": self.micro, "seq": SEQ}, **more)

    def options(self, place):
        words = ["--model", place.path(self.model, "config.json"), "--gpus", self.ranks,
                 "--tp", self.tp, "--pp", self.pp, "--dp", self.dp, "--micro", self.micro,
                 "--global-batch", self.batch, "--seq", SEQ, "--zero", self.zero,
                 "--schedule", self.schedule, "--vpp", self.vpp,
                 "--sp" if self.sp else "--no-sp",
                 "--reshard" if self.reshard else "--no-reshard",
                 "--reduce-each" if self.each else "--reduce-last"]
        if self.group:
            words += ["--zero-group", self.group]
        return [str(w) for w in words]


def ask(place, command, *words):
    run = place.echelon(command, *words, "--json")
    if run.code:
        expect(f"{command} {words}", (run.code, run.stderr), (0, ""))
        finish()
    return json.loads(run.stdout)


def test_fit_is_check(place, wanted=36):
    compared, kinds = 0, set()
    for seed in range(200):
        layout = Layout(random.Random(seed))
        check = place.echelon("check", layout.config(place), "--json")
        if check.code:
            continue
        checked = json.loads(check.stdout)["predicted"]
        fit = ask(place, "fit", *CLUSTER, *layout.options(place))
        what = f"seed {seed} {vars(layout)}"
        device = checked["memory_bytes"]["device"]
        expect(f"{what}: exact", (fit["exact"], fit["marked"]), (True, None))
        expect(f"{what}: predicted", fit["predicted"], checked)
        for name in ("params", "grads", "master", "optimizer", "activations", "buffers", "total"):
            expect(f"{what}: {name}", fit["memory_bytes"][name], device[name])
        expect(f"{what}: stages", len(fit["stages"]), layout.pp)
        expect(f"{what}: allocated", fit["allocated_bytes"], device["total"])
        kinds.add((layout.schedule, layout.zero))
        compared += 1
        if compared == wanted:
            break
    expect("layouts compared", compared, wanted)
    expect("different ones", len(kinds) > 10, True)


def test_a_configuration_says_more(place):
    """What neither job nor layout hold: prefetch, buckets, gathered inputs kept, groups of chunks."""
    for more in ({"tp": 2, "dp": 2, "sequence_parallel": True, "sequence_parallel_inputs": "keep",
                  "zero": {"stage": 3, "prefetch": 3, "bucket_mb": 0.01}},
                 {"dp": 4, "zero": {"stage": 0, "bucket_mb": 0.001}},
                 {"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "schedule_group": 4}):
        config = place.config("more.json", model={"hf": place.path("llama")}, layout=more,
                              batch={"global": 8, "micro": 1, "seq": SEQ})
        checked = place.check(config)["predicted"]
        fit = ask(place, "fit", "--cluster", "cpu-64c-avx512", "--from", "echelon", config)
        expect(f"{more}: exact", fit["exact"], True)
        expect(f"{more}: predicted", fit["predicted"], checked)


def test_train_reports_the_same(place):
    place.tokens()
    for seed in (3, 11, 40):
        layout = Layout(random.Random(seed))
        layout.tp, layout.pp, layout.dp = [(2, 1, 2), (1, 2, 2), (2, 2, 1)][seed % 3]
        layout.schedule, layout.vpp, layout.group, layout.sp = "1f1b", 1, 0, layout.tp > 1
        config = layout.config(place, train={"steps": 1})
        run = place.train(config, "--ranks", str(layout.ranks), "--transport", "inproc")
        expect(f"seed {seed}: train", (run.code, run.stderr if run.code else ""), (0, ""))
        fit = ask(place, "fit", *CLUSTER, *layout.options(place))
        if run.code:
            continue
        expect(f"seed {seed}: start", fit["predicted"], run.of("start")[0]["predicted"])
        expect(f"seed {seed}: differences",
               (run.end["memory_diff_bytes"], run.end["comm_diff_bytes"]), (0, 0))
        sent = {axis: n["wire"] for axis, n in fit["predicted"]["comm_bytes"].items()}
        if layout.pp == 1:  # all ranks send the same
            expect(f"seed {seed}: sent", {a: n["wire"] for a, n in run.end["sent"].items()}, sent)


def test_what_does_not_run_is_marked(place):
    layout = Layout(random.Random(1))
    layout.tp, layout.pp, layout.dp, layout.schedule, layout.vpp = 2, 1, 2, "1f1b", 1
    layout.zero, layout.group, layout.each, layout.sp = 1, 0, False, False
    words = layout.options(place)
    for more, said in ((["--recompute", "full"], "recompute"), (["--optimizer", "muon"], "muon"),
                       (["--precision", "bf16", "--cluster", "cpu-112c-amx"], "bf16")):
        fit = ask(place, "fit", *CLUSTER, *words, *more)
        expect(f"{more}", (fit["exact"], "predicted" in fit), (False, False))
        expect_in(f"{more}", said, fit["marked"] or "")
    fit = ask(place, "fit", "--engine", "megatron", "--cluster", "h100-sxm-80", *words)
    expect("megatron", (fit["exact"], fit["marked"]), (False, None))


def machine(place, comm_s, **more):
    """A machine on which every op takes the same time whatever its size, message included."""
    kinds = {"linear": ("rows", "inputs", "outputs"), "linear_dgrad": ("rows", "inputs", "outputs"),
             "linear_wgrad": ("rows", "inputs", "outputs"), "attention": ("seq", "head_dim"),
             "attention_backward": ("seq", "head_dim")}
    cost = {}
    for name, axes in kinds.items():
        cost[name] = {**{a: [1.0] for a in axes}, "seconds": [1e-9]}
    for name in ("zero", "copy", "scale", "add", "embed", "embed_backward", "rmsnorm",
                 "rmsnorm_backward", "rope", "swiglu", "swiglu_backward", "xent_shard", "xent",
                 "xent_backward", "count_tokens", "loss_seed", "sum_cells", "sumsq", "clip",
                 "adamw", "kv_fold", "kv_spread"):
        cost[name] = {"bytes": [1.0], "seconds": [1e-10]}
    for name in ("all_reduce_start", "reduce_scatter_start", "all_gather_start",
                 "sum_small_start", "send_start"):
        cost[name] = {"bytes": [1.0], "seconds": [comm_s]}
    document = {"echelon": "0", "date": "", "host": "", "cpu": "made up", "kernels": "ref",
                "transport": "mpi", "ranks": 4, "threads": 1, "dtype": "fp32", "op_s": 1e-7,
                "comm_busy": 0.0, "memory_bytes": 4 << 20, "cost": cost, **more}
    with open(place.path("machine.yaml"), "w") as file:
        json.dump(document, file)
    return place.path("machine.yaml")


def test_a_measured_machine_is_a_cluster(place):
    layout = Layout(random.Random(1))
    layout.model, layout.tp, layout.pp, layout.dp, layout.sp = "llama", 2, 1, 2, False
    layout.schedule, layout.vpp, layout.zero, layout.group, layout.each = "1f1b", 1, 1, 0, False
    path = machine(place, 1e-9)
    config = layout.config(place)
    want = ask(place, "sim", config, "--cluster", path)
    words = layout.options(place)
    got = ask(place, "sim", "--engine", "echelon", "--cluster", path, *words)
    expect("simulated", (got["exact"], got["timed_by_simulation"]), (True, True))
    for key in ("step_s", "bubble"):
        expect(key, got[key], want[key])
    for key in ("recompute", "bubble", "optimizer"):
        expect(key, got["time"][key], want["time"][key])
    checked = ask(place, "check", config, "--cluster", path)["predicted"]
    expect("check", got["predicted"], checked)
    fit = ask(place, "fit", "--engine", "echelon", "--cluster", path, *words)
    expect("a rank's share", fit["capacity_bytes"], 1 << 20)
    expect("fits", fit["fits"], "yes" if fit["reserved_bytes"] <= 1 << 20 else "no")
    small = place.echelon("fit", "--engine", "echelon", "--cluster",
                          machine(place, 1e-9, memory_bytes=1000), *words, "--json")
    expect("too small", (small.code, json.loads(small.stdout)["fits"]), (3, "no"))
    none = place.echelon("fit", "--cluster", machine(place, 1e-9, memory_bytes=None), *words)
    expect("no memory", none.code, 2)
    expect_in("no memory", "memory_bytes is missing", none.stderr)


def main():
    with Place() as place:
        model_files(place)
        test_fit_is_check(place)
        test_a_configuration_says_more(place)
        test_train_reports_the_same(place)
        test_what_does_not_run_is_marked(place)
        test_a_measured_machine_is_a_cluster(place)
    finish()


main()
