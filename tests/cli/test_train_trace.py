#!/usr/bin/env python3
# RUN: np=1 timeout=120 tags=fast
"""train --trace: a step's time line as a trace that keeps to its format, with the items and messages
that the program has (`check --write-program`), and as a picture."""
import json
import os
from collections import defaultdict
from xml.etree import ElementTree

import trace_format
from cli import expect, expect_in, finish
from training import Place, has_mpi

BATCH = {"global": 8, "micro": 1, "seq": 16}


def program_of(place, config, ranks):
    run = place.echelon("check", config, "--ranks", str(ranks), "--write-program", "p.json")
    expect("check", (run.code, run.stderr if run.code else ""), (0, ""))
    with open(place.path("p.json")) as file:
        return json.load(file)


def ops_of(program, item):
    return [op["op"] for op in program["blocks"][item["block"]]["ops"]]


def is_message(kind):
    return kind.endswith("_start") or kind.endswith("_wait")


def check_rank(what, program, events, step_us):
    kernels, starts = defaultdict(int), defaultdict(int)
    busy = 0.0
    for e in events:
        if e["cat"] == "message":
            starts[e["args"]["item"], e["args"]["op"]] += 1
            continue
        busy += e["dur"]
        if e["cat"] != "wait":
            kernels[e["args"]["item"]] += 1
    items = program["items"]
    expect(f"{what}: items with kernels", sorted(kernels),
           [i for i, it in enumerate(items) if any(not is_message(k) for k in ops_of(program, it))])
    wanted = defaultdict(int)
    for i, item in enumerate(items):
        for kind in ops_of(program, item):
            if kind.endswith("_start"):
                wanted[i, kind] += 1
    expect(f"{what}: messages", dict(starts), dict(wanted))
    if busy > step_us * 1.000001:
        expect(f"{what}: kernels and waits", busy, f"at most a step of {step_us} us")
    for e in events:
        item = items[e["args"]["item"]]
        for key in ("layer", "micro"):
            expect(f"{what}: {key}", e["args"][key], item.get(key))
    return busy / step_us


def check_trace(what, place, program, ranks, step, file="t.json"):
    trace = trace_format.load(place.path(file))
    expect(f"{what}: faults", trace_format.faults(trace)[:3], [])
    line, = trace["otherData"]["lines"]
    expect(f"{what}: line", (line["name"], line["ranks"], line["lost"]), ("measured", ranks, 0))
    expect_in(f"{what}: note", f"step {step};", line["note"])
    bars = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    expect(f"{what}: bars", len(bars), line["bars"])
    line["busy"] = min(check_rank(f"{what}, rank {r}", program,
                                  [e for e in bars if e["pid"] == r + 1], 1e6 * line["step_s"])
                       for r in range(ranks))
    line["waits_s"] = sum(1e-6 * e["dur"] for e in bars if e["cat"] == "wait" and e["pid"] == 1)
    return line


def check_times(what, run, line, step):
    """Beside what the step itself told of its times: rank 0's waits, and all of it."""
    told, = [e for e in run.of("step") if e["step"] == step]
    if what != "processes":  # there others may end later
        expect(f"{what}: {line['step_s']} s of {told['step_s']}", line["step_s"] <= told["step_s"],
               True)
    expect(f"{what}: waits {line['waits_s']} s, told {told['exposed_comm_s']}",
           0.5 * told["exposed_comm_s"] - 1e-3 <= line["waits_s"]
           <= told["exposed_comm_s"] * 1.000001 + 1e-6, True)


def check_picture(what, path, ranks):
    expect(f"{what}: size", os.path.getsize(path) <= 200 * 1024, True)
    root = ElementTree.parse(path).getroot()
    rows = {g.get("id"): g for g in root.iter("{http://www.w3.org/2000/svg}g")}
    expect(f"{what}: rows", sorted(rows), [f"line0-rank{r}" for r in range(ranks)])
    for name, row in rows.items():
        seen = {rect.get("class") for rect in row.iter("{http://www.w3.org/2000/svg}rect")}
        expect(f"{what}, {name}: forward and backward", {"f", "b"} <= seen, True)


def trace_with(place, how, ranks, *transport):
    layouts = {1: {}, 4: {"tp": 2, "zero": {"stage": 1}}}
    config = place.config(batch=BATCH, layout=layouts[ranks], train={"steps": 3})
    program = program_of(place, config, ranks)
    plain = place.train(config, "--ranks", str(ranks), *transport)
    run = place.train(config, "--ranks", str(ranks), *transport, "--trace", "t.json")
    expect(f"{how}: exit status", (run.code, run.stderr if run.code else ""), (0, ""))
    expect_in(f"{how}: words", "time line of step 3 in t.json", run.stderr)
    expect(f"{how}: losses", run.losses, plain.losses)
    expect(f"{how}: allocated", run.end["allocated"], plain.end["allocated"])
    expect(f"{how}: sent", run.end["sent"], plain.end["sent"])
    line = check_trace(how, place, program, ranks, 3)
    check_times(how, run, line, 3)
    # what is neither kernel nor wait is the executor and posting messages, and what a loaded machine
    # takes away meanwhile: the best of three
    for _ in range(2):
        if line["busy"] < 0.25:
            place.train(config, "--ranks", str(ranks), *transport, "--trace", "t.json")
            line = check_trace(how, place, program, ranks, 3)
    expect(f"{how}: {line['busy']} of the step are kernels and waits", line["busy"] >= 0.25, True)
    run = place.train(config, "--ranks", str(ranks), *transport, "--trace", "t.svg",
                      "--trace-step", "2")
    expect(f"{how}: exit status", (run.code, run.stderr if run.code else ""), (0, ""))
    check_picture(how, place.path("t.svg"), ranks)
    return line


def test_traces():
    with Place() as place:
        place.tokens()
        trace_with(place, "alone", 1)
        line = trace_with(place, "virtual ranks", 4, "--transport", "inproc")
        expect_in("note", "4 virtual ranks in one process", line["note"])
        if has_mpi():
            line = trace_with(place, "processes", 4)
            expect_in("note", "all ranks read one clock", line["note"])


def test_a_step_in_the_middle():
    """The trace stands although the run goes on, evaluates and saves behind it."""
    with Place() as place:
        place.tokens()
        place.tokens("v.bin", n=400)
        config = place.config(batch=BATCH, data={"train": "t.bin", "valid": "v.bin"},
                              train={"steps": 4, "eval_every": 1},
                              checkpoint={"dir": "ckpt", "every_steps": 2})
        program = program_of(place, config, 1)
        run = place.train(config, "--trace", "t.json", "--trace-step", "2")
        expect("exit status", (run.code, run.end["steps"]), (0, 4))
        check_trace("step 2", place, program, 1, 2)
        os.remove(place.path("t.json"))
        run = place.train(config, "--steps", "6", "--trace", "t.json", "--trace-step", "4")
        expect("made already", run.code, 2)
        expect_in("made already", "is at step 4 already, step 4 is not made", run.stderr)
        run = place.train(config, "--steps", "6", "--trace", "t.json", "--trace-step", "5")
        expect("resumed", run.code, 0)
        check_trace("step 5", place, program, 1, 5)


def test_bad_input():
    with Place() as place:
        place.tokens()
        config = place.config()
        for args, words in (
                (["--trace", "t.txt"], "FILE.json"),
                (["--trace-step", "2"], "--trace-step without --trace"),
                (["--trace", "t.json", "--trace-step", "0"], "wanted a step >= 1"),
                (["--trace", "t.json", "--trace-step", "9"], "the run stops at step 3")):
            run = place.train(config, *args)
            expect(f"{args}: exit status", run.code, 2)
            expect_in(f"{args}", words, run.stderr)
            expect(f"{args}: files", sorted(os.listdir(place.folder)), ["c.json", "t.bin"])
        run = place.train(config, "--trace", "no/folder/t.json")
        expect("no folder: exit status", (run.code, run.of("step")), (4, []))
        expect_in("no folder", "no/folder/t.json", run.stderr)


test_traces()
test_a_step_in_the_middle()
test_bad_input()
finish()
