# RUN: np=1 timeout=120 tags=fast
"""echelon bench: what it refuses, what --save keeps, what it prints."""
import json
import os
import tempfile

from cli import expect, expect_in, finish, run

TINY = """model: {arch: gpt2, layers: 1, hidden: 32, heads: 2, vocab: 64, context: 16}
batch: {global: 2, micro: 1, seq: 16}
run: {threads: 1}
"""


def test_refusals(folder):
    expect_in("help", "Usage: echelon bench", run("help", "bench").stdout)
    for args, words in [((), "wants what to measure"), (("gem",), "did you mean gemm"),
                        (("storage",), "not built yet"), (("comm",), "--ranks 2 or more"),
                        (("gemm", "x"), "no further word"), (("step",), "one configuration"),
                        (("gemm", "--rounds", "0"), "--rounds 0"), (("gemm", "--ranks", "0"), "--ranks 0"),
                        (("gemm", "--dtype", "bf16"), "fp32 or fp64"), (("gemm", "--threads", "-1"), "--threads"),
                        (("gemm", "--cluster", "x"), "belong to bench step"),
                        (("gemm", "--kernels", "gpu"), "auto, cpu or ref"), (("gemm", "--sav", "x"), "--save")]:
        got = run("bench", *args)
        expect(f"bench {args}", (got.returncode, got.stdout), (2, ""))
        expect_in(f"bench {args}", words, got.stderr)
    wrong = os.path.join(folder, "wrong.yaml")
    with open(wrong, "w", encoding="utf-8") as f:
        f.write("ranks: 1\nthreads: 1\ndtype: fp32\ncost:\n  gelu: {bytes: [2, 1], seconds: [1, 1]}\n")
    got = run("bench", "gemm", "--quick", "--save", wrong)
    expect("a wrong file", got.returncode, 2)
    expect_in("a wrong file", "growing values (line 5", got.stderr)


def quick(part, path, *more):
    got = run("bench", part, "--quick", "--rounds", "1", "--kernels", "ref", "--json", "--save", path, *more)
    expect(f"bench {part}", (got.returncode, got.stderr), (0, ""))
    return json.loads(got.stdout)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def test_save_merges(folder):
    path = os.path.join(folder, "m.yaml")
    first = quick("attention", path)
    expect("kinds", sorted({p["op"] for p in first["points"]}), ["attention", "attention_backward"])
    expect("rates", all(p["call_s"] > 0 and p["flop_per_s"] > 0 for p in first["points"]), True)
    kept = [line for line in read(path).split("\n") if "head_dim" in line or "seq:" in line]
    attention = read(path).split("  attention:\n")[1].split("\n  attention_backward")[0]
    quick("gemm", path)
    expect_in("the other part is kept", attention, read(path))
    expect("its axes", [line for line in read(path).split("\n") if line in kept], kept)
    expect_in("and the new one is there", "\n  linear:\n    rows: [", read(path))
    before = read(path)
    got = run("bench", "gemm", "--quick", "--save", path, "--dtype", "fp64")
    expect("another type", (got.returncode, read(path)), (2, before))
    expect_in("another type", "wanted the same, or another file", got.stderr)


def save_in_step(config, path, alone):
    """--save: the file learns how much longer kernels take in a step, and predicts so much more."""
    common = ("bench", "step", config, "--rounds", "2", "--kernels", "ref", "--cluster", path, "--json")
    got = run(*common, "--save", path + ".other")
    expect("another file", (got.returncode, os.path.exists(path + ".other")), (2, False))
    expect_in("another file", "the same FILE as --cluster", got.stderr)
    before = read(path)
    saved = json.loads(run(*common, "--save", path).stdout)
    lines = [line for line in read(path).split("\n") if line.startswith("in_step: ")]
    expect("one line more", read(path).replace(lines[0] + "\n", ""), before)
    ratio = float(lines[0].split()[1])
    expect("of what was measured", abs(sum(o["measured_s"] for o in saved["ops"])
                                       / sum(o["predicted_s"] for o in saved["ops"]) / ratio - 1) < 1e-9, True)
    again = json.loads(run("check", config, "--cluster", path, "--json").stdout)["predicted"]["step_s"]
    expect("it predicts so", abs(again / alone["simulated_s"] / ratio - 1) < 1e-9, True)
    quick("gemm", path)
    expect("new costs forget it", "in_step" in read(path), False)


def test_step(folder):
    config = os.path.join(folder, "tiny.yaml")
    path = os.path.join(folder, "all.yaml")
    with open(config, "w", encoding="utf-8") as f:
        f.write(TINY)
    quick("all", path)
    got = run("bench", "step", config, "--rounds", "2", "--kernels", "ref", "--cluster", path, "--json")
    expect("step", (got.returncode, got.stderr), (0, ""))
    step = json.loads(got.stdout)
    ops = {o["op"]: o for o in step["ops"]}
    # two micro-batches of one layer: qkv, projection, two of the MLP, and the head
    expect("products", ops["linear"]["n"], 2 * 5)
    expect("attention", ops["attention"]["n"], 2)
    expect("seconds", all(o["measured_s"] > 0 and o["predicted_s"] > 0 for o in step["ops"]), True)
    expect("the ops make the step", sum(o["measured_s"] for o in step["ops"]) <= step["op_by_op_s"] * 1.5, True)
    expect("simulated is the kernels of one rank", abs(step["simulated_s"] / sum(o["predicted_s"] for o in step["ops"])
                                                      - 1) < 1e-9, True)
    check = run("check", config, "--cluster", path, "--json")
    expect("check predicts the same", json.loads(check.stdout)["predicted"]["step_s"], step["simulated_s"])
    expect("nothing without a calibration", json.loads(run("check", config, "--json").stdout)["predicted"]["step_s"],
           None)
    save_in_step(config, path, step)
    plain = json.loads(run("bench", "step", config, "--rounds", "1", "--kernels", "ref", "--json").stdout)
    expect("nothing predicted", {o["predicted_s"] for o in plain["ops"]}, {None})
    part = os.path.join(folder, "part.yaml")
    quick("gemm", part)
    got = run("bench", "step", config, "--kernels", "ref", "--cluster", part)
    expect("a part is not enough", got.returncode, 2)
    expect_in("a part is not enough", "not measured", got.stderr)


with tempfile.TemporaryDirectory() as work:
    test_refusals(work)
    test_save_merges(work)
    test_step(work)
finish()
