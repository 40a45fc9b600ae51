/** @file base/hash.h
 *  Content hashes: XXH3 (xxHash), 64 and 128 bits.  Not for secrets.  Local. */
#ifndef ECH_BASE_HASH_H
#define ECH_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/** 64-bit hash of bytes. */
uint64_t ech_hash64(const void *data, size_t bytes);

/** 128-bit hash as 32 hexadecimal digits and a NUL. */
void ech_hash128_hex(const void *data, size_t bytes, char out[33]);

#endif
