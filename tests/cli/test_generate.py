# RUN: np=1 timeout=120 tags=fast
"""echelon generate: a model built by hand whose most likely text is known; sources, settings, ends,
refusals.

Its layers add nothing (all zero), so the next token follows from the last alone: the head's row of
NEXT[i] is the embedding of i, a unit vector, hence its logit is the largest."""
import json
import math
import os
import random
import shutil
import struct
import subprocess
import tempfile

from cli import ECHELON, clean_environment, expect, expect_in, finish, run

DIM, HIDDEN, LAYERS, HEADS, KV, VOCAB, CONTEXT = 16, 4, 2, 4, 2, 264, 16
BOS, EOS = 1, 2
PIECES = ["ab", "abc", " q", "zz", "é"]  # ids 259 and up


def byte_id(c):
    return 3 + ord(c)


def chain(text, first, last):
    ids = [first, *map(byte_id, text), last]
    return dict(zip(ids, ids[1:]))


# "The quick", then the end; "xyzxyz..." for ever.
NEXT = {**chain("The quick", BOS, EOS), **chain("yz", byte_id("x"), byte_id("x"))}


def write_model(path, next_of=NEXT, scale=6.0, change=None):
    rng = random.Random(1)
    table = []
    for _ in range(VOCAB):
        v = [rng.gauss(0, 1) for _ in range(DIM)]
        norm = math.sqrt(sum(x * x for x in v))
        table.append([x / norm for x in v])
    head = [[0.0] * DIM for _ in range(VOCAB)]
    for i, j in next_of.items():
        head[j] = [scale * x for x in table[i]]
    d = DIM // HEADS
    zeros = LAYERS * (2 * DIM * DIM + 2 * KV * d * DIM)
    mlp = LAYERS * 3 * HIDDEN * DIM
    values = [x for row in table for x in row]
    values += [1.0] * (LAYERS * DIM) + [0.0] * zeros + [1.0] * (LAYERS * DIM) + [0.0] * mlp
    values += [1.0] * DIM + [0.0] * (CONTEXT * d) + [x for row in head for x in row]
    if change:
        change(values)
    with open(path, "wb") as f:
        f.write(struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, KV, -VOCAB, CONTEXT))
        f.write(struct.pack(f"<{len(values)}f", *values))


def write_tokenizer(path, more=()):
    names = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{b:02X}>" for b in range(256)), *PIECES, *more]
    with open(path, "wb") as f:
        f.write(struct.pack("<i", max(len(n.encode()) for n in names)))
        for i, name in enumerate(names):
            raw = name.encode()
            f.write(struct.pack("<fi", -float(i), len(raw)) + raw)


def raw_text(*args):
    """Standard output as bytes: drawn bytes need not be UTF-8."""
    done = subprocess.run([ECHELON, "generate", *args], env=clean_environment(), timeout=60,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)
    expect(f"{args} {done.stderr}", done.returncode, 0)
    return done.stdout


def document(*args):
    done = run("generate", *args, "--json")
    expect(f"{args} --json {done.stderr}", (done.returncode, done.stdout.count("\n")), (0, 1))
    return json.loads(done.stdout)


def ids_of(text):
    return [byte_id(c) for c in text]


def test_text(source, tokens):
    """Greedy text of a new text, of a prompt, up to --tokens, up to the context."""
    base = [source, *tokens, "--temperature", "0"]
    for args, wanted in [([], "The quick"), (["--tokens", "3"], "The"),
                         (["--prompt", "qui"], "quick"),
                         (["--prompt", "qu", "--tokens", "2"], "quic"),
                         (["--prompt", "xy"], "xy" + "zxy" * 4 + "z")]:
        expect(f"{source} {args}", raw_text(*base, *args).decode(), wanted + "\n")
    for args, prompt, new, end in [
        ([], "", "The quick", "end_token"),
        (["--tokens", "9"], "", "The quick", "tokens"),
        (["--tokens", "10"], "", "The quick", "end_token"),
        (["--prompt", "qui"], " qui", "ck", "end_token"),
        (["--prompt", "xy"], " xy", "zxy" * 4 + "z", "context"),
    ]:
        got = document(*base, *args)
        expect(f"{source} {args}", (got["prompt_tokens"], got["tokens"], got["text"], got["end"]),
               ([BOS, *ids_of(prompt)], ids_of(new), new, end))
    return document(*base)


def train_into(steps, hf, tokens, last, keep=0):
    """Checkpoints of the model in hf as it is: steps of size zero."""
    with open(steps + ".bin", "wb") as f:
        f.write(struct.pack("<100H", *range(3, 103)))
    config = {"model": {"hf": hf}, "data": {"train": [steps + ".bin"], "tokenizer": tokens},
              "batch": {"micro": 1, "seq": 8}, "optim": {"name": "sgd", "lr": 0},
              "train": {"steps": last}, "checkpoint": {"dir": steps, "every_steps": 1, "keep": keep},
              "run": {"dir": steps + ".run"}}
    with open(steps + ".json", "w") as f:
        json.dump(config, f)
    done = run("train", steps + ".json", "--resume", "no")
    expect(f"train {done.stderr}", done.returncode, 0)


def test_sources(folder, binary, tokens):
    hf, steps = os.path.join(folder, "hf"), os.path.join(folder, "ckpt")
    expect("import", run("ckpt", "import", binary, "--tokenizer", tokens, "--out", hf).returncode, 0)
    other, old = os.path.join(folder, "other.bin"), os.path.join(folder, "old")
    write_model(other, chain("old", BOS, EOS))
    expect("import", run("ckpt", "import", other, "--tokenizer", tokens, "--out", old).returncode, 0)
    train_into(steps, old, tokens, 9, keep=1)
    train_into(steps, hf, tokens, 2)  # a later run, with fewer steps
    first, newest = (os.path.join(steps, f"step-{n:08}") for n in (9, 2))
    for source, args, path in [(binary, ["--tokenizer", tokens], binary), (hf, [], hf),
                               (hf, ["--tokenizer", tokens], hf), (steps, [], newest),
                               (newest, [], newest)]:
        got = test_text(source, args)
        expect(f"path of {source}", (got["path"], got["compute"]), (path, "fp32"))
    expect("older run", raw_text(first, "--temperature", "0"), b"old\n")
    out = os.path.join(folder, "exported")
    expect("export", run("ckpt", "export", steps, out).returncode, 0)
    expect("exported with its tokenizer", raw_text(out, "--temperature", "0"), b"The quick\n")
    damage = os.path.join(newest, "rank-00000.bin")
    os.truncate(damage, os.path.getsize(damage) - 1)
    done = run("generate", steps, "--temperature", "0")
    expect("a damaged newest", (done.returncode, done.stdout), (0, "The quick\n"))
    expect_in("a damaged newest", "passed over: " + newest, done.stderr)
    expect("no empty lines", "\n\n" in done.stderr, False)
    done = run("generate", newest)
    expect("itself", (done.returncode, done.stdout), (1, ""))
    expect_in("itself", "the file of rank 0 has", done.stderr)
    wide = os.path.join(folder, "bf16")
    expect("bf16", run("ckpt", "export", hf, "--out", wide, "--dtype", "bf16").returncode, 0)
    expect("bf16 text", raw_text(wide, "--temperature", "0"), b"The quick\n")
    for kernels in ("ref", "auto"):
        expect(kernels, raw_text(hf, "--temperature", "0", "--kernels", kernels), b"The quick\n")
    return hf


def test_draws(hf):
    """The seed decides; cut-offs of one token are greedy; streamed text is that of the document."""
    wild = [hf, "--temperature", "40", "--tokens", "12"]
    texts = [raw_text(*wild, "--seed", str(s)) for s in range(6)]
    expect("again", [raw_text(*wild, "--seed", str(s)) for s in range(6)], texts)
    expect("different seeds", len(set(texts)) > 3, True)
    expect("default seed", raw_text(*wild), texts[1])
    for cut in (["--top-k", "1"], ["--top-p", "0.01"]):
        expect(f"{cut}", raw_text(hf, "--temperature", "1", *cut), b"The quick\n")
    got = document(*wild, "--seed", "3")
    pieces = {i: PIECES[i - 259].encode() for i in range(259, VOCAB)}
    whole = b"".join(pieces.get(i, bytes([i - 3]) if i > 2 else b"") for i in got["tokens"])
    if got["tokens"][0] == 261:
        whole = whole[1:]  # a leading space is dropped after the token that begins a text
    expect("streamed", texts[3], whole + b"\n")
    expect("settings", [got[k] for k in ("temperature", "top_k", "top_p", "seed")], [40, 0, 1, 3])


def test_refusals(folder, binary, tokens, hf):
    cut, nan, large, empty, bare = (os.path.join(folder, n)
                                    for n in ("cut.bin", "nan.bin", "large.bin", "empty", "bare"))
    with open(binary, "rb") as f, open(cut, "wb") as g:
        g.write(f.read()[:-4])

    def spoil(values):
        values[BOS * DIM] = math.nan

    write_model(nan, change=spoil)
    write_tokenizer(large, ["one", "more"])
    os.mkdir(empty)
    shutil.copytree(hf, bare, ignore=lambda _, names: [n for n in names if "tokenizer" in n])
    for args, code, words in [
        ([], 2, "generate wants one model or checkpoint folder"),
        ([hf, hf], 2, "got 2"),
        ([hf, "--tokenzier", tokens], 2, "--tokenizer"),
        ([hf, "--tokens", "0"], 2, "--tokens 0: wanted 1 or more"),
        ([hf, "--temperature", "-1"], 2, "temperature -1: wanted 0"),
        ([hf, "--temperature", "nan"], 2, "temperature"),
        ([hf, "--top-k", "-1"], 2, "top-k -1"),
        ([hf, "--top-p", "0"], 2, "top-p 0"),
        ([hf, "--top-p", "1.1"], 2, "top-p 1.1"),
        ([hf, "--seed", "-1"], 2, "--seed -1"),
        ([hf, "--kernels", "gpu"], 2, "--kernels gpu: wanted auto, cpu or ref"),
        ([hf, "--prompt", "xyz" * 6], 2, "the prompt has 20 tokens, the model's context is 16"),
        ([hf, "--tokenizer", large], 2, "266 tokens, the model knows 264"),
        ([hf, "--tokenizer", os.path.join(folder, "none.bin")], 2, "none.bin"),
        ([binary], 2, "llama2.c's file holds no tokenizer; give one with --tokenizer FILE"),
        ([bare], 2, "no --tokenizer FILE was given"),
        ([os.path.join(folder, "none")], 2, "none: no such file or folder"),
        ([empty], 4, "holds neither a model nor a checkpoint"),
        ([cut, "--tokenizer", tokens], 1, "its header asks for"),
        ([nan, "--tokenizer", tokens], 1, "no finite logits at position 1"),
    ]:
        for more in ([], ["--json"]):
            got = run("generate", *args, *more)
            expect(f"{args} {more}", (got.returncode, got.stdout), (code, ""))
            expect_in(f"{args} {more}", words, got.stderr)
            expect(f"{args}: one error", got.stderr.count("error:"), 1)
    full = run("generate", hf, "--prompt", "x" * 14, "--temperature", "0")
    expect("a full context", (full.returncode, full.stdout), (0, "x" * 14 + "y\n"))


with tempfile.TemporaryDirectory() as scratch:
    model, tok = os.path.join(scratch, "m.bin"), os.path.join(scratch, "tok.bin")
    write_model(model)
    write_tokenizer(tok)
    imported = test_sources(scratch, model, tok)
    test_draws(imported)
    test_refusals(scratch, model, tok, imported)
finish()
