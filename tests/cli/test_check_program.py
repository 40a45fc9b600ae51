#!/usr/bin/env python3
# RUN: np=1 timeout=20 tags=fast
"""check --program: a program from a file is proved, part by part; faults are told in words."""
import json
import os

from cli import SOURCE, expect, expect_in, finish, run

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
    expect("head", [document[k] for k in ("program", "ranks", "items", "ops")], ["five", 3, 5, 5])
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


test_a_right_program()
test_ranks_that_wait_for_each_other()
test_a_deadlock_of_one_queue_only()
test_two_slots_on_the_same_bytes()
test_what_is_no_program()
finish()
