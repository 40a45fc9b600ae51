#!/usr/bin/env python3
"""Writes the tokenizer fixtures from HF tokenizers, Python's unicodedata and a plain restatement of
llama2.c's published encoder.  The tests themselves need none of them.

    python3 make_tokenizer_fixtures.py FIXTURES [SHARED]

FIXTURES is the folder to write; SHARED, where given, holds gpt2, llama2 and stories260K, and
shared_cases.json is written too.  Needs the Python package tokenizers (0.23 was used).
"""

import json
import random
import struct
import sys
import unicodedata
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

MARK = "\u2581"
LLAMA3 = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
QWEN = LLAMA3.replace("\\p{N}{1,3}", "\\p{N}")
DEEPSEEK = [
    "\\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
]

rnd = random.Random(20240)


def make_text(n_words):
    """Words of made-up syllables, some much more frequent than others."""
    consonants, vowels = "bdfgklmnprstvz", "aeiou"
    lexicon = [
        "".join(
            rnd.choice(consonants) + rnd.choice(vowels) + rnd.choice(["", "", "n", "s"])
            for _ in range(rnd.randint(1, 3))
        )
        for _ in range(300)
    ]
    out = []
    for _ in range(n_words):
        word = lexicon[int(rnd.random() ** 3 * len(lexicon))]
        word = word.capitalize() if rnd.random() < 0.1 else word
        word += rnd.choice([""] * 12 + ["'s", ".", ",", "!", "\u00e9", "\u4e2d", "\n", ":\n\n"])
        out.append(word if rnd.random() < 0.97 else str(rnd.randrange(5000)))
    return " ".join(out)


def strings(text, n):
    """Texts that find differences: odd spaces, contractions, all of Unicode, control tokens."""
    bits = [
        "'s",
        " 't",
        "'LL",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "a",
        "Zo",
        " ka",
        "123",
        " 4567",
        "!!",
        "...",
    ]
    bits += [
        "\u00e9",
        "e\u0301",
        "\u4e2d\u6587",
        "\u3000",
        "\u00a0",
        "\u180e",
        "\u2028",
        "\u0085",
        "\u1680",
        "\U0001f600",
    ]
    bits += [
        "<|endoftext|>",
        "<s>",
        "</s>",
        "<unk>",
        "<|user|>",
        "\uac00",
        "\u1100\u1161\u11a8",
        MARK,
        "<0x41>",
        "\u017f",
    ]
    out = [
        "",
        " ",
        "a",
        "  a",
        "a  ",
        "\n",
        "\u00e9",
        "<|endoftext|>",
        "aa" * 60,
        " " * 100,
        "1" * 100,
        "xa  1 a  b",
        " zo ka !",
    ]
    while len(out) < n:
        k = rnd.randrange(4)
        size = rnd.choice([2, 3, 5, 8, 20])
        if k == 0:
            out.append("".join(rnd.choice(bits) for _ in range(size)))
        elif k == 1:
            at = rnd.randrange(len(text) - 200)
            out.append(text[at : at + size * 5])
        elif k == 2:
            codes = [
                rnd.randrange(1, rnd.choice([0x250, 0x600, 0x3000, 0xD800])) for _ in range(size)
            ]
            out.append("".join(map(chr, codes)))
        else:
            out.append("".join(rnd.choice("  \n\t\u00a0ab'1") for _ in range(size)))
    return out


def split(*patterns):
    steps = [
        {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
        for p in patterns
    ]
    return {"type": "Sequence", "pretokenizers": steps + [byte_level(False)]}


def byte_level(use_regex=True, prefix=False):
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def added(id_, content, special=True, **more):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id_, "content": content, **flags, "special": special, **more}


def metaspace(scheme, cuts):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cuts}


def template(token, id_):
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    entry = {token: {"id": token, "ids": [id_], "tokens": [token]}}
    return {
        "type": "TemplateProcessing",
        "single": [special, sequence],
        "pair": [special, sequence],
        "special_tokens": entry,
    }


def train_bytes(text, vocab):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - 1, min_frequency=2, initial_alphabet=alphabet, show_progress=False
    )
    t.train_from_iterator([text], trainer)
    model = json.loads(t.to_str())["model"]
    model.pop("ignore_merges", None)
    model["vocab"]["<|endoftext|>"] = len(model["vocab"])
    return model


def train_marker(text, vocab):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="first", split=True)
    t.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=vocab - 259, min_frequency=2, show_progress=False)
    )
    learned = json.loads(t.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    names += sorted(learned["vocab"], key=learned["vocab"].get)
    merges = [[MARK, MARK], [MARK * 2, MARK * 2]] + learned["merges"]
    names += [MARK * 2, MARK * 4]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": {s: i for i, s in enumerate(names)},
        "merges": merges,
    }


def variants(eot):
    end = [added(eot, "<|endoftext|>")]
    bytes_ = {"model": "bytes", "decoder": byte_level(), "added_tokens": end}
    control = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    replace = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
    decoder = {
        "type": "Sequence",
        "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}, strip],
    }
    marker = {
        "model": "marker",
        "decoder": decoder,
        "added_tokens": control,
        "post_processor": template("<s>", 1),
    }
    prepend = [
        {"type": "Prepend", "prepend": MARK},
        {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
    ]
    more = end + [
        added(eot + 1, "<|user|>", rstrip=True),
        added(eot + 2, "zo ka", special=False, lstrip=True, rstrip=True),
        added(eot + 3, "a  1", special=False, normalized=True),
        added(eot + 4, "a  ", special=False, normalized=True),
    ]
    yield "gpt2", {**bytes_, "pre_tokenizer": byte_level()}
    yield "llama3", {
        **bytes_,
        "pre_tokenizer": split(LLAMA3),
        "ignore_merges": True,
        "post_processor": template("<|endoftext|>", eot),
    }
    yield "qwen2", {**bytes_, "pre_tokenizer": split(QWEN), "normalizer": {"type": "NFC"}}
    yield "deepseek", {**bytes_, "pre_tokenizer": split(*DEEPSEEK)}
    digits = {"type": "Digits", "individual_digits": True}
    yield "digits", {
        **bytes_,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level()]},
    }
    yield "prefix", {**bytes_, "pre_tokenizer": byte_level(prefix=True)}
    removed = {
        "type": "Split",
        "pattern": {"Regex": "[a-z]+"},
        "behavior": "Removed",
        "invert": True,
    }
    yield "removed", {
        **bytes_,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [removed, byte_level(False)]},
    }
    yield "added", {**bytes_, "pre_tokenizer": byte_level(), "added_tokens": more}
    yield "llama2", {**marker, "normalizer": {"type": "Sequence", "normalizers": prepend}}
    for scheme in ("first", "always", "never"):
        yield "metaspace-" + scheme, {**marker, "pre_tokenizer": metaspace(scheme, False)}
    yield "metaspace-split", {**marker, "pre_tokenizer": metaspace("always", True)}


def head_json(parts):
    """All of tokenizer.json up to the first member of the model."""
    keys = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    whole = {"version": "1.0", "truncation": None, "padding": None}
    whole["added_tokens"] = parts["added_tokens"]
    whole.update({k: parts.get(k) for k in keys})
    text = json.dumps(whole)[:-1] + ', "model": {'
    return text + ('"ignore_merges": true, ' if parts.get("ignore_merges") else "")


def cases(tokenizer, texts):
    out = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        back = tokenizer.decode(ids, skip_special_tokens=False)
        clean = tokenizer.decode(ids, skip_special_tokens=True)
        # Bytes that are no UTF-8 come back as U+FFFD there and as they are here.
        out.append([text, ids] if "\ufffd" in back else [text, ids, back, clean])
    return out


def llama2c_encode(pieces, scores, text):
    """As run.c does: characters or bytes, then the best pair again and again."""
    index = {}
    for i, piece in enumerate(pieces):
        index.setdefault(piece, i)
    ids = [1]
    if text:
        ids.append(index[b" "])
    for c in text:
        raw = c.encode()
        ids += [index[raw]] if raw in index else [b + 3 for b in raw]
    while True:
        best, at = -1e10, -1
        for i in range(len(ids) - 1):
            found = index.get(pieces[ids[i]] + pieces[ids[i + 1]])
            if found is not None and scores[found] > best:
                best, at, new = scores[found], i, found
        if at < 0:
            return ids
        ids[at : at + 2] = [new]


def read_llama2c(data):
    pieces, scores, at = [], [], 4
    while at < len(data):
        score, n = struct.unpack_from("<fi", data, at)
        pieces.append(data[at + 8 : at + 8 + n])
        scores.append(score)
        at += 8 + n
    return pieces, scores


def write_llama2c(model):
    names = sorted(model["vocab"], key=model["vocab"].get)
    rank = {}
    for i, (a, b) in enumerate(m if isinstance(m, list) else m.split(" ") for m in model["merges"]):
        rank.setdefault(a + b, i)
    body = b""
    for name in names:
        raw = name.replace(MARK, " ").encode()
        # Two neighbours share each score: ties go to the left.
        body += struct.pack("<fi", -float(rank.get(name, 1000000) // 2), len(raw)) + raw
    return struct.pack("<i", max(len(n) for n in names)) + body


def nfc_cases():
    marks = [
        0x300,
        0x301,
        0x308,
        0x323,
        0x327,
        0x345,
        0x5B0,
        0x93C,
        0x3099,
        0x1D165,
        0x11A8,
        0x1161,
        0x9BE,
        0xDBF,
        0x1133E,
    ]
    starts = [
        0x41,
        0x65,
        0x1100,
        0xAC00,
        0x9C7,
        0x915,
        0x304B,
        0x212B,
        0xF900,
        0x1E9B,
        0x1D15E,
        0x958,
        0x344,
        0x20,
        0x3B1,
        0x1F80,
    ]
    out = []
    for _ in range(300):
        codes = [
            rnd.choice(starts + marks * 2 if rnd.random() < 0.9 else [rnd.randrange(0x20, 0x3400)])
            for _ in range(rnd.randint(1, 7))
        ]
        text = "".join(map(chr, codes))
        out.append([text, unicodedata.normalize("NFC", text)])
    return out


def dump(path, value):
    """JSON with each member of the outer lists on a line."""

    def lines(v):
        return "[\n" + ",\n".join(json.dumps(x) for x in v) + "\n]"

    if isinstance(value, dict):
        value = (
            "{\n"
            + ",\n".join(
                json.dumps(k) + ": " + (lines(v) if isinstance(v, list) else json.dumps(v))
                for k, v in value.items()
            )
            + "\n}"
        )
    else:
        value = lines(value)
    path.write_text(value + "\n")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    text = make_text(3500)
    (folder / "text.txt").write_text(text)
    models_ = {"bytes": train_bytes(text, 420), "marker": train_marker(text, 420)}
    for name, model in models_.items():
        dump(folder / f"model_{name}.json", model)
    for name, parts in variants(models_["bytes"]["vocab"]["<|endoftext|>"]):
        head, model = head_json(parts), parts["model"]
        t = Tokenizer.from_str(head + json.dumps(models_[model])[1:] + "}")
        whole = {"model": model, "head": head, "cases": cases(t, strings(text, 60))}
        dump(folder / f"variant_{name}.json", whole)
    data = write_llama2c(models_["marker"])
    (folder / "llama2c.bin").write_bytes(data)
    pieces, scores = read_llama2c(data)
    dump(
        folder / "llama2c.json", [[s, llama2c_encode(pieces, scores, s)] for s in strings(text, 60)]
    )
    dump(folder / "nfc.json", nfc_cases())
    if len(sys.argv) > 2:
        shared = Path(sys.argv[2])
        pieces, scores = read_llama2c((shared / "stories260K" / "tok512.bin").read_bytes())
        out = {
            n: cases(Tokenizer.from_file(str(shared / n / "tokenizer.json")), strings(text, 80))
            for n in ("gpt2", "llama2")
        }
        out["tok512"] = [
            [s, llama2c_encode(pieces, scores, s)]
            for s in ["Once upon a time, there was a girl"] + strings(text, 60)
        ]
        dump(folder / "shared_cases.json", out)


main()
