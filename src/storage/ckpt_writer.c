#include "storage/ckpt_writer.h"

#include "base/checked.h"
#include "base/hash.h"
#include "base/io.h"
#include "storage/ckpt_publish.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A listed piece and where its elements lie: element i of the box at data[place(i) - shift]. */
typedef struct listed {
    ech_ckpt_piece piece;
    ech_ckpt_hold hold;
    ech_dtype dtype;
    int64_t shift;
    const char *data; /* borrowed: of its span */
} listed;

/* A span, kept for its padding. */
typedef struct kept_span {
    ech_ckpt_span span;
    ech_ckpt_class cls;
    ech_dtype dtype;
    const char *data; /* borrowed */
} kept_span;

struct ech_ckpt_writer {
    int rank;
    ech_ckpt_tensor *tensor; /* owned */
    listed *piece;           /* owned, in order of the file */
    size_t n_pieces, piece_capacity;
    kept_span *span; /* owned */
    size_t n_spans, span_capacity;
    int64_t bytes;
    char *buffer; /* owned: holds any piece that does not lie together */
    size_t buffer_bytes;
};

ech_status ech_ckpt_writer_create(const ech_model *model, const ech_canon *canon, int rank,
                                  ech_ckpt_writer **out)
{
    ech_ckpt_writer *w;
    ECH_TRY(ech_calloc(1, sizeof *w, &w));
    w->rank = rank;
    const ech_status st = ech_ckpt_tensors_create(model, canon, &w->tensor);
    if (st < 0)
        ech_ckpt_writer_destroy(&w);
    *out = w;
    return st;
}

void ech_ckpt_writer_destroy(ech_ckpt_writer **writer)
{
    ech_ckpt_writer *w = *writer;
    *writer = NULL;
    if (!w)
        return;
    free(w->tensor);
    free(w->piece);
    free(w->span);
    free(w->buffer);
    free(w);
}

int64_t ech_ckpt_writer_bytes(const ech_ckpt_writer *w)
{
    return w->bytes;
}

/* --- listing --- */

/* Do the piece's elements lie together in memory? */
static bool is_together(const listed *p)
{
    const ech_ckpt_range *r = &p->piece.range;
    return p->hold.row == p->hold.pitch ||
           r->first / p->hold.row == (r->first + r->n - 1) / p->hold.row;
}

static ech_status list_piece(ech_ckpt_writer *w, const listed *p)
{
    const size_t bytes = (size_t)p->piece.range.n * ech_dtype_bytes(p->dtype);
    if (!is_together(p) && bytes > w->buffer_bytes) {
        char *buffer;
        ECH_TRY(ech_calloc(bytes, 1, &buffer));
        free(w->buffer);
        w->buffer = buffer;
        w->buffer_bytes = bytes;
    }
    ECH_TRY(ech_grow(&w->piece, w->n_pieces, &w->piece_capacity, sizeof *w->piece));
    w->piece[w->n_pieces] = *p;
    w->piece[w->n_pieces++].piece.offset = w->bytes;
    w->bytes += (int64_t)bytes;
    return ECH_OK;
}

/* Elements [begin, end) of a box, in pieces of bounded size. */
static ech_status list_range(ech_ckpt_writer *w, listed p, int64_t begin, int64_t end)
{
    const int64_t most = ECH_CKPT_PIECE_BYTES / (int64_t)ech_dtype_bytes(p.dtype);
    p.piece.range.box = p.hold.box;
    for (int64_t at = begin; at < end; at += most) {
        p.piece.range.first = at;
        p.piece.range.n = end - at < most ? end - at : most;
        ECH_TRY(list_piece(w, &p));
    }
    return ECH_OK;
}

static ech_status list_slice(ech_ckpt_writer *w, const kept_span *from, const ech_ckpt_slice *s)
{
    const ech_ckpt_tensor *saved = &w->tensor[s->tensor];
    const ech_shard_plan *plan = from->span.plan;
    listed p = {.dtype = from->dtype, .shift = s->shift, .data = from->data};
    p.piece.cls = (int32_t)from->cls;
    p.piece.tensor = (int32_t)s->tensor;
    p.piece.rank = (int32_t)w->rank;
    for (int64_t i = 0; i < ech_ckpt_hold_count(plan, s->p); i++) {
        p.hold = ech_ckpt_hold_get(plan, s->p, saved, from->span.tp_coord, i);
        if (p.hold.is_first)
            ECH_TRY(list_range(w, p, ech_ckpt_hold_before(&p.hold, s->begin),
                               ech_ckpt_hold_before(&p.hold, s->end)));
    }
    return ECH_OK;
}

ech_status ech_ckpt_writer_add(ech_ckpt_writer *w, ech_ckpt_class cls, ech_dtype dtype,
                               const ech_ckpt_span *span, const void *data)
{
    const kept_span kept = {*span, cls, dtype, data};
    ech_ckpt_slice s;
    ECH_ASSERT(dtype <= ECH_F16);
    ECH_TRY(ech_grow(&w->span, w->n_spans, &w->span_capacity, sizeof *w->span));
    w->span[w->n_spans++] = kept;
    for (int i = 0; ech_ckpt_span_slice(span, i, &s); i++)
        if (s.begin < s.end)
            ECH_TRY(list_slice(w, &kept, &s));
    return ECH_OK;
}

/* --- padding --- */

/* Are elements [begin, end) of the span zero?  tensor < 0: behind all tensors. */
static ech_status check_zero(const ech_ckpt_writer *w, const kept_span *from, int tensor,
                             int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        ECH_CHECK(ech_dtype_load(from->dtype, from->data, (size_t)i) == 0.0, ECH_E_PROOF,
                  "rank %d: padding of '%s' is not zero in %s, unit %d, part %d, element %" PRId64,
                  w->rank, tensor < 0 ? "the unit" : w->tensor[tensor].name,
                  ech_ckpt_class_name(from->cls), from->span.unit, (int)from->span.part,
                  from->span.first + i);
    return ECH_OK;
}

/* What lies in a slice between the rows of its boxes. */
static ech_status check_slice(const ech_ckpt_writer *w, const kept_span *from,
                              const ech_ckpt_slice *s)
{
    const ech_shard_plan *plan = from->span.plan;
    int64_t at = s->begin;
    for (int64_t i = 0; i < ech_ckpt_hold_count(plan, s->p); i++) {
        const ech_ckpt_hold h =
            ech_ckpt_hold_get(plan, s->p, &w->tensor[s->tensor], from->span.tp_coord, i);
        /* rows that lie together are one */
        const int64_t row = h.row == h.pitch ? h.row * h.rows : h.row;
        const int64_t rows = h.row == 0 ? 0 : h.row == h.pitch ? 1 : h.rows;
        const int64_t before = at > h.local ? (at - h.local) / h.pitch : 0;
        for (int64_t r = rows > 1 ? before : 0; r < rows && at < s->end; r++) {
            const int64_t begin = h.local + r * h.pitch;
            ECH_TRY(check_zero(w, from, s->tensor, at - s->shift,
                               (begin < s->end ? begin : s->end) - s->shift));
            at = begin + row > at ? begin + row : at;
        }
    }
    return check_zero(w, from, s->tensor, at - s->shift, s->end - s->shift);
}

static ech_status check_padding(const ech_ckpt_writer *w, const kept_span *from)
{
    const ech_ckpt_span *span = &from->span;
    const int64_t used = ech_ckpt_span_used(span);
    ech_ckpt_slice s;
    for (int i = 0; ech_ckpt_span_slice(span, i, &s); i++)
        if (s.begin < s.end)
            ECH_TRY(check_slice(w, from, &s));
    return check_zero(w, from, -1, used > span->first ? used - span->first : 0, span->n);
}

/* --- writing --- */

/* The piece's elements, together: in place, or gathered row by row. */
static const void *gather(const ech_ckpt_writer *w, const listed *p)
{
    const size_t es = ech_dtype_bytes(p->dtype);
    const ech_ckpt_range *r = &p->piece.range;
    char *to = w->buffer;
    if (is_together(p))
        return p->data + (size_t)(ech_ckpt_hold_place(&p->hold, r->first) - p->shift) * es;
    for (int64_t i = r->first, n; i < r->first + r->n; i += n) {
        const int64_t rest_of_row = p->hold.row - i % p->hold.row;
        const int64_t rest = r->first + r->n - i;
        n = rest_of_row < rest ? rest_of_row : rest;
        memcpy(to, p->data + (size_t)(ech_ckpt_hold_place(&p->hold, i) - p->shift) * es,
               (size_t)n * es);
        to += (size_t)n * es;
    }
    return w->buffer;
}

static ech_status write_pieces(ech_ckpt_writer *w, ech_file *f)
{
    for (size_t i = 0; i < w->n_pieces; i++) {
        listed *p = &w->piece[i];
        const size_t bytes = (size_t)p->piece.range.n * ech_dtype_bytes(p->dtype);
        const void *data = gather(w, p);
        ech_hash128_hex(data, bytes, p->piece.hash);
        ECH_TRY(ech_file_write(f, data, bytes));
    }
    return ECH_OK;
}

static ech_status write_file(ech_ckpt_writer *w, const char *tmp)
{
    char name[32];
    char path[4096];
    ech_file *f = NULL;
    ECH_TRY(ech_path_join(tmp, ech_ckpt_file_name(w->rank, name), path, sizeof path));
    ECH_TRY(ech_file_create(path, &f));
    ech_status st = write_pieces(w, f);
    if (st == ECH_OK)
        st = ech_file_publish(f);
    ech_file_close(&f);
    return st;
}

static ech_status write_table(const ech_ckpt_writer *w, const char *tmp)
{
    char path[4096];
    ech_text text = {0};
    ECH_TRY(ech_ckpt_table_path(tmp, w->rank, path, sizeof path));
    ech_text_add(&text, "{\"rank\":%d,\"bytes\":%" PRId64 ",\"pieces\":[", w->rank, w->bytes);
    for (size_t i = 0; i < w->n_pieces; i++) {
        ech_text_add(&text, "%s", i ? ",\n" : "");
        ech_ckpt_piece_print(&w->piece[i].piece, &text);
    }
    ech_text_add(&text, "]}\n");
    const ech_status st = text.failed ? ECH_RAISE(ECH_E_NOMEM, "no memory for the table of pieces")
                                      : ech_write_whole(path, text.data, text.bytes);
    ech_text_fini(&text);
    return st;
}

ech_status ech_ckpt_writer_write(ech_ckpt_writer *w, const char *tmp)
{
    for (size_t i = 0; i < w->n_spans; i++)
        ECH_TRY(check_padding(w, &w->span[i]));
    if (w->n_pieces)
        ECH_TRY(write_file(w, tmp));
    return write_table(w, tmp);
}
