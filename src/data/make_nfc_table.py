#!/usr/bin/env python3
"""Writes nfc_table.h, the Unicode data that nfc.c needs, from Python's unicodedata.

Run in this folder: python3 make_nfc_table.py > nfc_table.h.  Version 14 is also PCRE2 10.42's.
"""

import textwrap
import unicodedata as ud


def rows(items):
    return textwrap.fill(" ".join(items), 100, initial_indent="    ", subsequent_indent="    ")


def main():
    parts = []
    for code in range(0x110000):
        text = ud.decomposition(chr(code))
        if text and not text.startswith("<"):
            both = [int(x, 16) for x in text.split()] + [0]
            parts.append((code, both[0], both[1]))
    composing = [
        i
        for i, (code, a, b) in enumerate(parts)
        if b and ud.normalize("NFC", chr(a) + chr(b)) == chr(code)
    ]
    composing.sort(key=lambda i: parts[i][1:])
    classes = []
    for code in range(0x110000):
        k = ud.combining(chr(code))
        if k and classes and classes[-1][1] == code - 1 and classes[-1][2] == k:
            classes[-1][1] = code
        elif k:
            classes.append([code, code, k])
    print(f"/* Made by make_nfc_table.py from Unicode {ud.unidata_version}: do not edit. */")
    print("/* clang-format off */")
    print("#ifndef ECH_DATA_NFC_TABLE_H\n#define ECH_DATA_NFC_TABLE_H\n\n#include <stdint.h>\n")
    print("/* Canonical decompositions, one step, by code; a single one has second 0. */")
    print("static const struct nfc_pair {\n    uint32_t code, first, second;\n} nfc_pairs[] = {")
    print(rows(["{0x%X,0x%X,0x%X}," % p for p in parts]))
    print("};\n\n/* Those that compose, as places in nfc_pairs, by (first, second). */")
    print("static const uint16_t nfc_composing[] = {")
    print(rows(["%d," % i for i in composing]))
    print("};\n\n/* Combining classes that are not 0, by range. */")
    print(
        "static const struct nfc_class {\n    uint32_t low, high;\n    uint8_t value;\n"
        "} nfc_classes[] = {"
    )
    print(rows(["{0x%X,0x%X,%d}," % tuple(c) for c in classes]))
    print("};\n\n#endif")


main()
