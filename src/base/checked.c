#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

ech_status ech_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    ECH_CHECK(!__builtin_mul_overflow(a, b, &r), ECH_E_ILLEGAL, "%lld x %lld does not fit 64 bits",
              (long long)a, (long long)b);
    *out = r;
    return ECH_OK;
}

ech_status ech_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    ECH_CHECK(!__builtin_add_overflow(a, b, &r), ECH_E_ILLEGAL, "%lld + %lld does not fit 64 bits",
              (long long)a, (long long)b);
    *out = r;
    return ECH_OK;
}

ech_status ech_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    ECH_CHECK(!__builtin_mul_overflow(a, b, &r), ECH_E_ILLEGAL, "%zu x %zu does not fit 64 bits", a,
              b);
    *out = r;
    return ECH_OK;
}

ech_status ech_calloc(size_t n, size_t bytes, void *out)
{
    size_t total;
    void *p = NULL;
    memcpy(out, &p, sizeof p);
    ECH_TRY(ech_mul_size(n ? n : 1, bytes, &total));
    p = calloc(1, total);
    ECH_CHECK(p, ECH_E_NOMEM, "no memory for %zu bytes", total);
    memcpy(out, &p, sizeof p);
    return ECH_OK;
}

ech_status ech_grow(void *array, size_t n, size_t *capacity, size_t bytes)
{
    if (n < *capacity)
        return ECH_OK;
    const size_t wanted = *capacity ? *capacity * 2 : 16;
    size_t total;
    void *p;
    ECH_TRY(ech_mul_size(wanted, bytes, &total));
    memcpy(&p, array, sizeof p);
    p = realloc(p, total);
    ECH_CHECK(p, ECH_E_NOMEM, "no memory for %zu bytes", total);
    memcpy(array, &p, sizeof p);
    *capacity = wanted;
    return ECH_OK;
}
