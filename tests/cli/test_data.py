# RUN: np=1 timeout=60 tags=fast
"""echelon data: text to tokens and back to numbers, exit statuses, nothing half-written."""

import gzip
import json
import math
import os
import struct
import tempfile
from collections import Counter

from cli import SOURCE, expect, expect_in, finish, run

TEXT = os.path.join(SOURCE, "tests", "data", "fixtures", "text.txt")


def tokens_of(path):
    with open(path, "rb") as f:
        data = f.read()
    return struct.unpack(f"<{len(data) // 2}H", data)


def entropy(tokens):
    return -sum(c / len(tokens) * math.log(c / len(tokens)) for c in Counter(tokens).values())


def test_text_to_tokens(folder):
    tok, out = os.path.join(folder, "tok.json"), os.path.join(folder, "c.bin")
    done = run("data", "tokenizer", "--vocab", "350", "--out", tok, TEXT, "--json")
    expect("tokenizer", (done.returncode, json.loads(done.stdout)["vocab"]), (0, 350))
    with open(TEXT, "rb") as f, gzip.open(os.path.join(folder, "t.txt.gz"), "wb") as g:
        g.write(f.read())
    done = run(
        "data", "build", "--tokenizer", tok, "--out", out, TEXT, f"{folder}/t.txt.gz", "--json"
    )
    expect("build", (done.returncode, done.stderr), (0, ""))
    built = json.loads(done.stdout)
    tokens = tokens_of(out)
    expect(
        "counts",
        (built["tokens"], built["documents"], built["text_bytes"]),
        (len(tokens), 2, 2 * os.path.getsize(TEXT)),
    )
    expect("both documents alike", tokens[: len(tokens) // 2], tokens[len(tokens) // 2 :])
    expect("end of text", tokens[-1], 349)
    info = json.loads(run("data", "info", out, "--json").stdout)
    expect(
        "info",
        [info[k] for k in ("form", "dtype", "tokens", "documents", "vocab", "max_id", "distinct")],
        ["megatron", "uint16", len(tokens), 2, 350, 349, len(set(tokens))],
    )
    expect("entropy", abs(info["unigram_entropy"] - entropy(tokens)) < 1e-12, True)
    expect_in(
        "info in words",
        f"unigram entropy  {entropy(tokens):.4f} nats per token",
        run("data", "info", out).stdout,
    )
    expect("verify", run("data", "verify", out).returncode, 0)
    return tok, out


def test_damage(out):
    with open(out, "r+b") as f:
        f.seek(10)
        byte = f.read(1)[0]
        f.seek(10)
        f.write(bytes([byte ^ 1]))
    done = run("data", "verify", out)
    expect("damage", done.returncode, 1)
    expect_in("damage", "block 0", done.stderr)
    os.truncate(out, os.path.getsize(out) - 1)
    done = run("data", "info", out)
    expect("cut", (done.returncode, done.stdout), (2, ""))


def test_refusals(folder, tok):
    out = os.path.join(folder, "no.bin")
    cases = [
        (["data"], 2, "wanted build, info"),
        (["data", "biuld"], 2, "did you mean 'build'"),
        (["data", "build", "--tokenizer", tok, "--out", out], 2, "no text file"),
        (["data", "build", "--out", out, TEXT], 2, "--tokenizer and --out"),
        (["data", "build", "--tokenizer", tok, "--out", out, "absent.txt"], 2, "does not exist"),
        (["data", "build", "--tokenizer", "absent", "--out", out, TEXT], 2, "does not exist"),
        (["data", "build", "--tokenizer", tok, "--out", "no", TEXT], 2, "ends in .bin"),
        (
            ["data", "build", "--tokenizer", tok, "--out", out, "--dtype", "unit16", TEXT],
            2,
            "uint16",
        ),
        (
            ["data", "build", "--tokenizer", tok, "--out", out, "--split-on", "x", TEXT],
            2,
            "blank-lines",
        ),
        (["data", "build", "--tokenizer", tok, "--out", f"{folder}/a/b.bin", TEXT], 4, "b.bin"),
        (["data", "tokenizer", "--vocab", "99", "--out", out, TEXT], 2, "wanted 257"),
        (["data", "info", "absent.bin"], 2, "does not exist"),
        (["data", "info", TEXT, TEXT], 2, "one token file"),
        (["data", "verify", "--dtype", "uint8", TEXT], 2, "no side file"),
    ]
    for args, status, words in cases:
        done = run(*args)
        expect(" ".join(args), (done.returncode, done.stdout), (status, ""))
        expect_in(" ".join(args), words, done.stderr)
    expect("nothing written", [n for n in os.listdir(folder) if n.startswith("no")], [])


with tempfile.TemporaryDirectory() as folder:
    tok, out = test_text_to_tokens(folder)
    test_damage(out)
    test_refusals(folder, tok)
finish()
