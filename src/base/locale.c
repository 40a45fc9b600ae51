#include "base/locale.h"

#include "base/status.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t get_c_locale(void)
{
    ECH_ASSERT(pthread_once(&c_locale_once, make_c_locale) == 0);
    ECH_ASSERT(c_locale != (locale_t)0); /* glibc hands out a static object: cannot fail */
    return c_locale;
}

double ech_c_strtod(const char *s, char **end)
{
    return strtod_l(s, end, get_c_locale());
}

int ech_c_format_double(char *buf, size_t n, int digits, double x)
{
    const locale_t before = uselocale(get_c_locale());
    const int written = snprintf(buf, n, "%.*g", digits, x);
    (void)uselocale(before);
    return written;
}
