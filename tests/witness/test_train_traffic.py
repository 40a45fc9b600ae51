# RUN: np=1 timeout=120 tags=fast,mpi
"""Traffic of training, three ways that must agree to the byte for every rank: counted at the MPI
boundary by the preloaded shim over the whole job, predicted by `echelon check` times the steps,
and told by `train` itself; with the closed forms as the fourth.  A forged prediction is seen."""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))

from cli import BUILD, ECHELON, clean_environment, expect, failures, finish  # noqa: E402
from closed_forms import Step  # noqa: E402
from training import MODELS, Place, has_mpi  # noqa: E402

SHIM = os.path.join(BUILD, "libech_pmpi_shim.so")
STEPS = 3
LONG = bool(os.environ.get("ECH_LONG"))


def under_shim(place, ranks, config, *args):
    """The run, and what the shim counted on each rank."""
    prefix = place.path("counted.")
    settings = {"LD_PRELOAD": SHIM, "ECH_PMPI_OUT": prefix,
                "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    if os.geteuid() == 0:
        mpirun.insert(1, "--allow-run-as-root")
    for name, value in settings.items():
        mpirun += ["-x", f"{name}={value}"]
    run = place.echelon("train", config, "--json", *args, program=[*mpirun, ECHELON], timeout=100)
    counted = []
    for rank in range(ranks):
        with open(prefix + str(rank)) as file:
            counted.append(json.load(file))
        os.remove(prefix + str(rank))
    return run, counted


def bytes_of(counted, group):
    return counted.get(group, {"bytes": 0})["bytes"]


def compare(where, counted, by_rank, steps, extra=0):
    """Problems found: the shim's count of each rank and group against the prediction."""
    problems = []
    for rank, seen in enumerate(counted):
        for group, traffic in by_rank[rank]["comm_bytes"].items():
            want = traffic["wire"] * steps + (extra if group == "dp" else 0)
            if bytes_of(seen, group) != want:
                problems.append(
                    f"{where}: rank {rank}, {group}: {bytes_of(seen, group)} bytes left "
                    f"the process, predicted {want}")
            if seen.get(group, {"others": 0})["others"]:
                problems.append(f"{where}: rank {rank}, {group}: collectives of MPI's own")
        strangers = set(seen) - set(by_rank[rank]["comm_bytes"]) - {"startup"}
        if any(bytes_of(seen, s) for s in strangers):
            problems.append(f"{where}: rank {rank}: traffic outside the groups: {strangers}")
    return problems


def one(place, ranks, sections, model, has_eval=False):
    accumulation = sections.pop("accumulation", 1)
    data = {"train": "t.bin", **({"valid": "v.bin"} if has_eval else {})}
    config = place.config(model=model, data=data, **sections,
                          batch={"micro": 1, "seq": 16, "global": ranks * accumulation},
                          train={"steps": STEPS, "eval_every": 2})
    by_rank = place.check(config, "--ranks", str(ranks), "--json-ranks")["by_rank"]
    run, counted = under_shim(place, ranks, config)
    where = f"{model} dp {ranks} accumulation {accumulation} {sections}"
    expect(f"{where}: exit", (run.code, run.stderr if run.code else ""), (0, ""))
    with open(config) as file:
        step = Step(json.load(file), ranks)
    extra = 0
    if has_eval:  # after step 2 and at the end, over 6 samples
        extra = step.eval_wire() * 2 * -(-6 // (ranks * accumulation))
    failures.extend(compare(where, counted, by_rank, STEPS, extra))
    expect(f"{where}: closed form", [r["comm_bytes"]["dp"]["wire"] for r in by_rank],
           [step.wire(rank) for rank in range(ranks)])
    end = run.end
    expect(f"{where}: told", end["sent"]["dp"]["wire"], by_rank[0]["comm_bytes"]["dp"]["wire"])
    expect(f"{where}: differences", (end["comm_diff_bytes"], end["memory_diff_bytes"]), (0, 0))
    return counted, by_rank


def grid():
    yield 2, "gpt2", {"accumulation": 1}
    yield 3, "llama", {"accumulation": 2, "layout": {"zero": {"bucket_mb": 0.01}}}
    yield 4, "gpt2", {
        "accumulation": 3, "layout": {"schedule": "gpipe", "zero": {"bucket_mb": 1e-6}}
    }
    yield 3, "gpt2", {"precision": {"compute": "fp64"}, "layout": {"zero": {"bucket_mb": 0.05}}}
    if not LONG:
        return
    for ranks in (2, 3, 4, 5):
        for model in ("gpt2", "llama"):
            for compute in ("fp32", "fp64"):
                for bucket in (1e-6, 0.01, 25):
                    yield ranks, model, {"accumulation": 1 + ranks % 3,
                                         "precision": {"compute": compute},
                                         "layout": {"zero": {"bucket_mb": bucket}}}


def test_grid(place):
    for ranks, model, sections in grid():
        one(place, ranks, sections, model)


def test_evaluation_is_counted_too(place):
    one(place, 2, {"accumulation": 2}, "llama", has_eval=True)


def test_a_forged_prediction_is_seen(place):
    """One byte less, another group, one step less, a rank's figures for another's: all are seen."""
    # its parameters are no multiple of 3
    model = {**MODELS["llama"], "layers": 3, "hidden": 40, "head_dim": 10}
    counted, by_rank = one(place, 3, {}, model)
    expect("honest", compare("", counted, by_rank, STEPS), [])
    less = json.loads(json.dumps(by_rank))
    less[2]["comm_bytes"]["dp"]["wire"] -= 1
    moved = json.loads(json.dumps(by_rank))
    moved[0]["comm_bytes"]["world"], moved[0]["comm_bytes"]["dp"] = \
        moved[0]["comm_bytes"]["dp"], moved[0]["comm_bytes"]["world"]
    for what, forged, steps, n in [("one byte less", less, STEPS, 1),
                                   ("other group", moved, STEPS, 2),
                                   ("a step less", by_rank, STEPS - 1, 3)]:
        expect(f"forged: {what}", len(compare(what, counted, forged, steps)), n)
    swapped = [{**c, "dp": counted[(i + 1) % 3]["dp"]} for i, c in enumerate(counted)]
    unlike = sum(bytes_of(a, "dp") != bytes_of(b, "dp") for a, b in zip(counted, swapped))
    expect("forged: another rank's", len(compare("swapped", swapped, by_rank, STEPS)), unlike)
    expect("ranks send unlike amounts", unlike > 0, True)


def main():
    if not os.path.exists(SHIM) or not has_mpi():
        print("skipped: built without MPI, or no mpirun", file=sys.stderr)
        return 77
    with Place() as place:
        place.tokens()
        place.tokens("v.bin", n=6 * 16 + 1, seed=2)
        test_grid(place)
        test_evaluation_is_counted_too(place)
        test_a_forged_prediction_is_seen(place)
    finish()
    return 0


sys.exit(main())
