#!/usr/bin/env python3
# RUN: np=1 timeout=60 tags=fast
"""echelon validate: the document, its figures against statistics of their own from the rows, words,
options and mistakes."""
import json
import math
import os
import tempfile

from cli import SOURCE, expect, expect_in, finish, run

TABLE = os.path.join(SOURCE, "tests", "plan", "fixtures", "columns.csv")
FAMILY_KEYS = ["name", "n", "mape", "median", "p90", "worst", "bias", "rank", "regret"]
ROW_KEYS = ["id", "kind", "measured", "predicted", "assumed", "skipped"]
KINDS = {"tokens_s_gpu": True, "tflops_per_gpu": True, "mfu": True, "iter_time_s": False,
         "peak_mem_gib": False}  # is it a rate


def validate(*args):
    done = run("validate", TABLE, *args)
    expect(f"{args}: exit status, stderr", (done.returncode, done.stderr), (0, ""))
    return done.stdout


def error_of(row):
    """Of seconds or bytes: of rates the other way round."""
    ratio = row["predicted"] / row["measured"]
    return (1.0 / ratio if KINDS[row["kind"]] else ratio) - 1.0


def check_figures(name, got, errors):
    if not errors:
        expect(f"{name}: nothing to count", [got[k] for k in FAMILY_KEYS[1:7]],
               [0] + [None] * 5)
        return
    size = sorted(map(abs, errors))
    n = len(size)
    want = {"n": n, "mape": sum(size) / n, "median": (size[(n - 1) // 2] + size[n // 2]) / 2,
            "p90": size[math.ceil(0.9 * n) - 1], "worst": size[-1], "bias": sum(errors) / n}
    for key, value in want.items():
        if abs(got[key] - value) > 1e-9:
            expect(f"{name}: {key}", got[key], value)


def check_document():
    answer = json.loads(validate("--json"))
    expect("members", list(answer), ["families", "rows"])
    figures = {}
    for family in answer["families"]:
        expect(f"members of {family['name']}", list(family), FAMILY_KEYS)
        figures[family["name"]] = family
    rows = answer["rows"]
    expect("rows", len(rows), 27)
    expect("members of a row", list(rows[0]), ROW_KEYS)
    for row in rows:
        expect(f"{row['id']}: a prediction or a reason", row["predicted"] is None,
               row["skipped"] is not None)
    skipped = [row["id"] for row in rows if row["skipped"]]
    expect("not priced", skipped, ["mbridge-011"])
    priced = [r for r in rows if not r["skipped"] and r["id"] != "bloom-oom-001"]
    memory = [r for r in priced if r["kind"] == "peak_mem_gib"]
    times = [r for r in priced if r["kind"] != "peak_mem_gib"]
    of = {"all": times, "bloom": [r for r in times if r["id"].startswith("bloom-")],
          "simumax": [r for r in times if r["id"].startswith("simumax-")],
          "simumax-mem": [r for r in memory if r["id"].startswith("simumax-")],
          "bloom-oom": [],
          "dense stated": [r for r in times if not r["assumed"]]}
    for name, members in of.items():
        check_figures(name, figures[name], [error_of(r) for r in members])
    expect("filled in", next(r["assumed"] for r in rows if r["id"] == "bloom-001"),
           "80 layers, 64 heads")


def check_words():
    words = validate()
    expect_in("table", "\ndense stated ", words)
    expect_in("filled in", "bloom-001: 80 layers, 64 heads\n", words)
    expect_in("not priced", "mbridge-011: no shape: layers, hidden, heads, ffn", words)
    words = validate("--rows", "--family", "bloom")
    expect_in("rows", "\nbloom-111            iter_time_s ", words)
    expect_in("layout", "--dp 8 --tp 4 --pp 12 --split ends --zero 1 --micro 2", words)
    expect("other families", "\ntitan-001" in words, False)
    words = validate("--worst", "2").split("farthest off:\n")[1].split("\n\n")[0]
    expect("worst", len(words.splitlines()), 2)
    only = json.loads(validate("--family", "titan", "--json"))
    expect("rows of a family", {r["id"][:6] for r in only["rows"]}, {"titan-"})


def check_mistakes():
    for args, words in [(["--family", "blom"], "nearest is 'bloom'"), (["--worst", "-5"], "--worst"),
                        (["--famly", "x"], "--family")]:
        done = run("validate", TABLE, *args)
        expect(f"{args}: exit status, stdout", (done.returncode, done.stdout), (2, ""))
        expect_in(str(args), words, done.stderr)
    done = run("validate")
    expect("no table", done.returncode, 2)
    done = run("validate", "/nonexistent/table.csv", "--json")
    expect("an absent table", (done.returncode, done.stdout), (2, ""))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bad.csv")
        with open(TABLE, encoding="utf-8") as good, open(path, "w", encoding="utf-8") as bad:
            lines = good.read().replace(",fp16,", ",fp17,").replace(",2048,", ",2o48,", 1)
            bad.write(lines)
        done = run("validate", path)
        expect("bad cells: exit status, stdout", (done.returncode, done.stdout), (2, ""))
        expect_in("bad cells", "bad.csv:2:", done.stderr)
        expect_in("bad cells", "seq '2o48': wanted a whole number", done.stderr)
        expect_in("bad cells", "precision 'fp17'", done.stderr)


check_document()
check_words()
check_mistakes()
finish()
