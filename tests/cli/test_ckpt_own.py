# RUN: np=1 timeout=60 tags=fast
"""echelon ckpt on Echelon's own checkpoints: ls, show, verify, export.  The checkpoints are written
here, by a second writer that knows the format from docs/checkpoint.md alone."""
import ctypes
import json
import math
import os
import shutil
import struct
import tempfile

from cli import expect, expect_in, finish, run


class Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


XXHASH = ctypes.CDLL("libxxhash.so.0")
XXHASH.XXH3_128bits.restype = Hash
XXHASH.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

NAMES = ["params", "moment_m", "moment_v"]
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1,
         "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
         "intermediate_size": 6, "max_position_embeddings": 3, "hidden_act": "silu",
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": 5,
         "tie_word_embeddings": False}
TENSORS = [("embed.token.weight", [5, 8]), ("layers.0.attn_norm.weight", [8]),
           ("layers.0.attn.qkv.weight", [1, 4, 4, 8]), ("layers.0.attn.out.weight", [8, 8]),
           ("layers.0.mlp_norm.weight", [8]), ("layers.0.mlp.gate_up.weight", [2, 6, 8]),
           ("layers.0.mlp.down.weight", [8, 6]), ("final_norm.weight", [8]),
           ("head.weight", [5, 8])]


def xxh3_128(data):
    done = XXHASH.XXH3_128bits(data, len(data))
    return f"{done.high:016x}{done.low:016x}"


def value(tensor, element, kind=0):
    return tensor * 1000 + element + kind / 4


def boxes(dims):
    """Two boxes that cover a tensor: halves of its last dimension."""
    half = dims[-1] // 2
    return [[(0, d) for d in dims[:-1]] + [(0, half)],
            [(0, d) for d in dims[:-1]] + [(half, dims[-1])]]


def elements(dims, box):
    """Numbers, in the tensor, of a box's elements in row-major order."""
    at = [0]
    for d, (begin, end) in zip(dims, box):
        at = [a * d + i for a in at for i in range(begin, end)]
    return at


def checkpoint(path, step=7, generation=1, beside="", config='{"train":{"seed":42}}', **run):
    """Written by two ranks, each with one half of every tensor, in two ranges."""
    files, pieces = [b"", b""], []
    for kind in range(3):
        for t, (_, dims) in enumerate(TENSORS):
            for rank, box in enumerate(boxes(dims)):
                numbers = elements(dims, box)
                middle = len(numbers) // 3
                for first, part in ((0, numbers[:middle]), (middle, numbers[middle:])):
                    data = struct.pack(f"<{len(part)}f", *(value(t, e, kind) for e in part))
                    flat = [x for interval in box for x in interval]
                    pieces.append([kind, t, rank, len(files[rank]), first, len(part), flat,
                                   xxh3_128(data)])
                    files[rank] += data
    text = "\"tensors\":[" + ",\n".join(
        f'["{name}",[{",".join(map(str, dims))}]]' for name, dims in TENSORS) + "],\n"
    rest = (
        '"run":' + json.dumps({"step": step, "generation": generation, "updates": step,
                               "samples": 8 * step, "seed": 42, "lr": 3e-4, "loss_scale": 1,
                               "rotary": "half", "saved": "2026-01-31T12:00:00Z", **run}) + ',\n"layout":'
        + json.dumps({"world": 2, "tp": 2, "cp": 1, "pp": 1, "shards": 1, "replicas": 1,
                      "sequence_parallel": False})
        + ',\n"model":' + json.dumps(MODEL) + ',\n"config":' + config + ",\n" + beside + text
        + '"fingerprint":"' + xxh3_128(("rotary half\n" + text).encode()) + '",\n"classes":'
        + json.dumps([[k, name, "fp32"] for k, name in enumerate(NAMES)]) + ',\n"files":'
        + json.dumps([[r, len(f)] for r, f in enumerate(files)]) + ',\n"pieces":'
        + json.dumps(pieces) + "}\n").encode()
    os.makedirs(path)
    for rank, data in enumerate(files):
        with open(os.path.join(path, f"rank-{rank:05}.bin"), "wb") as f:
            f.write(data)
    with open(os.path.join(path, "manifest.json"), "wb") as f:
        f.write(f'{{"format":"echelon-checkpoint","version":1,"hash":"{xxh3_128(rest)}",\n'.encode()
                + rest)
    return path


def flip(path, byte, bit=3):
    with open(path, "r+b") as f:
        f.seek(byte)
        old = f.read(1)[0]
        f.seek(byte)
        f.write(bytes([old ^ 1 << bit]))


def safetensors(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        out[name] = (t["shape"], list(struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])))
    return out


def test_show_and_ls(folder):
    one = checkpoint(os.path.join(folder, "step-00000007"))
    checkpoint(os.path.join(folder, "step-00000012"), 12)
    total = 3 * 4 * sum(math.prod(d) for _, d in TENSORS)
    shown = run("ckpt", "show", one)
    expect("show", (shown.returncode, shown.stderr), (0, ""))
    for words in ("step 7 of run 1", "2 ranks (tp 2)", "layers.0.attn.qkv.weight", "moment_v in fp32",
                  "9 tensors, 108 pieces in 2 files"):
        expect_in("show", words, shown.stdout)
    document = json.loads(run("ckpt", "show", one, "--json").stdout)
    expect("show --json", [document[k] for k in ("step", "samples", "lr", "bytes", "elements")],
           [7, 56, 3e-4, total, total // 12])
    expect("its config", document["config"], {"train": {"seed": 42}})
    expect("its model", document["model"], MODEL)
    expect("tensors", [(t["class"], t["name"], t["shape"], t["pieces"])
                       for t in document["tensors"][:2]],
           [("params", "embed.token.weight", [5, 8], 4),
            ("params", "layers.0.attn_norm.weight", [8], 4)])
    newest = run("ckpt", "show", folder)
    expect_in("the newest of a folder", "step 12 of run 1", newest.stdout)
    listed = json.loads(run("ckpt", "ls", folder, "--json").stdout)["checkpoints"]
    expect("ls --json", [(c["step"], c["valid"], c["why"], c["bytes"], c["layout"]["tp"])
                         for c in listed], [(12, True, None, total, 2), (7, True, None, total, 2)])
    os.truncate(os.path.join(folder, "step-00000012", "rank-00001.bin"), 8)
    plain = run("ckpt", "ls", folder)
    expect("ls", plain.returncode, 0)
    lines = plain.stdout.splitlines()
    expect("lines", len(lines), 2)
    expect_in("the damaged one", "the file of rank 1 has 8 bytes", lines[0])
    expect_in("the good one", "ok", lines[1])
    fallen = run("ckpt", "show", folder)
    expect_in("falls back", "step 7 of run 1", fallen.stdout)
    expect_in("and says why", "the file of rank 1 has 8 bytes", fallen.stderr)
    shutil.rmtree(os.path.join(folder, "step-00000012"))
    expect("ls of one", len(json.loads(run("ckpt", "ls", one, "--json").stdout)["checkpoints"]), 1)
    return one


def test_verify(folder, one):
    done = run("ckpt", "verify", one)
    expect("verify", (done.returncode, done.stderr), (0, ""))
    expect_in("verify", "ok, 108 pieces", done.stdout)
    file = os.path.join(one, "rank-00001.bin")
    # Rank 1 begins with a third of its half of the token table: 6 of 20 elements, then the rest.
    for byte, tensor in ((3, "embed.token.weight"), (4 * 20 + 2, "layers.0.attn_norm.weight"),
                         (os.path.getsize(file) - 1, "head.weight")):
        flip(file, byte)
        done = run("ckpt", "verify", one)
        expect(f"byte {byte}", (done.returncode, done.stdout), (1, ""))
        expect_in(f"byte {byte}", f"of '{tensor}', rank 1: ", done.stderr)
        document = json.loads(run("ckpt", "verify", folder, "--json").stdout)
        fault = document["checkpoints"][0]["faults"][0]
        expect(f"byte {byte} --json", (document["valid"], fault["tensor"], fault["rank"],
                                       fault["file"]), (False, tensor, 1, "rank-00001.bin"))
        flip(file, byte)
    expect("healed", run("ckpt", "verify", folder).returncode, 0)
    flip(os.path.join(one, "manifest.json"), 700)
    done = run("ckpt", "verify", one)
    expect("manifest", done.returncode, 1)
    expect_in("manifest", "manifest.json: damaged", done.stderr)
    document = json.loads(run("ckpt", "verify", folder, "--json").stdout)
    expect("manifest --json", (document["valid"], document["checkpoints"][0]["valid"]),
           (False, False))
    flip(os.path.join(one, "manifest.json"), 700)


def test_copies(folder):
    """Files that were copied beside the pieces are part of what is verified."""
    words = b'{"model":{}}\n'
    beside = ('"data":{"train":["' + "0" * 32 + '"],"valid":[],"mask":[]},\n"copies":'
              + json.dumps([["tokenizer.json", len(words), xxh3_128(words)]]) + ",\n")
    one = checkpoint(os.path.join(folder, "step-00000007"), beside=beside)
    file = os.path.join(one, "tokenizer.json")
    done = run("ckpt", "verify", one)
    expect("missing", done.returncode, 1)
    expect_in("missing", "tokenizer.json: is missing", done.stderr)
    for contents, code in ((words, 0), (words[:-1], 1), (words.replace(b"m", b"n"), 1)):
        with open(file, "wb") as f:
            f.write(contents)
        done = run("ckpt", "verify", one)
        expect(f"copy {contents}", done.returncode, code)
        if code:
            expect_in(f"copy {contents}", "tokenizer.json: damaged", done.stderr)
    document = json.loads(run("ckpt", "verify", one, "--json").stdout)
    expect("copy --json", [(f["file"], f["rank"], f["tensor"])
                           for f in document["checkpoints"][0]["faults"]],
           [("tokenizer.json", None, None)])
    expect("data", json.loads(run("ckpt", "show", one, "--json").stdout)["data"]["train"], ["0" * 32])
    shutil.rmtree(one)
    for name in ("../up", "a/b", ""):
        wrong = beside.replace('"tokenizer.json"', json.dumps(name))
        one = checkpoint(os.path.join(folder, "step-00000007"), beside=wrong)
        expect(f"copy '{name}'", run("ckpt", "verify", one).returncode, 1)
        shutil.rmtree(one)


def test_runs(folder):
    """What the manifest says of the run is checked by verify and ls as going on does."""
    for name, how, words in (
            ("step-00000008", {}, "its name says step 8, its manifest step 7"),
            ("step-00000007", {"samples": 55}, "55 samples in 7 steps"),
            ("step-00000007", {"samples": 63, "config": '{"batch":{"global":8}}'},
             "63 samples in 7 steps, its batch.global is 8"),
            ("step-00000007", {"updates": 8}, "8 updates in 7 steps"),
            ("step-00000007", {"generation": 2**62}, "'generation' is 4611686018427387904"),
            ("elsewhere", {}, None), ("step-7", {"config": '{"batch":{"global":8}}'}, None)):
        one = checkpoint(os.path.join(folder, name), **how)
        done = run("ckpt", "verify", one)
        expect(f"{name} {how}: exit", done.returncode, 1 if words else 0)
        listed = json.loads(run("ckpt", "ls", one, "--json").stdout)["checkpoints"]
        expect(f"{name} {how}: ls", listed[0]["valid"], not words)
        if words:
            expect_in(f"{name} {how}", words, done.stderr)
        shutil.rmtree(one)


def test_export(folder, one):
    out = os.path.join(folder, "hf")
    expect("export", run("ckpt", "export", one, out).returncode, 0)
    expect_in("export", f"{sum(math.prod(d) for _, d in TENSORS)} parameters in 9 tensors",
              run("ckpt", "export", one, out).stderr)
    tensors = safetensors(os.path.join(out, "model.safetensors"))
    with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
        expect("rows", json.load(f)["vocab_size"], 5)
    qkv, gate_up = 2, 5
    for name, shape, tensor, first in [
            ("model.embed_tokens.weight", [5, 8], 0, 0),
            ("model.layers.0.self_attn.q_proj.weight", [8, 8], qkv, 0),
            ("model.layers.0.self_attn.k_proj.weight", [4, 8], qkv, 64),
            ("model.layers.0.self_attn.v_proj.weight", [4, 8], qkv, 96),
            ("model.layers.0.mlp.gate_proj.weight", [6, 8], gate_up, 0),
            ("model.layers.0.mlp.up_proj.weight", [6, 8], gate_up, 48),
            ("model.layers.0.mlp.down_proj.weight", [8, 6], 6, 0),
            ("lm_head.weight", [5, 8], 8, 0)]:
        expect(name, tensors[name],
               (shape, [value(tensor, first + i) for i in range(math.prod(shape))]))
    again = os.path.join(folder, "again")
    expect("of a folder", run("ckpt", "export", folder, "--out", again).returncode, 0)
    expect("the same", safetensors(os.path.join(again, "model.safetensors")), tensors)
    flip(os.path.join(one, "rank-00000.bin"), 9)
    shutil.rmtree(again)
    done = run("ckpt", "export", one, again)
    expect("damaged", (done.returncode, os.path.exists(again)), (1, False))
    expect_in("damaged", "params of 'embed.token.weight', rank 0: ", done.stderr)
    flip(os.path.join(one, "rank-00000.bin"), 9)


def test_refusals(folder, one):
    empty = os.path.join(folder, "empty")
    os.mkdir(empty)
    for args, code, words in [
        (["ls"], 2, "ckpt ls needs one folder"),
        (["ls", "a", "b"], 2, "ckpt ls needs one folder"),
        (["ls", os.path.join(folder, "none")], 2, "none: no such file or folder"),
        (["verify", os.path.join(folder, "none")], 2, "none: no such file or folder"),
        (["verify", empty], 4, "holds no checkpoint"),
        (["verify", one, "--jsn"], 2, "json"),
        (["export", one], 2, "SOURCE DIR, or SOURCE --out DIR"),
        (["show", one + "x"], 2, "x"),
    ]:
        got = run("ckpt", *args)
        expect(f"{args}", (got.returncode, got.stdout), (code, ""))
        expect_in(f"{args}", words, got.stderr)
    got = run("ckpt", "ls", empty)
    expect("empty", (got.returncode, got.stdout), (0, ""))
    shutil.rmtree(empty)


with tempfile.TemporaryDirectory() as scratch:
    path_of_one = test_show_and_ls(scratch)
    test_verify(scratch, path_of_one)
    test_export(scratch, path_of_one)
    test_refusals(scratch, path_of_one)
with tempfile.TemporaryDirectory() as scratch:
    test_copies(scratch)
    test_runs(scratch)
finish()
