#include "storage/ckpt_reader.h"

#include "base/checked.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/node.h"
#include "storage/ckpt_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_FILES = 32 };

/* Piece files that are open, the longest unused first to go. */
typedef struct open_file {
    int64_t index; /* in the manifest's files */
    ech_file *file;
    int64_t used; /* when */
} open_file;

struct ech_ckpt {
    char *path; /* owned */
    ech_ckpt_manifest m;
    open_file open[OPEN_FILES];
    int64_t clock;
    char *buffer; /* owned: [ECH_CKPT_PIECE_BYTES], from the first read on */
};

/* Where wanted elements go: element i of a box to dst[place(i) - shift]. */
typedef struct sink {
    const ech_ckpt_hold *hold;
    int64_t shift;
    ech_dtype dtype;
    char *dst;
} sink;

/* Is a manifest there; a folder that may not be looked into is not damaged. */
static ech_status look(const char *path)
{
    char manifest[4096];
    bool exists;
    ECH_TRY(ech_path_join(path, ECH_CKPT_MANIFEST, manifest, sizeof manifest));
    ECH_TRY(ech_path_look(manifest, &exists));
    if (exists)
        return ECH_OK;
    ECH_CHECK(ech_path_is_folder(path), ECH_E_IO, "%s: no such folder", path);
    return ECH_RAISE(ECH_E_CORRUPT, "%s: holds no " ECH_CKPT_MANIFEST, path);
}

ech_status ech_ckpt_open(const char *path, ech_ckpt **out)
{
    ech_ckpt *c;
    *out = NULL;
    ECH_TRY(ech_calloc(1, sizeof *c, &c));
    c->path = strdup(path);
    ech_status st = c->path ? ECH_OK : ECH_RAISE(ECH_E_NOMEM, "no memory to open %s", path);
    if (st == ECH_OK)
        st = look(path);
    if (st == ECH_OK)
        st = ech_ckpt_manifest_read(path, &c->m);
    if (st < 0)
        ech_ckpt_close(&c);
    *out = c;
    return st;
}

void ech_ckpt_close(ech_ckpt **ckpt)
{
    ech_ckpt *c = *ckpt;
    *ckpt = NULL;
    if (!c)
        return;
    for (int i = 0; i < OPEN_FILES; i++)
        ech_file_close(&c->open[i].file);
    ech_ckpt_manifest_fini(&c->m);
    free(c->buffer);
    free(c->path);
    free(c);
}

const ech_ckpt_manifest *ech_ckpt_manifest_of(const ech_ckpt *c)
{
    return &c->m;
}

const char *ech_ckpt_path_of(const ech_ckpt *c)
{
    return c->path;
}

int64_t ech_ckpt_bytes(const ech_ckpt *c)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < c->m.n_files; i++)
        bytes += c->m.file[i].bytes;
    return bytes;
}

bool ech_ckpt_exists(const char *path)
{
    char manifest[4096];
    if (ech_path_join(path, ECH_CKPT_MANIFEST, manifest, sizeof manifest) < 0) {
        ech_error_clear();
        return false;
    }
    return ech_path_exists(manifest);
}

/* --- files --- */

/* The first tensor of a file, for words; every file has a piece. */
static const char *first_tensor(const ech_ckpt *c, int64_t rank)
{
    for (int64_t i = 0; i < c->m.n_pieces; i++)
        if (c->m.piece[i].rank == rank && c->m.piece[i].offset == 0)
            return c->m.tensor[c->m.piece[i].tensor].name;
    return "?";
}

static ech_status open_checked(const ech_ckpt *c, int64_t index, ech_file **out)
{
    const ech_ckpt_file *f = &c->m.file[index];
    char name[32];
    char path[4096];
    bool exists;
    ECH_TRY(ech_path_join(c->path, ech_ckpt_file_name(f->rank, name), path, sizeof path));
    ECH_TRY(ech_path_look(path, &exists));
    ECH_CHECK(exists, ECH_E_CORRUPT,
              "%s: the file of rank %" PRId64 " is missing, with '%s' and more", path, f->rank,
              first_tensor(c, f->rank));
    ECH_TRY(ech_file_open_in(c->path, name, out));
    const int64_t bytes = ech_file_bytes(*out);
    if (bytes == f->bytes)
        return ECH_OK;
    ech_file_close(out);
    return ECH_RAISE(ECH_E_CORRUPT,
                     "%s: the file of rank %" PRId64 " has %" PRId64 " bytes, wanted %" PRId64
                     "; it holds '%s' and more",
                     path, f->rank, bytes, f->bytes, first_tensor(c, f->rank));
}

static int64_t file_of_rank(const ech_ckpt *c, int64_t rank)
{
    int64_t lo = 0;
    int64_t hi = c->m.n_files - 1;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (c->m.file[mid].rank < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The open file of a piece; borrowed. */
static ech_status file_of(ech_ckpt *c, const ech_ckpt_piece *p, const ech_file **out)
{
    const int64_t index = file_of_rank(c, p->rank);
    open_file *oldest = c->open;
    for (open_file *o = c->open; o < c->open + OPEN_FILES; o++) {
        if (o->file && o->index == index) {
            o->used = ++c->clock;
            *out = o->file;
            return ECH_OK;
        }
        if (oldest->file && (!o->file || o->used < oldest->used))
            oldest = o;
    }
    ech_file_close(&oldest->file);
    ECH_TRY(open_checked(c, index, &oldest->file));
    oldest->index = index;
    oldest->used = ++c->clock;
    *out = oldest->file;
    return ECH_OK;
}

/* "batch.global" of the saved configuration; 0: it does not say. */
static int64_t saved_batch(const ech_ckpt *c)
{
    ech_node *tree = NULL;
    int64_t batch = 0;
    if (ech_node_parse_json(c->m.config, strlen(c->m.config), "config", &tree) < 0)
        ech_error_clear();
    const ech_node *section = tree ? ech_node_find(tree, "batch") : NULL;
    const ech_node *value = section ? ech_node_find(section, "global") : NULL;
    if (value && value->kind == ECH_NODE_INT)
        batch = value->integer;
    ech_node_destroy(&tree);
    return batch;
}

static ech_status check_folder(const ech_ckpt *c)
{
    const int64_t named = ech_ckpt_step_of_path(c->path);
    ECH_CHECK(named < 0 || named == c->m.run.step, ECH_E_CORRUPT,
              "%s: its name says step %" PRId64 ", its manifest step %" PRId64, c->path, named,
              c->m.run.step);
    return ECH_OK;
}

ech_status ech_ckpt_check_run(const ech_ckpt *c)
{
    const ech_ckpt_position *at = &c->m.run;
    const int64_t batch = saved_batch(c);
    int64_t samples = 0;
    ECH_TRY(check_folder(c));
    ECH_CHECK(at->updates <= at->step, ECH_E_CORRUPT,
              "%s: %" PRId64 " updates in %" PRId64 " steps", c->path, at->updates, at->step);
    ECH_CHECK(at->step > 0 ? at->samples % at->step == 0 : at->samples == 0, ECH_E_CORRUPT,
              "%s: %" PRId64 " samples in %" PRId64 " steps", c->path, at->samples, at->step);
    ECH_CHECK(
        batch <= 0 || (ech_mul_i64(at->step, batch, &samples) == ECH_OK && samples == at->samples),
        ECH_E_CORRUPT, "%s: %" PRId64 " samples in %" PRId64 " steps, its batch.global is %" PRId64,
        c->path, at->samples, at->step, batch);
    return ECH_OK;
}

ech_status ech_ckpt_check_files(ech_ckpt *c)
{
    ECH_TRY(ech_ckpt_check_run(c));
    for (int64_t i = 0; i < c->m.n_files; i++) {
        ech_file *f = NULL;
        ECH_TRY(open_checked(c, i, &f));
        ech_file_close(&f);
    }
    return ECH_OK;
}

/* --- elements --- */

static void convert(ech_dtype to, void *dst, ech_dtype from, const void *src, int64_t n)
{
    if (to == from) {
        memcpy(dst, src, (size_t)n * ech_dtype_bytes(to));
    } else if (to == ECH_F64 && from == ECH_F32) {
        for (int64_t i = 0; i < n; i++)
            ((double *)dst)[i] = (double)((const float *)src)[i];
    } else if (to == ECH_F32 && from == ECH_F64) {
        for (int64_t i = 0; i < n; i++)
            ((float *)dst)[i] = (float)((const double *)src)[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            ech_dtype_store(to, dst, (size_t)i, ech_dtype_load(from, src, (size_t)i));
    }
}

/* Elements [at, at + n) of the wanted box, from src. */
static void scatter(const sink *s, int64_t at, int64_t n, ech_dtype from, const char *src)
{
    const size_t es = ech_dtype_bytes(from);
    const bool is_together = s->hold->row == s->hold->pitch;
    for (int64_t done = 0, m; done < n; done += m) {
        const int64_t i = at + done;
        const int64_t rest_of_row = s->hold->row - i % s->hold->row;
        m = is_together || n - done < rest_of_row ? n - done : rest_of_row;
        const int64_t place = ech_ckpt_hold_place(s->hold, i) - s->shift;
        convert(s->dtype, s->dst + (size_t)place * ech_dtype_bytes(s->dtype), from,
                src + (size_t)done * es, m);
    }
}

static ech_status name_piece(const ech_ckpt *c, const ech_ckpt_piece *p, ech_status st)
{
    return ech_error_prefix(st,
                            "%s of '%s', rank %d: ", ech_ckpt_class_name((ech_ckpt_class)p->cls),
                            c->m.tensor[p->tensor].name, (int)p->rank);
}

static size_t piece_bytes(const ech_ckpt *c, const ech_ckpt_piece *p)
{
    return (size_t)p->range.n * ech_dtype_bytes(c->m.dtype[p->cls]);
}

/* A piece into the buffer, its hash checked. */
static ech_status read_piece(const ech_ckpt *c, const ech_file *f, const ech_ckpt_piece *p)
{
    char hash[33];
    const size_t bytes = piece_bytes(c, p);
    ECH_TRY(ech_file_read_at(f, c->buffer, bytes, p->offset));
    ech_hash128_hex(c->buffer, bytes, hash);
    ECH_CHECK(!memcmp(hash, p->hash, sizeof hash), ECH_E_CORRUPT,
              "%s: damaged: bytes %" PRId64 " .. %" PRId64 " have hash %s, the manifest says %s",
              ech_file_path(f), p->offset, p->offset + (int64_t)bytes - 1, hash, p->hash);
    return ECH_OK;
}

/* All of a piece is wanted. */
static ech_status read_whole(const ech_ckpt *c, const ech_file *f, const ech_ckpt_piece *p,
                             const ech_ckpt_range *want, const sink *s)
{
    const ech_dtype type = c->m.dtype[p->cls];
    ech_ckpt_overlap o;
    ech_ckpt_run run;
    ECH_TRY(read_piece(c, f, p));
    ech_ckpt_overlap_start(&o, &p->range, want);
    while (ech_ckpt_overlap_next(&o, &run))
        scatter(s, run.b, run.n, type,
                c->buffer + (size_t)(run.a - p->range.first) * ech_dtype_bytes(type));
    return ECH_OK;
}

/* Some of a piece is wanted: only that is read. */
static ech_status read_part(const ech_ckpt *c, const ech_file *f, const ech_ckpt_piece *p,
                            const ech_ckpt_range *want, const sink *s)
{
    const ech_dtype type = c->m.dtype[p->cls];
    const int64_t es = (int64_t)ech_dtype_bytes(type);
    ech_ckpt_overlap o;
    ech_ckpt_run run;
    ech_ckpt_overlap_start(&o, &p->range, want);
    while (ech_ckpt_overlap_next(&o, &run)) { /* no run is longer than its piece, nor the buffer */
        ECH_TRY(ech_file_read_at(f, c->buffer, (size_t)(run.n * es),
                                 p->offset + (run.a - p->range.first) * es));
        scatter(s, run.b, run.n, type, c->buffer);
    }
    return ECH_OK;
}

static ech_status read_from(ech_ckpt *c, const ech_ckpt_piece *p, int64_t n,
                            const ech_ckpt_range *want, const sink *s)
{
    const ech_file *f = NULL;
    ech_status st = file_of(c, p, &f);
    if (st == ECH_OK)
        st = n == p->range.n ? read_whole(c, f, p, want, s) : read_part(c, f, p, want, s);
    return st < 0 ? name_piece(c, p, st) : ECH_OK;
}

static ech_status need_buffer(ech_ckpt *c)
{
    return c->buffer ? ECH_OK : ech_calloc(ECH_CKPT_PIECE_BYTES, 1, &c->buffer);
}

/* Elements of a range of a box of a tensor. */
static ech_status read_range(ech_ckpt *c, ech_ckpt_class cls, int64_t tensor,
                             const ech_ckpt_range *want, const sink *s)
{
    const int64_t *first = &c->m.first_piece[cls * c->m.n_tensors + tensor];
    int64_t got = 0;
    ECH_TRY(need_buffer(c));
    for (int64_t i = first[0]; i < first[1] && got < want->n; i++) {
        const int64_t n = ech_ckpt_overlap_count(&c->m.piece[i].range, want);
        if (n > 0)
            ECH_TRY(read_from(c, &c->m.piece[i], n, want, s));
        got += n;
    }
    ECH_ASSERT(got == want->n); /* the manifest covers every tensor */
    return ECH_OK;
}

static ech_status need_class(const ech_ckpt *c, ech_ckpt_class cls)
{
    ECH_CHECK(c->m.dtype[cls] != ECH_N_DTYPES, ECH_E_CONFIG, "%s: no %s were saved", c->path,
              ech_ckpt_class_name(cls));
    return ECH_OK;
}

static ech_status read_slice(ech_ckpt *c, ech_ckpt_class cls, const ech_ckpt_span *span,
                             const ech_ckpt_slice *slice, sink *s)
{
    const ech_ckpt_tensor *saved = &c->m.tensor[slice->tensor];
    s->shift = slice->shift;
    for (int64_t i = 0; i < ech_ckpt_hold_count(span->plan, slice->p); i++) {
        const ech_ckpt_hold h = ech_ckpt_hold_get(span->plan, slice->p, saved, span->tp_coord, i);
        const int64_t begin = ech_ckpt_hold_before(&h, slice->begin);
        const ech_ckpt_range want = {h.box, begin, ech_ckpt_hold_before(&h, slice->end) - begin};
        s->hold = &h;
        if (want.n > 0)
            ECH_TRY(read_range(c, cls, slice->tensor, &want, s));
    }
    return ECH_OK;
}

ech_status ech_ckpt_read_span(ech_ckpt *c, ech_ckpt_class cls, const ech_ckpt_span *span,
                              ech_dtype dtype, void *dst)
{
    sink s = {.dtype = dtype, .dst = dst};
    ech_ckpt_slice slice;
    ECH_TRY(need_class(c, cls));
    ECH_ASSERT(span->plan->canon->n_params == c->m.n_tensors);
    memset(dst, 0, (size_t)span->n * ech_dtype_bytes(dtype)); /* zero is zero in every type */
    for (int i = 0; ech_ckpt_span_slice(span, i, &slice); i++)
        if (slice.begin < slice.end)
            ECH_TRY(read_slice(c, cls, span, &slice, &s));
    return ECH_OK;
}

ech_status ech_ckpt_read_tensor(ech_ckpt *c, ech_ckpt_class cls, int64_t tensor, ech_dtype dtype,
                                void *dst)
{
    const ech_ckpt_tensor *t = &c->m.tensor[tensor];
    const ech_ckpt_hold h = {
        .box = ech_ckpt_box_whole(t->rank, t->dim), .rows = 1, .row = t->elems, .pitch = t->elems};
    const ech_ckpt_range want = {h.box, 0, t->elems};
    const sink s = {&h, 0, dtype, dst};
    ECH_TRY(need_class(c, cls));
    return read_range(c, cls, tensor, &want, &s);
}

/* --- verify --- */

/* Counts faults and keeps the first. */
typedef struct verdict {
    ech_ckpt_on_fault on_fault;
    void *user;
    int64_t n;
    bool is_unread; /* some of it could not be read, which says nothing of its bytes */
    bool is_damaged;
    char first[1024];
} verdict;

static void judge(verdict *v, ech_status st)
{
    v->is_unread |= st == ECH_E_IO;
    v->is_damaged |= st != ECH_E_IO;
    if (v->n++ == 0)
        (void)snprintf(v->first, sizeof v->first, "%s", ech_error_message());
}

static void tell(verdict *v, const ech_ckpt *c, const ech_ckpt_piece *p, int64_t rank)
{
    char name[32];
    const ech_ckpt_fault fault = {.rank = rank,
                                  .file = ech_ckpt_file_name(rank, name),
                                  .tensor = p ? c->m.tensor[p->tensor].name : NULL,
                                  .cls = p ? (ech_ckpt_class)p->cls : ECH_CKPT_PARAMS,
                                  .offset = p ? p->offset : 0,
                                  .what = ech_error_message()};
    if (v->on_fault)
        v->on_fault(&fault, v->user);
}

/* Pieces by file and place. */
static int compare_places(const void *a, const void *b)
{
    const ech_ckpt_piece *x = *(const ech_ckpt_piece *const *)a;
    const ech_ckpt_piece *y = *(const ech_ckpt_piece *const *)b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The n pieces of file `index`. */
static void verify_file(ech_ckpt *c, int64_t index, const ech_ckpt_piece *const *piece, int64_t n,
                        verdict *v)
{
    ech_file *f = NULL;
    const ech_status open = open_checked(c, index, &f);
    if (open < 0) {
        judge(v, open);
        tell(v, c, NULL, c->m.file[index].rank);
    }
    for (int64_t i = 0; i < n && open == ECH_OK; i++) {
        const ech_status st = read_piece(c, f, piece[i]);
        if (st < 0) {
            judge(v, name_piece(c, piece[i], st));
            tell(v, c, piece[i], piece[i]->rank);
        }
    }
    ech_file_close(&f);
}

static int64_t pieces_of(int64_t rank, const ech_ckpt_piece *const *piece, int64_t left)
{
    int64_t n = 0;
    while (n < left && piece[n]->rank == rank)
        n++;
    return n;
}

static ech_status verify(ech_ckpt *c, int64_t share, int64_t shares, verdict *v)
{
    const int64_t n = c->m.n_pieces;
    const ech_ckpt_piece **piece = NULL;
    int64_t at = 0;
    ECH_TRY(need_buffer(c));
    ECH_TRY(ech_calloc((size_t)n, sizeof *piece, &piece));
    for (int64_t i = 0; i < n; i++)
        piece[i] = &c->m.piece[i];
    qsort(piece, (size_t)n, sizeof *piece, compare_places);
    for (int64_t f = 0; f < c->m.n_files; f++) {
        const int64_t here = pieces_of(c->m.file[f].rank, piece + at, n - at);
        if (f % shares == share)
            verify_file(c, f, piece + at, here, v);
        at += here;
    }
    free(piece);
    return ECH_OK;
}

static ech_status sentence(const verdict *v)
{
    ECH_CHECK(!v->is_damaged, ECH_E_CORRUPT, "%s%s", v->first,
              v->n > 1 ? " (and more of it is damaged)" : "");
    ECH_CHECK(!v->is_unread, ECH_E_IO, "%s%s", v->first,
              v->n > 1 ? " (and more of it cannot be read)" : "");
    return ECH_OK;
}

static ech_status check_copy(const ech_ckpt *c, const ech_ckpt_copy *copy)
{
    char path[4096];
    char hash[33];
    char *text = NULL;
    size_t bytes = 0;
    bool exists;
    ECH_TRY(ech_path_join(c->path, copy->name, path, sizeof path));
    ECH_TRY(ech_path_look(path, &exists));
    ECH_CHECK(exists, ECH_E_CORRUPT, "%s: is missing", path);
    ECH_TRY(ech_read_whole(path, ECH_CKPT_MANIFEST_BYTES, &text, &bytes));
    ech_hash128_hex(text, bytes, hash);
    free(text);
    ECH_CHECK((int64_t)bytes == copy->bytes && !memcmp(hash, copy->hash, sizeof hash),
              ECH_E_CORRUPT,
              "%s: damaged: %zu bytes with hash %s, the manifest says %" PRId64 " and %s", path,
              bytes, hash, copy->bytes, copy->hash);
    return ECH_OK;
}

/* What lies beside the pieces, and what the manifest says of the run. */
static void verify_rest(const ech_ckpt *c, verdict *v)
{
    const ech_ckpt_fault none = {.rank = -1, .cls = ECH_CKPT_PARAMS};
    for (int64_t i = -1; i < c->m.n_copies; i++) {
        const ech_status st = i < 0 ? ech_ckpt_check_run(c) : check_copy(c, &c->m.copy[i]);
        ech_ckpt_fault fault = none;
        if (st == ECH_OK)
            continue;
        judge(v, st);
        fault.file = i < 0 ? ECH_CKPT_MANIFEST : c->m.copy[i].name;
        fault.what = ech_error_message();
        if (v->on_fault)
            v->on_fault(&fault, v->user);
    }
}

ech_status ech_ckpt_verify(ech_ckpt *c, ech_ckpt_on_fault on_fault, void *user)
{
    verdict v = {.on_fault = on_fault, .user = user};
    verify_rest(c, &v);
    ECH_TRY(verify(c, 0, 1, &v));
    return sentence(&v);
}

ech_status ech_ckpt_verify_share(ech_ckpt *c, int64_t share, int64_t shares)
{
    verdict v = {0};
    ECH_TRY(verify(c, share, shares, &v));
    return sentence(&v);
}
