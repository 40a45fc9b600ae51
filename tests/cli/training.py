"""Runs of `echelon train` and `check` for the tests: small models, token files, events.

A Place is a folder of its own with token files and configurations (JSON, which is YAML); what a run
writes goes below it too, so that a test can say that nothing was written."""
import array
import json
import os
import random
import shutil
import subprocess
import tempfile

from cli import ECHELON, clean_environment

VOCAB = 97
MODELS = {
    "gpt2": {"arch": "gpt2", "layers": 2, "hidden": 24, "heads": 3, "vocab": VOCAB, "context": 16},
    "llama": {"arch": "llama", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 40,
              "vocab": VOCAB, "context": 16},
}
# Under a sanitizer: what the libraries of MPI keep to the end is no leak of ours.
MPI_KEEPS_MEMORY = {"ASAN_OPTIONS": "detect_leaks=0"}
TYPES = {"uint16": "H", "int32": "i", "uint8": "B"}


class Run:
    """How a run ended, and what it said."""

    def __init__(self, process):
        self.code = process.returncode
        self.stdout, self.stderr = process.stdout, process.stderr

    @property
    def events(self):
        return [json.loads(line) for line in self.stdout.splitlines()]

    def of(self, kind):
        return [e for e in self.events if e["event"] == kind]

    @property
    def losses(self):
        return [e["loss"] for e in self.of("step")]

    @property
    def end(self):
        return self.of("end")[0]


class Place:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="echelon-test-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def ids(self, name, ids, dtype="uint16"):
        """A bare token file of these ids."""
        with open(self.path(name), "wb") as file:
            array.array(TYPES[dtype], ids).tofile(file)
        return name

    def tokens(self, name="t.bin", n=2001, vocab=VOCAB, seed=1):
        source = random.Random(seed)
        return self.ids(name, [source.randrange(vocab) for _ in range(n)])

    def config(self, name="c.json", model="llama", **sections):
        """A configuration of a small model; a section given replaces keys of the default one."""
        whole = {
            "model": dict(MODELS[model]) if isinstance(model, str) else model,
            "data": {"train": "t.bin"},
            "batch": {"micro": 1, "seq": 16},
            "layout": {},
            "optim": {"lr": 1e-3, "weight_decay": 0.1},
            "train": {"steps": 3},
            "checkpoint": {"dir": "ckpt", "every_steps": 0},
            "run": {"dir": "run", "threads": 1, "bind": "none"},
        }
        for section, keys in sections.items():
            whole[section] = {**whole.get(section, {}), **keys}
        with open(self.path(name), "w") as file:
            json.dump(whole, file, indent=1)
        return self.path(name)

    def echelon(self, *args, env=None, timeout=60, program=(ECHELON,)):
        env = dict(env or clean_environment())
        if program != (ECHELON,) or ("--ranks" in args and "inproc" not in args):
            env.update(MPI_KEEPS_MEMORY)
        return Run(subprocess.run([*program, *args], cwd=self.folder, env=env, text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout))

    def train(self, config, *args, **how):
        return self.echelon("train", config, "--json", *args, **how)

    def exported(self, source, out="exported"):
        """The weights of a checkpoint, or of the newest of a folder, as a Hugging Face folder."""
        shutil.rmtree(self.path(out), ignore_errors=True)
        run = self.echelon("ckpt", "export", source, "--out", out)
        assert run.code == 0, run.stderr
        return self.path(out)

    def check(self, config, *args):
        run = self.echelon("check", config, "--json", *args)
        assert run.code == 0, run.stderr
        return json.loads(run.stdout)


def step_name(step):
    return f"step-{step:08}"


def has_mpi():
    from cli import BUILD
    return bool(shutil.which("mpirun")) and os.path.exists(os.path.join(BUILD, "libechelon_mpi.so"))
