#!/usr/bin/env python3
"""Simulated beside measured step time on two ranks of one thread, in layouts of one model.

usage: predict.py [--build build] [--cluster FILE.yaml] [--rounds 3] [--steps 6] [--only NAME ...] [--out FILE.json]

Calibrates first (`echelon bench all --ranks 2`), unless --cluster names a calibration.  Then trains every
layout in turn, --rounds times, on random tokens; a layout's time is the median step of all rounds after
the warm-up.  Prints a table of ratios; --out keeps everything with machine and date (bench/results).  Run
it on a machine that does nothing else.
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


def calibrate(o, folder):
    if o.cluster:
        return o.cluster, None
    cluster = folder / "cluster.yaml"
    begin = time.monotonic()
    subprocess.run([f"{o.build}/echelon", "bench", "all", "--ranks", "2", "--threads", "1", "--save", str(cluster)],
                   check=True, capture_output=True)
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


def measure(o, config, cluster):
    found, refused = {}, {}
    for _ in range(o.rounds):
        for name in o.only or LAYOUTS:
            got = train(o, config, cluster, LAYOUTS[name]) if name not in refused else refused[name]
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
    parser.add_argument("--only", nargs="+", choices=LAYOUTS, metavar="NAME")
    parser.add_argument("--out")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cluster, calibration_s = calibrate(o, folder)
        found, refused = measure(o, write_config(o, folder), cluster)
        calibration = pathlib.Path(cluster).read_text(encoding="utf-8")
    print(f"{'layout':<12}{'predicted s':>12}{'measured s':>12}{'fastest':>10}{'slowest':>10}{'ratio':>8}")
    for name, row in found.items():
        print(f"{name:<12}{row['predicted_s']:>12.4f}{row['measured_s']:>12.4f}{row['fastest_s']:>10.4f}"
              f"{row['slowest_s']:>10.4f}{row['ratio']:>8.3f}")
    for name, words in refused.items():
        print(f"{name:<12}left out: {words}")
    within = [name for name, row in found.items() if abs(row["ratio"] - 1) <= 0.1]
    print(f"within 10 %: {len(within)} of {len(found)}")
    if o.out:
        record = {"date": datetime.date.today().isoformat(), "processor": processor(), "model": MODEL,
                  "batch": {"global": GLOBAL, "micro": MICRO, "seq": SEQ}, "ranks": 2, "threads": 1,
                  "calibration_s": calibration_s, "layouts": found, "left_out": refused, "calibration": calibration}
        pathlib.Path(o.out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if found and len(within) == len(found) else 1)


if __name__ == "__main__":
    main()
