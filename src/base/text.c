#include "base/text.h"

#include "base/locale.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 128, FINDINGS_BYTES = 3800 };

/* Room for `more` bytes and the terminator; false (and failed set) when there is none. */
static bool text_reserve(ech_text *t, size_t more)
{
    size_t capacity = t->capacity ? t->capacity : 64;
    void *p;
    if (t->failed || more > SIZE_MAX / 4 - t->bytes) {
        t->failed = true;
        return false;
    }
    while (capacity < t->bytes + more + 1)
        capacity *= 2;
    if (t->data && capacity == t->capacity)
        return true;
    p = realloc(t->data, capacity);
    if (!p) {
        t->failed = true;
        return false;
    }
    t->data = p;
    t->capacity = capacity;
    return true;
}

void ech_text_add_bytes(ech_text *t, const void *data, size_t bytes)
{
    if (!text_reserve(t, bytes))
        return;
    if (bytes > 0)
        memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
    t->data[t->bytes] = '\0';
}

static void text_add_list(ech_text *t, const char *fmt, va_list ap) ECH_PRINTF(2, 0);

static void text_add_list(ech_text *t, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    const int wanted = vsnprintf(NULL, 0, fmt, ap);
    if (wanted < 0)
        t->failed = true;
    else if (text_reserve(t, (size_t)wanted)) {
        (void)vsnprintf(t->data + t->bytes, (size_t)wanted + 1, fmt, again);
        t->bytes += (size_t)wanted;
    }
    va_end(again);
}

void ech_text_add(ech_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_add_list(t, fmt, ap);
    va_end(ap);
}

size_t ech_utf8_step(const void *s, size_t bytes)
{
    /* Unicode 15, table 3-7: the range of the second byte depends on the first. */
    const unsigned char *p = s;
    const unsigned char a = bytes > 0 ? p[0] : 0xff;
    if (a < 0x80)
        return 1;
    const size_t n = a >= 0xc2 && a <= 0xdf   ? 2
                     : (a & 0xf0) == 0xe0     ? 3
                     : a >= 0xf0 && a <= 0xf4 ? 4
                                              : 0;
    if (n == 0 || n > bytes)
        return 0;
    const unsigned char low = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

static void add_json_ascii(ech_text *t, char c)
{
    static const char from[] = "\"\\\n\r\t\b\f";
    static const char to[] = "\"\\nrtbf";
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
        const char pair[2] = {'\\', to[found - from]};
        ech_text_add_bytes(t, pair, 2);
    } else if ((unsigned char)c < 0x20 || c == 0x7f) {
        ech_text_add(t, "\\u%04x", (unsigned)(unsigned char)c);
    } else {
        ech_text_add_bytes(t, &c, 1);
    }
}

void ech_text_add_json_string(ech_text *t, const char *s, size_t bytes)
{
    ech_text_add_bytes(t, "\"", 1);
    for (size_t i = 0; i < bytes;) {
        const size_t step = ech_utf8_step(s + i, bytes - i);
        if (step == 1)
            add_json_ascii(t, s[i]);
        else if (step > 1)
            ech_text_add_bytes(t, s + i, step);
        else
            ech_text_add_bytes(t, "\xef\xbf\xbd", 3);
        i += step ? step : 1;
    }
    ech_text_add_bytes(t, "\"", 1);
}

void ech_text_add_double(ech_text *t, double x)
{
    char buf[40] = "null";
    /* Every decimal of up to 15 digits survives the way through a normal double, so trying fewer
     * is of no use; subnormals hold fewer digits than that. */
    const int first = fabs(x) < DBL_MIN ? 1 : 15;
    if (isfinite(x))
        for (int digits = first; digits <= 17; digits++) {
            (void)ech_c_format_double(buf, sizeof buf, digits, x);
            if (ech_c_strtod(buf, NULL) == x)
                break;
        }
    ech_text_add_bytes(t, buf, strlen(buf));
}

const char *ech_text_get(const ech_text *t)
{
    return t->data ? t->data : "";
}

void ech_text_fini(ech_text *t)
{
    free(t->data);
    *t = (ech_text){0};
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment distance: insert, delete, replace and swap of neighbours cost one. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t rows[3][NAME_BYTES + 1];
    size_t *before = rows[0];
    size_t *last = rows[1];
    size_t *row = rows[2];
    for (size_t j = 0; j <= nb; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= na; i++) {
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const size_t replace = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min_size(replace, min_size(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min_size(row[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[nb];
}

bool ech_has_suffix(const char *s, const char *suffix)
{
    const size_t n = strlen(s);
    const size_t k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

const char *ech_nearest_name(const char *name, const char *const *names, size_t n)
{
    const size_t bytes = strlen(name);
    size_t best = bytes / 3 + 1;
    const char *found = NULL;
    if (bytes > NAME_BYTES)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        const size_t other = strlen(names[i]);
        if (other > NAME_BYTES)
            continue;
        const size_t distance = edit_distance(name, bytes, names[i], other);
        if (distance < best || (distance == best && !found)) {
            best = distance;
            found = names[i];
        }
    }
    return found;
}

void ech_findings_add(ech_findings *f, const char *fmt, ...)
{
    va_list ap;
    if (f->n++ > 0)
        ech_text_add_bytes(&f->text, "\n", 1);
    va_start(ap, fmt);
    text_add_list(&f->text, fmt, ap);
    va_end(ap);
}

/* Bytes of whole lines that fit the error message, and how many lines those are. */
static size_t whole_lines(const char *text, size_t bytes, int *lines)
{
    size_t end = 0;
    *lines = 0;
    for (size_t i = 0; i <= bytes && i < FINDINGS_BYTES; i++)
        if (i == bytes || text[i] == '\n') {
            end = i;
            (*lines)++;
        }
    return *lines > 0 ? end : FINDINGS_BYTES; /* one endless line: cut it */
}

ech_status ech_findings_raise(const ech_findings *f, ech_status st)
{
    int shown;
    if (f->n == 0)
        return ECH_OK;
    ECH_CHECK(!f->text.failed, st, "%d findings, and no memory to list them", f->n);
    const char *text = ech_text_get(&f->text);
    const size_t bytes = whole_lines(text, f->text.bytes, &shown);
    if (bytes == f->text.bytes)
        return ECH_RAISE(st, "%s", text);
    return ECH_RAISE(st, "%.*s\n... and more: %d findings in all", (int)bytes, text, f->n);
}

void ech_findings_fini(ech_findings *f)
{
    ech_text_fini(&f->text);
    f->n = 0;
}
