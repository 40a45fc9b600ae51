#include "base/node_scalar.h"

#include "base/locale.h"

#include <math.h>
#include <string.h>

static bool is_one_of(const char *s, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(s, words[i]) == 0)
            return true;
    return false;
}

#define IS_ONE_OF(s, words) is_one_of((s), (words), sizeof(words) / sizeof *(words))

static const char *skip_sign(const char *s)
{
    return *s == '-' || *s == '+' ? s + 1 : s;
}

static const char *skip_digits(const char *s)
{
    return s + strspn(s, "0123456789");
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool looks_real(const char *s)
{
    const char *from = skip_sign(s);
    const char *p = skip_digits(from);
    bool has_digits = p > from;
    if (*p == '.') {
        const char *fraction = p + 1;
        p = skip_digits(fraction);
        has_digits = has_digits || p > fraction;
    }
    if (has_digits && (*p == 'e' || *p == 'E')) {
        const char *exponent = skip_sign(p + 1);
        p = skip_digits(exponent);
        has_digits = p > exponent;
    }
    return has_digits && *p == '\0';
}

/* Base of an integer and the start of its digits; 0 where s is none. */
static int integer_base(const char *s, const char **digits)
{
    if (s[0] == '0' && (s[1] == 'x' || s[1] == 'o')) {
        const bool is_hex = s[1] == 'x';
        *digits = s + 2;
        const size_t n = strspn(s + 2, is_hex ? "0123456789abcdefABCDEF" : "01234567");
        return n > 0 && s[2 + n] == '\0' ? is_hex ? 16 : 8 : 0;
    }
    *digits = skip_sign(s);
    const char *end = skip_digits(*digits);
    return end > *digits && *end == '\0' ? 10 : 0;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return (c | 0x20) - 'a' + 10;
}

static ech_status read_integer(const char *digits, int base, bool is_negative, int64_t *out)
{
    int64_t x = 0; /* downwards: the smallest int64 has no positive counterpart */
    bool overflow = false;
    for (const char *p = digits; *p; p++)
        overflow = overflow || __builtin_mul_overflow(x, base, &x) ||
                   __builtin_sub_overflow(x, digit_value(*p), &x);
    if (!is_negative)
        overflow = overflow || __builtin_sub_overflow((int64_t)0, x, &x);
    ECH_CHECK(!overflow, ECH_E_PARSE,
              "the integer %.40s does not fit 64 bits (put quotes around it if it is a string)",
              digits);
    *out = x;
    return ECH_OK;
}

static ech_status type_real(ech_node *node)
{
    const double x = ech_c_strtod(node->string, NULL);
    ECH_CHECK(isfinite(x), ECH_E_PARSE, "the number %.40s is too large", node->string);
    node->kind = ECH_NODE_REAL;
    node->real = x;
    return ECH_OK;
}

ech_status ech_node_type_scalar(ech_node *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const trues[] = {"true", "True", "TRUE"};
    static const char *const falses[] = {"false", "False", "FALSE"};
    static const char *const endless[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
    const char *s = node->string;
    const char *digits;
    const int base = integer_base(s, &digits);
    ECH_CHECK(!IS_ONE_OF(skip_sign(s), endless), ECH_E_PARSE, "%s is not a finite number", s);
    if (IS_ONE_OF(s, nulls)) {
        node->kind = ECH_NODE_NULL;
    } else if (IS_ONE_OF(s, trues) || IS_ONE_OF(s, falses)) {
        node->kind = ECH_NODE_BOOL;
        node->boolean = IS_ONE_OF(s, trues);
    } else if (base > 0) {
        ECH_TRY(read_integer(digits, base, *s == '-', &node->integer));
        node->kind = ECH_NODE_INT;
        node->real = (double)node->integer;
    } else if (looks_real(s)) {
        return type_real(node);
    }
    return ECH_OK;
}
