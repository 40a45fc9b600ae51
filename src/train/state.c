#include "train/state.h"

#include "storage/ckpt_writer.h"
#include "storage/hf_folder.h"

#include <stdlib.h>
#include <string.h>

/* Classes of a checkpoint and what the session calls them. */
static const struct {
    ech_ckpt_class saved;
    ech_held_class held;
} classes[] = {{ECH_CKPT_PARAMS, ECH_HELD_PARAMS},
               {ECH_CKPT_MOMENT_M, ECH_HELD_M},
               {ECH_CKPT_MOMENT_V, ECH_HELD_V}};
enum { N_CLASSES = sizeof classes / sizeof *classes };

/* A range that a rank holds, as a checkpoint sees it. */
typedef ech_status (*on_range)(void *user, int cls, const ech_ckpt_span *span,
                               const ech_held_range *range);

static ech_status each_range(const ech_held *h, on_range visit, void *user)
{
    int64_t coord[ECH_N_AXES];
    ech_layout_coords(h->layout, h->rank, coord);
    for (int i = 0; i < ech_shard_unit_count(h->plan); i++)
        for (int part = 0; part < ECH_N_PARTS; part++)
            for (int c = 0; c < N_CLASSES; c++) {
                ech_held_range r;
                const int u = ech_shard_unit_at(h->plan, i);
                if (!ech_held_range_get(h, classes[c].held, u, (ech_part)part, &r))
                    continue;
                const ech_ckpt_span span = {
                    h->plan, (int)coord[ECH_AXIS_TP], u, (ech_part)part, r.first, r.n};
                ECH_TRY(visit(user, c, &span, &r));
            }
    return ECH_OK;
}

/* --- saving --- */

typedef struct saving {
    const ech_held *h;
    ech_ckpt_writer *w;
} saving;

/* Its own part of what other data parallel ranks hold too. */
static ech_status add_share(void *user, int cls, const ech_ckpt_span *span,
                            const ech_held_range *range)
{
    const saving *s = user;
    const ech_layout *l = s->h->layout;
    int64_t coord[ECH_N_AXES];
    if (span->part == ECH_PART_TIED && span->unit > 0)
        return ECH_OK; /* the embedding's stage writes it */
    ech_layout_coords(l, s->h->rank, coord);
    const ech_range share =
        range->is_own
            ? ech_split(span->n, l->degree[ECH_AXIS_HSDP], (int)coord[ECH_AXIS_HSDP])
            : ech_split(span->n, ech_layout_data_degree(l), (int)ech_layout_data_index(l, coord));
    ech_ckpt_span mine = *span;
    mine.first += share.begin;
    mine.n = share.end - share.begin;
    if (mine.n == 0)
        return ECH_OK;
    return ech_ckpt_writer_add(s->w, classes[cls].saved, s->h->real, &mine,
                               (const char *)range->data +
                                   (size_t)share.begin * ech_dtype_bytes(s->h->real));
}

static ech_status write_rank(ech_session *s, int i, const char *tmp)
{
    const ech_held held = ech_session_held(s, i);
    saving to = {.h = &held};
    ECH_TRY(ech_ckpt_writer_create(&s->model, &s->canon, s->local[i].rank, &to.w));
    ech_status st = each_range(&held, add_share, &to);
    if (st == ECH_OK)
        st = ech_ckpt_writer_write(to.w, tmp);
    ech_ckpt_writer_destroy(&to.w);
    return st;
}

static ech_status write_ranks(ech_session *s, const char *tmp)
{
    for (int i = 0; i < s->n_local; i++) {
        const ech_status st = write_rank(s, i, tmp);
        if (st < 0 && s->n_local > 1)
            return ech_error_prefix(st, "rank %d: ", s->local[i].rank);
        ECH_TRY(st);
    }
    return ECH_OK;
}

static ech_ckpt_head head_of(const ech_session *s, const ech_state_spec *spec)
{
    const ech_layout *l = &s->config.compile.block.layout;
    const ech_dtype real = s->config.compile.block.real;
    const ech_run_class *klass = &s->train.klass[0];
    const bool has_moments = s->config.compile.block.optim == ECH_UPDATE_ADAMW;
    ech_ckpt_head h = {
        .run = spec->run,
        .layout = {.world = l->world,
                   .tp = l->degree[ECH_AXIS_TP],
                   .cp = l->degree[ECH_AXIS_CP],
                   .pp = l->degree[ECH_AXIS_PP],
                   .shards = klass->plan.shards,
                   .replicas = ech_layout_data_degree(l) / klass->plan.shards,
                   .is_sequence_parallel = s->config.compile.block.policy.is_sequence_parallel},
        .model = &s->model,
        .canon = &s->canon,
        .config = spec->config,
        .data = spec->data};
    h.dtype[ECH_CKPT_PARAMS] = real;
    h.dtype[ECH_CKPT_MOMENT_M] = h.dtype[ECH_CKPT_MOMENT_V] = has_moments ? real : ECH_N_DTYPES;
    h.dtype[ECH_CKPT_MASTER] = ECH_N_DTYPES;
    return h;
}

static bool has_root(const ech_session *s)
{
    return s->local[0].rank == 0;
}

enum { NAME_BYTES = 1024 /* of a temporary folder's path */ };

/* Rank 0 makes the temporary folder, and what it is called reaches every process.  `all` has room for
 * a name of every rank: what can fail alone has been done. */
static ech_status begin(ech_session *s, const ech_state_spec *spec, char *all, char *tmp)
{
    ech_transport *t = s->local[0].transport;
    ech_status st = all ? ECH_OK : ECH_RAISE(ECH_E_NOMEM, "no memory to begin a checkpoint");
    if (st == ECH_OK && has_root(s))
        st = ech_ckpt_begin(spec->dir, spec->run.step, tmp, NAME_BYTES);
    ECH_TRY(ech_session_agree(s, st));
    if (s->n_local > 1 || t->size == 1)
        return ECH_OK;
    ECH_TRY(t->exchange(t, tmp, NAME_BYTES, all));
    memcpy(tmp, all, NAME_BYTES);
    return ECH_OK;
}

static ech_status publish(const ech_session *s, const ech_state_spec *spec, const char *tmp,
                          ech_ckpt_saved *out)
{
    const ech_ckpt_head head = head_of(s, spec);
    if (spec->tokenizer)
        ECH_TRY(ech_hf_tokenizer_copy(spec->tokenizer, false, tmp));
    return ech_ckpt_publish(spec->dir, tmp, &head, out);
}

static ech_status save(ech_session *s, const ech_state_spec *spec, char *all, ech_ckpt_saved *out)
{
    char tmp[NAME_BYTES] = "";
    ECH_TRY(begin(s, spec, all, tmp));
    ech_status st = ech_session_agree(s, write_ranks(s, tmp));
    if (st == ECH_OK && has_root(s))
        st = publish(s, spec, tmp, out);
    if (st < 0 && has_root(s))
        ech_ckpt_abandon(tmp);
    return ech_session_agree(s, st);
}

ech_status ech_state_save(ech_session *s, const ech_state_spec *spec, ech_ckpt_saved *out)
{
    ech_transport *t = s->local[0].transport;
    const double deadline_s = t->deadline_s;
    char *all = calloc((size_t)t->size, NAME_BYTES);
    out->path[0] = '\0';
    out->bytes = 0;
    t->deadline_s = 0;
    const ech_status st = save(s, spec, all, out);
    t->deadline_s = deadline_s;
    free(all);
    return st;
}

/* --- loading --- */

typedef struct loading {
    ech_ckpt *c;
    ech_dtype real;
} loading;

static ech_status read_one(void *user, int cls, const ech_ckpt_span *span,
                           const ech_held_range *range)
{
    const loading *l = user;
    return ech_ckpt_read_span(l->c, classes[cls].saved, span, l->real, range->data);
}

ech_status ech_state_load(ech_session *s, ech_ckpt *c)
{
    loading from = {c, s->config.compile.block.real};
    for (int i = 0; i < s->n_local; i++) {
        const ech_held held = ech_session_held(s, i);
        ECH_TRY(each_range(&held, read_one, &from));
    }
    return ECH_OK;
}
