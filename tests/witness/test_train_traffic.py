# RUN: np=1 timeout=240 tags=fast,mpi
"""Traffic of training, three ways that must agree to the byte for every rank and group: counted at
the MPI boundary by the preloaded shim over the whole job, predicted by `echelon check` times the
steps, and told by `train` itself; with the closed forms as the fourth.  A forged prediction and a
message that is not counted are seen."""
import json
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))

from cli import BUILD, ECHELON, clean_environment, expect, failures, finish  # noqa: E402
from closed_forms import Layout, Step  # noqa: E402
from schedules import drawn, written  # noqa: E402
from stages import layers_of  # noqa: E402
from training import MODELS, Place, has_mpi  # noqa: E402

SHIM = os.path.join(BUILD, "libech_pmpi_shim.so")
STEPS = 3
LONG = bool(os.environ.get("ECH_LONG"))


def under_shim(place, ranks, config, **more):
    """The run, and what the shim counted on each rank."""
    prefix = place.path("counted.")
    settings = {"LD_PRELOAD": SHIM, "ECH_PMPI_OUT": prefix, **more,
                "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    if os.geteuid() == 0:
        mpirun.insert(1, "--allow-run-as-root")
    for name, value in settings.items():
        mpirun += ["-x", f"{name}={value}"]
    run = place.echelon("train", config, "--json", program=[*mpirun, ECHELON], timeout=100)
    counted = []
    for rank in range(ranks if run.code == 0 else 0):
        with open(prefix + str(rank)) as file:
            counted.append(json.load(file))
        os.remove(prefix + str(rank))
    return run, counted


def bytes_of(counted, group):
    return counted.get(group, {"bytes": 0})["bytes"]


def compare(where, counted, by_rank, steps, extra=None):
    """Problems found: the shim's count of each rank and group against the prediction, `extra` bytes
    a rank and group outside training steps."""
    problems = []
    for rank, seen in enumerate(counted):
        for group, traffic in by_rank[rank]["comm_bytes"].items():
            want = traffic["wire"] * steps + (extra[rank].get(group, 0) if extra else 0)
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


def wires(by_rank):
    """Every rank's predicted bytes by axis, where there are any."""
    return [{axis: t["wire"] for axis, t in rank["comm_bytes"].items() if t["wire"]}
            for rank in by_rank]


def nonzero(by_axis):
    return {axis: n for axis, n in by_axis.items() if n}


def steps_of(config, ranks, counts):
    """The closed forms of every rank; counts: layers of its stages, where several cuts are best."""
    with open(config) as file:
        case = json.load(file)
    at = [Layout(case["layout"], ranks).place(rank)["pp"] for rank in range(ranks)]
    of = [Step(case, ranks, i, counts) for i in range(max(at) + 1)]
    return [of[i] for i in at]


def configured(place, ranks, sections, model, has_eval=False):
    sections = dict(sections)
    accumulation = sections.pop("accumulation", 1)
    data = {"train": "t.bin", **({"valid": "v.bin"} if has_eval else {})}
    layout = sections.get("layout", {})
    pass_rows = ranks // layout.get("tp", 1) // layout.get("pp", 1) * accumulation
    return pass_rows, place.config(model=model, data=data, **sections,
                                   batch={"micro": 1, "seq": 16, "global": pass_rows},
                                   train={"steps": STEPS, "eval_every": 2})


def one(place, ranks, model, sections, has_eval=False):
    pass_rows, config = configured(place, ranks, sections, model, has_eval)
    document = place.check(config, "--ranks", str(ranks), "--json-ranks")
    by_rank = document["by_rank"]
    run, counted = under_shim(place, ranks, config)
    where = f"{model} on {ranks} {sections}"
    if run.code:
        failures.append(f"{where}: exit {run.code}: {run.stderr}")
        return [], []
    steps = steps_of(config, ranks, layers_of(document))
    extra = None
    if has_eval:  # after step 2 and at the end, over 6 samples
        once = [step.wire(rank, step.eval_messages()) for rank, step in enumerate(steps)]
        extra = [{axis: 2 * -(-6 // pass_rows) * n for axis, n in each.items()} for each in once]
    failures.extend(compare(where, counted, by_rank, STEPS, extra))
    expect(f"{where}: closed form", wires(by_rank),
           [nonzero(step.wire(rank)) for rank, step in enumerate(steps)])
    end = run.end
    expect(f"{where}: told", {axis: t["wire"] for axis, t in end["sent"].items() if t["wire"]},
           wires([document["predicted"]])[0])  # both of the fullest rank
    expect(f"{where}: told of a rank", wires([document["predicted"]])[0] in wires(by_rank), True)
    expect(f"{where}: differences", (end["comm_diff_bytes"], end["memory_diff_bytes"]), (0, 0))
    return counted, by_rank


GPT = {**MODELS["gpt2"], "heads": 4}
LLAMA = MODELS["llama"]
COPIES = {**LLAMA, "kv_heads": 1, "qkv_bias": True}  # keys and values on several ranks
THIRDS = {**LLAMA, "hidden": 36, "heads": 6, "head_dim": 6, "kv_heads": 3, "ffn": 41,
          "tie_embeddings": True}
DEEP = {**LLAMA, "layers": 8}
TIED = {**DEEP, "tie_embeddings": True}
SP = {"sequence_parallel": True}


def zero(stage, **keys):
    return {"zero": {"stage": stage, **keys}}


def grid():
    """(ranks, model, sections): data parallel, then with tp and sharded state."""
    yield 3, "llama", {"accumulation": 2, "layout": zero(0, bucket_mb=0.01)}
    yield 4, "gpt2", {
        "accumulation": 3, "layout": {"schedule": "gpipe", **zero(0, bucket_mb=1e-6)}
    }
    yield 2, COPIES, {"layout": {"tp": 2, **SP}, "precision": {"compute": "fp64"}}
    yield 4, LLAMA, {"accumulation": 2, "layout": {"tp": 2, **SP, **zero(3)}}
    yield 6, THIRDS, {"layout": {"tp": 3, **zero(1, bucket_mb=0.01)}}
    yield 4, GPT, {"accumulation": 2, "layout": zero(3, group=2, reduce="each")}
    yield 8, LLAMA, {"layout": {"tp": 2, "order": "dp-tp-cp-ep-pp", **zero(2, group=2)}}
    yield 2, TIED, {"accumulation": 4, "layout": {"pp": 2}}
    yield 4, DEEP, {"accumulation": 6, "layout": {
        "pp": 2, "tp": 2, **SP, "schedule": "interleaved", "virtual_stages": 2}}
    yield 4, TIED, {"accumulation": 5, "layout": {"pp": 4, "schedule": "zb-h1"}}
    yield 4, TIED, {"accumulation": 3, "layout": {
        "pp": 2, "schedule": "zb-v", **zero(3, reduce="each")}}
    yield 8, TIED, {"accumulation": 2, "layout": {"pp": 2, "tp": 2, **SP, **zero(1)}}


def long_grid():
    yield 2, GPT, {"accumulation": 3, "layout": zero(1)}
    yield 3, "gpt2", {"precision": {"compute": "fp64"}, "layout": zero(0, bucket_mb=0.05)}
    yield 4, GPT, {"layout": {"tp": 4}}
    yield 4, COPIES, {"accumulation": 2, "layout": {"tp": 4}}
    yield 4, GPT, {"accumulation": 2, "layout": {
        "tp": 2, **SP, "sequence_parallel_inputs": "keep", **zero(2, reduce="each")}}
    yield 5, LLAMA, {"layout": zero(3, prefetch=2)}
    yield 6, THIRDS, {"accumulation": 2, "layout": {
        "tp": 3, **zero(3, reshard_after_forward=False)}}
    yield 6, "llama", {"accumulation": 2, "layout": zero(2, group=3)}
    yield 8, COPIES, {"layout": {"tp": 4, **SP, **zero(3)}}
    yield 8, GPT, {"accumulation": 2, "layout": {"tp": 2, **zero(3, group=2, prefetch=0)}}
    yield 8, LLAMA, {"layout": zero(3, group=4, reshard_after_forward=False)}
    yield 4, GPT, {"accumulation": 2, "layout": {
        "schedule": "gpipe", **zero(3, reshard_after_forward=False)}}
    for ranks, layout in ((4, {"pp": 4}), (4, {"pp": 2, "tp": 2}), (8, {"pp": 4, "tp": 2, **SP}),
                          (6, {"pp": 3, **zero(2)}), (8, {"pp": 2, "tp": 2, **zero(3)}),
                          (8, {"pp": 2, "order": "pp-dp-cp-tp-ep", **zero(3, group=2)})):
        for schedule in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"):
            chunks = {"virtual_stages": 2} if schedule == "interleaved" else {}
            yield ranks, TIED, {"accumulation": layout["pp"] * (1 if chunks else 2) + (not chunks),
                                "layout": {**layout, "schedule": schedule, **chunks}}
    yield 4, DEEP, {"accumulation": 2, "layout": {"pp": 4, "stages": [0, 5, 3, 0]}}
    for ranks in (2, 5):
        for model in ("gpt2", "llama"):
            for bucket in (1e-6, 25):
                yield ranks, model, {"accumulation": 1 + ranks % 3,
                                     "layout": zero(0, bucket_mb=bucket)}


def test_grid(place):
    for ranks, model, sections in (long_grid() if LONG else grid()):
        one(place, ranks, model, sections)


def test_tables_of_files(place):
    """Stages on ranks as it comes, cells in any order that comes to an end."""
    for seed in range(4 if LONG else 1):
        path = place.path(f"drawn{seed}.csv")
        with open(path, "w") as file:
            file.write(written(drawn(random.Random(seed), 2, 3)))
        one(place, 4, TIED, {"accumulation": 3, "layout": {"pp": 2, "schedule": path, **zero(1)}})


def test_evaluation_is_counted_too(place):
    one(place, 4, LLAMA, {"accumulation": 2, "layout": {"tp": 2, **SP, **zero(3)}}, has_eval=True)
    one(place, 4, LLAMA, {"layout": zero(3, group=2)}, has_eval=True)  # replicas see other samples
    one(place, 4, TIED, {"accumulation": 3, "layout": {"pp": 2, "schedule": "zb-v", **zero(3)}},
        has_eval=True)


def forged(by_rank, rank, group, less):
    other = json.loads(json.dumps(by_rank))
    other[rank]["comm_bytes"][group]["wire"] -= less
    return other


def test_a_forged_prediction_is_seen(place):
    """One byte less, another group, one step less, a rank's figures for another's: all are seen."""
    # its parameters are no multiple of 3
    model = {**MODELS["llama"], "layers": 3, "hidden": 40, "head_dim": 10}
    counted, by_rank = one(place, 3, model, {})
    expect("honest", compare("", counted, by_rank, STEPS), [])
    moved = json.loads(json.dumps(by_rank))
    moved[0]["comm_bytes"]["world"], moved[0]["comm_bytes"]["dp"] = \
        moved[0]["comm_bytes"]["dp"], moved[0]["comm_bytes"]["world"]
    for what, other, steps, n in [("one byte less", forged(by_rank, 2, "dp", 1), STEPS, 1),
                                  ("other group", moved, STEPS, 2),
                                  ("a step less", by_rank, STEPS - 1, 3)]:
        expect(f"forged: {what}", len(compare(what, counted, other, steps)), n)
    swapped = [{**c, "dp": counted[(i + 1) % 3]["dp"]} for i, c in enumerate(counted)]
    unlike = sum(bytes_of(a, "dp") != bytes_of(b, "dp") for a, b in zip(counted, swapped))
    expect("forged: another rank's", len(compare("swapped", swapped, by_rank, STEPS)), unlike)
    expect("ranks send unlike amounts", unlike > 0, True)


def test_every_group_is_watched(place):
    """Over tp, kv, dp and hsdp at once, and over tp, dp, pp and tied: a byte of any rank and group
    less, two groups' figures for each other's, and a message that the shim does not count are seen
    where they are."""
    ranks, layout = 8, {"tp": 2, **SP, **zero(3, group=2)}
    groups = sorted(("tp", "kv", "dp", "hsdp"))
    every_group(place, ranks, COPIES, {"layout": layout}, groups)
    layout = {"pp": 2, "tp": 2, **SP}
    every_group(place, ranks, TIED, {"accumulation": 2, "layout": layout},
                sorted(("tp", "dp", "pp", "tied")))


def every_group(place, ranks, model, sections, groups):
    counted, by_rank = one(place, ranks, model, sections)
    if not counted:
        return
    expect("groups", [sorted(each) for each in wires(by_rank)], [groups] * ranks)
    expect("honest", compare("", counted, by_rank, STEPS), [])
    for rank in range(ranks):
        for group in groups:
            seen = compare("", counted, forged(by_rank, rank, group, 1), STEPS)
            expect(f"forged: a byte of rank {rank}, {group}",
                   [s.startswith(f": rank {rank}, {group}:") for s in seen], [True])
        swapped = json.loads(json.dumps(by_rank))
        bytes_by_group = swapped[rank]["comm_bytes"]
        bytes_by_group["tp"], bytes_by_group["dp"] = bytes_by_group["dp"], bytes_by_group["tp"]
        expect(f"forged: tp for dp of rank {rank}", len(compare("", counted, swapped, STEPS)), 2)
    _, config = configured(place, ranks, sections, model)
    run, dropped = under_shim(place, ranks, config, ECH_PMPI_DROP=",".join(groups))
    expect("dropped: exit", run.code, 0)
    expect("dropped: seen on every rank and group",
           len(compare("", dropped, by_rank, STEPS)), ranks * len(groups))


def main():
    if not os.path.exists(SHIM) or not has_mpi():
        print("skipped: built without MPI, or no mpirun", file=sys.stderr)
        return 77
    with Place() as place:
        place.tokens()
        place.tokens("v.bin", n=6 * 16 + 1, seed=2)
        test_grid(place)
        test_tables_of_files(place)
        test_evaluation_is_counted_too(place)
        if not failures:
            test_a_forged_prediction_is_seen(place)
            test_every_group_is_watched(place)
    finish()
    return 0


sys.exit(main())
