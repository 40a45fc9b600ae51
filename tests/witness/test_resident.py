# RUN: np=1 timeout=300 tags=fast,mpi
"""Memory that the kernel says a process has against what its arenas explain, and the executor's own
share of the time: layers of GPT-2's shape.

|peak resident - arenas - base| <= max(3 %, 48 MiB), where base is the same executable with a tiny
model on as many ranks."""
import os
import sys

sys.path.insert(0, os.path.join(os.environ["ECH_SOURCE"], "tests", "cli"))

from cli import expect, failures, finish  # noqa: E402
from training import Place, has_mpi  # noqa: E402

MIB = 2**20
LONG = bool(os.environ.get("ECH_LONG"))
SANITIZED = b"__asan_init" in open(os.path.join(os.environ["ECH_BUILD"], "libechelon.so"),
                                   "rb").read()


def train(place, config, ranks, transport):
    run = place.train(config, "--ranks", str(ranks), "--transport", transport, timeout=280)
    expect(f"{config} on {ranks}: exit", (run.code, run.stderr if run.code else ""), (0, ""))
    return run.end


def resident(place, ranks, transport, tiny, real):
    """What no arena explains, in bytes."""
    in_process = ranks if transport == "inproc" else 1
    base, end = (train(place, c, ranks, transport) for c in (tiny, real))
    arenas = [e["allocated"]["device"]["arena"] * in_process for e in (base, end)]
    left = (end["rss_bytes"] - arenas[1]) - (base["rss_bytes"] - arenas[0])
    bound = max(0.03 * end["rss_bytes"], 48 * MIB)
    print(f"{transport}, {ranks} ranks: resident {end['rss_bytes'] / MIB:.1f} MiB, arenas "
          f"{arenas[1] / MIB:.1f}, base {(base['rss_bytes'] - arenas[0]) / MIB:.1f}: "
          f"{left / MIB:+.1f} unexplained, bound {bound / MIB:.1f}")
    if abs(left) > bound:
        failures.append(f"{transport}, {ranks} ranks: {left} bytes unexplained, bound {bound}")
    return end


def touched_is_allocated(end):
    """Every page of the arena is used: what is predicted is needed."""
    touched, allocated = end["touched"]["device"]["total"], end["allocated"]["device"]["total"]
    if not 0.98 * allocated <= touched <= end["allocated"]["device"]["arena"]:
        failures.append(f"touched {touched} of {allocated} allocated bytes")


def main():
    vocab = 50257 if LONG else 4096
    with Place() as place:
        place.tokens(n=4001, vocab=97)
        tiny = place.config("tiny.json", train={"steps": 2})
        model = {"preset": "gpt2-124m", "layers": 2, "vocab": vocab}
        real = place.config("real.json", model=model, train={"steps": 2},
                            batch={"micro": 1, "seq": 128}, run={"dir": "run", "threads": "auto"})
        end = resident(place, 1, "self", tiny, real)
        touched_is_allocated(end)
        shares = [end["time_share"]["executor"]]
        if LONG:
            resident(place, 2, "inproc", tiny, real)
        if has_mpi() and LONG:
            resident(place, 3, "mpi", tiny, real)
        while min(shares) >= 0.01 and len(shares) < 3:  # others may have had the processor
            shares.append(train(place, real, 1, "self")["time_share"]["executor"])
        print("executor's share of a step's time: " + ", ".join(f"{100 * s:.2f} %" for s in shares))
        expect("executor's share below 1 %", min(shares) < 0.01, True)
    finish()
    return 0


if SANITIZED:
    print("skipped: a sanitizer's own memory is not the product's", file=sys.stderr)
    sys.exit(77)
sys.exit(main())
