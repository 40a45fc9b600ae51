# RUN: np=1 timeout=60 tags=fast
"""`echelon model show --json` against closed formulas: the fixtures, seeded variants of them with
other sizes, and the real config.json files where the shared facts are at hand."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from closed_form import counts

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ECHELON = pathlib.Path(os.environ.get("ECH_BUILD", SOURCE / "build")) / "echelon"
SIZES = ("num_hidden_layers", "n_layer", "n_layers", "ffn_dim", "ffn_hidden_size",
         "word_embed_proj_dim", "max_position_embeddings", "vocab_size", "intermediate_size", "n_inner",
         "moe_intermediate_size", "shared_expert_intermediate_size", "kv_lora_rank", "q_lora_rank",
         "n_positions", "qk_nope_head_dim", "v_head_dim")


def run(*words):
    return subprocess.run([str(ECHELON), "model", *map(str, words)], capture_output=True, text=True)


def check(path, config):
    done = run("show", path, "--json")
    assert done.returncode == 0, (path, done.stderr)
    got = json.loads(done.stdout)
    total, active, matmul = counts(config)
    wanted = {"params": total, "params_active": active, "params_matmul": matmul}
    assert {k: got[k] for k in wanted} == wanted, (config, wanted, done.stdout)
    listed = sum(s["units"] * s["copies"] * s["shape"][0] * (s["shape"] + [1])[1]
                 for s in got["shapes"])
    assert listed == total, (config, listed, total)
    assert got["state_bytes"]["fp32"]["total"] == 16 * total
    assert got["state_bytes"]["bf16"]["total"] == 18 * total
    check_flops(got, config, matmul)


def check_flops(got, config, matmul):
    if got["window_layers"] or config.get("kv_lora_rank"):
        return
    attention = 12 * got["layers"] * got["seq"] * got["heads"] * got["head_dim"]
    assert got["flops_per_token"] == 6 * matmul + attention, config
    assert got["flops_per_token_causal"] == 6 * matmul + attention / 2, config


def vary(config, rng):
    out = dict(config)
    for key in SIZES:
        if isinstance(out.get(key), int):
            out[key] = rng.choice([1, 2, 3, 5, 7, 12, 64, 333]) if "layer" not in key else rng.randint(1, 9)
    return out


def check_errors(folder):
    bad = folder / "bad.json"
    bad.write_text('{"model_type": "llama", "num_hidden_layers": -1, "hidden_size": 64.5}')
    for words in (("show", bad), ("show", folder), ("show", "lama-2-7b"), ("show",), ("lst",),
                  ("list", "x"), ("show", "gpt2", "--seq", "0x10"), ("show", "gpt2", "--jsn")):
        done = run(*words)
        assert done.returncode == 2 and not done.stdout, (words, done)
        assert done.stderr, words
    assert "hidden_size is 64.5" in run("show", bad).stderr
    assert "num_hidden_layers is -1" in run("show", bad).stderr
    assert "llama-2-7b" in run("show", "lama-2-7b").stderr


def main():
    if not ECHELON.exists():
        print(f"no {ECHELON}: the command line is not built", file=sys.stderr)
        return 77
    rng = random.Random(20240917)
    fixtures = json.loads((SOURCE / "tests/catalog/fixtures/hf_counts.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "config.json"
        for i, row in enumerate(fixtures):
            assert counts(row["config"])[0] == row["params"], row
            for config in (row["config"], vary(row["config"], rng)):
                path.write_text(json.dumps(config))
                check(path if i % 2 else name, config)
        path.unlink()
        check_errors(pathlib.Path(name))
    shared = pathlib.Path(os.environ.get("ECH_SHARED", SOURCE / "../shared")) / "configs/hf"
    for path in sorted(shared.glob("*.json")):
        check(path, json.loads(path.read_text()))
    names = [row["name"] for row in json.loads(run("list", "--json").stdout)]
    assert names == [line.split()[0] for line in run("list").stdout.splitlines()]
    assert "gpt2-124m" in names and "deepseek-v3" in names
    return 0


if __name__ == "__main__":
    sys.exit(main())
