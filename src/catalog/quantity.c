#include "catalog/quantity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct unit_row {
    const char *name;
    double value;
} unit_row;

/* A prefix before a base unit; the empty one first. */
static const unit_row decimal[] = {{"", 1},    {"k", 1e3},  {"K", 1e3}, {"M", 1e6},
                                   {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};
static const unit_row binary[] = {
    {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}};
static const unit_row small[] = {
    {"", 1}, {"m", 1e-3}, {"u", 1e-6}, {"\xc2\xb5", 1e-6}, {"n", 1e-9}};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* How a dimension is written. */
typedef struct dimension_row {
    const char *suffix; /* of keys with plain numbers */
    const char *wanted;
    const char *base[5]; /* names of the base unit, NULL at the end */
    const char *bits[5]; /* of an eighth of it */
    bool has_binary;
} dimension_row;

static const dimension_row dimensions[ECH_N_DIMENSIONS] = {
    [ECH_DIMENSION_BYTES] =
        {"_bytes", "a size such as \"80 GB\" or \"79.15 GiB\"", {"B"}, {NULL}, true},
    [ECH_DIMENSION_BYTES_PER_S] = {"_bytes_per_s",
                                   "a bandwidth such as \"450 GB/s\" or \"400 Gb/s\"",
                                   {"B/s"},
                                   {"b/s", "bit/s", "bps"},
                                   true},
    [ECH_DIMENSION_SECONDS] = {"_s", "a time such as \"3.4 us\"", {"s"}, {NULL}, false},
    [ECH_DIMENSION_FLOPS] = {"_flops",
                             "a rate such as \"989 TFLOP/s\"",
                             {"FLOP/s", "FLOPS", "Flop/s", "flop/s"},
                             {NULL},
                             false},
    [ECH_DIMENSION_WATTS] = {"_watts", "a power such as \"700 W\"", {"W"}, {NULL}, false},
};

const char *ech_dimension_suffix(ech_dimension dimension)
{
    return dimensions[dimension].suffix;
}

/* Digits of a decimal number onto *x, scaled; returns how many. */
static int take_digits(const char **s, double *x)
{
    int n = 0;
    for (; **s >= '0' && **s <= '9'; (*s)++, n++)
        *x = *x * 10 + (**s - '0');
    return n;
}

/* 12, 12.5, 1.2e3: whatever the locale says.  At most 40 characters. */
static bool take_number(const char **s, double *out)
{
    double x = 0;
    const char *from = *s;
    int digits = take_digits(s, &x);
    int fraction = 0;
    if (**s == '.') {
        (*s)++;
        fraction = take_digits(s, &x);
    }
    double exponent = 0;
    if ((**s == 'e' || **s == 'E') && strchr("0123456789+-", (*s)[1]) && (*s)[1]) {
        (*s)++;
        const bool is_negative = **s == '-';
        *s += **s == '-' || **s == '+';
        if (take_digits(s, &exponent) == 0)
            return false;
        exponent = is_negative ? -exponent : exponent;
    }
    digits += fraction;
    /* one division keeps 3.4 the nearest double to 3.4 */
    const double scale = exponent - fraction;
    *out = scale < 0 ? x / pow(10, -scale) : x * pow(10, scale);
    return digits > 0 && *s - from <= 40 && isfinite(*out);
}

/* Is text prefix and then one of the names; *scale then is the prefix's. */
static bool matches(const char *text, const unit_row *prefix, size_t n, const char *const *names,
                    double *scale)
{
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(prefix[i].name);
        if (strncmp(text, prefix[i].name, len) != 0)
            continue;
        for (const char *const *name = names; *name; name++)
            if (strcmp(text + len, *name) == 0) {
                *scale = prefix[i].value;
                return true;
            }
    }
    return false;
}

bool ech_quantity_read(const char *text, ech_dimension dimension, ech_quantity *out)
{
    const dimension_row *row = &dimensions[dimension];
    ech_quantity q = {0};
    double scale = 0;
    const char *s = text + strspn(text, " ");
    if (!take_number(&s, &q.number))
        return false;
    s += strspn(s, " ");
    const unit_row *prefix = dimension == ECH_DIMENSION_SECONDS ? small : decimal;
    const size_t n = dimension == ECH_DIMENSION_SECONDS ? COUNT(small) : COUNT(decimal);
    if (!matches(s, prefix, n, row->base, &scale)) {
        q.is_binary = row->has_binary && matches(s, binary, COUNT(binary), row->base, &scale);
        q.is_bits = !q.is_binary && matches(s, decimal, COUNT(decimal), row->bits, &scale);
        if (!q.is_binary && !q.is_bits)
            return false;
    }
    q.value = q.number * scale / (q.is_bits ? 8 : 1);
    *out = q;
    return isfinite(q.value);
}

static bool is_number(const ech_node *x)
{
    return x->kind == ECH_NODE_INT || x->kind == ECH_NODE_REAL;
}

ech_key_got ech_key_quantity(const ech_key_reader *r, const char *key, ech_dimension dimension,
                             ech_quantity *out)
{
    const dimension_row *row = &dimensions[dimension];
    char plain_key[64];
    char buf[64];
    ech_quantity q = {0};
    (void)snprintf(plain_key, sizeof plain_key, "%.40s%s", key, row->suffix);
    const ech_node *plain = ech_key_find(r, plain_key);
    const ech_node *x = ech_key_find(r, key);
    if (!x && !plain)
        return ECH_KEY_ABSENT;
    if (x && plain) {
        ech_key_complain(r, x, "%s and %s mean the same: keep one", key, plain_key);
        return ECH_KEY_BAD;
    }
    if (plain && is_number(plain)) {
        q.value = q.number = plain->real;
    } else if (plain) {
        ech_key_complain(r, plain, "%s is %s, wanted a plain number", plain_key,
                         ech_key_describe(plain, buf, sizeof buf));
        return ECH_KEY_BAD;
    } else if (is_number(x)) {
        ech_key_complain(r, x, "%s is %s without a unit: wanted %s, or %s with a plain number", key,
                         ech_key_describe(x, buf, sizeof buf), row->wanted, plain_key);
        return ECH_KEY_BAD;
    } else if (x->kind != ECH_NODE_STRING || !ech_quantity_read(x->string, dimension, &q)) {
        ech_key_complain(r, x, "%s is %s, wanted %s", key, ech_key_describe(x, buf, sizeof buf),
                         row->wanted);
        return ECH_KEY_BAD;
    }
    if (!(q.value > 0 && q.value < 1e30)) {
        const ech_node *at = plain ? plain : x;
        ech_key_complain(r, at, "%s is %s, it must be above 0", plain ? plain_key : key,
                         ech_key_describe(at, buf, sizeof buf));
        return ECH_KEY_BAD;
    }
    *out = q;
    return ECH_KEY_GOOD;
}
