# RUN: np=1 timeout=60 tags=fast
"""The frame of the command line: exit statuses, suggestions, help, doctor, what it links, how fast it
starts."""
import json
import os
import pty
import re
import subprocess
import time

from cli import BUILD, ECHELON, SOURCE, clean_environment, expect, expect_in, finish, run

UNBUILT = ["eval", "report", "top"]


def test_version_and_help():
    version = run("--version")
    expect("version", (version.returncode, bool(re.fullmatch(r"echelon \d+\.\d+\.\d+\n", version.stdout))),
           (0, True))
    overview = run("help")
    expect("help", (overview.returncode, overview.stderr), (0, ""))
    expect("--help is help", run("--help").stdout, overview.stdout)
    built, unbuilt = overview.stdout.split("not built yet")
    for name in UNBUILT:
        expect_in("unbuilt in help", f"\n  {name} ", unbuilt)
        expect(f"{name} among the built", f"\n  {name} " in built, False)
    for name in re.findall(r"^  (\w+)", built.split("Commands:")[1], re.M):
        usage = run("help", name)
        expect(f"help {name}", usage.returncode, 0)
        expect_in(f"usage of {name}", f"Usage: echelon {name}", usage.stdout)
        expect_in(f"{name} --help", "Usage: echelon " + name, run(name, "--help").stdout)


def test_exit_statuses():
    for args, code, words in [
        ([], 2, "no command given"),
        (["hlp"], 2, "did you mean 'help'?"),
        (["zzz"], 2, "unknown command 'zzz'"),
        (["help", "confg"], 2, "did you mean 'config'?"),
        (["help", "a", "b"], 2, "one topic"),
        (["doctor", "--jsn"], 2, "did you mean '--json'?"),
        (["doctor", "--json=1"], 2, "takes no value"),
        (["doctor", "--ranks"], 2, "needs a value"),
        (["doctor", "--ranks", "two"], 2, "wants an integer, got 'two'"),
        (["doctor", "--ranks=-1"], 2, "wanted a number of ranks"),
        (["doctor", "word"], 2, "unexpected word 'word'"),
        (["doctor", "-j"], 2, "options are long"),
    ] + [([name, "--model", "x"], 2, "not built yet") for name in UNBUILT]:
        got = run(*args)
        expect(f"exit of {args}", (got.returncode, got.stdout), (code, ""))
        expect_in(f"stderr of {args}", words, got.stderr)


def test_debug_prints_the_chain():
    plain = run("doctor", "--jsn").stderr
    debug = run("doctor", "--jsn", env=clean_environment(ECHELON_LOG="debug")).stderr
    expect("chain without debug", "options.c:" in plain, False)
    expect_in("chain", "ECH_E_USAGE at src/cli/options.c:", debug)


def on_terminal(**changes):
    """Standard error of a failing command that runs on a terminal."""
    leader, follower = pty.openpty()
    subprocess.run([ECHELON, "hlp"], stderr=follower, stdout=follower, timeout=20,
                   env=clean_environment(TERM="xterm", **changes))
    os.close(follower)
    text = os.read(leader, 65536).decode()
    os.close(leader)
    return text


def test_colour():
    expect_in("colour on a terminal", "\033[1;31merror:\033[0m", on_terminal(NO_COLOR=None))
    expect("colour with NO_COLOR", "\033" in on_terminal(NO_COLOR="1"), False)
    expect("colour where NO_COLOR is empty", "\033" in on_terminal(NO_COLOR=""), True)
    expect("colour in a pipe", "\033" in run("hlp").stderr, False)


def test_full_device():
    with open("/dev/full", "w") as full:
        got = subprocess.run([ECHELON, "help"], stdout=full, stderr=subprocess.PIPE, text=True)
    expect("exit on a full device", got.returncode, 4)
    expect_in("words on a full device", "cannot be written", got.stderr)


def test_doctor():
    got = run("doctor", "--json")
    document = json.loads(got.stdout)
    expect("doctor --json", (got.returncode, got.stderr, got.stdout.count("\n")), (0, "", 1))
    expect("cores", document["cores_usable"], len(os.sched_getaffinity(0)))
    for module, file in [("mpi", "libechelon_mpi.so"), ("cpu", "libechelon_cpu.so")]:
        if not os.path.exists(os.path.join(BUILD, file)):
            expect(module, document["modules"][module]["found"], False)
            expect_in(module, file, document["modules"][module]["problem"])
    expect("no trial was asked for", document["trial"], None)
    words = run("doctor").stdout
    for line in ["module mpi", "module cpu", "launcher", "cores", "memory", "huge pages"]:
        expect_in("doctor", line, words)


def test_doctor_without_launcher():
    empty = clean_environment(PATH="/nonexistent")
    document = json.loads(run("doctor", "--json", env=empty).stdout)
    expect("no mpirun", document["mpirun"], {"path": None, "version": None})
    got = run("doctor", "--ranks", "2", env=empty)
    expect("ranks without mpirun", got.returncode, 4)
    expect_in("ranks without mpirun", "needs mpirun", got.stderr)


def test_help_config():
    page = run("help", "config", "--markdown").stdout
    with open(os.path.join(SOURCE, "docs", "config.md"), encoding="utf-8") as file:
        expect("docs/config.md is what `echelon help config --markdown` prints", file.read(), page)
    page = run("help", "layouts", "--markdown").stdout
    with open(os.path.join(SOURCE, "docs", "layouts.md"), encoding="utf-8") as file:
        expect("docs/layouts.md is what `echelon help layouts --markdown` prints", file.read(), page)
    words = run("help", "config").stdout
    for key in ["model.preset", "layout.zero.bucket_mb: 25   # MiB", "precision.compute: fp32",
                "optim.betas: [0.9, 0.95]", "faults.watchdog_s: 60   # s"]:
        expect_in("help config", key, words)


def test_links_no_heavy_library():
    """`echelon` links neither MPI nor a GEMM library, so that it starts in milliseconds."""
    text = subprocess.run(["ldd", ECHELON], capture_output=True, text=True, check=True).stdout
    expect_in("ldd", "libechelon.so", text)
    for heavy in ["mpi", "dnnl", "blas", "mkl", "gomp", "iomp", "cuda"]:
        expect(f"{heavy} in ldd", re.search(rf"lib[a-z_]*{heavy}[a-z_]*\.", text), None)


def test_starts_fast():
    """Best of several, since other work may share the machine; the sanitizers are not timed."""
    symbols = subprocess.run(["ldd", ECHELON], capture_output=True, text=True).stdout
    if "libasan" in symbols or "libtsan" in symbols:
        return
    best = 1e9
    for _ in range(10):
        before = time.perf_counter()
        run("help")
        best = min(best, time.perf_counter() - before)
    expect(f"help starts in {1e3 * best:.1f} ms, below 20", best < 0.020, True)


test_version_and_help()
test_exit_statuses()
test_debug_prints_the_chain()
test_colour()
test_full_device()
test_doctor()
test_doctor_without_launcher()
test_help_config()
test_links_no_heavy_library()
test_starts_fast()
finish()
