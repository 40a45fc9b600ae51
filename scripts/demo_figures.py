#!/usr/bin/env python3
"""Prints what the demo's run predicted beside what the witnesses saw, and its figures as one JSON line.

usage: demo_figures.py DEMO_FOLDER SECONDS
"""
import json
import pathlib
import sys


def events(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def last(all_events, name):
    return [e for e in all_events if e["event"] == name][-1]


def main():
    folder = pathlib.Path(sys.argv[1])
    run = events(folder / "run" / "metrics.jsonl")
    start, end, held = last(run, "start"), last(run, "end"), last(run, "eval")
    entropy = json.loads((folder / "valid.json").read_text())["unigram_entropy"]
    predicted = end["predicted"]["memory_bytes"]["device"]
    allocated, touched = end["allocated"]["device"], end["touched"]["device"]

    print(f"{'memory of a rank, bytes':<24}{'predicted':>14}{'allocated':>14}{'touched':>14}")
    for name in ("params", "grads", "optimizer", "activations", "buffers"):
        state = touched["state"][name]
        note = f"{state:>14}" if name in ("params", "grads", "optimizer") else f"{'':>14}"
        print(f"{name:<24}{predicted[name]:>14}{allocated[name]:>14}{note}")
    print(f"{'arena':<24}{predicted['arena']:>14}{allocated['arena']:>14}{touched['total']:>14}")
    print(f"{'traffic of a step, bytes':<24}{'predicted':>14}{'sent':>14}")
    for axis, sent in end["sent"].items():
        if sent["wire"]:
            print(f"{axis:<24}{end['predicted']['comm_bytes'][axis]['wire']:>14}{sent['wire']:>14}")
    print(f"held-out loss {held['loss']:.3f} nats a token; unigram entropy of the same tokens {entropy:.3f}")
    print(json.dumps({
        "valid_loss": held["loss"], "unigram_entropy": entropy, "params": start["params"],
        "ranks": start["ranks"], "predicted": end["predicted"], "allocated": allocated,
        "touched": touched, "sent": end["sent"], "memory_diff_bytes": end["memory_diff_bytes"],
        "comm_diff_bytes": end["comm_diff_bytes"], "seconds": int(sys.argv[2])}))


if __name__ == "__main__":
    main()
