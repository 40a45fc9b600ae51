"""Traces as the Trace Event Format has them: what any reader of one may rely on."""
import json
from collections import defaultdict

NS = 1000  # of a microsecond; times have three decimals


def load(path):
    with open(path) as file:
        return json.load(file)


def ns(microseconds):
    return round(microseconds * NS)


def faults(trace):
    """What is wrong with a trace, in words."""
    found = []
    lanes = defaultdict(list)
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e.get("name") == "thread_name"}
    processes = {e["pid"] for e in trace["traceEvents"] if e.get("name") == "process_name"}
    for e in trace["traceEvents"]:
        missing = [key for key in ("ph", "pid", "tid", "ts", "name") if key not in e]
        if missing:
            found.append(f"no {missing} in {e}")
        elif e["ph"] == "X":
            lanes[e["pid"], e["tid"]].append((ns(e["ts"]), -ns(e["dur"]), e["name"]))
            if e["dur"] < 0 or e["ts"] < 0:
                found.append(f"time runs backwards: {e}")
        elif e["ph"] not in "Msf":
            found.append(f"another phase: {e}")
        if e["pid"] not in processes or (e["pid"], e["tid"]) not in named or e["pid"] < 1:
            found.append(f"no name for {e['pid']}, {e['tid']}")
    for lane, events in lanes.items():
        found += overlaps(lane, events)
    return found + flow_faults(trace, lanes)


def overlaps(lane, events):
    """Events of a thread nest or follow each other."""
    open_until = []
    for begin, minus, name in sorted(events):
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        if open_until and begin - minus > open_until[-1]:
            return [f"{lane}: {name} at {begin} ns overlaps"]
        open_until.append(begin - minus)
    return []


def flow_faults(trace, lanes):
    begins = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "f"}
    n = sum(e["ph"] in "sf" for e in trace["traceEvents"])
    found = [] if begins.keys() == ends.keys() and n == 2 * len(begins) else ["flows do not pair"]
    for e in [*begins.values(), *ends.values()]:
        at = ns(e["ts"])
        if not any(b <= at <= b - minus for b, minus, _ in lanes[e["pid"], e["tid"]]):
            found.append(f"no bar around {e}")
    return found
