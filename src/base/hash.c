#include "base/hash.h"

#include <stdio.h>
#include <xxhash.h>

uint64_t ech_hash64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

void ech_hash128_hex(const void *data, size_t bytes, char out[33])
{
    const XXH128_hash_t h = XXH3_128bits(data, bytes);
    (void)snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64,
                   (unsigned long long)h.low64);
}
