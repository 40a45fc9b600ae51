#!/usr/bin/env python3
"""Makes published.csv and sources.csv from a table of published measurements with notes.

Usage: import.py TABLE.csv [FOLDER]

Numbers, shapes and settings are taken over as they are.  What a table says in notes alone becomes a
column of its own: software, memory_kind, compiled, overlap, reduce.  Sources get short keys.
"""
import csv
import os
import re
import sys

COPIED = """id year model params_b layers hidden ffn heads kv_heads vocab experts topk seq global_batch
micro_batch gpus gpu_type interconnect tp pp vpp dp cp ep zero_or_fsdp recompute precision schedule
measured_kind measured_value verified""".split()
TOLD = "software memory_kind compiled overlap reduce".split()

# Which code base a family of measurements was made with.
SOFTWARE = {
    "narayanan-t1": "megatron-lm-2021", "narayanan-t2": "megatron-lm-2021",
    "korthikanti-t5": "megatron-lm-2022", "korthikanti-mfu": "megatron-lm-2022",
    "korthikanti-mem": "megatron-lm-2022",
    "vtrain-multi": "megatron-lm-fp16", "vtrain-single": "megatron-lm-fp16",
    "bloom": "megatron-deepspeed", "bloom-mem": "megatron-deepspeed",
    "bloom-oom": "megatron-deepspeed", "bloom-prod": "megatron-deepspeed",
    "llmfoundry": "llm-foundry", "internevo": "internevo", "colossal": "colossalai",
    "mcore-h100": "megatron-core-0.8", "nemo-h100": "nemo-24", "nemo-h100-ft": "nemo-24",
    "nemo-longseq": "nemo-24", "dgxc": "nemo-24", "mbridge": "megatron-bridge",
    "simumax": "megatron-core-0.14", "titan": "torchtitan",
}


def family_of(name):
    return re.sub(r"-?\d+$", "", name)


def software_of(row):
    family = family_of(row["id"])
    if family == "dgxc" and "maxtext" in row["model"]:
        return "maxtext"
    if family == "narayanan-t2" and "zero3" in row["zero_or_fsdp"]:
        return "deepspeed-2021"
    if family == "mbridge" and "fsdp" in row["zero_or_fsdp"]:
        return "megatron-fsdp"
    return SOFTWARE.get(family, "")


def told(row):
    """Settings that stand in the notes."""
    notes, software = row["notes"], software_of(row)
    out = dict.fromkeys(TOLD, "")
    out["software"] = software
    if row["measured_kind"] == "peak_mem_gib":
        out["memory_kind"] = ("allocated" if "max allocated" in notes else
                              "activations" if "activation part" in notes else "reserved")
    if software == "torchtitan":
        out["compiled"] = "no" if "eager" in notes else "yes"
    if "overlap disabled" in notes:
        out["overlap"] = "none"
    elif "AsyncTP" in notes:
        out["overlap"] = "async-tp"
    if software == "llm-foundry":
        out["reduce"] = "16bit" if "mp_mode PURE" in notes else "fp32"
    return out


def recompute_of(words):
    return "none" if words.startswith("not stated (full-recompute off") else words


def write(path, names, rows):
    with open(path, "w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main():
    table = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(__file__))
    with open(table, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    keys, counts, out = {}, {}, []
    for row in rows:
        family = family_of(row["id"])
        if row["source"] not in keys:
            counts[family] = counts.get(family, 0) + 1
            keys[row["source"]] = f"{family}.{counts[family]}"
        new = {name: row[name] for name in COPIED}
        new["recompute"] = recompute_of(row["recompute"])
        out.append({"source": keys[row["source"]], **new, **told(row)})
    names = ["id", "source"] + COPIED[1:] + TOLD
    write(os.path.join(folder, "published.csv"), names, out)
    write(os.path.join(folder, "sources.csv"), ["source", "where"],
          [{"source": key, "where": where} for where, key in keys.items()])


if __name__ == "__main__":
    main()
