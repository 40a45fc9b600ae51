/* What must hold of a manifest, whoever wrote it. */
#include "storage/ckpt_manifest.h"

#include "base/checked.h"
#include "storage/json_cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ech_ckpt_class_name(ech_ckpt_class c)
{
    static const char *const names[] = {
#define ECH_CKPT_CLASS_TEXT(name, text) text,
        ECH_CKPT_CLASS_LIST(ECH_CKPT_CLASS_TEXT)
#undef ECH_CKPT_CLASS_TEXT
    };
    return c >= 0 && c < ECH_N_CKPT_CLASSES ? names[c] : "no class";
}

const char *ech_ckpt_file_name(int64_t rank, char buf[32])
{
    (void)snprintf(buf, 32, "rank-%05" PRId64 ".bin", rank);
    return buf;
}

void ech_ckpt_manifest_fini(ech_ckpt_manifest *m)
{
    free(m->model);
    free(m->config);
    free(m->data);
    free(m->copy);
    free(m->tensor);
    free(m->file);
    free(m->piece);
    free(m->first_piece);
    *m = (ech_ckpt_manifest){0};
}

/* --- tensors, classes, files --- */

static int compare_names(const void *a, const void *b)
{
    const ech_ckpt_tensor *const *x = a;
    const ech_ckpt_tensor *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static ech_status check_tensor(ech_ckpt_tensor *t)
{
    char name[80];
    ECH_CHECK(t->name[0] && ech_json_is_printable(t->name), ECH_E_CORRUPT,
              "tensors: '%s' is no name", ech_json_quote(t->name, name, sizeof name));
    ECH_CHECK(t->rank >= 1 && t->rank <= ECH_CKPT_RANK_MAX, ECH_E_CORRUPT,
              "tensor '%s' has %d dimensions, wanted 1 .. %d", t->name, t->rank,
              (int)ECH_CKPT_RANK_MAX);
    t->elems = 1;
    for (int d = 0; d < t->rank; d++)
        ECH_CHECK(t->dim[d] >= 1 && ech_mul_i64(t->elems, t->dim[d], &t->elems) == ECH_OK &&
                      t->elems <= ECH_CANON_ELEMS_MAX,
                  ECH_E_CORRUPT, "tensor '%s': dimension %d is %" PRId64 ", which cannot be",
                  t->name, d, t->dim[d]);
    return ECH_OK;
}

static ech_status check_tensors(ech_ckpt_manifest *m)
{
    const ech_ckpt_tensor **by_name = NULL;
    ech_status st = ECH_OK;
    ECH_CHECK(m->n_tensors >= 1 && m->n_tensors <= ECH_CKPT_TENSORS_MAX, ECH_E_CORRUPT,
              "tensors: there are %" PRId64 ", wanted 1 .. %d", m->n_tensors,
              (int)ECH_CKPT_TENSORS_MAX);
    for (int64_t i = 0; i < m->n_tensors; i++)
        ECH_TRY(check_tensor(&m->tensor[i]));
    ECH_TRY(ech_calloc((size_t)m->n_tensors, sizeof *by_name, &by_name));
    for (int64_t i = 0; i < m->n_tensors; i++)
        by_name[i] = &m->tensor[i];
    qsort(by_name, (size_t)m->n_tensors, sizeof *by_name, compare_names);
    for (int64_t i = 1; i < m->n_tensors && st == ECH_OK; i++)
        if (!strcmp(by_name[i - 1]->name, by_name[i]->name))
            st = ECH_RAISE(ECH_E_CORRUPT, "tensor '%s' is there twice", by_name[i]->name);
    free(by_name);
    return st;
}

static int compare_files(const void *a, const void *b)
{
    const ech_ckpt_file *x = a;
    const ech_ckpt_file *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static ech_status check_files(ech_ckpt_manifest *m)
{
    ECH_CHECK(m->n_files >= 1, ECH_E_CORRUPT, "files: there are none");
    qsort(m->file, (size_t)m->n_files, sizeof *m->file, compare_files);
    for (int64_t i = 0; i < m->n_files; i++) {
        const ech_ckpt_file *f = &m->file[i];
        ECH_CHECK(f->rank >= 0 && f->rank < ECH_MAX_WORLD && f->bytes >= 1, ECH_E_CORRUPT,
                  "files: rank %" PRId64 " with %" PRId64 " bytes cannot be", f->rank, f->bytes);
        ECH_CHECK(i == 0 || f[-1].rank != f->rank, ECH_E_CORRUPT,
                  "files: rank %" PRId64 " is there twice", f->rank);
    }
    return ECH_OK;
}

/* --- pieces --- */

/* What a message says of a piece: whose, of what. */
#define PIECE_FMT "rank %d, %s of '%s'"
#define PIECE_ARGS(m, p)                                                                           \
    (int)(p)->rank, ech_ckpt_class_name((ech_ckpt_class)(p)->cls), (m)->tensor[(p)->tensor].name

static ech_status check_box(const ech_ckpt_manifest *m, const ech_ckpt_piece *p)
{
    const ech_ckpt_tensor *t = &m->tensor[p->tensor];
    const ech_ckpt_range *r = &p->range;
    ECH_CHECK(r->box.rank == t->rank, ECH_E_CORRUPT,
              PIECE_FMT ": a box of %d dimensions in a tensor of %d", PIECE_ARGS(m, p), r->box.rank,
              t->rank);
    for (int d = 0; d < t->rank; d++)
        ECH_CHECK(
            r->box.begin[d] >= 0 && r->box.begin[d] < r->box.end[d] && r->box.end[d] <= t->dim[d],
            ECH_E_CORRUPT, PIECE_FMT ": [%" PRId64 ", %" PRId64 ") leaves dimension %d of %" PRId64,
            PIECE_ARGS(m, p), r->box.begin[d], r->box.end[d], d, t->dim[d]);
    const int64_t elems = ech_ckpt_box_elems(&r->box);
    ECH_CHECK(r->first >= 0 && r->first < elems && r->n >= 1 && r->n <= elems - r->first,
              ECH_E_CORRUPT,
              PIECE_FMT ": elements %" PRId64 " + %" PRId64 " of a box that has %" PRId64,
              PIECE_ARGS(m, p), r->first, r->n, elems);
    return ECH_OK;
}

static int64_t piece_bytes(const ech_ckpt_manifest *m, const ech_ckpt_piece *p)
{
    return p->range.n * (int64_t)ech_dtype_bytes(m->dtype[p->cls]);
}

static ech_status check_piece(const ech_ckpt_manifest *m, const ech_ckpt_piece *p)
{
    ECH_CHECK(p->cls >= 0 && p->cls < ECH_N_CKPT_CLASSES && m->dtype[p->cls] != ECH_N_DTYPES,
              ECH_E_CORRUPT, "pieces: class %d is none of this checkpoint", (int)p->cls);
    ECH_CHECK(p->tensor >= 0 && p->tensor < m->n_tensors, ECH_E_CORRUPT,
              "pieces: tensor %d, there are %" PRId64, (int)p->tensor, m->n_tensors);
    ECH_TRY(check_box(m, p));
    ECH_CHECK(p->range.n <= ECH_CKPT_PIECE_BYTES / (int64_t)ech_dtype_bytes(m->dtype[p->cls]),
              ECH_E_CORRUPT, PIECE_FMT ": a piece of %" PRId64 " elements, over %d bytes",
              PIECE_ARGS(m, p), p->range.n, (int)ECH_CKPT_PIECE_BYTES);
    return ECH_OK;
}

static int compare_pieces(const void *a, const void *b)
{
    const ech_ckpt_piece *x = a;
    const ech_ckpt_piece *y = b;
    if (x->cls != y->cls)
        return x->cls < y->cls ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    const int by_box = ech_ckpt_box_compare(&x->range.box, &y->range.box);
    if (by_box)
        return by_box;
    return x->range.first < y->range.first ? -1 : x->range.first > y->range.first;
}

/* Pieces of one box, sorted: their ranges follow each other from the first element to the last. */
static ech_status check_ranges(const ech_ckpt_manifest *m, const ech_ckpt_piece *p, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = p[i].range.first;
        ECH_CHECK(first >= at, ECH_E_CORRUPT,
                  PIECE_FMT ": element %" PRId64 " of the box is saved twice", PIECE_ARGS(m, &p[i]),
                  first);
        ECH_CHECK(first == at, ECH_E_CORRUPT,
                  PIECE_FMT ": a piece is missing, elements %" PRId64 " .. %" PRId64 " of the box "
                            "of this rank's",
                  PIECE_ARGS(m, &p[i]), at, first - 1);
        at += p[i].range.n;
    }
    const int64_t elems = ech_ckpt_box_elems(&p->range.box);
    ECH_CHECK(at == elems, ECH_E_CORRUPT,
              PIECE_FMT ": a piece is missing, elements %" PRId64 " .. %" PRId64 " of the box of "
                        "this rank's",
              PIECE_ARGS(m, &p[n - 1]), at, elems - 1);
    return ECH_OK;
}

/* All pieces of one tensor of one class, sorted; box has room for n. */
static ech_status check_cover(const ech_ckpt_manifest *m, int cls, int64_t tensor,
                              const ech_ckpt_piece *p, int64_t n, ech_ckpt_box *box)
{
    const ech_ckpt_tensor *t = &m->tensor[tensor];
    const ech_ckpt_box whole = ech_ckpt_box_whole(t->rank, t->dim);
    int64_t boxes = 0;
    int64_t elems = 0;
    for (int64_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n; j++)
            if (ech_ckpt_box_compare(&p[i].range.box, &p[j].range.box) != 0)
                break;
        ECH_TRY(check_ranges(m, p + i, j - i));
        box[boxes++] = p[i].range.box;
        elems += ech_ckpt_box_elems(&p[i].range.box);
        ECH_CHECK(elems <= t->elems, ECH_E_CORRUPT, PIECE_FMT ": some of it is saved twice",
                  PIECE_ARGS(m, &p[i]));
    }
    ECH_CHECK(ech_ckpt_boxes_cover(box, boxes, &whole), ECH_E_CORRUPT,
              "%s of '%s': %s: %" PRId64 " of %" PRId64 " elements are there",
              ech_ckpt_class_name((ech_ckpt_class)cls), t->name,
              elems < t->elems ? "a piece is missing" : "the pieces' boxes overlap", elems,
              t->elems);
    return ECH_OK;
}

static ech_status check_tensors_covered(ech_ckpt_manifest *m, ech_ckpt_box *box)
{
    int64_t at = 0;
    for (int cls = 0; cls < ECH_N_CKPT_CLASSES; cls++)
        for (int64_t t = 0; t < m->n_tensors; t++) {
            const int64_t first = at;
            m->first_piece[cls * m->n_tensors + t] = first;
            while (at < m->n_pieces && m->piece[at].cls == cls && m->piece[at].tensor == t)
                at++;
            if (m->dtype[cls] != ECH_N_DTYPES)
                ECH_TRY(check_cover(m, cls, t, m->piece + first, at - first, box));
        }
    m->first_piece[ECH_N_CKPT_CLASSES * m->n_tensors] = at;
    return ECH_OK;
}

/* --- bytes of files --- */

/* By file and offset. */
static int compare_places(const void *a, const void *b)
{
    const ech_ckpt_piece *x = *(const ech_ckpt_piece *const *)a;
    const ech_ckpt_piece *y = *(const ech_ckpt_piece *const *)b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static ech_status check_bytes(const ech_ckpt_manifest *m, const ech_ckpt_piece **by_place)
{
    int64_t at = 0;
    for (int64_t f = 0; f < m->n_files; f++) {
        int64_t bytes = 0;
        for (; at < m->n_pieces && by_place[at]->rank <= m->file[f].rank; at++) {
            const ech_ckpt_piece *p = by_place[at];
            ECH_CHECK(p->rank == m->file[f].rank, ECH_E_CORRUPT,
                      PIECE_FMT ": that rank has no file", PIECE_ARGS(m, p));
            ECH_CHECK(p->offset == bytes, ECH_E_CORRUPT,
                      PIECE_FMT ": stands at byte %" PRId64 " of its file, wanted %" PRId64,
                      PIECE_ARGS(m, p), p->offset, bytes);
            bytes += piece_bytes(m, p);
        }
        ECH_CHECK(bytes == m->file[f].bytes, ECH_E_CORRUPT,
                  "rank %" PRId64 ": a file of %" PRId64 " bytes, its pieces have %" PRId64,
                  m->file[f].rank, m->file[f].bytes, bytes);
    }
    ECH_CHECK(at == m->n_pieces, ECH_E_CORRUPT, PIECE_FMT ": that rank has no file",
              PIECE_ARGS(m, by_place[at]));
    return ECH_OK;
}

static ech_status check_pieces(ech_ckpt_manifest *m)
{
    const ech_ckpt_piece **by_place = NULL;
    ech_ckpt_box *box = NULL;
    ech_status st;
    for (int64_t i = 0; i < m->n_pieces; i++)
        ECH_TRY(check_piece(m, &m->piece[i]));
    if (m->n_pieces)
        qsort(m->piece, (size_t)m->n_pieces, sizeof *m->piece, compare_pieces);
    ECH_TRY_GOTO(st, ech_calloc((size_t)m->n_pieces, sizeof *box, &box), end);
    ECH_TRY_GOTO(st, check_tensors_covered(m, box), end);
    ECH_TRY_GOTO(st, ech_calloc((size_t)m->n_pieces, sizeof *by_place, &by_place), end);
    for (int64_t i = 0; i < m->n_pieces; i++)
        by_place[i] = &m->piece[i];
    if (m->n_pieces)
        qsort(by_place, (size_t)m->n_pieces, sizeof *by_place, compare_places);
    ECH_TRY_GOTO(st, check_bytes(m, by_place), end);
end:
    free(box);
    free(by_place);
    return st;
}

ech_status ech_ckpt_manifest_complete(ech_ckpt_manifest *m)
{
    const bool has_params = m->dtype[ECH_CKPT_PARAMS] != ECH_N_DTYPES;
    ECH_CHECK(has_params, ECH_E_CORRUPT, "classes: there are no params");
    ECH_TRY(check_tensors(m));
    ECH_TRY(check_files(m));
    free(m->first_piece);
    m->first_piece = NULL;
    ECH_TRY(ech_calloc((size_t)(ECH_N_CKPT_CLASSES * m->n_tensors + 1), sizeof *m->first_piece,
                       &m->first_piece));
    return check_pieces(m);
}
