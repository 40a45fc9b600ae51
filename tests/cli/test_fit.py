# RUN: np=1 timeout=120 tags=fast
"""echelon fit: the contract of its answer, the reference points, cures that do what they say, other
systems' files, and what is refused."""
import json
import os

from cli import expect, expect_in, failures, finish, run
from planner import GIB, Clusters, ask, fit, state, within

# Exactly so many parameters: the shapes of 7B and 70B with a vocabulary that makes it round.
BILLION_7 = "layers=32,hidden=4096,heads=32,ffn=11007,vocab=64000,arch=llama"
BILLION_70 = "layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,vocab=94460,arch=llama"
CLASSIC = "layers=32,hidden=4096,heads=32,ffn=16384,vocab=50304,arch=gpt,dropout=0.1"
JOB_70B = ("--model llama-3.1-70b --cluster a100-sxm-40 --gpus 64 --engine megatron --seq 4096 "
           "--global-batch 64 --tp 8 --sp --zero 1")


def test_contract():
    """Every field of interfaces.md, and sums that must hold."""
    a = fit(JOB_70B, "--pp 2", verdict="no")
    for key in ["fits", "binding", "capacity_bytes", "memory_bytes", "host_memory_bytes", "stages",
                "peaks", "cures"]:
        expect(f"{key} is there", key in a, True)
    expect("peaks", sorted(a["peaks"]), ["load", "optimizer", "save", "start", "step"])
    expect("stages", len(a["stages"]), 2)
    for c in a["cures"]:
        expect("a cure", {"change", "saves_bytes", "time_ratio"} <= set(c), True)
    for s in a["stages"] + [a]:
        m = s["memory_bytes"]
        within("classes add up", sum(v for k, v in m.items() if k != "total"), m["total"], 1e-9)
    fullest = max(s["memory_bytes"]["total"] for s in a["stages"])
    within("the fullest stage", a["memory_bytes"]["total"], fullest, 1e-9)
    within("reserved", a["reserved_bytes"], fullest, 1e-9)
    within("its peak", max(a["peaks"].values()), fullest, 1e-9)
    within("margin", a["margin_bytes"], a["capacity_bytes"] - a["reserved_bytes"], 1e-9)


def total(shape, *words):
    return state(fit(f"--model {shape} --cluster h200-sxm --engine echelon --grads bf16 --seq 512", *words,
                     verdict=("yes", "edge", "no"))) / 1e9


def test_state_of_reference():
    """16 bytes a parameter: 7B over 8 and 70B over 64, by ZeRO stage (facts, sections 1 and 2)."""
    for stage, gb in enumerate([112.0, 38.5, 26.25, 14.0]):
        got = total(BILLION_7, f"--gpus 8 --zero {stage} --global-batch 8")
        expect(f"7B, ZeRO-{stage}", round(got, 2), gb)
    for stage, gb in [(0, 1120.0), (1, 293.1), (2, 155.3), (3, 17.5)]:
        got = total(BILLION_70, f"--gpus 64 --zero {stage} --global-batch 64")
        expect(f"70B, ZeRO-{stage}", round(got, 1), gb)


def test_70b_on_512():
    """tp 8, pp 4, dp 16: 2.19B parameters a GPU, 35 GB at 16 bytes (mean of stages: the ends have the
    tables)."""
    a = fit(f"--model {BILLION_70} --cluster h100-sxm-80 --gpus 512 --tp 8 --sp --pp 4 --engine megatron",
            "--grads bf16 --seq 4096 --global-batch 512 --recompute full", verdict=("yes", "edge"))
    mean = sum(s["params"] for s in a["stages"]) / 4
    expect("parameters a GPU", round(mean / 1e9, 2), 2.19)
    held = sum(state(s) for s in a["stages"]) / 4
    expect("35 GB", round(held / 1e9), 35)
    expect("45 to 50 GB with the rest", 40e9 < a["reserved_bytes"] < 60e9, True)


def derived(a, what):
    lines = [d for d in a["derivation"] if d["what"] == what]
    if len(lines) != 1:
        failures.append(f"derivation: {len(lines)} lines of {what!r}")
        return None
    return lines[0]


def test_activations_of_reference():
    """h 4096, a 32, L 32, s 4096, b 1: 194 u = 3.25 GB a layer, 104 GB; 34 u: 18.3 GB; 2 u: 1.07 GB."""
    common = (f"--model {CLASSIC} --cluster h200-sxm --gpus 1 --engine megatron --seq 4096 "
              "--global-batch 1 --explain ")
    for words, per_layer, gb in [("--generation megatron-2021", 194, "104"),
                                 ("--generation megatron-flash", 34, "18.3"),
                                 ("--generation megatron-flash --recompute full", 2, "1.07")]:
        a = fit(common, words, verdict=("yes", "edge", "no"))
        line = derived(a, "saved by all layers of the rank")
        if line:
            flash_lse = 4 * 32 / 4096 if per_layer == 34 else 0 # one log-sum-exp a head and token
            within(words, line["value"], 32 * (per_layer + flash_lse) * 4096 * 4096, 1e-9)
            expect(f"{words}: as printed", f"{line['value'] / 1e9:.3g}", gb)


def test_derivation_is_the_computation():
    """Each total of the explanation is the answer's own figure, in words as in JSON."""
    args = JOB_70B + " --pp 8 --recompute full --explain"
    a = fit(args, verdict=("yes", "edge"))
    for what, key in [("reserved", "reserved_bytes"), ("allocated", "allocated_bytes")]:
        line = derived(a, what)
        within(what, line["value"] if line else None, a[key], 1e-12)
    for d in a["derivation"]:
        expect(f"{d['what']}: whole", bool(d["section"] and d["unit"]), True)
    words = run("fit", *args.split()).stdout
    for section in ["Model state", "Activations", "Peaks", "Failures and checkpoints", "Saving"]:
        expect_in("explain", f"\n{section}", words)


def test_words():
    got = run("fit", *JOB_70B.split(), "--pp", "2")
    expect("exit status", got.returncode, 3)
    for words in ["does not fit: ", " GiB on the fullest device", "what decides: ", "\n    0 PPP",
                  "peaks, device: start ", "what would help", "time x "]:
        expect_in("words", words, got.stdout)


def test_cures_do_what_they_say(clusters):
    """Each cure, typed behind the question, gives the bytes, the verdict and the time that it told."""
    questions = [JOB_70B + " --pp 2",
                 "--model llama-2-7b --cluster v100-sxm-16 --gpus 8 --engine fsdp2 --precision fp16 "
                 "--seq 1024 --micro 2 --global-batch 16",
                 "--model llama-2-13b --cluster rtx-4090 --gpus 4 --engine deepspeed --zero 2 --seq 2048 "
                 "--global-batch 8",
                 "--model mixtral-8x7b --cluster h100-sxm-80 --gpus 16 --tp 2 --sp --ep 2 --zero 1 "
                 "--engine megatron --seq 4096 --global-batch 64"]
    nodes = clusters.file("nodes", base="cpu-64c-avx512", device={"memory": "64GB"})
    questions.append(f"--model llama-2-7b --cluster {nodes} --gpus 8 --precision fp32 --seq 1024 "
                     "--global-batch 8") # read off the programs of Echelon
    for q in questions:
        a = fit(q, verdict=("edge", "no"))
        now = ask("sim", q)["step_s"]
        tokens = int(q.split("--global-batch ")[1].split()[0])
        expect(f"{q}: there are cures", len(a["cures"]) > 1, True)
        changes = [c["change"] for c in a["cures"]]
        expect("no cure twice", len(set(changes)), len(changes))
        for c in a["cures"]:
            b = fit(q, c["change"], verdict=c["fits"])
            within(f"{q} {c['change']}: bytes", b["reserved_bytes"], c["reserved_bytes"], 1e-9)
            within(f"{q} {c['change']}: saved", a["reserved_bytes"] - b["reserved_bytes"],
                   c["saves_bytes"], 1e-6)
            then = ask("sim", q, c["change"])["step_s"]
            words = c["change"].split()
            batch = int(words[words.index("--global-batch") + 1]) if "--global-batch" in words else tokens
            within(f"{q} {c['change']}: time", then / batch / (now / tokens), c["time_ratio"], 1e-6)


def test_headroom():
    args = "--model llama-2-7b --cluster a100-sxm-80 --gpus 8 --engine fsdp2 --seq 4096 --global-batch 8"
    whole = fit(args)
    kept = fit(args, "--headroom 30%", verdict={"yes", "edge", "no"})
    within("headroom", whole["capacity_bytes"] - kept["capacity_bytes"], 0.3 * 80 * GIB, 0.08)
    fit(args, "--headroom 60%", verdict="no")


def test_other_systems_files(clusters):
    """A layout says the same in Megatron's, DeepSpeed's and torchtitan's words as in options."""
    def write(name, text):
        path = os.path.join(clusters.folder.name, name)
        with open(path, "w") as out:
            out.write(text)
        return path

    megatron = write("args.txt", "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 "
                     "--num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
                     "--swiglu --normalization RMSNorm --position-embedding-type rope "
                     "--disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 32000 "
                     "--tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer "
                     "--micro-batch-size 2 --global-batch-size 32 --bf16 --hidden-dropout 0 "
                     "--attention-dropout 0\n")
    shape = "layers=32,hidden=4096,heads=32,ffn=11008,vocab=32000,arch=llama"
    got = fit(f"--from megatron {megatron} --cluster h100-sxm-80 --gpus 16")
    want = fit(f"--model {shape} --engine megatron --cluster h100-sxm-80 --gpus 16 --tp 4 --sp --zero 1",
               "--micro 2 --global-batch 32 --seq 4096")
    within("megatron", got["reserved_bytes"], want["reserved_bytes"], 1e-9)
    deepspeed = write("ds.json", json.dumps({
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "fp16": {"enabled": True},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "flavour": 1}))
    common = "--model llama-3-8b --cluster rtx-3090 --gpus 8 --seq 1024 --recompute full"
    got = fit(f"--from deepspeed {deepspeed}", common)
    want = fit(common, "--engine deepspeed --precision fp16 --zero 3 --micro 1 --global-batch 16",
               "--offload-optimizer host")
    within("deepspeed", got["reserved_bytes"], want["reserved_bytes"], 1e-9)
    expect_in("what is not taken is told", "flavour", got["from"])
    changed = fit(f"--from deepspeed {deepspeed}", common, "--offload-optimizer none",
                  verdict=("yes", "edge", "no"))
    expect("options change what a file says", changed["reserved_bytes"] > got["reserved_bytes"], True)


def test_what_is_refused():
    ok = "--model llama-2-7b --cluster a100-sxm-80 --gpus 8"
    for args, words in [
        ("", "--model is missing"),
        ("--model llama-2-7b", "--cluster is missing"),
        (ok.replace("7b", "7c"), "nearest is 'llama-2-7b'"),
        (ok + " --tp 3", "tp 3"),
        (ok + " --save ful", "did you mean 'full'?"),
        (ok + " --optimizer-step grupped", "wanted fused or grouped"),
        (ok + " --load-copies=-1", "wanted 0.."),
        (ok + " --keep 0", "--keep 0"),
        (ok + " --disk 10", "wanted"),
        (ok + " --disk much", "wanted bytes"),
        (ok + " --zerro 1", "did you mean '--zero'?"),
        (ok + " word", "unexpected word 'word'"),
        (ok + " --from megatron", "wants one file"),
        (ok + " --from megatrn x.txt", "did you mean 'megatron'?"),
        (ok + " --from megatron none.txt", "none.txt"),
    ]:
        got = run("fit", *args.split())
        if "--disk 10" in args: # bytes without a unit are bytes: there is no room
            expect("ten bytes of disk", got.returncode, 3)
            continue
        expect(f"{args}: exit status, stdout", (got.returncode, got.stdout), (2, ""))
        expect_in(args, words, got.stderr)
    many = run("fit", "--model", "llama-2-7c", "--cluster", "a100-sxm", "--save", "ful")
    for words in ["llama-2-7c", "a100-sxm", "ful"]:
        expect_in("all findings at once", words, many.stderr)


test_contract()
test_state_of_reference()
test_70b_on_512()
test_activations_of_reference()
test_derivation_is_the_computation()
test_words()
test_headroom()
with Clusters() as here:
    test_cures_do_what_they_say(here)
    test_other_systems_files(here)
test_what_is_refused()
finish()
