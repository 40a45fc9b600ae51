# RUN: np=1 timeout=120 tags=fast,mpi
"""No allocation by Echelon once training runs: calls of malloc and its kin and of mmap are counted
by the calling library from the end of step 2 to the end of the last step, events and all.  What MPI
allocates on its own is listed, not judged.  The witness does see a checkpoint's calls."""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))

from cli import BUILD, ECHELON, clean_environment, expect, finish  # noqa: E402
from training import MODELS, Place, has_mpi  # noqa: E402

SHIM = os.path.join(BUILD, "libech_alloc_shim.so")
STEPS = 6


def own(counts):
    return {name: n for name, n in counts.items() if name.startswith(("libechelon", "echelon"))}


def unquiet(seen):
    """Echelon's own calls while it trains, and where the first of each library came from."""
    return own(seen["inside"]), own(seen["example"])


def watched(place, config, *args, ranks=1):
    """What the witness saw on each rank."""
    prefix = place.path("calls.")
    settings = {"LD_PRELOAD": SHIM, "ECH_ALLOC_OUT": prefix, "ECH_ALLOC_FROM": "2"}
    program, env = [ECHELON], clean_environment(**settings)
    if ranks > 1:
        program = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        program += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        for name, value in settings.items():
            program += ["-x", f"{name}={value}"]
        program, env = [*program, ECHELON], None
    run = place.echelon("train", config, "--json", *args, program=program, env=env, timeout=100)
    expect(f"{args}: exit", (run.code, run.stderr if run.code else ""), (0, ""))
    seen = []
    for rank in range(ranks):
        with open(prefix + str(rank)) as file:
            seen.append(json.load(file))
        os.remove(prefix + str(rank))
    return seen


def quiet(what, place, config, *args, ranks=1):
    for rank, seen in enumerate(watched(place, config, *args, ranks=ranks)):
        where = f"{what}, rank {rank}"
        expect(f"{where}: steps", seen["steps"], STEPS)
        expect(f"{where}: the witness sees Echelon before",
               own(seen["before"]).get("libechelon.so", 0) > 50, True)
        expect(f"{where}: calls inside", unquiet(seen), ({}, {}))
        others = {k: v for k, v in seen["inside"].items() if k not in own(seen["inside"])}
        print(f"{where}: calls by other libraries from step 3 on: {others or 'none'}")


def main():
    if not os.path.exists(SHIM):
        print("skipped: no witness of allocation in this build (sanitizers bring their own malloc)",
              file=sys.stderr)
        return 77
    with Place() as place:
        place.tokens()
        place.ids("mask.bin", [1] * 40 + [0] * 1961, "uint8")  # some steps have no token at all
        batch = {"micro": 1, "seq": 16, "global": 6}
        plain = place.config("plain.json", batch=batch, train={"steps": STEPS})
        dropout = place.config("dropout.json", model={**MODELS["gpt2"], "dropout": 0.1},
                               batch=batch, train={"steps": STEPS},
                               layout={"schedule": "gpipe", "zero": {"bucket_mb": 0.01}})
        masked = place.config("masked.json", batch={**batch, "global": 1}, train={"steps": STEPS},
                              data={"train": "t.bin", "mask": "mask.bin"})
        quiet("one rank", place, plain)
        quiet("one rank, two threads", place, plain, "--set", "run.threads=2")
        quiet("reference kernels, fp64", place, dropout, "--set", "precision.compute=fp64")
        quiet("three virtual ranks", place, dropout, "--ranks", "3", "--transport", "inproc")
        quiet("steps without a token", place, masked)
        sharded = place.config("sharded.json", batch={**batch, "global": 8},
                               train={"steps": STEPS},
                               layout={"tp": 2, "sequence_parallel": True, "zero": {"stage": 3}})
        quiet("tp 2 x dp 2, stage 3, virtual", place, sharded, "--ranks", "4", "--transport",
              "inproc")
        deep = {**MODELS["llama"], "layers": 4, "tie_embeddings": True}
        stages = place.config("stages.json", model=deep, batch=batch, train={"steps": STEPS},
                              layout={"pp": 2})
        both_ways = place.config("both_ways.json", model=deep, batch=batch, train={"steps": STEPS},
                                 layout={"pp": 2, "schedule": "zb-v", "zero": {"stage": 3}})
        quiet("pp 2, 1f1b, virtual", place, stages, "--ranks", "2", "--transport", "inproc")
        quiet("pp 2 x dp 2, zb-v, stage 3, virtual", place, both_ways, "--ranks", "4",
              "--transport", "inproc")
        if has_mpi():
            quiet("three ranks", place, plain, ranks=3)
            quiet("tp 2 x dp 2, stage 3", place, sharded, ranks=4)
            quiet("pp 2, 1f1b", place, stages, ranks=2)
            quiet("pp 2 x dp 2, zb-v, stage 3", place, both_ways, ranks=4)
        saves = place.config("saves.json", batch=batch, train={"steps": STEPS},
                             checkpoint={"dir": "ckpt", "every_steps": 2})
        seen = watched(place, saves)[0]
        expect("a checkpoint allocates, and is seen",
               own(seen["inside"]).get("libechelon.so", 0) > 0, True)
        shutil.rmtree(place.path("ckpt"))
    finish()
    return 0


sys.exit(main())
