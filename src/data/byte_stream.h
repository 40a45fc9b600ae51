/** @file data/byte_stream.h
 *  Internal to data: the bytes of a file, decompressed where it begins like gzip or zstd.
 *  Local. */
#ifndef ECH_DATA_BYTE_STREAM_H
#define ECH_DATA_BYTE_STREAM_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** An open stream; opaque. */
typedef struct ech_byte_stream ech_byte_stream;

/** Open.  @return ECH_OK | ECH_E_DATA (absent) | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_byte_stream_open(const char *path, ech_byte_stream **out);

/** Up to `bytes` more bytes.
 *  @param s      borrowed
 *  @param buf    out
 *  @param bytes  > 0
 *  @param got    out: how many; 0 only at the end
 *  @return ECH_OK | ECH_E_DATA (damaged or cut compression) | ECH_E_IO */
ECH_MUST_USE ech_status ech_byte_stream_read(ech_byte_stream *s, char *buf, size_t bytes,
                                             size_t *got);

/** Bytes of the file read so far. */
int64_t ech_byte_stream_at(const ech_byte_stream *s);

/** Bytes of the file in all. */
int64_t ech_byte_stream_bytes(const ech_byte_stream *s);

/** Close; accepts NULL, nulls the pointer. */
void ech_byte_stream_close(ech_byte_stream **s);

#endif
