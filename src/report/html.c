#include "report/html.h"

#include <math.h>
#include <string.h>

static const double GIB = 1073741824.0;

static const char *entity_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* The character of so many bytes, by the bits of UTF-8. */
static uint32_t code_of(const unsigned char *s, size_t n)
{
    static const unsigned char first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = s[0] & first_bits[n];
    for (size_t i = 1; i < n; i++)
        code = code << 6 | (s[i] & 0x3f);
    return code;
}

/* Not controls, nor marks that turn the direction of writing: a name must not rearrange the page. */
static bool is_shown(uint32_t c)
{
    const bool is_control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0);
    const bool is_turn = c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
                         (c >= 0x2066 && c <= 0x2069);
    return !is_control && !is_turn;
}

void ech_html_bytes(ech_text *out, const char *words, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        const char *entity = entity_of(words[i]);
        const size_t step = ech_utf8_step(words + i, bytes - i);
        if (entity)
            ech_text_add(out, "%s", entity);
        else if (step && is_shown(code_of((const unsigned char *)words + i, step)))
            ech_text_add_bytes(out, words + i, step);
        else
            ech_text_add(out, "\xef\xbf\xbd");
        i += step > 0 ? step : 1;
    }
}

void ech_html_text(ech_text *out, const char *words)
{
    ech_html_bytes(out, words, strlen(words));
}

/* x rounded to so many significant digits. */
static double rounded(double x, int digits)
{
    if (x == 0)
        return 0;
    const int exponent = (int)floor(log10(fabs(x)));
    const double unit = pow(10, exponent - digits + 1);
    return unit >= 1 ? round(x / unit) * unit
                     : round(x * pow(10, digits - 1 - exponent)) / pow(10, digits - 1 - exponent);
}

void ech_html_number(ech_text *out, double x, int digits)
{
    ech_text plain = {0};
    if (!isfinite(x)) {
        ech_text_add(out, "\xe2\x80\x93");
        return;
    }
    ech_text_add_double(&plain, rounded(x, digits));
    const char *s = ech_text_get(&plain);
    const bool is_plain = strchr(s, 'e') == NULL;
    const size_t whole = strcspn(s, ".e");
    const size_t from = s[0] == '-';
    for (size_t i = 0; s[i]; i++) {
        if (is_plain && i > from && i < whole && (whole - i) % 3 == 0 && whole - from > 4)
            ech_text_add(out, "\xe2\x80\xaf");
        ech_text_add_bytes(out, s + i, 1);
    }
    ech_text_fini(&plain);
}

void ech_html_place(ech_text *out, double x)
{
    ech_text_add_double(out, round(x * 100) / 100);
}

void ech_html_seconds(ech_text *out, double s)
{
    const double size = fabs(s);
    if (s == 0) {
        ech_text_add(out, "0");
        return;
    }
    const double scale = size >= 1 || !isfinite(s) ? 1 : size >= 1e-3 ? 1e3 : 1e6;
    ech_html_number(out, s * scale, 4);
    ech_text_add(out, "\xc2\xa0%s", scale == 1 ? "s" : scale < 1e6 ? "ms" : "\xc2\xb5s");
}

/* One decimal from 10 on, so that columns of them are even. */
void ech_html_gib(ech_text *out, double bytes)
{
    const double gib = bytes / GIB;
    if (isfinite(gib) && gib >= 10 && gib < 1e15) {
        const long long tenths = llrint(gib * 10);
        ech_text_add(out, "%lld.%lld", tenths / 10, tenths % 10);
    } else {
        ech_html_number(out, gib, 3);
    }
    ech_text_add(out, "\xc2\xa0GiB");
}

void ech_html_span(ech_text *out, double s)
{
    static const struct {
        double from, unit;
        const char *name;
    } scale[] = {{172800, 86400,
                  "\xc2\xa0"
                  "days"},
                 {7200, 3600, "\xc2\xa0h"},
                 {120, 60, "\xc2\xa0min"}};
    for (size_t i = 0; i < sizeof scale / sizeof *scale; i++)
        if (isfinite(s) && fabs(s) >= scale[i].from) {
            ech_html_number(out, s / scale[i].unit, 4);
            ech_text_add(out, "%s", scale[i].name);
            return;
        }
    ech_html_seconds(out, s);
}

void ech_html_percent(ech_text *out, double share)
{
    const double percent = 100 * share;
    if (percent > 0 && percent < 0.05)
        ech_text_add(out, "&lt;\xe2\x80\x89"
                          "0.1");
    else
        ech_html_number(out, round(percent * 10) / 10, 6);
    ech_text_add(out, "\xc2\xa0%%");
}

void ech_html_count(ech_text *out, double n)
{
    static const struct {
        double size;
        const char *name;
    } words[] = {{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n >= words[i].size) {
            ech_html_number(out, n / words[i].size, 4);
            ech_text_add(out, "\xc2\xa0%s", words[i].name);
            return;
        }
    ech_html_number(out, n, 12);
}
