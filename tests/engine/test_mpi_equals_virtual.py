# RUN: np=1 timeout=120 tags=fast,mpi
"""Ranks over MPI and virtual ranks give the same bytes: gradients of the last of three steps, for
ranks x accumulation, fp32 and fp64; and so does every bucket size."""
import json
import os
import shutil
import struct
import sys

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))

from cli import ECHELON, clean_environment, expect, finish
from training import Place, has_mpi

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca",
          "mpi_yield_when_idle", "1", "--mca", "btl_vader_single_copy_mechanism", "none"]


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def tensors(data):
    """Names and numbers of elements of a safetensors file."""
    n, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return header


def check_file(name, data, compute):
    """The file holds every parameter, and numbers that a gradient may have."""
    header = tensors(data)
    expect(f"{name}: type", {t["dtype"] for t in header.values()},
           {"F64" if compute == "fp64" else "F32"})
    expect(f"{name}: parameters", len(header) > 15, True)
    n, = struct.unpack("<Q", data[:8])
    body = data[8 + n:]
    size, letter = (8, "d") if compute == "fp64" else (4, "f")
    values = struct.unpack(f"<{len(body) // size}{letter}", body)
    expect(f"{name}: not all zero", any(values), True)
    expect(f"{name}: finite", all(abs(v) < 1e3 for v in values), True)


def dump(place, config, ranks, transport):
    out = place.path(f"{transport}.safetensors")
    if os.path.exists(out):
        os.remove(out)
    shutil.rmtree(place.path("run"), ignore_errors=True)
    program = MPIRUN + ["-n", str(ranks), ECHELON] if transport == "mpi" else [ECHELON]
    options = [] if transport == "mpi" else ["--ranks", str(ranks), "--transport", "inproc"]
    env = clean_environment(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    run = place.echelon("train", config, "--json", "--kernels", "ref", "--dump-grads", out,
                        *options, program=program, env=env)
    if run.code != 0:
        print(run.stderr, file=sys.stderr)
    expect(f"{transport} on {ranks}: exit", run.code, 0)
    return contents(out), [(e["loss"], e["grad_norm"], e["tokens"]) for e in run.of("step")]


def compare(place, ranks, accumulation, compute, model):
    name = f"{model}, {compute}, dp {ranks}, accumulation {accumulation}"
    config = place.config(model=model, batch={"global": ranks * accumulation, "micro": 1},
                          precision={"compute": compute}, layout={"zero": {"bucket_mb": 0.01}})
    virtual, steps = dump(place, config, ranks, "inproc")
    over_mpi, mpi_steps = dump(place, config, ranks, "mpi")
    check_file(name, virtual, compute)
    expect(f"{name}: steps", len(steps), 3)
    expect(f"{name}: losses and norms", mpi_steps, steps)
    expect(f"{name}: same bytes", over_mpi == virtual, True)
    return virtual


def main():
    if not has_mpi():
        print("no mpirun or no MPI module", file=sys.stderr)
        sys.exit(77)
    with Place() as place:
        place.tokens()
        for ranks in (2, 3, 4):
            for accumulation in (1, 2):
                compare(place, ranks, accumulation, "fp64" if accumulation == 1 else "fp32",
                        "llama")
        compare(place, 3, 2, "fp64", "gpt2")
        first = compare(place, 4, 1, "fp32", "gpt2")
        config = place.config(model="gpt2", batch={"global": 4, "micro": 1},
                              precision={"compute": "fp32"}, layout={"zero": {"bucket_mb": 25}})
        expect("another bucket size: same bytes", dump(place, config, 4, "mpi")[0] == first, True)
    finish()


main()
