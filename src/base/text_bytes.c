#include "base/text.h"

#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

typedef struct byte_unit {
    const char *name;
    int64_t bytes;
} byte_unit;

static const byte_unit byte_units[] = {
    {"", 1},
    {"B", 1},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"PB", 1000000000000000},
    {"KiB", (int64_t)1 << 10},
    {"MiB", (int64_t)1 << 20},
    {"GiB", (int64_t)1 << 30},
    {"TiB", (int64_t)1 << 40},
    {"PiB", (int64_t)1 << 50},
};

static const byte_unit *find_unit(const char *name)
{
    for (size_t i = 0; i < sizeof byte_units / sizeof byte_units[0]; i++)
        if (strcmp(byte_units[i].name, name) == 0)
            return &byte_units[i];
    return NULL;
}

/* Up to max digits into *value; false on none or more. */
static bool read_digits(const char **s, int max, int64_t *value, int *digits)
{
    *value = 0;
    *digits = 0;
    for (; **s >= '0' && **s <= '9'; (*s)++) {
        if (++*digits > max)
            return false;
        *value = *value * 10 + (**s - '0');
    }
    return *digits > 0;
}

ech_status ech_parse_bytes(const char *s, int64_t *out)
{
    static const char wanted[] = "a size such as 4096, 500MB (10^6) or 8GiB (2^30)";
    const char *p = s;
    int64_t whole;
    int64_t part = 0;
    int64_t scale = 1;
    int digits;
    ECH_CHECK(read_digits(&p, 18, &whole, &digits), ECH_E_PARSE, "'%.64s' is not %s", s, wanted);
    if (*p == '.') {
        p++;
        ECH_CHECK(read_digits(&p, 9, &part, &digits), ECH_E_PARSE, "'%.64s' is not %s", s, wanted);
        for (; digits > 0; digits--)
            scale *= 10;
    }
    while (*p == ' ')
        p++;
    const byte_unit *unit = find_unit(p);
    ECH_CHECK(unit, ECH_E_PARSE, "'%.64s': '%.16s' is not a unit of %s", s, p, wanted);
    ECH_CHECK(part == 0 || unit->bytes > 1, ECH_E_PARSE, "'%.64s' is not a whole number of bytes",
              s);
    const wide total =
        (wide)whole * (wide)unit->bytes + (wide)part * (wide)unit->bytes / (wide)scale;
    ECH_CHECK(total <= (wide)INT64_MAX, ECH_E_PARSE, "'%.64s' does not fit 64 bits", s);
    *out = (int64_t)total;
    return ECH_OK;
}

const char *ech_format_bytes(double bytes, char *buf, size_t n)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t i = 0;
    double x = bytes < 0.0 ? -bytes : bytes;
    /* 1023.995 would print as 1024.00: go on to the next unit. */
    while (x >= (i ? 1023.995 : 1024.0) && i + 1 < sizeof names / sizeof names[0]) {
        x /= 1024.0;
        i++;
    }
    (void)snprintf(buf, n, i ? "%s%.2f %s" : "%s%.0f %s", bytes < 0.0 ? "-" : "", x, names[i]);
    return buf;
}
