#!/usr/bin/env python3
# RUN: np=1 timeout=60 tags=fast
"""check --program: a program from a file is proved, part by part; faults are told in words."""
import json
import os

from cli import SOURCE, expect, expect_in, finish, run
from training import Place

SEEDS = os.path.join(SOURCE, "tests", "fuzz", "seeds", "program")
PARTS = ["lives", "once", "types", "order", "match", "one queue", "cover", "peaks"]


def check(name, *args):
    return run("check", "--program", os.path.join(SEEDS, name), *args)


def proof_of(name, code):
    got = check(name, "--json")
    expect(f"{name}: exit status", got.returncode, code)
    document = json.loads(got.stdout)
    expect(f"{name}: parts", [row["part"] for row in document["proof"]], PARTS)
    return document, {row["part"]: row for row in document["proof"]}


def test_a_right_program():
    document, proof = proof_of("five.json", 0)
    expect("head", [document[k] for k in ("program", "ranks", "classes", "items", "ops")],
           ["five", 3, 1, 5, 5])
    for part, row in proof.items():
        expect(part, row["ok"], None if part == "cover" else True)
        expect(f"{part}: program", row["program"], "five")
        expect(f"{part}: seconds", 0 <= row["seconds"] < 1, True)
    got = check("five.json")
    expect("exit status", got.returncode, 0)
    expect_in("words", "1 of 3 ranks followed", got.stdout)
    expect_in("words", "lives      holds", got.stdout)


def test_ranks_that_wait_for_each_other():
    _, proof = proof_of("deadlock.json", 1)
    expect("match", proof["match"]["ok"], False)
    expect_in("match", "rank 1 (dp 1) never receives a first message over dp with it; it stands in "
              "item 2", proof["match"]["text"])
    expect("types", proof["types"]["ok"], True)
    got = check("deadlock.json")
    expect_in("words", "  match      FAULT", got.stdout)
    expect_in("error", "error: program 'ring', proof of match: rank 0 (dp 0) waits", got.stderr)


def test_a_deadlock_of_one_queue_only():
    _, proof = proof_of("ring.json", 1)
    expect("parts", [proof["match"]["ok"], proof["one queue"]["ok"]], [True, False])


def test_two_slots_on_the_same_bytes():
    _, proof = proof_of("overlap.json", 1)
    expect_in("lives", "belong to slot 3 ('t') and slot 4 ('staging') at once",
              proof["lives"]["text"])


def test_what_is_no_program():
    for name, code, words in (("cut.json", 2, "unexpected token near end of file"),
                              ("far_block.json", 2, "item 4: block is 400000000, wanted 0..4"),
                              ("shape.json", 1, "block 0: add: argument 1"),
                              ("absent.json", 4, "absent.json")):
        got = check(name)
        expect(name, (got.returncode, got.stdout), (code, ""))
        expect_in(name, words, got.stderr)
        expect(f"{name}: lines", len(got.stderr.splitlines()), 1)
    got = check("five.json", "--ranks", "2")
    expect("ranks", got.returncode, 2)
    expect_in("ranks", "--program FILE wants nothing else", got.stderr)


def change(path, old, new):
    with open(path) as file:
        text = file.read()
    expect(f"{old} in {path}", old in text, True)
    with open(path, "w") as file:
        file.write(text.replace(old, new, 1))


def test_a_pipeline_of_files():
    """What --write-program writes for a pipeline is read again and proved together."""
    with Place() as place:
        place.tokens()
        config = place.config(layout={"pp": 2, "dp": 2}, batch={"global": 8})
        written = place.echelon("check", config, "--json", "--write-program", "p.json")
        expect("write", (written.code, written.stderr), (0, ""))
        expect("files", sorted(f for f in os.listdir(place.folder) if f.startswith("p.json")),
               ["p.json.0", "p.json.1"])
        whole = json.loads(written.stdout)
        read = place.echelon("check", "--program", "p.json", "--json")
        expect("read", (read.code, read.stderr), (0, ""))
        document = json.loads(read.stdout)
        expect("head", [document[k] for k in ("program", "ranks", "classes", "ops")],
               ["train", 4, 2, whole["ops"]])
        proof = {row["part"]: row for row in document["proof"]}
        compiled = {row["part"]: row for row in whole["proof"] if row["program"] == "train"}
        for part in PARTS:
            expect(part, proof[part]["ok"], None if part == "cover" else True)
            if part != "cover":
                expect(f"{part}: looked", proof[part]["looked"], compiled[part]["looked"])
        words = place.echelon("check", "--program", "p.json")
        expect_in("words", "2 of 4 ranks followed", words.stdout)

        # a stage's program alone is not every rank's
        alone = place.echelon("check", "--program", "p.json.0")
        expect("alone", alone.code, 1)
        expect_in("alone", "proof of match", alone.stderr)

        # exchanged, each stage is the other's peer
        os.rename(place.path("p.json.0"), place.path("q.json.1"))
        os.rename(place.path("p.json.1"), place.path("q.json.0"))
        exchanged = place.echelon("check", "--program", "q.json")
        expect("exchanged", exchanged.code, 1)
        expect_in("exchanged", "is no other member of the group", exchanged.stderr)

        # of two layouts
        change(place.path("q.json.1"), '"node_ranks": 0', '"node_ranks": 2')
        layouts = place.echelon("check", "--program", "q.json")
        expect("layouts", (layouts.code, layouts.stdout), (1, ""))
        expect_in("layouts", "q.json.1: its layout is another than that of the first", layouts.stderr)

        # a stage is missing
        os.remove(place.path("q.json.1"))
        missing = place.echelon("check", "--program", "q.json")
        expect("missing", (missing.code, missing.stdout), (4, ""))
        expect_in("missing", "q.json.1", missing.stderr)


test_a_right_program()
test_a_pipeline_of_files()
test_ranks_that_wait_for_each_other()
test_a_deadlock_of_one_queue_only()
test_two_slots_on_the_same_bytes()
test_what_is_no_program()
finish()
