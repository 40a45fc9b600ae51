# RUN: np=1 timeout=60 tags=fast
"""Real model files in other projects' own layouts: their sizes, given to `echelon model show` as words
or as a config.json, make the published totals, and the preset of that model has the same."""
import configparser
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ECHELON = pathlib.Path(os.environ.get("ECH_BUILD", SOURCE / "build")) / "echelon"
FOLDER = pathlib.Path(os.environ.get("ECH_SHARED", SOURCE / "../shared")) / "configs/hf/other_formats"

# file: preset, published total
WANTED = {
    "bigscience_bloom-560m.llm-analysis.json": ("bloom-560m", 559214592),
    "bigscience_bloom-7b1.llm-analysis.json": ("bloom-7b1", 7069016064),
    "deepseek-v2-236b.deepseek-inference.json": ("deepseek-v2", 235741434880),
    "deepseek-v2-lite-16b.deepseek-inference.json": ("deepseek-v2-lite", 15706484224),
    "deepseek-v3-671b.deepseek-inference.json": ("deepseek-v3", 671026419200),
    "facebook_opt-1.3b.llm-analysis.json": ("opt-1.3b", 1315758080),
    "facebook_opt-125m.llm-analysis.json": ("opt-125m", 125239296),
    "facebook_opt-13b.llm-analysis.json": ("opt-13b", 12853473280),
    "gemma-7b.xft.ini": ("gemma-7b", 8537680896),
    "gpt-neox-20b.neox.yml": ("gpt-neox-20b", 20554567680),
    "gpt2-large.llm-analysis.json": ("gpt2-large", 774030080),
    "gpt2-xl.llm-analysis.json": ("gpt2-xl", 1557611200),
    "gpt3-175B.calculon.json": ("gpt3-175b", 174615846912),
    "megatron-1T.calculon.json": ("megatron-1t", 1008038758400),
    "opt-30b.xft.ini": ("opt-30b", 29974540288),
    "opt-6.7b.xft.ini": ("opt-6.7b", 6658473984),
    "opt-66b.xft.ini": ("opt-66b", 65719701504),
    "turing-530B.calculon.json": ("turing-530b", 529600819200),
}
SIZES = ("layers", "hidden", "heads", "head_dim", "vocab", "experts", "topk")


def llm_analysis(path):
    """As a config.json of its family, with the names that family has."""
    c = json.loads(path.read_text())
    heads, layers, hidden, vocab = c["n_head"], c["num_layers"], c["hidden_dim"], c["vocab_size"]
    if c["model_type"] == "opt":
        return {"model_type": "opt", "num_hidden_layers": layers, "hidden_size": hidden,
                "num_attention_heads": heads, "ffn_dim": c["ffn_embed_dim"], "vocab_size": vocab,
                "max_position_embeddings": c["max_seq_len"]}
    if c["model_type"] == "bloom":
        assert c["ffn_embed_dim"] == 4 * hidden
        return {"model_type": "bloom", "n_layer": layers, "hidden_size": hidden, "n_head": heads,
                "vocab_size": vocab}
    return {"model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads,
            "n_inner": c["ffn_embed_dim"], "vocab_size": vocab, "n_positions": c["max_seq_len"]}


def deepseek(path):
    """As words; V3's router has a correction bias that words have no name for."""
    c = json.loads(path.read_text())
    if c.get("score_func") == "sigmoid":
        return {"model_type": "deepseek_v3", "num_hidden_layers": c["n_layers"],
                "hidden_size": c["dim"], "num_attention_heads": c["n_heads"],
                "intermediate_size": c["inter_dim"], "vocab_size": c["vocab_size"],
                "moe_intermediate_size": c["moe_inter_dim"], "n_routed_experts": c["n_routed_experts"],
                "n_shared_experts": c["n_shared_experts"], "first_k_dense_replace": c["n_dense_layers"],
                "num_experts_per_tok": c["n_activated_experts"], "q_lora_rank": c["q_lora_rank"],
                "kv_lora_rank": c["kv_lora_rank"], "qk_nope_head_dim": c["qk_nope_head_dim"],
                "qk_rope_head_dim": c["qk_rope_head_dim"], "v_head_dim": c["v_head_dim"]}
    return ("arch=llama,layers={n_layers},hidden={dim},heads={n_heads},ffn={inter_dim},"
            "vocab={vocab_size},experts={n_routed_experts},topk={n_activated_experts},"
            "expert_ffn={moe_inter_dim},shared_experts={n_shared_experts},"
            "first_dense={n_dense_layers},q_lora_rank={q_lora_rank},kv_lora_rank={kv_lora_rank},"
            "qk_nope_dim={qk_nope_head_dim},qk_rope_dim={qk_rope_head_dim},"
            "v_dim={v_head_dim}").format(**c)


def calculon(path):
    """No vocabulary there: Megatron's padded 51200; as many positions as tokens."""
    c = json.loads(path.read_text())
    return ("arch=gpt,layers={num_blocks},hidden={hidden},heads={attn_heads},head_dim={attn_size},"
            "ffn={feedforward},vocab=51200,context={seq_size}").format(**c)


def xft(path):
    ini = configparser.ConfigParser()
    ini.read_string(path.read_text())
    name = ini.sections()[0]
    c = {k: ini[name].getint(k) for k in ("head_num", "size_per_head", "inter_size", "num_layer",
                                           "max_pos_seq_len", "vocab_size")}
    common = {"num_hidden_layers": c["num_layer"], "num_attention_heads": c["head_num"],
              "vocab_size": c["vocab_size"], "max_position_embeddings": c["max_pos_seq_len"]}
    if name == "gemma":
        return dict(common, model_type="gemma", hidden_size=ini[name].getint("hidden_size"),
                    head_dim=c["size_per_head"], num_key_value_heads=ini[name].getint("kv_head_num"),
                    intermediate_size=c["inter_size"])
    return dict(common, model_type="opt", hidden_size=c["head_num"] * c["size_per_head"],
                ffn_dim=c["inter_size"])


def neox(path):
    """Relaxed YAML; its vocabulary stands in the tokenizer and is padded to 50432."""
    text = path.read_text()
    size = {k: int(re.search(rf'"{k}": (\d+)', text).group(1))
            for k in ("num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings")}
    return {"model_type": "gpt_neox", "num_hidden_layers": size["num_layers"],
            "hidden_size": size["hidden_size"], "num_attention_heads": size["num_attention_heads"],
            "intermediate_size": 4 * size["hidden_size"], "vocab_size": 50432,
            "max_position_embeddings": size["max_position_embeddings"]}


READERS = {"llm-analysis": llm_analysis, "deepseek-inference": deepseek, "calculon": calculon,
           "xft": xft, "neox": neox}


def show(what):
    done = subprocess.run([str(ECHELON), "model", "show", str(what), "--json"], capture_output=True,
                          text=True)
    assert done.returncode == 0, (what, done.stderr)
    return json.loads(done.stdout)


def main():
    if not ECHELON.exists():
        print(f"no {ECHELON}: the command line is not built", file=sys.stderr)
        return 77
    if not FOLDER.is_dir():
        print(f"no {FOLDER}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as name:
        for path in sorted(FOLDER.iterdir()):
            preset, total = WANTED[path.name]
            shape = READERS[path.name.split(".")[-2]](path)
            if isinstance(shape, dict):
                file = pathlib.Path(name) / "config.json"
                file.write_text(json.dumps(shape))
                shape = file
            got, known = show(shape), show(preset)
            assert got["params"] == total == known["params"], (path.name, got["params"], total)
            assert got["params_active"] == known["params_active"], path.name
            assert [got.get(k) for k in SIZES] == [known.get(k) for k in SIZES], path.name
    return 0


if __name__ == "__main__":
    sys.exit(main())
