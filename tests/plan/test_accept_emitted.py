# RUN: np=1 timeout=600 tags=long
"""The systems' own parsers accept what is emitted, and find our values in it.

ECH_PARSERS names a Python in whose environment deepspeed, accelerate, torchtitan 0.2 and what
Megatron-LM imports are installed, ECH_MEGATRON a checkout of Megatron-LM; docs/planner/exchange.md
says how they are made.  With arguments: those systems alone.  A system that cannot be imported is
left out; without any the test is skipped.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

EXTENSIONS = {"megatron": "sh", "deepspeed": "json", "torchtitan": "toml", "accelerate": "yaml"}
ATTENTION, NORM, MOE, MLA, OPS, FULL = 1, 2, 8, 16, 32, 128  # price/job.h


# --- in the environment of the parsers: one file, what it says by our names -----------------------

def add_megatron():
    import typing
    if not hasattr(typing, "override"):  # Megatron-LM wants Python 3.12
        import typing_extensions
        typing.override = typing_extensions.override
    sys.path.insert(0, os.environ["ECH_MEGATRON"])


def read_megatron(path, want):
    import shlex
    words = shlex.split(open(path).read().replace("\\\n", " "))
    at = words.index("pretrain_gpt.py")
    launch = dict(zip(words[1:at:2], words[2:at:2]))
    os.environ["RANK"] = "0"
    os.environ["WORLD_SIZE"] = str(int(launch["--nnodes"]) * int(launch["--nproc-per-node"]))
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    sys.argv = words[at:]
    import types
    import torch
    from megatron.training.arguments import parse_args, validate_args
    # The checks ask for the device that the layout is for: Hopper.
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0)
    a = parse_args()
    validate_args(a)
    got = {"gpus": a.world_size, "tp": a.tensor_model_parallel_size, "cp": a.context_parallel_size,
           "pp": a.pipeline_model_parallel_size, "dp": a.data_parallel_size,
           "vpp": a.virtual_pipeline_model_parallel_size or 1, "micro": a.micro_batch_size,
           "global": a.global_batch_size, "seq": a.seq_length,
           "zero": 1 if a.use_distributed_optimizer else 0, "sp": int(a.sequence_parallel),
           "layers": a.num_layers, "hidden": a.hidden_size, "heads": a.num_attention_heads,
           "offload_optimizer": int(a.optimizer_cpu_offload)}
    got["grad_bytes"] = 4 if a.accumulate_allreduce_grads_in_fp32 else 2
    got["precision"] = "bf16" if a.bf16 else "fp16" if a.fp16 else "fp32"
    got["optimizer"] = "adamw" if a.optimizer == "adam" else a.optimizer
    if want["zero"]:
        got["group"] = a.data_parallel_size * a.context_parallel_size \
            // a.num_distributed_optimizer_instances
    if a.num_experts:
        got.update(experts=a.num_experts, ep=a.expert_model_parallel_size,
                   etp=a.expert_tensor_parallel_size)
    if not a.multi_latent_attention:
        got["kv_heads"] = a.num_query_groups if a.group_query_attention \
            else a.num_attention_heads
    if want["ffn"]:
        got["ffn"] = a.ffn_hidden_size
    bits = {"core_attn": ATTENTION, "layernorm": NORM, "moe_act": MOE, "mla_up_proj": MLA}
    got["recompute"] = FULL if a.recompute_granularity == "full" else \
        sum(bits[m] for m in a.recompute_modules or []) if a.recompute_granularity else 0
    if a.recompute_method == "block":
        got["recompute_layers"] = a.recompute_num_layers
    return got


def read_deepspeed(path, want):
    import deepspeed.runtime.config
    deepspeed.runtime.config.dist.get_rank = lambda *_: 0  # its processes are not running

    class Ranks:
        def get_data_parallel_world_size(self):
            return want["dp"]

    c = deepspeed.runtime.config.DeepSpeedConfig(json.load(open(path)), mpu=Ranks())
    z = c.zero_config
    kinds = {None: 0, "none": 0, "cpu": 1, "nvme": 2}

    def place(part):
        return kinds[getattr(part.device, "value", part.device) if part is not None else None]

    got = {"global": c.train_batch_size, "micro": c.train_micro_batch_size_per_gpu,
           "micros": c.gradient_accumulation_steps, "zero": int(z.stage),
           "offload_optimizer": place(z.offload_optimizer), "offload_params": place(z.offload_param)}
    got["precision"] = "bf16" if c.bfloat16_config.enabled else \
        "fp16" if c.float16_config.enabled else "fp32"
    got["grad_bytes"] = 4 if c.grad_accum_dtype == "fp32" else 2
    return got


def read_torchtitan(path, want):
    from torchtitan.config.manager import ConfigManager
    c = ConfigManager().parse_args(["--job.config_file", path])
    p, t, ac = c.parallelism, c.training, c.activation_checkpoint
    dp = p.data_parallel_replicate_degree * p.data_parallel_shard_degree
    got = {"tp": p.tensor_parallel_degree, "pp": p.pipeline_parallel_degree, "dp": dp,
           "cp": p.context_parallel_degree,
           "gpus": dp * p.tensor_parallel_degree * p.pipeline_parallel_degree
           * p.context_parallel_degree,
           "group": p.data_parallel_shard_degree * p.context_parallel_degree,
           "seq": t.seq_len, "global": t.global_batch_size, "compiled": int(c.compile.enable),
           "micro": p.pipeline_parallel_microbatch_size if p.pipeline_parallel_degree > 1
           else t.local_batch_size,
           "reshard": int(p.fsdp_reshard_after_forward == "always")}
    got["precision"] = "fp8" if "float8" in c.model.converters else \
        {"bfloat16": "bf16", "float32": "fp32"}[t.mixed_precision_param]
    got["recompute"] = {"none": 0, "full": FULL}.get(ac.mode, OPS)
    got["schedule"] = {"1F1B": "1f1b", "Interleaved1F1B": "interleaved"}[p.pipeline_parallel_schedule]
    if want["pp"] > 1:  # torchtitan/distributed/pipeline_parallel.py
        ends = p.pipeline_parallel_first_stage_less_layers \
            + p.pipeline_parallel_last_stage_less_layers
        parts = p.module_fqns_per_model_part
        stages = len(parts) if parts else \
            -(-(want["layers"] + ends) // p.pipeline_parallel_layers_per_stage)
        got["vpp"] = stages // p.pipeline_parallel_degree
        if parts:
            got["layers"] = sum(m.startswith("layers.") for part in parts for m in part)
    return got


def read_accelerate(path, want):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env
    args = launch_command_parser().parse_args(["--config_file", path, "train.py"])
    args, defaults, _ = _validate_launch_command(args)
    os.environ.update(prepare_multi_gpu_env(args))
    from accelerate import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin
    plugin = FullyShardedDataParallelPlugin()
    got = {"gpus": int(args.num_processes), "zero": 3, "precision": args.mixed_precision,
           "reshard": int(plugin.reshard_after_forward is True),
           "recompute": FULL if plugin.activation_checkpointing else 0,
           "offload_params": int(type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy")}
    assert plugin.fsdp_version == 2, plugin.fsdp_version
    if args.use_parallelism_config:
        mesh = ParallelismConfig()
        got.update(tp=mesh.tp_size, cp=mesh.cp_size, dp=mesh.dp_replicate_size * mesh.dp_shard_size,
                   group=mesh.dp_shard_size * mesh.cp_size)
        assert mesh.total_size == want["gpus"], mesh
    return got


READERS = {"megatron": read_megatron, "deepspeed": read_deepspeed, "torchtitan": read_torchtitan,
           "accelerate": read_accelerate}
# What takes long to import, once for all files.
HEAVY = {"megatron": ["torch"], "deepspeed": ["deepspeed.runtime.config"],
         "torchtitan": ["torchtitan.config.manager"],
         "accelerate": ["accelerate.commands.launch", "accelerate.utils"]}


def worker(name, paths):
    """Each file in a process of its own, behind the imports: parsers leave things in environments."""
    try:
        for module in HEAVY[name]:
            __import__(module)
        if name == "megatron":
            add_megatron()
            __import__("megatron.training.arguments")
    except ImportError as why:
        print("MISSING", why)
        return
    for path in paths:
        want = json.load(open(os.path.splitext(path)[0] + ".want"))
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            print("GOT", os.path.basename(path), json.dumps(READERS[name](path, want)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


# --- the test --------------------------------------------------------------------------------------

def ask(python, name, paths):
    """What the parser found in each file, or why there is none."""
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")
    if name == "megatron" and not env.get("ECH_MEGATRON"):
        return None, "ECH_MEGATRON names no checkout"
    run = subprocess.run([python, __file__, "--worker", name, *paths], env=env, text=True,
                         capture_output=True, timeout=580)
    found = {}
    for line in run.stdout.splitlines():
        if line.startswith("MISSING "):
            return None, line[8:]
        if line.startswith("GOT "):
            _, file, values = line.split(" ", 2)
            found[file] = json.loads(values)
    return found, (run.stdout + run.stderr)[-2000:]


def compare(path, got):
    """Is all that was found what was meant."""
    want = json.load(open(os.path.splitext(path)[0] + ".want"))
    wrong = [f"{k}: it reads {got[k]}, ours is {want[k]}" for k in got if got[k] != want[k]]
    print(f"{os.path.basename(path)}: {len(got)} values", "; ".join(wrong) or "equal")
    return not wrong


def main():
    python = os.environ.get("ECH_PARSERS")
    if not python:
        print("skipped: ECH_PARSERS names no Python with the systems' parsers")
        return 77
    asked = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(os.environ["ECH_BUILD"], "tests/test_plan_exchange_emitted"),
                        folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name, extension in EXTENSIONS.items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            paths = sorted(glob.glob(f"{folder}/{name}-*.{extension}"))
            found, words = ask(python, name, paths)
            if found is None:
                print(f"{name}: left out: {words}")
                continue
            for path in paths:
                got = found.get(os.path.basename(path))
                if not got:
                    print(f"{os.path.basename(path)}: refused: {words}")
                asked += 1
                failed += not (got and compare(path, got))
    print(f"{asked - failed} passed, {failed} failed")
    return 1 if failed else 0 if asked else 77


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
