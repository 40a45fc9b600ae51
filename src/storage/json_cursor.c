#include "storage/json_cursor.h"

#include <stdio.h>
#include <string.h>

#define FAIL_AT(j, what)                                                                           \
    ECH_RAISE(ECH_E_PARSE, "json: byte %zu: %s", (size_t)((j)->at - (j)->begin), (what))

ech_json ech_json_start(char *text, size_t bytes)
{
    return (ech_json){.begin = text, .at = text, .end = text + bytes};
}

char ech_json_peek(ech_json *j)
{
    while (j->at < j->end && strchr(" \t\n\r", *j->at) && *j->at)
        j->at++;
    return j->at < j->end ? *j->at : '\0';
}

ech_status ech_json_take(ech_json *j, char c)
{
    char what[32];

    if (j->at >= j->end || ech_json_peek(j) != c) {
        (void)snprintf(what, sizeof what, "expected '%c'", c);
        return FAIL_AT(j, what);
    }
    j->at++;
    return ECH_OK;
}

ech_status ech_json_more(ech_json *j, char close, int64_t *n, bool *more)
{
    if (ech_json_peek(j) == close) {
        j->at++;
        *more = false;
        return ECH_OK;
    }
    if (*n > 0) {
        ECH_TRY(ech_json_take(j, ','));
        /* "[1,]": the closing character must not follow a comma. */
        if (ech_json_peek(j) == close)
            return FAIL_AT(j, "a comma before the end");
    }
    ++*n;
    *more = true;
    return ECH_OK;
}

/* --- strings --- */

/* Four hexadecimal digits, or -1. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t v = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        const char low = (p[i] >= 'A' && p[i] <= 'F') ? (char)(p[i] + ('a' - 'A')) : p[i];
        const char *at = low ? strchr(digits, low) : NULL;
        if (!at)
            return -1;
        v = v * 16 + (int32_t)(at - digits);
    }
    return v;
}

static char *put_utf8(char *out, int32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    if (c < 0x800) {
        *out++ = (char)(0xC0 | (c >> 6));
    } else {
        if (c < 0x10000) {
            *out++ = (char)(0xE0 | (c >> 12));
        } else {
            *out++ = (char)(0xF0 | (c >> 18));
            *out++ = (char)(0x80 | ((c >> 12) & 0x3F));
        }
        *out++ = (char)(0x80 | ((c >> 6) & 0x3F));
    }
    *out++ = (char)(0x80 | (c & 0x3F));
    return out;
}

/* \uXXXX at j->at (behind the u), with its low half where it is a high surrogate. */
static ech_status take_unicode(ech_json *j, char **out)
{
    int32_t c = hex4(j->at, j->end);

    if (c < 0)
        return FAIL_AT(j, "\\u needs four hexadecimal digits");
    if (c == 0)
        return FAIL_AT(j, "NUL in a string");
    j->at += 4;
    if (c >= 0xD800 && c < 0xE000) {
        const bool has_low = j->end - j->at >= 6 && j->at[0] == '\\' && j->at[1] == 'u';
        const int32_t low = has_low ? hex4(j->at + 2, j->end) : -1;
        if (c >= 0xDC00 || low < 0xDC00 || low >= 0xE000)
            return FAIL_AT(j, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        j->at += 6;
    }
    *out = put_utf8(*out, c);
    return ECH_OK;
}

static ech_status take_escape(ech_json *j, char **out)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char c = j->at < j->end ? *j->at : '\0';
    const char *at = c ? strchr(from, c) : NULL;

    if (c == 'u') {
        j->at++;
        return take_unicode(j, out);
    }
    if (!at)
        return FAIL_AT(j, "no such escape");
    j->at++;
    *(*out)++ = to[at - from];
    return ECH_OK;
}

/* Bytes of the UTF-8 sequence at p, or 0 where it is none (RFC 3629, table of section 4). */
static size_t utf8_length(const char *text, const char *end)
{
    const unsigned char *p = (const unsigned char *)text;
    const size_t room = (size_t)(end - text);
    const size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;

    if (n == 0 || p[0] > 0xF4 || n > room)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
        (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
        return 0;
    return n;
}

ech_status ech_json_string(ech_json *j, char **s)
{
    ECH_TRY(ech_json_take(j, '"'));
    char *const start = j->at;
    char *out = start; /* decoded text is never longer than its source */

    while (j->at < j->end && *j->at != '"') {
        if ((unsigned char)*j->at < 0x20)
            return FAIL_AT(j, "a control character in a string");
        if (*j->at == '\\') {
            j->at++;
            ECH_TRY(take_escape(j, &out));
            continue;
        }
        const size_t n = utf8_length(j->at, j->end);
        if (n == 0)
            return FAIL_AT(j, "not UTF-8");
        memmove(out, j->at, n);
        out += n;
        j->at += n;
    }
    if (j->at >= j->end)
        return FAIL_AT(j, "a string without end");
    j->at++;
    *out = '\0'; /* at the closing quote at the latest */
    *s = start;
    return ECH_OK;
}

ech_status ech_json_key(ech_json *j, char **s)
{
    ECH_TRY(ech_json_string(j, s));
    return ech_json_take(j, ':');
}

/* --- numbers and the rest --- */

static bool is_digit(const ech_json *j)
{
    return j->at < j->end && *j->at >= '0' && *j->at <= '9';
}

ech_status ech_json_integer(ech_json *j, int64_t *v)
{
    int64_t value = 0;

    (void)ech_json_peek(j);
    if (!is_digit(j))
        return FAIL_AT(j, "expected an integer >= 0");
    if (*j->at == '0' && j->end - j->at > 1 && j->at[1] >= '0' && j->at[1] <= '9')
        return FAIL_AT(j, "a number with a leading zero");
    for (; is_digit(j); j->at++) {
        const int digit = *j->at - '0';
        if (value > (INT64_MAX - digit) / 10)
            return FAIL_AT(j, "an integer beyond 2^63 - 1");
        value = value * 10 + digit;
    }
    if (j->at < j->end && strchr(".eE", *j->at) && *j->at)
        return FAIL_AT(j, "expected an integer >= 0");
    *v = value;
    return ECH_OK;
}

static bool skip_digits(ech_json *j)
{
    const char *start = j->at;

    while (is_digit(j))
        j->at++;
    return j->at > start;
}

/* Any JSON number. */
static ech_status skip_number(ech_json *j)
{
    if (*j->at == '-')
        j->at++;
    if (j->at < j->end && *j->at == '0')
        j->at++;
    else if (!skip_digits(j))
        return FAIL_AT(j, "not a number");
    if (j->at < j->end && *j->at == '.') {
        j->at++;
        if (!skip_digits(j))
            return FAIL_AT(j, "not a number");
    }
    if (j->at < j->end && (*j->at == 'e' || *j->at == 'E')) {
        j->at++;
        if (j->at < j->end && (*j->at == '+' || *j->at == '-'))
            j->at++;
        if (!skip_digits(j))
            return FAIL_AT(j, "not a number");
    }
    return ECH_OK;
}

static ech_status skip_word(ech_json *j)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(j->end - j->at) >= n && !memcmp(j->at, words[i], n)) {
            j->at += n;
            return ECH_OK;
        }
    }
    return FAIL_AT(j, "expected a value");
}

/* Recursion is bounded by depth, which callers give as a small constant. */
ech_status ech_json_skip(ech_json *j, int depth)
{
    const char c = ech_json_peek(j);
    int64_t n = 0;
    bool more = true;
    char *s;

    if (c == '"')
        return ech_json_string(j, &s);
    if (c == '-' || (c >= '0' && c <= '9'))
        return skip_number(j);
    if (c != '{' && c != '[')
        return skip_word(j);
    if (depth <= 0)
        return FAIL_AT(j, "nested too deep");
    j->at++;
    for (;;) {
        ECH_TRY(ech_json_more(j, c == '{' ? '}' : ']', &n, &more));
        if (!more)
            return ECH_OK;
        if (c == '{')
            ECH_TRY(ech_json_key(j, &s));
        ECH_TRY(ech_json_skip(j, depth - 1));
    }
}

/* --- names in messages --- */

static bool is_control(const unsigned char *p)
{
    return p[0] < 0x20 || p[0] == 0x7F || (p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0);
}

bool ech_json_is_printable(const char *name)
{
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (is_control(p))
            return false;
    return true;
}

const char *ech_json_quote(const char *name, char *buf, size_t n)
{
    size_t at = 0;

    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        if (at + 9 > n) { /* room for one escape, "..." and the terminator */
            memcpy(buf + at, "...", 4);
            return buf;
        }
        if (is_control(p))
            at += (size_t)snprintf(buf + at, n - at, "\\x%02x", *p);
        else
            buf[at++] = (char)*p;
    }
    buf[at] = '\0';
    return buf;
}
