/* Bytes of plain, gzip and zstd files.  Both compressed forms may hold several members in a row. */
#include "data/byte_stream.h"

#include "base/checked.h"
#include "base/io.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { IN_BYTES = 1 << 18 };

typedef enum form { PLAIN, GZIP, ZSTD } form;

struct ech_byte_stream {
    ech_file *file; /* owned */
    form form;
    int64_t at;        /* of the file, read */
    unsigned char *in; /* owned [IN_BYTES]: compressed bytes */
    size_t in_used, in_bytes;
    z_stream gzip;
    bool has_gzip;
    ZSTD_DStream *zstd; /* owned */
    bool in_member;     /* a compressed member has begun and not ended */
};

static ech_status detect(ech_byte_stream *s)
{
    unsigned char head[4] = {0};
    const int64_t bytes = ech_file_bytes(s->file);

    ECH_TRY(ech_file_read_at(s->file, head, bytes < 4 ? (size_t)bytes : 4, 0));
    if (head[0] == 0x1F && head[1] == 0x8B)
        s->form = GZIP;
    else if (memcmp(head, "\x28\xB5\x2F\xFD", 4) == 0)
        s->form = ZSTD;
    return ECH_OK;
}

static ech_status prepare(ech_byte_stream *s)
{
    if (s->form == PLAIN)
        return ECH_OK;
    ECH_TRY(ech_calloc(IN_BYTES, 1, &s->in));
    if (s->form == ZSTD) {
        s->zstd = ZSTD_createDStream();
        ECH_CHECK(s->zstd, ECH_E_NOMEM, "no memory to decompress");
        return ECH_OK;
    }
    /* 16: a gzip header is wanted. */
    s->has_gzip = inflateInit2(&s->gzip, 16 + MAX_WBITS) == Z_OK;
    ECH_CHECK(s->has_gzip, ECH_E_NOMEM, "no memory to decompress");
    return ECH_OK;
}

ech_status ech_byte_stream_open(const char *path, ech_byte_stream **out)
{
    ech_byte_stream *s = NULL;
    ech_status st = ECH_OK;

    ECH_CHECK(ech_path_exists(path), ECH_E_DATA, "text file '%s' does not exist", path);
    ECH_CHECK(!ech_path_is_folder(path), ECH_E_DATA, "text file '%s' is a folder", path);
    ECH_TRY(ech_calloc(1, sizeof *s, &s));
    ECH_TRY_GOTO(st, ech_file_open(path, &s->file), fail);
    ECH_TRY_GOTO(st, detect(s), fail);
    ECH_TRY_GOTO(st, prepare(s), fail);
    *out = s;
    return ECH_OK;
fail:
    ech_byte_stream_close(&s);
    return st;
}

/* Some bytes of the file; 0 at its end. */
static ech_status read_file(ech_byte_stream *s, void *buf, size_t bytes, size_t *got)
{
    const int64_t left = ech_file_bytes(s->file) - s->at;

    *got = left < (int64_t)bytes ? (size_t)left : bytes;
    ECH_TRY(ech_file_read_at(s->file, buf, *got, s->at));
    s->at += (int64_t)*got;
    return ECH_OK;
}

static ech_status refill(ech_byte_stream *s)
{
    if (s->in_used < s->in_bytes)
        return ECH_OK;
    s->in_used = 0;
    return read_file(s, s->in, IN_BYTES, &s->in_bytes);
}

static ech_status refuse(const ech_byte_stream *s, const char *why)
{
    return ECH_RAISE(ECH_E_DATA, "%s: its compression is damaged near byte %lld: %s",
                     ech_file_path(s->file),
                     (long long)(s->at - (int64_t)(s->in_bytes - s->in_used)), why);
}

/* One step of either library: what it wrote, and whether a member ended. */
static ech_status step_gzip(ech_byte_stream *s, char *buf, size_t bytes, size_t *wrote, bool *ended)
{
    if (!s->in_member && inflateReset(&s->gzip) != Z_OK)
        return refuse(s, "gzip cannot begin again");
    s->gzip.next_in = s->in + s->in_used;
    s->gzip.avail_in = (uInt)(s->in_bytes - s->in_used);
    s->gzip.next_out = (Bytef *)buf;
    s->gzip.avail_out = bytes < IN_BYTES ? (uInt)bytes : IN_BYTES;
    const uInt room = s->gzip.avail_out;
    const int rc = inflate(&s->gzip, Z_NO_FLUSH);
    s->in_used = s->in_bytes - s->gzip.avail_in;
    *wrote = room - s->gzip.avail_out;
    *ended = rc == Z_STREAM_END;
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return refuse(s, s->gzip.msg ? s->gzip.msg : "not gzip");
    return ECH_OK;
}

static ech_status step_zstd(ech_byte_stream *s, char *buf, size_t bytes, size_t *wrote, bool *ended)
{
    ZSTD_inBuffer in = {.src = s->in, .size = s->in_bytes, .pos = s->in_used};
    ZSTD_outBuffer out = {.dst = buf, .size = bytes, .pos = 0};

    const size_t rc = ZSTD_decompressStream(s->zstd, &out, &in);
    s->in_used = in.pos;
    *wrote = out.pos;
    *ended = rc == 0;
    return ZSTD_isError(rc) ? refuse(s, ZSTD_getErrorName(rc)) : ECH_OK;
}

ech_status ech_byte_stream_read(ech_byte_stream *s, char *buf, size_t bytes, size_t *got)
{
    *got = 0;
    if (s->form == PLAIN)
        return read_file(s, buf, bytes, got);
    while (*got == 0) {
        bool ended = false;
        ECH_TRY(refill(s));
        const size_t before = s->in_used;
        if (s->in_bytes == 0 && !s->in_member)
            return ECH_OK;
        if (s->form == GZIP)
            ECH_TRY(step_gzip(s, buf, bytes, got, &ended));
        else
            ECH_TRY(step_zstd(s, buf, bytes, got, &ended));
        /* At the end of the file what is still inside the library may come out; then no more. */
        if (s->in_bytes == 0 && *got == 0 && !ended)
            return refuse(s, "the file ends in the middle");
        s->in_member = !ended && (s->in_member || s->in_used > before);
    }
    return ECH_OK;
}

int64_t ech_byte_stream_at(const ech_byte_stream *s)
{
    return s->at;
}

int64_t ech_byte_stream_bytes(const ech_byte_stream *s)
{
    return ech_file_bytes(s->file);
}

void ech_byte_stream_close(ech_byte_stream **s)
{
    if (!*s)
        return;
    ech_file_close(&(*s)->file);
    free((*s)->in);
    if ((*s)->has_gzip)
        (void)inflateEnd(&(*s)->gzip);
    (void)ZSTD_freeDStream((*s)->zstd);
    free(*s);
    *s = NULL;
}
