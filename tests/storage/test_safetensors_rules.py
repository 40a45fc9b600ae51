# RUN: np=1 timeout=60 tags=fast
"""The safetensors reader against a slow second checker, written from the rules alone.

Both judge the same files: hand-made ones for each rule and thousands of mutants of good files.  They
must agree on every one, and every rule must have been the reason at least once.
`--seeds DIR` writes the hand-made files as seeds for the fuzzer instead.
"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8,
        "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
        "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}
HEADER_CAP = 16 << 20
TOP = 2 ** 63


class Refused(Exception):
    """args[0] is the rule."""


def need(condition, rule):
    if not condition:
        raise Refused(rule)


class Pairs(list):
    """A JSON object with its keys in order, twice where they stand twice."""


def parse(text):
    def number(words):
        return int(words) if words.isdigit() else None  # None: signed, a fraction, an exponent

    def refuse(_):
        raise Refused("json")

    try:
        value = json.loads(text, object_pairs_hook=Pairs, parse_int=number, parse_float=number,
                           parse_constant=refuse)
    except (ValueError, RecursionError):
        raise Refused("json") from None
    return value


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, Pairs):
        for key, member in value:
            yield key
            yield from strings(member)
    elif isinstance(value, list):
        for member in value:
            yield from strings(member)


def depth(value):
    if not isinstance(value, list):
        return 0
    members = [member for _, member in value] if isinstance(value, Pairs) else value
    return 1 + max(map(depth, members), default=0)


def check_strings(value):
    for s in strings(value):
        need("\0" not in s, "json")
        need(not any(0xD800 <= ord(c) < 0xE000 for c in s), "json")


def check_keys(value):
    keys = [key for key, _ in value]
    need(len(keys) == len(set(keys)), "json")


def size(value):
    need(isinstance(value, int) and not isinstance(value, bool), "size")
    need(0 <= value < TOP, "size")
    return value


def check_tensor(name, value, data_bytes):
    need(len(name.encode()) <= 512, "name")
    need(not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in name), "name")
    need(isinstance(value, Pairs), "metadata")
    check_keys(value)
    members = dict(value)
    need(set(members) == {"dtype", "shape", "data_offsets"}, "metadata")
    need(isinstance(members["dtype"], str), "json")
    need(members["dtype"] in BITS, "size")
    need(isinstance(members["shape"], list) and not isinstance(members["shape"], Pairs), "json")
    offsets = members["data_offsets"]
    need(isinstance(offsets, list) and not isinstance(offsets, Pairs), "json")
    need(len(offsets) == 2, "json")
    begin, end = map(size, offsets)
    elements = 1
    for dim in map(size, members["shape"]):
        elements *= dim
        need(elements < TOP, "size")
    bits = elements * BITS[members["dtype"]]
    need(bits < TOP and bits % 8 == 0, "size")
    need(begin <= end <= data_bytes and end - begin == bits // 8, "size")
    return begin, end


def check(data):
    """Raise Refused unless all rules hold."""
    need(len(data) >= 8, "length")
    length, = struct.unpack("<Q", data[:8])
    need(length <= HEADER_CAP and length <= len(data) - 8, "length")
    header = data[8:8 + length]
    need(header[:1] == b"{" and header.rstrip(b" ")[-1:] == b"}", "json")
    try:
        text = header.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("json") from None
    value = parse(text)
    need(isinstance(value, Pairs) and depth(value) <= 4, "json")
    check_strings(value)
    check_keys(value)
    spans = []
    for name, member in value:
        if name == "__metadata__":
            need(isinstance(member, Pairs), "metadata")
            check_keys(member)
            need(all(isinstance(v, str) for _, v in member), "metadata")
        else:
            spans.append(check_tensor(name, member, len(data) - 8 - length))
    at = 0
    for begin, end in sorted(spans):
        need(begin == at, "cover")
        at = end
    need(at == len(data) - 8 - length, "cover")


def image(header, data=b"", length=None):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensor(name, dtype, shape, begin, end):
    return '"%s":{"dtype":"%s","shape":%s,"data_offsets":[%s,%s]}' % (name, dtype, shape, begin, end)


def hand_made():
    a = tensor("a", "F32", [2], 0, 8)
    b = tensor("b", "BF16", [3, 1], 8, 14)
    data = bytes(range(14))
    good = "{" + a + "," + b + "}"
    rows = {
        "good": image(good, data),
        "metadata": image('{"__metadata__":{"format":"pt","x":"y"},' + b + "," + a + "}  ", data),
        "empty": image("{}"),
        "rank0": image("{" + tensor("s", "F64", [], 0, 8) + "}", bytes(8)),
        "zero": image("{" + tensor("z", "F32", [0, 5], 0, 0) + "," + a + "}", bytes(8)),
        "sub_byte": image("{" + tensor("q", "F4", [6], 0, 3) + "}", bytes(3)),
        "unicode": image("{" + tensor("\\u00e9\\ud83d\\ude00", "U8", [1], 0, 1) + "}", b"1"),
        "length_7": b"1234567",
        "length_huge": image("{}", length=2 ** 64 - 1),
        "length_wrap": image("{}", length=2 ** 64 - 8),
        "length_cap": image("{}", length=HEADER_CAP + 1),
        "length_over": image("{}", length=3),
        "json_space_first": image(" {}"),
        "json_newline_last": image("{}\n"),
        "json_list": image("[]"),
        "json_twice": image("{" + a + "," + tensor("a", "U8", [6], 8, 14) + "}", data),
        "json_escaped_twice": image("{" + a + "," + tensor("\\u0061", "U8", [6], 8, 14) + "}", data),
        "json_comma": image("{" + a + ",}", data[:8]),
        "json_utf8": image(b'{"\xff":{}}'),
        "json_surrogate": image("{" + tensor("\\ud800", "F32", [2], 0, 8) + "}", data[:8]),
        "json_nul": image("{" + tensor("\\u0000", "F32", [2], 0, 8) + "}", data[:8]),
        "any_deep": image('{"a":{"shape":' + "[" * 5000 + "]" * 5000 + "}}"),
                "size_minus_zero": image("{" + tensor("a", "F32", "[2]", "-0", 8) + "}", data[:8]),
        "metadata_flat": image('{"__metadata__":{"k":{"l":"m"}}}'),
        "metadata_number": image('{"__metadata__":{"k":1}}'),
        "metadata_member": image('{"a":"b"}'),
        "metadata_key": image("{" + a[:-1] + ',"x":[]}}', data[:8]),
        "metadata_lacks": image('{"a":{"dtype":"U8","shape":[]}}', b"1"),
        "size_float": image("{" + tensor("a", "F32", "[2.0]", 0, 8) + "}", data[:8]),
        "size_dtype": image("{" + tensor("a", "F31", [2], 0, 8) + "}", data[:8]),
        "size_overflow": image("{" + tensor("a", "F32", [2 ** 62, 2], 0, 8) + "}", data[:8]),
        "size_big": image("{" + tensor("a", "F32", [2 ** 63], 0, 8) + "}", data[:8]),
        "size_bits": image("{" + tensor("a", "F4", [3], 0, 1) + "}", b"1"),
        "size_order": image("{" + tensor("a", "F32", [2], 8, 0) + "}", data[:8]),
        "size_beyond": image("{" + tensor("a", "F32", [4], 0, 16) + "}", data[:8]),
        "size_product": image("{" + tensor("a", "F32", [3], 0, 8) + "}", data[:8]),
        "cover_hole": image("{" + a + "," + tensor("b", "U8", [4], 10, 14) + "}", data),
        "cover_overlap": image("{" + a + "," + tensor("b", "U8", [8], 6, 14) + "}", data),
        "cover_tail": image("{" + a + "}", data),
        "name_control": image("{" + tensor("\\u001b[31m", "F32", [2], 0, 8) + "}", data[:8]),
        "name_long": image("{" + tensor("n" * 513, "F32", [2], 0, 8) + "}", data[:8]),
    }
    return rows


TOKENS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"0", b"-1", b"1e9", b"9223372036854775808", b" ",
          b"\n", b"\\", b"\\u0000", b"\xc2\x9b", b"\xed\xa0\x80", b"null", b"NaN", b'"a"', b'"F4"', b'"U8"']


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at:at + rng.randrange(4)] = b""
        elif kind == 2:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 3:
            end = rng.randrange(at, len(data) + 1)
            data[at:at] = data[at:min(end, at + 60)]
        elif at < len(data):
            data[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.8 and len(data) >= 8:  # mostly with a length that fits: deeper rules are met
        old, = struct.unpack("<Q", data[:8])
        tail = rng.choice((0, 8, 14))
        if old > len(data) - 8 or rng.random() < 0.7:
            data[:8] = struct.pack("<Q", max(0, len(data) - 8 - tail))
    return bytes(data)


def verdict(data):
    try:
        check(data)
    except Refused as refused:
        return refused.args[0]
    return "ok"


def compare(driver, files):
    """Run the C reader over (name, bytes) and hold it to the checker; count rules."""
    rules = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, (_, data) in enumerate(files):
            paths.append(os.path.join(folder, "f%d" % i))
            with open(paths[-1], "wb") as f:
                f.write(data)
        said = []
        for i in range(0, len(paths), 500):
            out = subprocess.run([driver] + paths[i:i + 500], stdout=subprocess.PIPE)
            assert out.returncode == 0, (i, out.returncode)
            said += out.stdout.decode("utf-8", "replace").splitlines()
        assert len(said) == len(files), (len(said), len(files))
        for (name, data), line, path in zip(files, said, paths):
            wanted = verdict(data)
            got = "ok" if line == "ok" else line.removeprefix(path + ": ").split(":")[0]
            assert (got == "ok") == (wanted == "ok"), (name, wanted, line, data)
            assert got in ("ok", "length", "json", "metadata", "size", "cover", "name"), line
            rules[got] = rules.get(got, 0) + 1
            if not name.startswith("mutant"):
                rule = name.split("_")[0]
                if rule in ("length", "json", "metadata", "size", "cover", "name") and "_" in name:
                    assert got == rule and wanted == rule, (name, wanted, line)
                else:
                    assert (got == "ok") == (rule != "any"), (name, line)
    return rules


def main():
    hand = hand_made()
    if len(sys.argv) == 3 and sys.argv[1] == "--seeds":
        for name, data in hand.items():
            if len(data) < 4096:
                with open(os.path.join(sys.argv[2], name), "wb") as f:
                    f.write(data)
        return 0
    seed = int(os.environ.get("ECH_TEST_SEED", "1"))
    rng = random.Random(seed)
    goods = [data for data in hand.values() if verdict(data) == "ok"]
    files = list(hand.items())
    files += [("mutant %d of seed %d" % (i, seed), mutate(rng, rng.choice(goods)))
              for i in range(4000)]
    driver = os.path.join(os.environ["ECH_BUILD"], "tests", "test_storage_safetensors")
    rules = compare(driver, files)
    print("verdicts:", rules)
    assert set(rules) == {"ok", "length", "json", "metadata", "size", "cover", "name"}, rules
    return 0


if __name__ == "__main__":
    sys.exit(main())
