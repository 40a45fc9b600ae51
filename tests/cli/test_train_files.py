# RUN: np=1 timeout=120 tags=fast,mpi
"""What a run writes: checkpoints (which are kept, what a failing save leaves, what is in them) and
the gradients of --dump-grads, read here by a few lines of Python."""
import array
import json
import math
import os
import re
import resource
import shutil
import signal
import struct
import subprocess

from cli import ECHELON, clean_environment, expect, expect_in, failures, finish
from training import MODELS, Place, has_mpi, step_name


def read_safetensors(path):
    """{name: (dtype, shape, values)}, and what stands in the file apart from them."""
    with open(path, "rb") as file:
        data = file.read()
    n, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            values = array.array({"F32": "f", "F64": "d"}[t["dtype"]])
            values.frombytes(data[8 + n + begin:8 + n + end])
            out[name] = (t["dtype"], t["shape"], values)
    return out, 8 + n


def kept(place):
    """Steps of the checkpoints in the folder, each whole."""
    names = sorted(os.listdir(place.path("ckpt")))
    for name in names:
        expect(f"{name} is whole", place.echelon("ckpt", "verify", place.path("ckpt", name)).code, 0)
    return [int(name[5:]) for name in names]


def saved(place, steps, every, keep, *args, **more):
    shutil.rmtree(place.path("ckpt"), ignore_errors=True)
    config = place.config(train={"steps": steps},
                          **more,
                          checkpoint={
                              "dir": "ckpt",
                              "every_steps": every,
                              "keep": keep
                          })
    return place.train(config, *args)


def test_which_are_kept(place):
    """In the order of numbers, not of names; the last step too; 0 is all of them."""
    for steps, every, keep, want in [(11, 1, 1, [11]), (10, 1, 2, [9, 10]), (10, 3, 2, [9, 10]),
                                     (5, 2, 0, [2, 4, 5]), (3, 1, 9, [1, 2, 3]), (4, 10, 1, [4])]:
        run = saved(place, steps, every, keep)
        expect(f"{steps} steps, every {every}, keep {keep}", (run.code, kept(place)), (0, want))
    run = saved(place, 3, 0, 1)
    expect("every 0: nothing at all", (run.code, os.path.exists(place.path("ckpt"))), (0, False))


def test_the_newest_is_protected(place):
    """A later number of another run stands in the way of nothing; other folders are left alone."""
    saved(place, 1, 1, 0)
    shutil.move(place.path("ckpt", step_name(1)), place.path("ckpt", "step-5000"))
    for name in ("notes", "step-", "step-x7"):
        os.mkdir(place.path("ckpt", name))
    config = place.config(train={"steps": 4}, checkpoint={"dir": "ckpt", "every_steps": 2, "keep": 1})
    run = place.train(config, "--resume", "no")
    expect("stale number: exit", run.code, 0)
    names = set(os.listdir(place.path("ckpt")))
    expect("stale number: just written, and others'", names,
           {step_name(4), "step-5000", "notes", "step-", "step-x7"})


def opened(place):
    """Name of the folder that `generate ckpt` opens: its refusal for want of a tokenizer tells."""
    run = place.echelon("generate", "ckpt")
    expect("no tokenizer: exit", run.code, 2)
    found = re.search(r"ckpt/(step-\d+)", run.stderr)
    return found[1] if found else run.stderr


def test_a_shorter_run_after_a_longer_one(place):
    """The newest is what was saved last, not the highest number; each run keeps its own."""
    saved(place, 6, 2, 2)
    expect("first run", kept(place), [4, 6])
    with open(place.path("ckpt", step_name(6), "rank-00000.bin"), "rb") as file:
        old = file.read()
    config = place.config(train={"steps": 3}, data={"seed": 2},
                          checkpoint={"dir": "ckpt", "every_steps": 1, "keep": 1})
    run = place.train(config, "--resume", "no")
    expect("shorter run: exit", run.code, 0)
    expect("what stands", kept(place), [3, 4, 6])
    with open(place.path("ckpt", step_name(6), "rank-00000.bin"), "rb") as file:
        expect("the earlier run's is untouched", file.read() == old, True)
    expect("generate opens", opened(place), step_name(3))
    shutil.rmtree(place.path("ckpt", step_name(3)))
    expect("without the newest", opened(place), step_name(6))


def test_failing_save_keeps_the_old(place, *args):
    """keep 1 and a save that cannot be put in place: it is told loudly, training goes on, the one
    before stays until the next that can.  A last one that fails is the run's failure."""
    config = place.config(train={"steps": 3}, checkpoint={"dir": "ckpt", "every_steps": 1, "keep": 1})
    for blocked, code, stands, kinds in [
            (2, 0, [3], ["start", "step", "checkpoint", "step", "fault", "step", "checkpoint", "end"]),
            (3, 1, [2], ["start", "step", "checkpoint", "step", "checkpoint", "step", "fault", "end"])]:
        shutil.rmtree(place.path("ckpt"), ignore_errors=True)
        os.mkdir(place.path("ckpt"))
        with open(place.path("ckpt", step_name(blocked)), "w") as file:
            file.write("in the way")
        run = place.train(config, *args)
        expect("failing save: exit", run.code, code)
        expect_in("failing save: words", f"NO CHECKPOINT of step {blocked}", run.stderr)
        expect("failing save: events", [e["event"] for e in run.events], kinds)
        fault, = run.of("fault")
        expect("failing save: fault", [fault[k] for k in ("kind", "rank", "step", "action")],
               ["checkpoint", 0, blocked, "stop" if code else "go on"])
        expect_in("failing save: detail", "a file stands there", fault["detail"])
        os.remove(place.path("ckpt", step_name(blocked)))
        expect("failing save: what stands", kept(place), stands)


def small_files():
    """Run in the child: files end at 60000 bytes, as on a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000))


def test_full_disk(place):
    shutil.rmtree(place.path("ckpt"), ignore_errors=True)
    config = place.config(train={"steps": 3}, checkpoint={"dir": "ckpt", "every_steps": 2})
    got = subprocess.run([ECHELON, "train", config, "--json"],
                         text=True,
                         cwd=place.folder,
                         env=clean_environment(),
                         capture_output=True,
                         stdin=subprocess.DEVNULL,
                         preexec_fn=small_files,
                         timeout=60)
    expect("full disk: exit", got.returncode, 1)
    events = [json.loads(line) for line in got.stdout.splitlines()]
    expect("full disk: events", [e["event"] for e in events],
           ["start", "step", "step", "fault", "step", "fault", "end"])
    expect_in("full disk: words", "cannot write", got.stderr)
    expect("full disk: nothing half-written", os.listdir(place.path("ckpt")), [])


def test_what_is_in_them(place):
    """Every parameter once, without padding, by its name elsewhere; the same bytes from virtual
    ranks as from MPI."""
    want = {"gpt2": 2 * 14 + 4 - 2 * 2, "llama": 2 * 9 + 3}
    for model in MODELS:
        run = saved(place, 2, 2, 0, model=model)
        event = run.of("checkpoint")[0]
        folder = place.path("ckpt", step_name(2))
        tensors, head = read_safetensors(os.path.join(place.exported(folder), "model.safetensors"))
        expect(f"{model}: path", os.path.realpath(event["path"]), os.path.realpath(folder))
        expect(f"{model}: bytes, moments too",
               3 * (os.path.getsize(place.path("exported", "model.safetensors")) - head),
               event["bytes"])
        expect(f"{model}: parameters", sum(len(v) for _, _, v in tensors.values()),
               run.of("start")[0]["params"])
        expect(f"{model}: tensors", len(tensors), want[model])
        expect(f"{model}: finite", all(math.isfinite(x) for _, _, v in tensors.values() for x in v),
               True)
        show = place.echelon("ckpt", "show", folder, "--json")
        expect(f"{model}: shown", show.code, 0)
    if has_mpi():
        files = []
        for transport in ("inproc", "mpi"):
            saved(place, 2, 2, 0, "--ranks", "3", "--transport", transport, batch={"global": 6})
            with open(os.path.join(place.exported("ckpt"), "model.safetensors"), "rb") as file:
                files.append(file.read())
        expect("weights of virtual ranks and MPI", files[0] == files[1], True)


def norm(tensors):
    return math.sqrt(math.fsum(x * x for _, _, values in tensors.values() for x in values))


def difference(a, b):
    """Largest over tensors of ||a - b|| over max(||b||, 1e-6 ||all of b||)."""
    floor, worst = 1e-6 * norm(b), 0
    for name, (_, _, y) in b.items():
        x = a[name][2]
        d = math.sqrt(math.fsum((p - q)**2 for p, q in zip(x, y)))
        worst = max(worst, d / max(math.sqrt(math.fsum(q * q for q in y)), floor))
    return worst


def test_gradients(place):
    """Of the last step, after all sums, before clipping: their norm is grad_norm, and they are
    those of one rank for any number of ranks and micro-batches, unevenly masked ones too."""
    place.ids("m.bin", [1] * 30 + [0] * 300 + [1 if i % 11 == 0 else 0 for i in range(1671)],
              "uint8")
    for model in MODELS:
        base = None
        for ranks, micro, bucket in [(1, 12, 25), (1, 1, 25), (2, 2, 1e-6), (3, 1, 0.01),
                                     (4, 3, 25)]:
            config = place.config(model=model,
                                  batch={
                                      "global": 12,
                                      "micro": micro
                                  },
                                  data={
                                      "train": "t.bin",
                                      "mask": "m.bin"
                                  },
                                  train={"steps": 2},
                                  layout={"zero": {
                                      "bucket_mb": bucket
                                  }},
                                  optim={
                                      "name": "sgd",
                                      "clip": 0.1
                                  },
                                  precision={"compute": "fp64"})
            run = place.train(config, "--ranks", str(ranks), "--transport", "inproc",
                              "--dump-grads", "g.safetensors")
            where = f"{model}, {ranks} ranks of {micro}"
            expect(f"{where}: exit", (run.code, run.stderr if run.code else ""), (0, ""))
            got, _ = read_safetensors(place.path("g.safetensors"))
            expect(f"{where}: types", {t for t, _, _ in got.values()}, {"F64"})
            told = run.of("step")[-1]["grad_norm"]
            expect(f"{where}: norm", math.isclose(norm(got), told, rel_tol=1e-12), True)
            expect(f"{where}: elements", sum(len(v) for _, _, v in got.values()),
                   run.of("start")[0]["params"])
            base = base or got
            far = difference(got, base)
            if not far <= 1e-11:
                failures.append(f"{where}: gradients differ by {far}")
    config = place.config(train={"steps": 1})
    place.train(config, "--dump-grads", "g.safetensors")
    got, _ = read_safetensors(place.path("g.safetensors"))
    expect("fp32: types", {t for t, _, _ in got.values()}, {"F32"})


with Place() as place:
    place.tokens()
    test_which_are_kept(place)
    test_the_newest_is_protected(place)
    test_a_shorter_run_after_a_longer_one(place)
    test_failing_save_keeps_the_old(place)
    if has_mpi():
        test_failing_save_keeps_the_old(place, "--ranks", "2")
    test_full_disk(place)
    test_what_is_in_them(place)
    test_gradients(place)
finish()
