#!/usr/bin/env python3
# RUN: np=1 timeout=60 tags=fast
"""layout: auto: the planner's layout is trained, the same on every start, and kept by a run that goes
on; pins stay; where nothing fits or is legal the reasons are told."""
import json
import os
import shutil

from cli import expect, expect_in, failures, finish
from training import Place

BATCH = {"global": 8, "seq": 16}
KEYS = ("tp", "pp", "dp", "virtual_stages", "sequence_parallel", "schedule", "zero")


def auto(place, name="auto.json", layout="auto", micro=None, **more):
    """A configuration with layout: auto; micro None: searched too."""
    path = place.config(name, **more)
    with open(path) as file:
        whole = json.load(file)
    whole["layout"] = layout
    whole["batch"] = {**BATCH, **whole["batch"]}
    if micro is None:
        del whole["batch"]["micro"]
    else:
        whole["batch"]["micro"] = micro
    with open(path, "w") as file:
        json.dump(whole, file)
    return path


def train(place, config, *args, ranks=4):
    run = place.train(config, "--ranks", str(ranks), "--transport", "inproc", *args)
    if run.code:
        expect(f"train {args}", (run.code, run.stderr), (0, ""))
        finish()
    return run


def record(place):
    with open(place.path("run", "run.json")) as file:
        return json.load(file)


def test_it_trains_what_it_chose(place):
    config = auto(place)
    run = train(place, config)
    start = run.of("start")[0]
    expect_in("stderr", "echelon: layout: auto: --dp", run.stderr)
    expect("event", "echelon: " + start["layout_auto"] in run.stderr, True)
    written = record(place)
    chosen = written["config"]
    expect("record", written["layout"]["auto"], start["layout_auto"])
    expect("auto is kept", chosen["layout"]["auto"], True)
    layout = {key: chosen["layout"][key] for key in KEYS}
    expect("ranks", layout["tp"] * layout["pp"] * layout["dp"], 4)
    same = place.config("same.json", layout=layout, batch={**BATCH, "micro": chosen["batch"]["micro"]})
    again = train(place, same)
    expect("losses", run.losses, again.losses)
    expect("predicted", start["predicted"], again.of("start")[0]["predicted"])
    expect("layout", start["layout"], again.of("start")[0]["layout"])
    expect("differences", (run.end["memory_diff_bytes"], run.end["comm_diff_bytes"]), (0, 0))
    expect("an explicit one has no words", "layout_auto" in again.of("start")[0], False)


def test_check_and_sim_tell_the_same(place):
    config = auto(place)
    first = place.check(config, "--ranks", "4")
    expect("deterministic", place.check(config, "--ranks", "4")["layout_auto"],
           first["layout_auto"])
    expect("train", train(place, config).of("start")[0]["layout_auto"], first["layout_auto"])
    words = place.echelon("check", config, "--ranks", "4")
    expect_in("words", first["layout_auto"], words.stdout)
    none = place.echelon("check", config)
    expect("no ranks", none.code, 2)
    expect_in("no ranks", "--ranks", none.stderr)


def test_pins_stay(place):
    for layout in ({"auto": True, "tp": 2}, {"auto": True, "pp": 2, "schedule": "gpipe"},
                   {"auto": True, "zero": {"stage": 3}}):
        got = place.check(auto(place, layout=layout, micro=2), "--ranks", "4")
        expect_in(f"{layout}", "--micro 2", got["layout_auto"])
        for key in ("tp", "pp"):
            if key in layout:
                expect(f"{layout} {key}", got["layout"][key], layout[key])
        if "schedule" in layout:
            expect(f"{layout}", got["schedule"], "gpipe")
        if "zero" in layout:
            expect_in(f"{layout}", "--zero 3", got["layout_auto"])
    by_set = place.check(auto(place), "--ranks", "4", "--set", "layout.tp=2")
    expect("--set", by_set["layout"]["tp"], 2)
    over = place.check(place.config("c.json", layout={"tp": 2}), "--ranks", "2", "--set",
                       "layout=auto")
    expect("--set auto", "layout_auto" in over, True)
    table = place.echelon("check", auto(place, layout={"auto": True, "order": "pp-tp-cp-ep-dp"}),
                          "--ranks", "4")
    expect("order", (table.code, "layout.order" in table.stderr), (2, True))


def test_memory_decides(place):
    config = auto(place, memory={"device": "512MB"})
    roomy = place.check(config, "--ranks", "4")
    need = roomy["predicted"]["memory_bytes"]["device"]["arena"]
    less = place.check(config, "--ranks", "4", "--set", f"memory.device={need - 1}")
    arena = less["predicted"]["memory_bytes"]["device"]["arena"]
    expect("another layout", less["layout_auto"] != roomy["layout_auto"], True)
    expect("that fits", arena < need, True)
    for what, words, ranks in (("memory", ("no layout of 4 ranks", "nearest:"), "4"),
                               ("batch", ("no multiple",), "3")):
        small = place.echelon("check", config, "--ranks", ranks, "--set",
                              "memory.device=10KB" if what == "memory" else "batch.micro=1")
        expect(what, small.code, 3)
        for word in words:
            expect_in(what, word, small.stderr)
    again = place.train(config, "--ranks", "4", "--transport", "inproc", "--set",
                        "memory.device=10KB")
    expect("train", (again.code, again.stdout), (3, ""))


def machine(place, comm_s):
    """A machine on which kernels take by their size and messages `comm_s` a byte."""
    cost = {name: {"rows": [1.0], "inputs": [1.0], "outputs": [1.0], "seconds": [1e-10]}
            for name in ("linear", "linear_dgrad", "linear_wgrad")}
    for name in ("attention", "attention_backward"):
        cost[name] = {"seq": [1.0], "head_dim": [1.0], "seconds": [1e-9]}
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
                "comm_busy": 0.0, "memory_bytes": 1 << 30, "cost": cost}
    with open(place.path("machine.yaml"), "w") as file:
        json.dump(document, file)
    return place.path("machine.yaml")


def test_a_measured_machine_is_simulated(place):
    config = auto(place)
    path = machine(place, 1e-8)
    got = place.check(config, "--ranks", "4", "--cluster", path)
    expect_in("simulated", "simulated on", got["layout_auto"])
    step_s = got["predicted"]["step_s"]
    expect_in("seconds", f"{step_s:.4g} s a step", got["layout_auto"])
    # Messages that cost much: every other layout that can be said is no faster.
    for layout in ({"tp": 4}, {"tp": 2, "dp": 2}, {"pp": 2, "dp": 2}, {"dp": 4},
                   {"dp": 4, "zero": {"stage": 3}}, {"tp": 2, "pp": 2}):
        for micro in (1, 2):
            other = place.echelon("check", place.config("o.json", layout=layout,
                                                        batch={**BATCH, "micro": micro}),
                                  "--json", "--cluster", path)
            if other.code == 0:
                seconds = json.loads(other.stdout)["predicted"]["step_s"]
                expect(f"{layout} {micro}: {seconds} against {step_s}",
                       seconds >= step_s * (1 - 1e-9), True)


HF = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32,
      "intermediate_size": 44, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 16,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "silu",
      "rope_theta": 10000.0}


def test_it_is_the_winner_of_plan(place):
    os.makedirs(place.path("hf"), exist_ok=True)
    with open(place.path("hf", "config.json"), "w") as file:
        json.dump(HF, file)
    for comm_s in (1e-8, 1e-11):
        path = machine(place, comm_s)
        config = auto(place, model={"hf": place.path("hf")})
        got = place.check(config, "--ranks", "4", "--cluster", path)
        run = place.echelon("plan", "--engine", "echelon", "--model", place.path("hf", "config.json"),
                            "--cluster", path, "--gpus", "4", "--seq", "16", "--global-batch", "8",
                            "--json")
        expect("plan", (run.code, run.stderr), (0, ""))
        best = json.loads(run.stdout)["best"][0]
        expect("exact", best["exact"], True)
        expect_in("the same", f"layout: auto: {best['options']} on 4 ranks", got["layout_auto"])
        expect("seconds", best["step_s"], got["predicted"]["step_s"])
        device = got["predicted"]["memory_bytes"]["device"]
        expect("memory", best["allocated_bytes"], device["total"])
        expect("arena", best["reserved_bytes"], device["arena"])
        for name in ("params", "grads", "optimizer", "activations", "buffers"):
            expect(name, best["memory_bytes"][name], device[name])


def test_a_run_that_goes_on_keeps_its_layout(place):
    for folder in ("run", "ckpt"):
        shutil.rmtree(place.path(folder), ignore_errors=True)
    config = auto(place, train={"steps": 4}, checkpoint={"every_steps": 2})
    first = train(place, config, "--steps", "2", "--set", "layout.tp=2")
    words = first.of("start")[0]["layout_auto"]
    expect("chosen", first.of("start")[0]["layout"]["tp"], 2)
    second = train(place, config)
    start = second.of("start")[0]
    expect("goes on", start["step"], 2)
    expect("keeps it", start["layout"]["tp"], 2)
    expect_in("says so", "keeps the layout", start["layout_auto"])
    shutil.rmtree(place.path("ckpt"))
    shutil.copytree(place.path("run"), place.path("kept"))
    anew = train(place, config, "--resume", "no")
    expect("anew", "keeps the layout" in anew.of("start")[0]["layout_auto"], False)
    shutil.rmtree(place.path("run"))
    shutil.copytree(place.path("kept"), place.path("run"))
    other = train(place, config, ranks=2)
    expect("other ranks", other.of("start")[0]["ranks"], 2)
    expect("another search", "keeps the layout" in other.of("start")[0]["layout_auto"], False)
    expect("as before", words.startswith("layout: auto: "), True)


def main():
    with Place() as place:
        place.tokens()
        for test in (test_it_trains_what_it_chose, test_check_and_sim_tell_the_same, test_pins_stay,
                     test_memory_decides, test_a_measured_machine_is_simulated,
                     test_it_is_the_winner_of_plan,
                     test_a_run_that_goes_on_keeps_its_layout):
            before = len(failures)
            test(place)
            if len(failures) > before:
                failures.append(f"in {test.__name__}")
    finish()


main()
