#!/usr/bin/env python3
# RUN: np=1 timeout=60 tags=fast
"""echelon sim: a step priced by a machine's file or by equal stages, against sums over the program
that check writes."""
import json

from cli import expect, expect_in, finish
from training import Place

AXES = ["dp", "edp", "hsdp", "tp", "kv", "pp", "cp", "ep", "tied", "world"]
KERNEL_S, OP_S, COMM_S = 2.0, 0.5, 1.5
STARTS = ["all_reduce_start", "reduce_scatter_start", "all_gather_start", "sum_small_start"]


def sim(place, *args):
    run = place.echelon("sim", *args, "--json")
    expect(f"{args}: exit status, stderr", (run.code, run.stderr), (0, ""))
    return json.loads(run.stdout)


def near(what, got, want):
    if abs(got - want) > 1e-9 * max(1.0, abs(want)):
        expect(what, got, want)


def kinds_of(program):
    """Ops of a step by segment and kind, a count each."""
    counts = {}
    for item in program["items"]:
        for op in program["blocks"][item["block"]]["ops"]:
            key = (item["segment"] == "commit", op["op"])
            counts[key] = counts.get(key, 0) + 1
    return counts


def machine(place, kinds, busy):
    """A machine on which every kernel takes the same, whatever its size; attention next to nothing
    (it is priced by its heads)."""
    cost = {}
    for kind in kinds:
        if kind.startswith("linear"):
            axes = {"rows": [1e12], "inputs": [1e12], "outputs": [1e12]}
        elif kind.startswith("attention"):
            axes = {"seq": [1e12], "head_dim": [1e12]}
        else:
            axes = {"bytes": [1e12]}
        seconds = COMM_S if kind in STARTS else 1e-30 if kind.startswith("attention") else KERNEL_S
        cost[kind] = {**axes, "seconds": [seconds]}
    document = {"echelon": "0", "date": "", "host": "", "cpu": "", "kernels": "ref",
                "transport": "mpi", "ranks": 2, "threads": 1, "dtype": "fp32", "op_s": OP_S,
                "comm_busy": busy, "cost": cost}
    with open(place.path("machine.yaml"), "w") as file:
        json.dump(document, file)
    return "machine.yaml"


def program_of(place, config):
    run = place.echelon("check", config, "--write-program", "program.json")
    expect("check", (run.code, run.stderr), (0, ""))
    with open(place.path("program.json")) as file:
        return json.load(file)


def seconds(counts, commit):
    return sum(n * (OP_S + (0 if kind.startswith("attention") else KERNEL_S))
               for (is_commit, kind), n in counts.items()
               if is_commit == commit and not kind.endswith(("_start", "_wait")))


def test_one_rank_is_the_sum_of_its_kernels(place):
    config = place.config(batch={"global": 4, "micro": 1, "seq": 16})
    counts = kinds_of(program_of(place, config))
    kinds = {kind for _, kind in counts if not kind.endswith("_wait")}
    got = sim(place, config, "--cluster", machine(place, kinds, 0.0), "--peak-flops", "1e9")
    near("compute", got["time"]["compute"], seconds(counts, False))
    near("optimizer", got["time"]["optimizer"], seconds(counts, True))
    near("step", got["step_s"], seconds(counts, False) + seconds(counts, True))
    near("bubble", got["bubble"], 0.0)
    expect("exposed", got["time"]["exposed"], dict.fromkeys(AXES, 0))
    expect("fixed", got["time"]["fixed"], None)
    near("tokens", got["tokens_per_s_per_gpu"], 64 / got["step_s"])
    checked = place.check(config)
    near("flops", got["tflops_per_gpu"] * 1e12, 64 * checked["flops_per_token"] / got["step_s"])
    near("mfu", got["mfu"], got["tflops_per_gpu"] * 1e3)
    expect("hfu", got["hfu"], got["mfu"])
    expect("convention", got["flops_convention"], checked["flops_convention"])
    expect("memory", got["memory_bytes"], checked["predicted"]["memory_bytes"])


def test_two_ranks_wait_for_their_sums(place):
    config = place.config(batch={"global": 4, "micro": 1, "seq": 16}, layout={"dp": 2})
    counts = kinds_of(program_of(place, config))
    kinds = {kind for _, kind in counts if not kind.endswith("_wait")}
    whole = seconds(counts, False) + seconds(counts, True)
    messages = COMM_S * sum(n for (_, kind), n in counts.items() if kind in STARTS)
    free = sim(place, config, "--cluster", machine(place, kinds, 0.0))
    busy = sim(place, config, "--cluster", machine(place, kinds, 1.0))
    expect("mfu", (free["mfu"], free["hfu"], free["peak_flops"]), (None, None, None))
    expect("one stands for both", free["simulated"]["followed"], 1)
    near("kernels", free["time"]["compute"] + free["time"]["optimizer"], whole)
    near("all of it", whole + sum(free["time"]["exposed"].values()), free["step_s"])
    expect("some are hidden, some are not", 0 < free["time"]["exposed"]["dp"] < messages, True)
    near("nothing can hide", busy["step_s"], whole + messages)
    near("critical path", free["critical_path"]["compute"] + free["critical_path"]["comm"],
         free["step_s"])


def test_equal_stages(place):
    config = place.config(batch={"global": 6, "micro": 1, "seq": 16})
    got = sim(place, config, "--unit", "1,0.5,0.25")
    near("step", got["step_s"], 6 * 1.75)
    near("optimizer", got["time"]["optimizer"], 0.0)
    words = place.echelon("sim", config, "--unit=1,0.5,0.25", "--trace", "line.json")
    expect("words", words.code, 0)
    expect_in("words", "step 10.500000 s; 1 of 1 ranks followed", words.stdout)
    expect_in("words", "compute                   10.500000 s 100.00 %", words.stdout)
    with open(place.path("line.json")) as file:
        events = json.load(file)["traceEvents"]
    spans = [e for e in events if e.get("ph") == "X"]
    near("the trace ends with the step", max(e["ts"] + e["dur"] for e in spans), 10.5e6)


def test_what_is_refused(place):
    config = place.config(batch={"global": 4, "micro": 1, "seq": 16})
    for args, words in [
        ([config], "wants either --cluster FILE"),
        ([config, "--cluster", "a.yaml", "--unit", "1,1,1"], "wants either --cluster FILE"),
        ([config, "--cluster", "none.yaml"], "none.yaml"),
        ([config, "--unit", "1,1"], "wanted F,B,W"),
        ([config, "--unit", "1,1,1,1"], "wanted F,B,W"),
        ([config, "--unit", "1,-1,1"], "wanted F,B,W"),
        ([config, "--unit", "0,0,0"], "takes no time"),
        ([config, "--unit", "1,1,1", "--trace", "a.txt"], "a.txt"),
        ([config, "--unit", "1,1,1", "--peak-flops", "0"], "--peak-flops"),
        ([config, "--unit", "1,1,1", "--ranks", "-1"], "--ranks"),
        (["--unit", "1,1,1"], "wants one configuration"),
    ]:
        run = place.echelon("sim", *args)
        expect(f"{args}: exit status", run.code, 2)
        expect_in(str(args), words, run.stderr)
    path = machine(place, ["linear"], 0.0)
    run = place.echelon("sim", config, "--cluster", path)
    expect("a machine that lacks kinds", run.code, 2)
    expect_in("a machine that lacks kinds", f"{path}: cost.", run.stderr)


with Place() as here:
    here.tokens()
    test_one_rank_is_the_sum_of_its_kernels(here)
    test_two_ranks_wait_for_their_sums(here)
    test_equal_stages(here)
    test_what_is_refused(here)
finish()
