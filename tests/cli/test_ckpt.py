# RUN: np=1 timeout=60 tags=fast
"""echelon ckpt: llama2.c's file to an HF folder and on, exit statuses, nothing half-written."""
import json
import os
import random
import struct
import tempfile

from cli import SOURCE, expect, expect_in, finish, run


def llama2c_file(path, vocab=5):
    """dim 8, hidden 10, 2 layers, 2 heads, 1 kv head, context 3."""
    rng = random.Random(1)
    n = abs(vocab) * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 80) + 8 + 2 * 3 * 2
    n += abs(vocab) * 8 if vocab < 0 else 0
    values = [rng.uniform(-1, 1) for _ in range(n)]
    with open(path, "wb") as f:
        f.write(struct.pack("<7i", 8, 10, 2, 2, 1, vocab, 3) + struct.pack(f"<{n}f", *values))


def header(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(n))


def data(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        f.seek(8 + n)
        return f.read()


def test_import(folder):
    source, tokens, out = (os.path.join(folder, n) for n in ("m.bin", "tok.bin", "hf"))
    llama2c_file(source)
    with open(tokens, "wb") as f:
        f.write(b"tok")
    done = run("ckpt", "import", source, "--tokenizer", tokens, "--out", out)
    expect("import", (done.returncode, done.stdout), (0, ""))
    expect("files", sorted(os.listdir(out)), ["config.json", "model.safetensors", "tokenizer.bin"])
    with open(os.path.join(out, "config.json")) as f:
        config = json.load(f)
    expect("config", [config[k] for k in ("model_type", "hidden_size", "num_key_value_heads",
                                          "vocab_size", "tie_word_embeddings", "torch_dtype")],
           ["llama", 8, 1, 5, True, "float32"])
    tensors = header(os.path.join(out, "model.safetensors"))
    expect("rows", tensors["model.embed_tokens.weight"]["shape"], [5, 8])
    expect("tied once", "lm_head.weight" in tensors, False)
    return out


def test_show(out):
    shown = run("ckpt", "show", out)
    expect("show", (shown.returncode, shown.stderr), (0, ""))
    expect_in("show", "model.layers.1.self_attn.k_proj.weight", shown.stdout)
    expect_in("show", "20 tensors, 944 elements", shown.stdout)
    document = json.loads(run("ckpt", "show", out, "--json").stdout)
    expect("show --json", (document["elements"], document["bytes"]), (944, 4 * 944))
    first = document["tensors"][0]
    expect("first tensor", (first["name"], first["dtype"], first["shape"]),
           ("model.embed_tokens.weight", "F32", [5, 8]))
    expect("one file", run("ckpt", "show", os.path.join(out, "model.safetensors")).stdout,
           shown.stdout)


def test_copies(out, folder):
    again, sharded, half = (os.path.join(folder, n) for n in ("again", "sharded", "half"))
    expect("copy", run("ckpt", "export", out, "--out", again).returncode, 0)
    for name in os.listdir(out):
        with open(os.path.join(out, name), "rb") as a, open(os.path.join(again, name), "rb") as b:
            expect(f"copy of {name}", a.read() == b.read(), True)
    expect("shards", run("ckpt", "import", out, "--out", sharded, "--shard-bytes", "1000").returncode,
           0)
    expect("shards and index", "model.safetensors.index.json" in os.listdir(sharded), True)
    expect("back to one", run("ckpt", "import", sharded, "--out", again).returncode, 0)
    expect("same data", data(os.path.join(again, "model.safetensors")),
           data(os.path.join(out, "model.safetensors")))
    expect("bf16", run("ckpt", "export", out, "--out", half, "--dtype", "bf16").returncode, 0)
    expect("bf16 bytes", len(data(os.path.join(half, "model.safetensors"))), 2 * 944)
    kinds = {t["dtype"] for t in header(os.path.join(half, "model.safetensors")).values()
             if "dtype" in t}
    expect("bf16 type", kinds, {"BF16"})
    with open(os.path.join(half, "config.json")) as f:
        expect("bf16 in config.json", json.load(f)["torch_dtype"], "bfloat16")


def test_golden_copy(folder):
    golden = os.path.join(SOURCE, "tests", "golden", "gpt2")
    out = os.path.join(folder, "gpt2")
    expect("gpt2", run("ckpt", "import", golden, "--out", out).returncode, 0)
    a, b = (header(os.path.join(d, "model.safetensors")) for d in (golden, out))
    a.pop("__metadata__", None)
    b.pop("__metadata__", None)
    expect("gpt2 tensors", {k: v["shape"] for k, v in b.items()},
           {k: v["shape"] for k, v in a.items()})


def test_refusals(out, folder):
    source = os.path.join(folder, "m.bin")
    cut = os.path.join(folder, "cut.bin")
    with open(source, "rb") as f, open(cut, "wb") as g:
        g.write(f.read()[:-1])
    mine = os.path.join(folder, "mine")
    os.mkdir(mine)
    with open(os.path.join(mine, "thesis.tex"), "w") as f:
        f.write("x")
    damaged = os.path.join(folder, "damaged")
    run("ckpt", "export", out, "--out", damaged)
    os.truncate(os.path.join(damaged, "model.safetensors"), 1000)
    new = os.path.join(folder, "new")
    for args, code, words in [
        ([], 2, "ckpt needs one of ls, show, verify, export, import"),
        (["shwo"], 2, "did you mean 'show'?"),
        (["diff"], 2, "ckpt diff is not built yet"),
        (["prune", "x"], 2, "ckpt prune is not built yet"),
        (["import", source], 2, "--out DIR"),
        (["import", "--out", new], 2, "needs one source"),
        (["import", source, "--outt", new], 2, "out"),
        (["import", source, "--out", new, "--dtype", "fp7"], 2, "fp64, fp32, bf16 or fp16"),
        (["import", source, "--out", new, "--dtype", "fp64"], 2, "it is wider"),
        (["import", source, "--out", new, "--shard-bytes", "0"], 2, "above 0"),
        (["import", source, "--out", new, "--tokenizer", "/none"], 2, "/none: no such file"),
        (["import", cut, "--out", new], 1, "its header asks for"),
        (["import", os.path.join(folder, "none.bin"), "--out", new], 2, "none.bin: no such file"),
        (["import", damaged, "--out", new], 1, "model.safetensors"),
        (["show", damaged], 1, "length: the header claims"),
        (["show", source], 2, "only safetensors are shown"),
        (["show", new], 2, "new: no such file"),
    ]:
        got = run("ckpt", *args)
        expect(f"{args}", (got.returncode, got.stdout), (code, ""))
        expect_in(f"{args}", words, got.stderr)
        expect(f"{args} wrote something", os.path.exists(new), False)
    got = run("ckpt", "import", source, "--out", mine)
    expect("foreign folder", (got.returncode, os.listdir(mine)), (2, ["thesis.tex"]))
    expect("debris", [n for n in os.listdir(folder) if ".tmp" in n], [])


with tempfile.TemporaryDirectory() as scratch:
    imported = test_import(scratch)
    test_show(imported)
    test_copies(imported, scratch)
    test_golden_copy(scratch)
    test_refusals(imported, scratch)
finish()
