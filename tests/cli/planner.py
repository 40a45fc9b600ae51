"""What tests of fit, sim and plan share: asking, and comparing within a case's tolerance."""
import json
import os
import tempfile

from cli import expect, failures, finish, run

GIB = 2.0**30
MEMORY = 0.15  # what a case allows unless it says otherwise
SPEED = 0.25


def ask(command, *words, code=0):
    """The JSON of a command; words are split at blanks.  Exit status 3 is `fit` saying no."""
    args = [a for w in words for a in w.split()]
    got = run(command, *args, "--json")
    expect(f"{command} {' '.join(args)}: exit status, stderr", (got.returncode, got.stderr), (code, ""))
    if not got.stdout:
        finish() # nothing to go on with
    return json.loads(got.stdout)


def fit(*words, verdict="yes"):
    """Ask fit and hold its verdict; a set of verdicts: one of them."""
    wanted = {verdict} if isinstance(verdict, str) else set(verdict)
    args = [a for w in words for a in w.split()]
    got = run("fit", *args, "--json")
    if not got.stdout:
        failures.append(f"fit {' '.join(args)}: exit {got.returncode}: {got.stderr}")
        return None
    answer = json.loads(got.stdout)
    if answer["fits"] not in wanted:
        failures.append(f"fit {' '.join(args)}: got {answer['fits']} at "
                        f"{answer['reserved_bytes'] / GIB:.2f} GiB, wanted {sorted(wanted)}")
    expect(f"fit {' '.join(args)}: exit status", got.returncode, 3 if answer["fits"] == "no" else 0)
    return answer


def within(what, got, want, share):
    """|got / want - 1| <= share."""
    if got is None or not abs(got / want - 1.0) <= share:
        off = "" if got is None else f" ({100 * (got / want - 1):+.1f} %)"
        failures.append(f"{what}: got {got}{off}, wanted {want} within {100 * share:g} %")


def binding(what, answer, *words):
    """What decides is one of these."""
    if answer and answer["binding"] not in words:
        failures.append(f"{what}: decided by {answer['binding']!r}, wanted one of {words}")


def cure(what, answer, *options):
    """One of the cures has all these options."""
    for c in answer["cures"] if answer else []:
        if all(o in c["change"] for o in options):
            return c
    told = [c["change"] for c in answer["cures"]] if answer else []
    failures.append(f"{what}: no cure with {options} among {told}")
    return None


def state(answer):
    """Bytes of parameters, gradients, master and moments of the fullest rank."""
    m = answer["memory_bytes"]
    return m["params"] + m["grads"] + m["master"] + m["optimizer"]


class Clusters:
    """Files of clusters in a folder of their own."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def file(self, name, **keys):
        path = os.path.join(self.folder.name, name + ".json")
        with open(path, "w") as out:
            json.dump(keys, out)
        return path
