# RUN: np=1 timeout=120 tags=fast
"""Wrong input to `train`: one clear error on stderr (what, where, what would be right), the
specified exit status, and nothing written: no run folder, no checkpoints, not a line on stdout."""
import json
import os
import shutil
import subprocess

from cli import ECHELON, clean_environment, expect, expect_in, finish
from training import MODELS, Place, has_mpi

# of a run on two ranks; the last has heads for two ranks and no more
CURES = ["what would help first:", "layout.zero.stage 1 (now 0): ", "batch.micro 2 (now 4): ",
         "layout.tp 2 (now 1), dp 1, on 2 ranks: ", "fits", "not enough alone"]
OUTPUTS = ("run", "ckpt", "runs")


def nothing_written(what, place):
    left = [name for name in OUTPUTS if os.path.exists(place.path(name))]
    expect(f"{what}: nothing written", left, [])
    for name in left:
        shutil.rmtree(place.path(name))


def refused(what, place, args, words, code=2, lines=1):
    """Words must all be in the error; lines: how many things it says are wrong."""
    got = place.echelon(*args)
    expect(f"{what}: exit and stdout", (got.code, got.stdout), (code, ""))
    for each in [words] if isinstance(words, str) else words:
        expect_in(what, each, got.stderr)
    said = [line for line in got.stderr.splitlines() if "error:" in line]
    expect(f"{what}: one error", len(said), 1)
    if lines > 1:
        found = [line for line in got.stderr.splitlines()[1:] if line[:3] != "   "]
        expect(f"{what}: all at once", len(found), lines)
    nothing_written(what, place)


def test_token_files(place):
    place.ids("empty.bin", [])
    place.ids("short.bin", [1] * 16)
    place.ids("enough.bin", [1] * 17)
    place.ids("high.bin", [5] * 300 + [97] + [5] * 300)
    place.ids("ids.bin", [5] * 600)
    with open(place.path("odd.bin"), "wb") as file:
        file.write(b"\1\0" * 100 + b"\1")
    place.ids("mask.bin", [1] * 599, "uint8")
    place.ids("wide.bin", [5] * 10 + [-1] + [5] * 300, "int32")
    big = {**MODELS["llama"], "vocab": 70000}
    cases = [
        ("missing", {"train": "none-such.bin"}, ["none-such.bin", "does not exist"]),
        ("a folder", {"train": "."}, ["folder"]),
        ("empty", {"train": "empty.bin"}, ["empty.bin", "is empty"]),
        ("too short", {"train": "short.bin"},
         ["short.bin", "16 tokens are too few for a sequence of 16"]),
        ("odd size", {"train": "odd.bin"}, ["odd.bin", "201 bytes", "uint16"]),
        ("id beyond the vocabulary", {"train": "high.bin"},
         ["high.bin", "token 300 has id 97", "97 entries"]),
        ("negative id", {"train": "wide.bin", "dtype": "int32"}, ["wide.bin", "token 10"]),
        ("mask of another length", {"train": "ids.bin", "mask": "mask.bin"},
         ["mask.bin", "599", "600"]),
        ("missing mask", {"train": "ids.bin", "mask": "no.bin"}, ["no.bin"]),
        ("masks for other files", {"train": ["ids.bin", "t.bin"], "mask": ["mask.bin"]},
         ["data.mask", "1 mask"]),
        ("held-out missing", {"train": "ids.bin", "valid": "no.bin"}, ["no.bin", "does not exist"]),
        ("held-out too short", {"train": "ids.bin", "valid": "short.bin"},
         ["short.bin", "too few"]),
        ("one of several", {"train": ["ids.bin", "odd.bin"]}, ["odd.bin", "201 bytes"]),
        ("no files", {"train": []}, ["data.train"]),
        ("ignore_id", {"train": "ids.bin", "ignore_id": 97},
         ["data.ignore_id", "largest legal value 96"]),
    ]
    for what, data, words in cases:
        refused(what, place, ["train", place.config(data=data)], words)
    for what, data, words in [
        ("16 bit, large vocabulary", {"train": "ids.bin"}, ["ids.bin", "uint16", "70000", "65536"]),
        ("16 bit read as 32", {"train": "ids.bin", "dtype": "int32"}, ["ids.bin", "id 327685"]),
        ("dtype too narrow", {"train": "ids.bin", "dtype": "uint16"},
         ["data.dtype", "70000", "int32"])
    ]:
        refused(what, place, ["train", place.config(model=big, data=data)], words)
    got = place.train(place.config(data={"train": "enough.bin"}, train={"steps": 1}))
    expect("exactly enough", (got.code, len(got.losses)), (0, 1))
    for name in OUTPUTS:
        shutil.rmtree(place.path(name), ignore_errors=True)


def test_sequence_and_context(place):
    """A sequence as long as the context is the longest."""
    for model in ("gpt2", "llama"):
        config = place.config(model=model)
        refused(f"{model}: 17 of 16", place, ["train", config, "--set", "batch.seq=17"],
                ["--set batch.seq=17", "context is 16", "nearest legal value 16"])
        got = place.train(config, "--set", "train.steps=1")
        expect(f"{model}: 16 of 16", (got.code, len(got.losses)), (0, 1))
        shutil.rmtree(place.path("run"))


def test_sizes(place):
    """Several impossible sizes at once, each with its place and the nearest legal value."""
    config = place.path("sizes.yaml")
    with open(config, "w") as file:
        file.write("model: {arch: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 3, ffn: 40,\n"
                   "        vocab: 97, context: 16}\n"
                   "data: {train: t.bin}\n"
                   "batch: {global: 13, micro: 2, seq: 99}\n"
                   "layout: {dp: 1}\n"
                   "comm: {tree: [2, 3]}\n"
                   "optim: {schedule: cosine, min_lr: 1}\n"
                   "checkpoint: {dir: none, every_steps: 5}\n")
    refused("sizes", place, ["train", config], [
        "sizes.yaml:1:55: model.kv_heads is 3", "heads 4", "sizes.yaml:4:9: batch.global: 13",
        "12 and 14", "sizes.yaml:4:31: batch.seq: 99", "nearest legal value 16",
        "comm.tree: the factors multiply to 6", "optim.min_lr", "checkpoint.dir"
    ], lines=6)
    for ranks, value, near in (("3", "7", "6 and 9"), ("2", "1", "2")):
        refused(f"batch {value} on {ranks}", place,
                ["train", place.config(), "--ranks", ranks, "--set", f"batch.global={value}"],
                ["batch.global", near])
    refused("does not fit", place, ["train", place.config(), "--set", "memory.device=100KiB"],
            ["device memory", "102400", "at its fullest moment", "params ", "optimizer "], code=3)
    config = place.config(batch={"micro": 4, "global": 8})
    for command in (["check"], ["train", "--transport", "inproc"], ["train"] if has_mpi() else None):
        if command:
            refused(f"cures of {command}", place,
                    [*command, config, "--ranks", "2", "--set", "memory.device=400KiB"],
                    CURES, code=3)
    huge = {**MODELS["llama"], "layers": 100, "hidden": 65536, "ffn": 65536, "head_dim": 64}
    refused("more than the machine", place, ["train", place.config(model=huge)], "device memory",
            code=3)
    if has_mpi():
        refused("does not fit, ranks", place,
                ["train", place.config(), "--ranks", "3", "--set", "memory.device=100KiB"],
                "device memory", code=3)


def test_all_at_once(place):
    """A file that is not there is told beside wrong keys, and beside a run that does not fit."""
    config = place.config(data={"train": ["t.bin", "gone.bin"], "valid": "gone too.bin"})
    refused("a key and files", place, ["train", config, "--set", "batch.seq=17"],
            ["nearest legal value 16", "c.json:13:3: data.train: ", "gone.bin' does not exist",
             "data.valid: ", "gone too.bin' does not exist"], lines=3)
    for how in [["--transport", "inproc", "--ranks", "2"], ["--ranks", "2"], []]:
        if how != ["--ranks", "2"] or has_mpi():
            refused(f"size and files {how}", place,
                    ["train", config, *how, "--set", "memory.device=100KiB", "--set",
                     "batch.global=2"],
                    ["device memory", "what would help first", "gone.bin' does not exist"])


def test_ranks_of_the_layout(place):
    """A layout for more ranks than the run has: how to start them, and that starts them."""
    config = place.config(batch={"global": 4})
    words = ["the layout makes 4 ranks, the run has 1; start them with --ranks 4", "= 1 rank\n",
             "legal dp for 1 rank: 1"]
    refused("dp 4 on one", place, ["train", config, "--set", "layout.dp=4"], words)
    refused("tp 2 on one", place, ["train", config, "--set", "layout.tp=2"],
            ["the layout makes a multiple of 2 ranks, the run has 1; start them with --ranks 2"])
    run = place.train(config, "--set", "layout.dp=4", "--ranks", "4", "--transport", "inproc")
    expect("dp 4 on four", run.code, 0)
    shutil.rmtree(place.path("run"))


def test_check_on_hosts(place):
    """Host rules without starting a rank."""
    config = place.config(batch={"global": 24})
    with open(place.path("hosts"), "w") as file:
        file.write("one slots=2\ntwo slots=2\n")
    got = place.echelon("check", config, "--json", "--hostfile", "hosts")
    expect("all slots", (got.code, json.loads(got.stdout)["ranks"]), (0, 4))
    for more, words in [(["--ranks", "3"], "unequal numbers of ranks"),
                        (["--ranks", "6"], "6 ranks for 4 slots"),
                        (["--set", "layout.dp=2"], "the layout makes 2 ranks, the run has 4")]:
        refused(f"hosts {more}", place, ["check", config, "--hostfile", "hosts", *more], words)
    got = place.echelon("check", config, "--hostfile", "hosts", "--ranks", "6", "--oversubscribe")
    expect("oversubscribed", got.code, 0)
    refused("check: no such hostfile", place, ["check", config, "--hostfile", "none"],
            "--hostfile none: there is no such file")
    refused("check: oversubscribe alone", place, ["check", config, "--oversubscribe"],
            "--oversubscribe wants --hostfile")
    os.remove(place.path("hosts"))


def test_sizes_beyond_64_bits(place):
    """Products that would wrap are refused with the nearest size that does not."""
    config = place.config()
    sets = [("batch.global=4294967297", ["4294967297 passes, at most 65536",
                                         "nearest legal value 65536"]),
            ("batch.micro=2305843009213693952", ["bytes leave 64 bits",
                                                 "nearest legal value 1099511627776"]),
            ("batch.micro=9223372036854775807", ["bytes leave 64 bits"])]
    for key, words in sets:
        for command in ("check", "train"):
            refused(f"{command} {key}", place, [command, config, "--set", key], words)
    refused("two at once", place, ["check", config, "--set", "batch.seq=17",
                                   "--set", "batch.micro=4398046511104"],
            ["bytes leave 64 bits", "nearest legal value 16"], lines=2)
    got = place.echelon("check", config, "--json", "--set", "batch.micro=1099511627776")
    memory = json.loads(got.stdout)["predicted"]["memory_bytes"]["device"]
    one = json.loads(place.echelon("check", config, "--json").stdout)
    one = one["predicted"]["memory_bytes"]["device"]
    expect("the largest micro-batch does not wrap",
           1.5 > memory["total"] / (one["activations"] + one["buffers"]) / 1099511627776 > 0.5, True)
    for model, words in [
            ({"hidden": 2147483646, "head_dim": 64, "heads": 1048576, "kv_heads": 4},
             ["bytes of their state leave 64 bits; at most 720"]),
            ({"hidden": 2147483646, "head_dim": 2, "heads": 1073741823, "kv_heads": 1},
             ["its number of parameters does not fit 64 bits"])]:
        refused(f"{model}", place,
                ["check", place.config(model={**MODELS["llama"], **model})], words, lines=0)


def test_typos(place):
    """The nearest key, with line and column."""
    config = place.path("typos.yaml")
    with open(config, "w") as file:
        file.write(
            "model: {arch: llama, layers: 2, hidden: 32, heads: 4, ffn: 40, vocab: 97,\n"
            "        contxt: 16}\n"
            "data:\n  trian: t.bin\noptim:\n  lr: fast\n  schedul: cosine\nbach: {global: 2}\n")
    refused("typos", place, ["train", config],
            ["typos.yaml:4:3: data.trian: unknown key; did you mean data.train?",
             "typos.yaml:6:3: optim.lr: 'fast' is a string, wanted a number",
             "typos.yaml:7:3: optim.schedul: unknown key; did you mean optim.schedule?",
             "typos.yaml:8:1: bach: unknown key; did you mean batch?",
             "unknown key 'contxt', nearest is 'context'"])
    config = place.config()
    for key, words in [("optim.lrr=1", "did you mean optim.lr?"), ("optim.lr", "KEY=VALUE"),
                       ("optim.lr=-1", "nearest legal value 0"), ("train.steps=1.5", "train.steps"),
                       ("train.steps=0", "nearest legal value 1"),
                       ("run.threads=513", "nearest legal value 512"),
                       ("optim.name=adam", "did you mean adamw?"),
                       ("precision.compute=fp23", "fp32")]:
        refused(f"--set {key}", place, ["train", config, "--set", key], [words, f"--set {key}"
                                                                         if "=" in key else key])
    for key in ("layout.cp=2", "precision.compute=bf16",
                "faults.nan=rollback", "checkpoint.async=true", "layout.recompute=full",
                "optim.name=muon"):
        refused(f"--set {key}", place, ["train", config, "--set", key, "--ranks", "1"],
                ["not built yet", key.split("=")[0]])


def test_pipelines(place):
    """Layers for every stage, micro-batches that interleave, lists that add up, tables by their
    cells; on the ranks that are asked for, and before any of them starts."""
    interleaved = {"pp": 2, "schedule": "interleaved", "virtual_stages": 2}
    four = {**MODELS["llama"], "layers": 4}
    with open(place.path("table.csv"), "w") as file:
        file.write("# stage, what, micro-batch\n0F0,0F1,0B0,0B1\n1F0,1Q0,1F1,1B1\n")
    cases = [
        ("fewer layers than stages", 4, {"layout": {"pp": 4}},
         ["layout.pp: pp 4 for a model of 2 layers", "nearest legal value 2"]),
        ("fewer layers than virtual stages", 2,
         {"layout": interleaved, "batch": {"global": 4, "micro": 1}},
         ["layout.virtual_stages: pp 2 x 2 virtual stages = 4 stages for a model of 2 layers",
          "nearest legal value 1"]),
        ("micro-batches that do not interleave", 4,
         {"model": four, "layout": interleaved, "batch": {"global": 12, "micro": 2}},
         ["batch.global: 3 micro-batches a step (global 12 / micro 2 / dp 2) are interleaved in "
          "groups of 2: nearest legal 2 and 4; nearest legal values 8 and 16"]),
        ("a group smaller than pp", 2,
         {"model": four, "layout": {**interleaved, "schedule_group": 1},
          "batch": {"global": 4, "micro": 1}}, ["layout.schedule_group: 1 micro-batches",
                                                "nearest legal value 2"]),
        ("a list of another sum", 2, {"layout": {"pp": 2, "stages": [1, 2]}},
         ["layout.stages: they have 3 layers, the model has 2; legal: auto"]),
        ("a list of another length", 2, {"layout": {"pp": 2, "stages": [1, 0, 1]}},
         ["layout.stages: 3 stages are listed, pp 2 x 1 a rank under 1f1b makes 2"]),
        ("virtual stages under 1f1b", 2, {"layout": {"pp": 2, "virtual_stages": 2}},
         ["layout.virtual_stages: 2 under 1f1b", "nearest legal value 1"]),
        ("a schedule that is none", 2, {"layout": {"pp": 2, "schedule": "zb-h2"}},
         ["'zb-h2' is not known", "did you mean zb-h1?"]),
        ("no such table", 2, {"layout": {"pp": 2, "schedule": "none.csv"}},
         ["layout.schedule: '", "none.csv' does not exist"]),
        ("a table with a fault", 2,
         {"layout": {"pp": 2, "schedule": "table.csv"}, "batch": {"global": 2, "micro": 1}},
         ["table.csv:3:2: '1Q0' is no cell"])]
    for what, ranks, keys, words in cases:
        for command in ("check", "train"):
            refused(f"{command}: {what}", place,
                    [command, place.config(**keys), "--ranks", str(ranks)], words)


def test_unreadable_configurations(place):
    for what, text, words in [
            ("not YAML", b"model: [1, 2\nfoo", ["bad.yaml:", "flow sequence"]),
            ("not text", b"\xff\xfe\x00", ["bad.yaml", "byte 0"]),
            ("empty", b"", ["bad.yaml: model: missing"]),
            ("a list", b"- a\n- b\n", ["bad.yaml"]),
            ("a key twice", b"model: {}\nmodel: {}\n", ["bad.yaml:2:1", "given twice"]),
            ("too deep", b"a: " + b"[" * 100000, ["bad.yaml", "nested deeper than 64"]),
            ("anchors", b"a: &a [x]\nb: [*a, *a]\n", ["bad.yaml:1:4", "anchors"])]:
        with open(place.path("bad.yaml"), "wb") as file:
            file.write(text)
        refused(what, place, ["train", "bad.yaml"], words)
    refused("absent", place, ["train", "none.yaml"], ["none.yaml", "does not exist"])
    refused("a folder", place, ["train", "."], ["folder"])


def test_model_folders(place):
    """What stands in a config.json of elsewhere is not trusted."""
    good = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 97,
            "num_attention_heads": 4, "intermediate_size": 40, "max_position_embeddings": 16}
    os.mkdir(place.path("hf"))
    for what, text, words in [
        ("no config.json", None, ["hf"]), ("cut short", json.dumps(good)[:40], ["config.json"]),
        ("not an object", "[1]", ["config.json"]),
        ("negative", json.dumps({**good, "hidden_size": -32}), ["hidden"]),
        ("not whole", json.dumps({**good, "num_hidden_layers": 2.5}), ["num_hidden_layers"]),
        ("a string", json.dumps({**good, "vocab_size": "97"}), ["vocab_size"]),
        ("zero heads", json.dumps({**good, "num_attention_heads": 0}), ["heads"]),
        ("absurd", json.dumps({**good, "num_hidden_layers": 10**12}), ["layers"]),
        ("beyond 64 bits", json.dumps(good).replace("97", "9" * 40), ["too big integer"]),
        ("overflowing product",
         json.dumps({**good, "hidden_size": 2**31, "intermediate_size": 2**31,
                     "vocab_size": 2**31}), ["hidden"]),
        ("unknown family", json.dumps({**good, "model_type": "frob"}), ["frob"]),
        ("not built",
         json.dumps({**good, "model_type": "mixtral", "num_local_experts": 4,
                     "num_experts_per_tok": 2}), ["experts"]),
        ("too deep", '{"a":' * 5000 + "1" + "}" * 5000, ["config.json"]),
        ("a key twice", json.dumps(good)[:-1] + ', "vocab_size": 98}', ["vocab_size"])
    ]:
        if text is not None:
            with open(place.path("hf", "config.json"), "w") as file:
                file.write(text)
        refused(f"config.json: {what}", place, ["train", place.config(model={"hf": "hf"})], words)
    with open(place.path("hf", "config.json"), "w") as file:
        json.dump(good, file)
    got = place.train(place.config(model={"hf": "hf"}, train={"steps": 1}))
    expect("config.json: good", (got.code, got.of("start")[0]["params"]), (0, 22240))
    shutil.rmtree(place.path("run"))


def test_usage(place):
    config = place.config()
    for args, words in [
            (["trian", config], "did you mean 'train'?"),
            (["train"], "wants one configuration, got 0"),
            (["train", config, config], "wants one configuration, got 2"),
            (["train", config, "--reusme", "auto"], "did you mean '--resume'?"),
            (["train", config, "--resume", ""], "--resume wants auto, no or the path of a checkpoint"),
            (["train", config, "--steps", "0"], "--steps 0"),
            (["train", config, "--steps", "-1"], "--steps -1"),
            (["train", config, "--steps", "many"], "many"),
            (["train", config, "--ranks", "0"], "--ranks 0"),
            (["check", config, "--ranks", "-1"], "--ranks 1.."),
            (["check", config, "--ranks", "0"], "--ranks 1.."),
            (["train", config, "--ranks", "99999"], "1..1024"),
            (["train", config, "--transport", "self", "--ranks", "2"], "--transport self"),
            (["train", config, "--transport", "tcp", "--ranks", "2"], "self, inproc or mpi"),
            (["train", config, "--kernels", "gpu", "--ranks", "2"], "auto, cpu or ref"),
            (["train", config, "--hostfile", "hosts"], "--hostfile hosts: there is no such file"),
            (["train", config, "--trace", "t.txt"], "FILE.json (a trace for Perfetto) or FILE.svg"),
            (["train", config, "--report", "r.html"], "--report is not built yet"),
            (["train", config, "--json=yes"], "--json"),
            (["train", config, "--steps"], "--steps")]:
        refused(" ".join(args[:1] + args[2:]), place, args, words)


def test_outputs_that_cannot_be_written(place):
    """Found before the first step, not after the last."""
    with open(place.path("file"), "w") as file:
        file.write("in the way")
    for what, keys in [("run.dir", {"run": {"dir": "file"}}),
                       ("below a file", {"run": {"dir": "file/run"}}),
                       ("checkpoint.dir", {"checkpoint": {"dir": "file", "every_steps": 2}})]:
        refused(what, place, ["train", place.config(**keys), "--json"], ["file", "cannot"], code=4)
    refused("--dump-grads", place, ["train", place.config(), "--dump-grads", "file/g", "--json"],
            ["file", "cannot"], code=4)
    os.mkfifo(place.path("pipe"))  # as a device would be: renaming over it would put a file in its place
    refused("--dump-grads on a pipe", place,
            ["train", place.config(), "--dump-grads", "pipe", "--json"], ["pipe", "device or pipe"], code=4)
    for what, path in [("absent", "nope"), ("no tokenizer", "file")]:
        refused(f"tokenizer {what}", place,
                ["train", place.config(data={"train": "t.bin", "tokenizer": path},
                                       checkpoint={"dir": "ck", "every_steps": 2}), "--json"],
                ["data.tokenizer", path])
    with open("/dev/full", "w") as full:
        got = subprocess.run([ECHELON, "train", place.config(), "--json"], stdout=full, text=True,
                             stderr=subprocess.PIPE, cwd=place.folder, env=clean_environment(),
                             timeout=60)
        expect("stdout is full", (got.returncode, got.stderr.count("cannot be written")), (4, 1))
    shutil.rmtree(place.path("run"))


with Place() as place:
    place.tokens()
    test_token_files(place)
    test_sequence_and_context(place)
    test_sizes(place)
    test_all_at_once(place)
    test_ranks_of_the_layout(place)
    test_check_on_hosts(place)
    test_sizes_beyond_64_bits(place)
    test_typos(place)
    test_pipelines(place)
    test_unreadable_configurations(place)
    test_model_folders(place)
    test_usage(place)
    test_outputs_that_cannot_be_written(place)
finish()
