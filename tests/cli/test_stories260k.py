# RUN: np=1 timeout=120 tags=fast
"""stories260K through the command line: llama2.c's file and the folder made of it tell the story
that llama2.c's doc/stories260K.md publishes (empty prompt, temperature 0)."""
import json
import os
import sys
import tempfile

from cli import SOURCE, expect, finish, run

DATA = os.path.join(os.environ.get("ECH_SHARED", ""), "data", "stories260K")
BINARY, TOKENIZER = (os.path.join(DATA, name) for name in ("stories260K.bin", "tok512.bin"))


def tell(*args):
    done = run("generate", *args, "--temperature", "0")
    expect(f"{args} {done.stderr}", done.returncode, 0)
    return done.stdout


def main(folder):
    with open(os.path.join(SOURCE, "tests/storage/fixtures/stories260k_greedy.json"),
              encoding="utf-8") as f:
        published = json.load(f)
    hf = os.path.join(folder, "hf")
    done = run("ckpt", "import", BINARY, "--tokenizer", TOKENIZER, "--out", hf)
    expect(f"import {done.stderr}", done.returncode, 0)
    for source in ([BINARY, "--tokenizer", TOKENIZER], [hf]):
        for kernels in ("auto", "ref"):
            expect(f"{source} {kernels}", tell(*source, "--kernels", kernels),
                   published["text"] + "\n")
        document = json.loads(tell(*source, "--json"))
        expect(f"{source} --json", [document[k] for k in ("prompt_tokens", "tokens", "text")],
               [published["ids"][:1], published["ids"][1:], published["text"]])
    beginning, rest = published["text"][:120], published["text"][120:]
    expect("from its own beginning", tell(hf, "--prompt", beginning, "--tokens", "400")[:len(
        published["text"])], beginning + rest)


if not os.path.exists(BINARY):
    print(f"skipped: no {BINARY} (set ECH_SHARED)", file=sys.stderr)
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    main(scratch)
finish()
