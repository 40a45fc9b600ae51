#!/usr/bin/env python3
"""Simulated beside measured step time on two ranks of one thread, in layouts of one model.

usage: predict.py [--build build] [--cluster FILE.yaml] [--rounds 3] [--steps 6] [--only NAME ...] [--out FILE.json]

Calibrates first (`echelon bench all --ranks 2`), unless --cluster names a calibration.  Then trains every
layout in turn, --rounds times, on random tokens; a layout's time is the median step of all rounds after
the warm-up.  `echelon sim --model` of the same layout has to say the same seconds as train predicts.  The
layout that `echelon plan` puts first is trained too (as layout: auto): how much slower it is than the
fastest one measured is the price of its choice.  Prints a table of ratios; --out keeps everything with
machine and date (bench/results).  Run it on a machine that does nothing else.
"""
import argparse
import datetime
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

WARMUP = 2
MODEL = {"arch": "gpt2", "layers": 4, "hidden": 256, "heads": 4, "vocab": 4096, "context": 128}
SHAPE = "layers=4,hidden=256,heads=4,ffn=1024,vocab=4096,arch=gpt"  # the same, for sim and plan
SEQ, GLOBAL, MICRO = 128, 16, 2

# of --set; what a build has not yet is left out with its words
LAYOUTS = {
    "dp2": [],
    "dp2 zero1": ["layout.zero.stage=1"],
    "dp2 zero2": ["layout.zero.stage=2"],
    "dp2 zero3": ["layout.zero.stage=3"],
    "tp2": ["layout.tp=2"],
    "tp2 sp": ["layout.tp=2", "layout.sequence_parallel=true"],
    "pp2 1f1b": ["layout.pp=2"],
    "pp2 gpipe": ["layout.pp=2", "layout.schedule=gpipe"],
    "pp2 zb-h1": ["layout.pp=2", "layout.schedule=zb-h1"],
}
AUTO = "auto"  # layout: auto, micro-batch included
WORDS = {"layout.zero.stage": "--zero", "layout.tp": "--tp", "layout.pp": "--pp", "layout.schedule": "--schedule"}


def calibrate(o, folder, config):
    """The machine's file: kernels and messages by themselves, then what a step of one layout (dp 2, the
    one that is trained first) takes longer than they say."""
    if o.cluster:
        return o.cluster, None
    cluster = folder / "cluster.yaml"
    begin = time.monotonic()
    subprocess.run([f"{o.build}/echelon", "bench", "all", "--ranks", "2", "--threads", "1", "--save", str(cluster)],
                   check=True, capture_output=True)
    subprocess.run([f"{o.build}/echelon", "bench", "step", str(config), "--ranks", "2", "--threads", "1", "--rounds",
                    "12", "--cluster", str(cluster), "--save", str(cluster)], check=True, capture_output=True)
    return str(cluster), time.monotonic() - begin


def write_config(o, folder):
    draw = random.Random(1)
    count = (WARMUP + o.steps) * GLOBAL * SEQ + 1
    tokens = folder / "tokens.bin"
    tokens.write_bytes(struct.pack(f"<{count}H", *(draw.randrange(MODEL["vocab"]) for _ in range(count))))
    config = folder / "model.json"
    config.write_text(json.dumps({
        "model": MODEL, "data": {"train": [str(tokens)]}, "batch": {"global": GLOBAL, "micro": MICRO, "seq": SEQ},
        "optim": {"name": "adamw", "lr": 1e-4}, "train": {"steps": WARMUP + o.steps},
        "checkpoint": {"every_steps": 0}, "run": {"dir": str(folder / "run"), "threads": 1}}))
    return str(config)


def train(o, config, cluster, sets):
    """(predicted seconds, measured seconds of each step), or the words of a refusal."""
    command = [f"{o.build}/echelon", "train", config, "--ranks", "2", "--cluster", cluster, "--json"]
    for value in sets:
        command += ["--set", value]
    got = subprocess.run(command, capture_output=True, text=True)
    if got.returncode == 2:
        return got.stderr.strip().splitlines()[-1]
    if got.returncode != 0:
        sys.exit(f"predict: {' '.join(command)}\n{got.stderr}")
    events = [json.loads(line) for line in got.stdout.splitlines()]
    return events[0]["predicted"]["step_s"], [e["step_s"] for e in events if e["event"] == "step"][WARMUP:]


def ask(o, command, cluster, words):
    got = subprocess.run([f"{o.build}/echelon", command, "--engine", "echelon", "--model", SHAPE, "--cluster", cluster,
                          "--gpus", "2", "--seq", str(SEQ), "--global-batch", str(GLOBAL), *words, "--json"],
                         check=True, capture_output=True, text=True)
    return json.loads(got.stdout)


def simulated(o, cluster, sets):
    """Seconds of a layout by sim of the shape."""
    words = ["--micro", str(MICRO)]
    for key, value in (s.split("=") for s in sets):
        words += ["--sp"] if key == "layout.sequence_parallel" else [WORDS[key], value]
    return ask(o, "sim", cluster, words)["step_s"]


def compare_tools(o, cluster, found):
    """Layouts of which sim and plan say other seconds than train predicts."""
    other = [name for name, row in found.items()
             if name != AUTO and abs(simulated(o, cluster, LAYOUTS[name]) / row["predicted_s"] - 1) > 1e-9]
    if AUTO in found:
        best = ask(o, "plan", cluster, [])["best"][0]
        found[AUTO]["layout"] = best["options"]
        if abs(best["step_s"] / found[AUTO]["predicted_s"] - 1) > 1e-9:
            other.append(AUTO)
    return other


def measure(o, config, cluster):
    found, refused = {}, {}
    whole = json.loads(pathlib.Path(config).read_text(encoding="utf-8"))
    del whole["batch"]["micro"]
    any_micro = pathlib.Path(config).with_name("auto.json")
    any_micro.write_text(json.dumps(whole), encoding="utf-8")
    for _ in range(o.rounds):
        for name in o.only or [*LAYOUTS, AUTO]:
            where, sets = (str(any_micro), ["layout=auto"]) if name == AUTO else (config, LAYOUTS[name])
            got = train(o, where, cluster, sets) if name not in refused else refused[name]
            if isinstance(got, str):
                refused[name] = got
                continue
            row = found.setdefault(name, {"predicted_s": got[0], "steps_s": []})
            row["steps_s"].append(got[1])
    for row in found.values():
        steps = [s for r in row["steps_s"] for s in r]
        row["measured_s"] = statistics.median(steps)
        row["fastest_s"], row["slowest_s"] = min(steps), max(steps)
        row["ratio"] = row["predicted_s"] / row["measured_s"]
    return found, refused


def processor():
    return next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                 if line.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--cluster", help="a calibration; without it one is made")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--only", nargs="+", choices=[*LAYOUTS, AUTO], metavar="NAME")
    parser.add_argument("--out")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = write_config(o, folder)
        cluster, calibration_s = calibrate(o, folder, config)
        found, refused = measure(o, config, cluster)
        other = compare_tools(o, cluster, found)
        calibration = pathlib.Path(cluster).read_text(encoding="utf-8")
    print(f"{'layout':<12}{'predicted s':>12}{'measured s':>12}{'fastest':>10}{'slowest':>10}{'ratio':>8}")
    for name, row in found.items():
        print(f"{name:<12}{row['predicted_s']:>12.4f}{row['measured_s']:>12.4f}{row['fastest_s']:>10.4f}"
              f"{row['slowest_s']:>10.4f}{row['ratio']:>8.3f}")
    for name, words in refused.items():
        print(f"{name:<12}left out: {words}")
    within = [name for name, row in found.items() if abs(row["ratio"] - 1) <= 0.1]
    print(f"within 10 %: {len(within)} of {len(found)}")
    print(f"sim and plan say other seconds: {', '.join(other) if other else 'nowhere'}")
    regret = None
    if AUTO in found:
        best = min(row["measured_s"] for row in found.values())
        regret = found[AUTO]["measured_s"] / best - 1
        print(f"plan chooses {found[AUTO]['layout']}: {100 * regret:.1f} % slower than the fastest measured")
    if o.out:
        record = {"date": datetime.date.today().isoformat(), "processor": processor(), "model": MODEL,
                  "batch": {"global": GLOBAL, "micro": MICRO, "seq": SEQ}, "ranks": 2, "threads": 1,
                  "calibration_s": calibration_s, "layouts": found, "left_out": refused, "regret": regret, "calibration": calibration}
        pathlib.Path(o.out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if found and len(within) == len(found) and not other else 1)


if __name__ == "__main__":
    main()
