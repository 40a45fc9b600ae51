# RUN: np=1 timeout=60 tags=fast
"""Heads wider than the fast kernels' scratch: attention of training and of generation runs on the
reference kernels, which is said once, and comes to what they come to."""
import math

from cli import expect, expect_in, finish
from training import MODELS, Place

WIDE = {**MODELS["llama"], "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 520}
WORDS = "head_dim 520 is above the fast kernels' 512"


def test_training(place):
    config = place.config(model=WIDE, checkpoint={"every_steps": 3})
    slow = place.train(config, "--kernels", "ref")
    fast = place.train(config, "--kernels", "auto", "--set", "checkpoint.dir=fast")
    expect("exit", (slow.code, fast.code), (0, 0))
    expect("steps", (len(slow.losses), len(fast.losses)), (3, 3))
    if fast.of("start")[0]["kernels"] == "cpu":
        expect("said once", fast.stderr.count(WORDS), 1)
    expect("not said of the reference", WORDS in slow.stderr, False)
    for a, b in zip(slow.losses, fast.losses):
        expect(f"{a} and {b}", math.isclose(a, b, rel_tol=1e-5), True)


def test_at_the_bound(place):
    run = place.train(place.config(model={**WIDE, "head_dim": 512}))
    expect("512 is not wide", (run.code, "head_dim" in run.stderr), (0, False))


with Place() as place:
    place.tokens()
    test_training(place)
    test_at_the_bound(place)
finish()
