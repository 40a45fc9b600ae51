#!/usr/bin/env python3
"""GPT-2 124M, fp32, one process: Echelon beside PyTorch, in turn A B A B, as a ratio of tokens a second.

usage: compare_torch.py [--build build] [--torch python-with-torch] [--rows 4] [--seq 256] [--steps 5]
                        [--rounds 2] [--threads 2] [--out FILE.json]
Prints a table; --out keeps everything with machine and date (bench/results).
"""
import argparse
import datetime
import json
import pathlib
import platform
import random
import statistics
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARMUP = 2


def run_echelon(o, folder):
    """One training run on random tokens; the seconds of each step after the warm-up."""
    tokens = folder / "tokens.bin"
    if not tokens.exists():
        draw = random.Random(1)
        count = (WARMUP + o.steps) * o.rows * o.seq + 1
        tokens.write_bytes(struct.pack(f"<{count}H", *(draw.randrange(50257) for _ in range(count))))
    config = folder / "gpt2.json"
    config.write_text(json.dumps({
        "model": {"preset": "gpt2-124m"}, "data": {"train": [str(tokens)]},
        "batch": {"global": o.rows, "micro": o.rows, "seq": o.seq},
        "optim": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1, "clip": 1.0},
        "train": {"steps": WARMUP + o.steps},
        "run": {"dir": str(folder / "run"), "threads": o.threads}}))
    command = [f"{o.build}/echelon", "train", str(config), "--json"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    steps = [e["step_s"] for e in events if e["event"] == "step"][WARMUP:]
    end = events[-1]
    return {"engine": "echelon", "kernels": events[0]["kernels"], "threads": events[0]["threads"],
            "step_s": steps, "peak_rss_bytes": end["rss_bytes"], "time_share": end["time_share"],
            "flops_per_token": events[0]["flops_per_token"],
            "arena_bytes": end["allocated"]["device"]["arena"]}


def run_torch(o, compiled):
    command = [o.torch, str(HERE / "torch_gpt2.py"), "--rows", str(o.rows), "--seq", str(o.seq), "--steps",
               str(o.steps), "--warmup", str(WARMUP), "--threads", str(o.threads)]
    command += ["--compile"] if compiled else []
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), "unknown")
    flags = next((line for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("flags")), "")
    wanted = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f" {f}" in flags]
    return {"processor": model, "vectors": wanted, "system": platform.release(),
            "cpus": len([1 for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("processor")])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--torch", default=sys.executable, help="a python that has torch")
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    parser.add_argument("--out")
    for name, default in (("rows", 4), ("seq", 256), ("steps", 5), ("rounds", 2), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    o = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(o.rounds):
            runs.append(run_echelon(o, pathlib.Path(folder)))
            runs.append(run_torch(o, False))
            if o.compile:
                runs.append(run_torch(o, True))
    by_engine = {}
    for run in runs:
        by_engine.setdefault(run["engine"], []).append(run)
    tokens = o.rows * o.seq
    table = {}
    for name, several in by_engine.items():
        seconds = [s for run in several for s in run["step_s"]]
        table[name] = {"tokens_per_s_median": tokens / statistics.median(seconds),
                       "tokens_per_s_best": tokens / min(seconds),
                       "peak_rss_mib": max(run["peak_rss_bytes"] for run in several) / 2**20}
        print(f"{name:<24}{table[name]['tokens_per_s_median']:>10.1f} tokens/s median"
              f"{table[name]['tokens_per_s_best']:>10.1f} best{table[name]['peak_rss_mib']:>9.0f} MiB")
    own = table["echelon"]
    peer = max((t for name, t in table.items() if name != "echelon"), key=lambda t: t["tokens_per_s_median"])
    ratio = {"median": own["tokens_per_s_median"] / peer["tokens_per_s_median"],
             "best": own["tokens_per_s_best"] / peer["tokens_per_s_best"],
             "peak_rss": own["peak_rss_mib"] / peer["peak_rss_mib"]}
    share = by_engine["echelon"][-1]["time_share"]
    print(f"echelon / torch: {ratio['median']:.2f} median, {ratio['best']:.2f} best; memory {ratio['peak_rss']:.2f}; "
          f"executor {100 * share['executor']:.2f} % of a step")
    if o.out:
        record = {"date": datetime.date.today().isoformat(), "machine": machine(),
                  "command": "bench/step/compare_torch.py " + " ".join(sys.argv[1:]).replace(o.torch, "PYTHON"),
                  "table": table, "ratio": ratio, "runs": runs}
        pathlib.Path(o.out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
