# RUN: np=1 timeout=120 tags=fast,mpi
"""Hosts for ranks: what a hostfile may say, what mpirun is given, and ranks that learn their node.
Hosts are played: by a program in mpirun's place, and by processes with host names of their own."""
import os
import shutil
import subprocess

from cli import ECHELON, clean_environment, expect, expect_in, finish
from training import MPI_KEEPS_MEMORY, Place, Run, has_mpi

FAKE = """#!/bin/bash
[[ "$*" == *--version* ]] && { echo "$FAKE_VERSION"; exit 0; }
printf '%s\\n' "$@" > "$FAKE_LOG"
while [[ $# -gt 0 ]]; do
    [[ $1 == --hostfile || $1 == -f ]] && { cp "$2" "$FAKE_LOG.hosts"; break; }
    shift
done
exit ${FAKE_EXIT:-0}
"""
FAKE_SSH = """#!/bin/bash
for host; do true; [[ $host == two ]] && exit 255; done
exit 0
"""


def write(place, name, text):
    with open(place.path(name), "w") as file:
        file.write(text)
    return name


def refused(what, place, args, words, files=("run", "log", "log.hosts")):
    run = place.echelon("train", place.config(batch={"global": 24}), *args, env=environment(place))
    expect(f"{what}: exit and stdout", (run.code, run.stdout), (2, ""))
    for each in words:
        expect_in(what, each, run.stderr)
    left = [n for n in files if os.path.exists(place.path(n))]
    expect(f"{what}: nothing started or written", left, [])


def environment(place, version="mpirun (Open MPI) 4.1.4"):
    """A mpirun that writes down what it was given, and says that all went well."""
    path = write(place, "mpirun", FAKE)
    os.chmod(place.path(path), 0o755)
    return clean_environment(PATH=place.folder + ":" + os.environ["PATH"], FAKE_VERSION=version,
                             FAKE_LOG=place.path("log"))


def test_bad_files(place):
    refused("absent", place, ["--hostfile", "none"], ["--hostfile none: there is no such file"])
    refused("a folder", place, ["--hostfile", "."], ["there is no such file"])
    for text, words in [
            ("", ["hosts: names no host", "node1 slots=4"]),
            ("# a comment\n\n", ["names no host"]),
            ("a slots=2\nb slotz=3\n", ["hosts:2: 'slotz' is not known; wanted HOST slots=N"]),
            ("a slots=0\n", ["hosts:1: 'slots=0' has no count"]),
            ("a slots=x\nb slots\nc slots=\n", ["hosts:1: 'slots=x'", "hosts:2: 'slots'",
                                                "hosts:3: 'slots='"]),
            ("a slots=99999999999999999999\n", ["hosts:1:", "1..1048576"]),
            ("localhost:4\nb:x\n", ["hosts:1: 'localhost:4' is no host's name; wanted localhost "
                                    "slots=4", "hosts:2: 'b:x'", "wanted b slots=N"]),
            ("slots=4\n", ["hosts:1: 'slots' stands where a host's name should"]),
            ("a" * 64 + " slots=2\n", ["hosts:1:", "longer than a host's name"]),
            ("a slots=4 max_slots=3\n", ["hosts:1:", "max_slots below slots"])]:
        write(place, "hosts", text)
        refused(repr(text[:20]), place, ["--hostfile", "hosts", "--ranks", "2"], words)


def test_slots(place):
    write(place, "hosts", "one slots=2\ntwo slots = 2 max_slots=3 # and a comment\n")
    refused("more than slots", place, ["--hostfile", "hosts", "--ranks", "6"],
            ["6 ranks for 4 slots; --oversubscribe", "ranks 0-2 -> one (2 slots)",
             "ranks 3-5 -> two (2 slots)", "nearest legal value 4"])
    refused("max_slots", place, ["--hostfile", "hosts", "--ranks", "8", "--oversubscribe"],
            ["host two takes 3 ranks at most (max_slots), 4 of 8"])
    refused("unequal", place, ["--hostfile", "hosts", "--ranks", "3"],
            ["unequal numbers of ranks", "ranks 0-1 -> one", "rank 2 -> two",
             "nearest legal values 2 and 4"])
    refused("oversubscribe alone", place, ["--ranks", "2", "--oversubscribe"],
            ["--oversubscribe wants --hostfile"])
    refused("virtual ranks", place, ["--hostfile", "hosts", "--transport", "inproc"],
            ["--hostfile with --transport inproc"])


def started(what, place, args, hosts, arguments, version="mpirun (Open MPI) 4.1.4"):
    run = place.train(place.config(batch={"global": 24}), *args, env=environment(place, version))
    expect(f"{what}: exit", (run.code, run.stderr[:8]), (0, "starting"))
    with open(place.path("log.hosts")) as file:
        expect(f"{what}: hosts", file.read(), hosts)
    with open(place.path("log")) as file:
        given = file.read().split("\n")
    for each in arguments:
        expect_in(f"{what}: arguments", each, " ".join(given))
    os.remove(place.path("log"))
    os.remove(place.path("log.hosts"))


def test_started(place):
    """mpirun's file has exactly the ranks as slots, so that it cannot place them otherwise."""
    write(place, "hosts", "one slots=2\ntwo slots=4\none slots=2\nthree\nthree\nthree\nthree\n")
    args = ["--hostfile", "hosts"]
    started("all slots", place, args, "one slots=4\ntwo slots=4\nthree slots=4\n",
            ["-n 12 ", "--hostfile ", "--map-by slot", "--json --hostfile hosts"])
    started("some", place, args + ["--ranks", "8"], "one slots=4\ntwo slots=4\n", ["-n 8 "])
    started("more", place, args + ["--ranks", "24", "--oversubscribe"],
            "one slots=8\ntwo slots=8\nthree slots=8\n", ["-n 24 "])
    started("MPICH", place, args + ["--ranks", "8"], "one:4\ntwo:4\n", ["-n 8 ", "-f "],
            version="HYDRA build details:")


def test_unreached(place):
    """mpirun ends before any rank said a word: a host that ssh does not reach is named."""
    os.chmod(place.path(write(place, "ssh", FAKE_SSH)), 0o755)
    env = {**environment(place), "FAKE_EXIT": "1"}
    for hosts, code, words in [
            ("one slots=2\ntwo slots=2\n", 4, "no rank started; host two could not be reached"),
            ("localhost slots=2\none slots=2\n", 4, "no rank came up"),
            ("one slots=2\nthree slots=2\n", 1, "a rank died without a word")]:
        write(place, "hosts", hosts)
        run = place.echelon("train", place.config(batch={"global": 4}), "--hostfile", "hosts", env=env)
        expect(f"{hosts!r}: exit and stdout", (run.code, run.stdout), (code, ""))
        expect_in(f"{hosts!r}", words, run.stderr)
    for name in ("ssh", "log", "log.hosts"):
        os.remove(place.path(name))
    if not has_mpi() or not shutil.which("ssh"):
        return
    write(place, "hosts", "no-such-host.invalid slots=2\n")
    run = place.echelon("train", place.config(batch={"global": 2}), "--hostfile", "hosts",
                        env=clean_environment(**MPI_KEEPS_MEMORY))
    expect("no such host: exit", run.code, 4)
    expect_in("no such host", "host no-such-host.invalid could not be reached", run.stderr)


def on_hosts(place, names):
    """Ranks of one machine with a host name each."""
    script = f'n=({names}); hostname ${{n[$OMPI_COMM_WORLD_RANK]}}; shift 0; exec "$0" "$@"'
    config = place.config(batch={"global": 4})
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
               str(len(names.split())), "unshare", "--uts", "bash", "-c", script, ECHELON, "train",
               config, "--json", "--kernels", "ref"]
    return Run(subprocess.run(command, cwd=place.folder, capture_output=True, text=True, timeout=60,
                              env=clean_environment(**MPI_KEEPS_MEMORY)))


def test_nodes(place):
    if not has_mpi() or subprocess.run(["unshare", "--uts", "hostname", "x"],
                                       capture_output=True).returncode != 0:
        print("skipped: host names of one's own are not allowed here")
        return
    run = on_hosts(place, "na na nb nb")
    expect("two nodes: exit", run.code, 0)
    expect_in("two nodes", "2 hosts, 2 ranks on each", run.stderr)
    expect("two nodes: traffic", run.end["comm_diff_bytes"], 0)
    shutil.rmtree(place.path("run"))
    for names, words in [("na nb nb nb", ["unequal numbers", "rank 0 -> na", "ranks 1-3 -> nb"]),
                         ("na nb na nb", ["not neighbours", "--map-by slot", "rank 2 -> na"])]:
        run = on_hosts(place, names)
        expect(f"{names}: exit", run.code, 2)
        for each in words:
            expect_in(names, each, run.stderr)
        expect(f"{names}: said once", run.stderr.count(words[0]), 1)
        expect(f"{names}: nothing written", os.path.exists(place.path("run")), False)


with Place() as place:
    place.tokens()
    test_bad_files(place)
    test_slots(place)
    test_started(place)
    test_unreached(place)
    test_nodes(place)
finish()
