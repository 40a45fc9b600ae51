/* Unicode Normalization Form C (Unicode Standard Annex 15): decompose, order, compose. */
#include "base/checked.h"
#include "base/text.h"
#include "data/nfc_table.h"
#include "data/tokenizer_parts.h"
#include "data/utf8.h"

#include <stdlib.h>

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

/* Hangul syllables are arithmetic (The Unicode Standard, section 3.12). */
enum {
    S_BASE = 0xAC00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11A7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT
};

/* --- the tables --- */

static int class_of(uint32_t code)
{
    size_t low = 0;
    size_t high = LENGTH(nfc_classes);

    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (code > nfc_classes[mid].high)
            low = mid + 1;
        else
            high = mid;
    }
    return low < LENGTH(nfc_classes) && code >= nfc_classes[low].low ? nfc_classes[low].value : 0;
}

static const struct nfc_pair *pair_of(uint32_t code)
{
    size_t low = 0;
    size_t high = LENGTH(nfc_pairs);

    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (nfc_pairs[mid].code < code)
            low = mid + 1;
        else
            high = mid;
    }
    return low < LENGTH(nfc_pairs) && nfc_pairs[low].code == code ? &nfc_pairs[low] : NULL;
}

/* The composite of two characters, 0: none. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    size_t low = 0;
    size_t high = LENGTH(nfc_composing);

    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1)
        return a + (b - T_BASE);
    while (low < high) {
        const size_t mid = (low + high) / 2;
        const struct nfc_pair *p = &nfc_pairs[nfc_composing[mid]];
        if (p->first < a || (p->first == a && p->second < b))
            low = mid + 1;
        else
            high = mid;
    }
    if (low == LENGTH(nfc_composing))
        return 0;
    const struct nfc_pair *p = &nfc_pairs[nfc_composing[low]];
    return p->first == a && p->second == b ? p->code : 0;
}

/* --- the three steps --- */

/* A full decomposition has at most 4 characters (Unicode Standard Annex 15, section 9). */
enum { MAX_PARTS = 4 };

/* The first halves of a chain of decompositions, undone to its end; second halves are final. */
static size_t decompose(uint32_t code, uint32_t out[MAX_PARTS])
{
    uint32_t tail[MAX_PARTS];
    size_t n_tail = 0;
    size_t n = 0;

    if (code - S_BASE < S_COUNT) {
        const uint32_t s = code - S_BASE;
        out[n++] = L_BASE + s / (V_COUNT * T_COUNT);
        out[n++] = V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT;
        if (s % T_COUNT)
            out[n++] = T_BASE + s % T_COUNT;
        return n;
    }
    for (const struct nfc_pair *p = pair_of(code); p; p = pair_of(code)) {
        if (p->second && n_tail < MAX_PARTS - 1)
            tail[n_tail++] = p->second;
        code = p->first;
    }
    out[n++] = code;
    while (n_tail > 0)
        out[n++] = tail[--n_tail];
    return n;
}

/* Marks after a base in rising order of class, equal ones as they came. */
static void order_marks(uint32_t *code, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const uint32_t c = code[i];
        const int k = class_of(c);
        size_t j = i;
        for (; k > 0 && j > 0 && class_of(code[j - 1]) > k; j--)
            code[j] = code[j - 1];
        code[j] = c;
    }
}

/* In place; returns the new length.  A mark composes with the last base unless one of its own class
 * or higher stands between. */
static size_t compose_all(uint32_t *code, size_t n)
{
    size_t used = 0;
    size_t base = SIZE_MAX;
    int last = -1; /* class of what stands right before, since the base; -1: nothing */

    for (size_t i = 0; i < n; i++) {
        const int k = class_of(code[i]);
        const uint32_t joined = base != SIZE_MAX && last < k ? compose(code[base], code[i]) : 0;
        if (joined) {
            code[base] = joined;
            continue;
        }
        if (k == 0) {
            base = used;
            last = -1;
        } else {
            last = k;
        }
        code[used++] = code[i];
    }
    return used;
}

static ech_status push(uint32_t **codes, size_t *n, size_t *capacity, uint32_t code)
{
    ECH_TRY(ech_grow(codes, *n, capacity, sizeof **codes));
    (*codes)[(*n)++] = code;
    return ECH_OK;
}

static void flush(uint32_t *codes, size_t *n, ech_text *out)
{
    order_marks(codes, *n);
    const size_t used = compose_all(codes, *n);
    for (size_t i = 0; i < used; i++) {
        char s[4];
        const int len = ech_utf8_put(codes[i], s);
        ech_text_add_bytes(out, s, (size_t)len);
    }
    *n = 0;
}

/* Can a character never join what stands before it: then what was gathered is complete. */
static bool begins_anew(uint32_t code)
{
    return code < 0x300;
}

ech_status ech_nfc(const char *text, size_t bytes, ech_text *out)
{
    uint32_t *codes = NULL;
    size_t n = 0;
    size_t capacity = 0;
    ech_status st = ECH_OK;

    for (size_t i = 0; i < bytes && st == ECH_OK;) {
        uint32_t code = 0;
        uint32_t parts[MAX_PARTS];
        const int len = ech_utf8_char(text + i, bytes - i, &code);
        if (len == 0 || begins_anew(code))
            flush(codes, &n, out);
        if (len == 0) {
            ech_text_add_bytes(out, text + i, 1);
            i++;
            continue;
        }
        const size_t n_parts = decompose(code, parts);
        for (size_t p = 0; p < n_parts && st == ECH_OK; p++)
            st = push(&codes, &n, &capacity, parts[p]);
        i += (size_t)len;
    }
    flush(codes, &n, out);
    free(codes);
    ECH_TRY(st);
    ECH_CHECK(!out->failed, ECH_E_NOMEM, "no memory for a text");
    return ECH_OK;
}

bool ech_nfc_is_plain(const char *text, size_t bytes)
{
    /* Ranges without marks, without characters that decompose for good, and without such as compose
     * with the one before them. */
    static const struct {
        uint32_t low, high;
    } plain[] = {{0, 0x2FF},       {0x400, 0x482},   {0x2010, 0x206F},
                 {0x3001, 0x3029}, {0x3030, 0x3098}, {0x309B, 0x30FF},
                 {0x3400, 0x9FFF}, {0xAC00, 0xD7A3}, {0xFF00, 0xFFEF}};

    for (size_t i = 0; i < bytes;) {
        uint32_t code = (uint8_t)text[i];
        const int len = code < 0x80 ? 1 : ech_utf8_char(text + i, bytes - i, &code);
        size_t r = 0;
        while (r < LENGTH(plain) && !(code >= plain[r].low && code <= plain[r].high))
            r++;
        if (len > 0 && r == LENGTH(plain))
            return false;
        i += len > 0 ? (size_t)len : 1;
    }
    return true;
}
