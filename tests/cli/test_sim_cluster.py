# RUN: np=1 timeout=120 tags=fast
"""echelon sim of a model on a catalogue cluster: the contract of its answer, what must hold of any, the
time line, and what is refused."""
import json
import os
import resource

from cli import expect, expect_in, finish, run
from planner import Clusters, ask, within

AXES = ["dp", "edp", "hsdp", "tp", "kv", "pp", "cp", "ep", "tied", "world"]
DENSE = ("--model llama-3.1-70b --cluster h100-sxm-80 --gpus 128 --engine megatron --tp 8 --sp --pp 4 "
         "--zero 1 --seq 8192 --global-batch 128")
LLAMA2_7B, LAYERS, HIDDEN, VOCAB = 6738415616, 32, 4096, 32000


def test_contract():
    a = ask("sim", DENSE)
    for key in ["step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu", "flops_convention",
                "peak_flops", "bubble", "time", "memory_bytes"]:
        expect(f"{key} is there", key in a, True)
    expect("axes", sorted(a["time"]["exposed"]), sorted(AXES))
    t = a["time"]
    parts = (t["compute"] + t["recompute"] + t["bubble"] + sum(t["exposed"].values()) + t["offload"] +
             t["optimizer"] + t["fixed"])
    within("parts add up", parts, a["step_s"], 1e-9)
    within("tokens", a["tokens_per_s_per_gpu"], 128 * 8192 / a["step_s"] / 128, 1e-9)
    within("bubble", a["bubble"], t["bubble"] / a["step_s"], 1e-9)
    within("mfu", a["mfu"], a["tflops_per_gpu"] * 1e12 / a["peak_flops"], 1e-9)
    expect("hfu, no recompute: at least mfu", a["hfu"] >= a["mfu"], True)
    o = a["overlap"]
    expect("overlap", 0 <= o["achieved"] <= o["ideal"] <= 1, True)
    expect("no measurement, no break-even", (a["measured"], a["break_even"]), (None, None))


def test_flops_by_hand():
    """6 N_matmul + 12 L s a d_h, recomputation not counted; the head counts, the input table not."""
    common = "--model llama-2-7b --cluster h100-sxm-80 --gpus 8 --engine fsdp2 --seq 4096 --global-batch 8"
    per_token = 6 * (LLAMA2_7B - VOCAB * HIDDEN) + 12 * LAYERS * 4096 * HIDDEN
    vectors = 6 * (2 * LAYERS + 1) * HIDDEN # norms are no matrices
    for words in ["", "--recompute full"]:
        a = ask("sim", common, words)
        got = a["tflops_per_gpu"] * 1e12 / a["tokens_per_s_per_gpu"]
        within(f"FLOPs a token {words}", got, per_token - vectors, 1e-9)
        causal = (per_token - vectors - 6 * LAYERS * 4096 * HIDDEN) / (per_token - vectors)
        within("causal", a["mfu_causal"] / a["mfu"], causal, 1e-9)
    full = ask("sim", common, "--recompute full")
    within("recompute: a third more", full["hfu"] / full["mfu"], 4 / 3, 0.05)


def test_time_to_a_goal():
    """7B on 1T tokens: 6 N D / (1024 * 989e12 * MFU) seconds and what attention adds."""
    a = ask("sim", "--model llama-2-7b --cluster h100-sxm-80 --gpus 1024 --engine megatron --zero 1",
            "--seq 4096 --global-batch 1024 --tokens 1T")
    within("steps", a["run"]["steps"], 1e12 / (1024 * 4096), 1e-5)
    within("ideal days", a["run"]["ideal_days"], a["run"]["steps"] * a["step_s"] / 86400, 1e-9)
    within("days", a["run"]["days"], a["run"]["ideal_days"] / a["goodput"]["goodput"], 1e-9)
    within("GPU-hours", a["run"]["gpu_hours"], a["run"]["days"] * 24 * 1024, 1e-9)
    hours = 6 * 7e9 * 1e12 / (1024 * 989e12 * 0.4) / 3600 # 28.8 h at 40 %
    expect("the formula of the facts", f"{hours:.1f}", "28.8")
    attention = a["tflops_per_gpu"] * 1e12 / a["tokens_per_s_per_gpu"] / (6 * 7e9)
    within("at this MFU", a["run"]["ideal_days"] * 24, hours * 0.4 / a["mfu"] * attention, 0.01)


def test_time_line(clusters):
    """Bars of every stage, one rank of each; what the table says is near what the closed form says."""
    path = os.path.join(clusters.folder.name, "line.json")
    for words in ["", "--vpp 4", "--schedule gpipe --engine echelon", "--schedule zb-h1 --engine echelon",
                  "--schedule zb-v --engine echelon"]:
        a = ask("sim", DENSE, words, f"--trace {path}")
        line = a["simulated"]
        expect(f"{words}: followed", (line["followed"], line["ranks"]), (4, 128))
        chunks = 4 if "vpp" in words else 2 if "zb-v" in words else 1
        cells = 4 * chunks * 32 * (3 if "zb" in words else 2)
        expect(f"{words}: cells", line["cells"], cells)
        within(f"{words}: the step", line["step_s"], a["step_s"], 1e-9)
        with open(path) as file:
            trace = json.load(file)
        spans = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
        within(f"{words}: the trace ends with it", max(e["ts"] + e["dur"] for e in spans),
               1e6 * line["step_s"], 1e-6)
        work = [e for e in spans if e["cat"] not in ("wait", "update")]
        expect(f"{words}: a bar a cell", len(work), cells)
    many = "--global-batch 262144 --pp 16 --dp 1"
    a = ask("sim", DENSE, many)
    expect("too many to draw", (a["simulated"]["cells"], a["simulated"]["step_s"]), (16 * 2 * 262144, None))
    got = run("sim", *DENSE.split(), *many.split(), "--trace", path)
    expect("refused", got.returncode, 2)
    expect_in("refused", "a smaller --global-batch", got.stderr)
    picture = os.path.join(clusters.folder.name, "line.svg")
    ask("sim", DENSE, f"--trace {picture}")
    with open(picture) as file:
        expect_in("a picture", "line0-rank3", file.read())


def test_hundred_thousand_gpus():
    """405B on 100,000 GPUs, replicas by symmetry: under a second on one core, goodput and the interval
    between checkpoints with it."""
    args = ("--model llama-3.1-405b --cluster h100-sxm-80 --gpus 100000 --engine megatron --tp 8 --sp "
            "--pp 20 --zero 1 --seq 8192 --global-batch 20000 --recompute full --tokens 15T")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    a = ask("sim", args)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime # of one core
    expect(f"simulated in {took:.3f} s, the program's start with it", took < 1.0, True)
    expect("by its own clock", a["simulated"]["seconds"] < 1.0, True)
    expect("all of them", (a["simulated"]["ranks"], a["simulated"]["followed"]), (100000, 20))
    within("the step", a["simulated"]["step_s"], a["step_s"], 1e-9)
    g = a["goodput"]
    within("between failures", g["mtbf_s"], 51000 * 3600 / 100000, 0.01)
    # Recovery in the objective, but no shorter than a step or than writing the one before.
    young = (2 * g["blocked_s"] * g["mtbf_s"]) ** 0.5
    within("Young", g["young_s"], young, 1e-9)
    c = g["blocked_s"]
    best = c + (2 * (g["mtbf_s"] + g["restart_s"]) * c + c * c) ** 0.5
    within("interval", g["interval_s"], max(best, g["drain_s"], a["step_s"]), 1e-9)
    lost = c / g["interval_s"] + (g["interval_s"] / 2 + g["restart_s"]) / g["mtbf_s"]
    within("goodput", g["goodput"], 1 - lost, 1e-9)


def test_ops():
    a = ask("sim", "--model llama-2-7b --cluster a100-sxm-80 --gpus 8 --engine megatron --zero 1 --seq 4096",
            "--global-batch 8 --ops")
    expect("some", len(a["ops"]) > 10, True)
    expect("classes", {o["bound"] for o in a["ops"]} <= {"compute", "memory", "launch", "link"}, True)
    kernels = [o for o in a["ops"] if o["bound"] != "link"]
    within("ops add up to the kernels", sum(o["count"] * o["seconds"] for o in kernels),
           a["time"]["compute"] + a["time"]["recompute"], 0.05)
    for o in kernels:
        expect(f"{o['op']}: efficiency {o['efficiency']}", 0 < o["efficiency"] <= 1, True)


def test_network():
    """One level after the other takes longer than a ring as slow as its slowest; in one node alike."""
    common = "--model llama-2-13b --cluster a100-sxm-80 --engine megatron --zero 1 --seq 4096"
    flat, deep = (ask("sim", common, f"--gpus 64 --global-batch 64 --network {n}")
                  for n in ("flat", "hierarchical"))
    expect("hierarchical is longer", deep["time"]["exposed"]["dp"] + deep["hidden"]["dp"] >
           flat["time"]["exposed"]["dp"] + flat["hidden"]["dp"], True)
    one, also = (ask("sim", common, f"--gpus 8 --global-batch 8 --network {n}")["step_s"]
                 for n in ("flat", "hierarchical"))
    within("one node", one, also, 1e-9)


def test_derivation_is_the_computation():
    for words in ["", "--recompute full", "--zero 3 --engine torchtitan"]:
        a = ask("sim", DENSE, words, "--explain --tokens 1T")
        value = {(d["section"], d["what"]): d["value"] for d in a["derivation"]}
        for section, what, want in [
                ("The step", "step", a["step_s"]), ("Rates", "MFU", a["mfu"]),
                ("Work of a step", "compute, mean of ranks", a["time"]["compute"]),
                ("Messages of a step", "tp", a["time"]["exposed"]["tp"]),
                ("The whole run", "days", a["run"]["days"]),
                ("Rates", "tokens a second and GPU", a["tokens_per_s_per_gpu"])]:
            within(f"{words}: {section}, {what}", value.get((section, what)), want, 1e-12)
        step = {k[1]: v for k, v in value.items() if k[0] == "The step"}
        parts = ["slowest rank", "filling and draining", "reductions behind it", "update", "fixed"]
        within(f"{words}: the sum that is told", sum(step.get(p, 0.0) for p in parts), step["step"], 1e-9)


def test_words():
    got = run("sim", *DENSE.split(), "--tokens", "15T", "--explain")
    expect("exit status", got.returncode, 0)
    for words in ["where it goes (mean of all ranks)", "TFLOP/s dense", "causality not deducted",
                  "of communication", "time line: ", "failures: one in", "15", "Model state"]:
        expect_in("words", words, got.stdout)


def test_what_is_refused():
    ok = "--model llama-2-7b --cluster a100-sxm-80 --gpus 8"
    for args, words in [
        (ok + " --network simgrid", "this build has no SimGrid"),
        (ok + " --network flatt", "did you mean 'flat'?"),
        (ok + " --measured 0", "wanted seconds"),
        (ok + " --trace x.txt", "x.txt"),
        (ok + " --tp 3", "tp 3"),
        (ok + " word", "unexpected word 'word'"),
        ("--model llama-2-7b", "--cluster is missing"),
    ]:
        got = run("sim", *args.split())
        expect(f"{args}: exit status, stdout", (got.returncode, got.stdout), (2, ""))
        expect_in(args, words, got.stderr)


test_contract()
test_flops_by_hand()
test_time_to_a_goal()
with Clusters() as here:
    test_time_line(here)
test_hundred_thousand_gpus()
test_ops()
test_network()
test_derivation_is_the_computation()
test_words()
test_what_is_refused()
finish()
