# RUN: np=1 timeout=120 tags=fast,mpi
"""Traffic three ways: counted at the MPI boundary by the preloaded shim, counted by the
communicator, and by the closed forms below.  All must agree to the byte, per rank and axis; and
the shim must see a message that the communicator does not know of."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

BUILD = os.environ["ECH_BUILD"]
SHIM = os.path.join(BUILD, "libech_pmpi_shim.so")
DRIVER = os.path.join(BUILD, "tests", "pmpi_driver")
ELEM = 4  # fp32


def part(n, ranks, i):
    """Elements of member i when n are dealt out as evenly as can be, longer parts first."""
    return n // ranks + (1 if i < n % ranks else 0)


def sent_elems(kind, n, ranks, i):
    mine, others = part(n, ranks, i), ranks - 1
    return {
        "all_reduce": n - mine + others * mine,
        "reduce_scatter": n - mine,
        "all_gather": others * mine,
        "sum_small": others * n,
        "send": n,
    }[kind]


def run(ranks, words, folder):
    """Counts of the shim and of the communicator, per rank."""
    shim, own = os.path.join(folder, "shim."), os.path.join(folder, "own.")
    # verify_asan_link_order: a preloaded library comes before the sanitizer's, harmless here.
    settings = {"LD_PRELOAD": SHIM, "ECH_PMPI_OUT": shim, "ECH_BUILD": BUILD,
                "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
    for name, value in settings.items():
        command += ["-x", f"{name}={value}"]
    subprocess.run(command + [DRIVER, own] + words, check=True, timeout=60)
    return [[json.load(open(f"{prefix}{r}")) for r in range(ranks)] for prefix in (shim, own)]


def check_rank(rank, ranks, words, shim, own):
    wanted = {}
    for word in words:
        kind, axis, n = word.split(":")
        wanted[axis] = wanted.get(axis, 0) + ELEM * sent_elems(kind, int(n), ranks, rank)
    for axis in own:
        seen = shim.get(axis, {"bytes": 0, "messages": 0, "others": 0})
        where = f"rank {rank} of {ranks}, {axis}"
        assert seen["bytes"] == own[axis]["bytes"] == wanted.get(axis, 0), \
            f"{where}: shim {seen}, communicator {own[axis]}, closed form {wanted.get(axis, 0)}"
        assert seen["messages"] == own[axis]["messages"], f"{where}: {seen} {own[axis]}"
        assert seen["others"] == 0, f"{where}: {seen}"
    stray = set(shim) - set(own) - {"startup"}
    assert not stray, f"rank {rank}: traffic on other communicators: {stray}"
    apart = shim["startup"]["messages"] + shim["startup"]["others"]
    assert apart > 0, "start-up traffic has its own communicator"


def test_three_ways(ranks, folder):
    words = ["all_reduce:dp:1000", "all_reduce:dp:1", f"reduce_scatter:dp:{77 * ranks}",
             f"all_reduce:dp:{ranks * 65536 + 3}", f"all_gather:world:{333 * ranks}", "sum_small:world:2",
             "send:dp:123", "all_reduce:tp:50"]
    shim, own = run(ranks, words, folder)
    alone = [w for w in words if not w.startswith("all_reduce:tp")]  # tp has one member
    for rank in range(ranks):
        check_rank(rank, ranks, alone, shim[rank], own[rank])
    total = sum(own[r]["dp"]["bytes"] + own[r]["world"]["bytes"] for r in range(ranks))
    assert total > 0


def test_a_stray_message_is_seen(folder):
    shim, own = run(2, ["all_reduce:dp:100", "stray:dp:13"], folder)
    assert shim[0]["dp"]["bytes"] == own[0]["dp"]["bytes"] + 13, (shim[0], own[0])
    assert shim[0]["dp"]["messages"] == own[0]["dp"]["messages"] + 1
    assert shim[1]["dp"]["bytes"] == own[1]["dp"]["bytes"]


def main():
    missing = [p for p in (SHIM, DRIVER) if not os.path.exists(p)]
    if missing or not shutil.which("mpirun"):
        print("skipped: built without MPI:", missing or "no mpirun", file=sys.stderr)
        return 77
    for ranks in (2, 3, 4):
        with tempfile.TemporaryDirectory() as folder:
            test_three_ways(ranks, folder)
    with tempfile.TemporaryDirectory() as folder:
        test_a_stray_message_is_seen(folder)
    return 0


sys.exit(main())
