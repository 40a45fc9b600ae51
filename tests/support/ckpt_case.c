#include "ckpt_case.h"
#include "check.h"

#include "base/checked.h"
#include "folder.h"

#include <stdlib.h>
#include <unistd.h>

int ckpt_folder_setup(void **state)
{
    if (access("/dev/shm", W_OK) == 0)
        (void)setenv("TMPDIR", "/dev/shm", 0);
    return folder_setup(state);
}

void ckpt_model_make(int kind, ckpt_model *out)
{
    ech_model m = ech_model_default(kind == CKPT_GPT2 ? ECH_ARCH_GPT2 : ECH_ARCH_LLAMA);
    m.layers = 2;
    m.heads = 6;
    m.kv_heads = kind == CKPT_GPT2 ? 6 : kind == CKPT_QWEN ? 3 : 2;
    m.head_dim = 2;
    m.hidden = 12;
    m.ffn = 14; /* neither 3 nor 4 divide it */
    m.vocab = 133;
    m.context = 9;
    m.qkv_bias = kind != CKPT_LLAMA;
    m.out_bias = m.qkv_bias;
    m.qk_norm = kind == CKPT_QWEN;
    m.tie_embeddings = kind == CKPT_GPT2;
    m.rope.interleaved = kind == CKPT_LLAMA;
    out->m = m;
    assert_ok(ech_canon_create(&m, &out->c));
}

void ckpt_model_drop(ckpt_model *m)
{
    ech_canon_fini(&m->c);
}

void ckpt_plan(const ckpt_model *m, const ckpt_layout *l, ech_shard_plan *out)
{
    const ech_shard_spec spec = {.model = &m->m,
                                 .canon = &m->c,
                                 .tp = l->tp,
                                 .is_sequence_parallel = l->is_sequence_parallel,
                                 .shards = l->shards};
    assert_ok(ech_shard_plan_make(&spec, out));
}

double ckpt_value(const ckpt_model *m, ech_ckpt_class cls, int tensor, int64_t e, int mark)
{
    const ech_param *p = &m->c.param[tensor];
    const bool is_padded = p->kind == ECH_PARAM_TOKEN_EMBED || p->kind == ECH_PARAM_HEAD;
    if (is_padded && e >= m->m.vocab * m->m.hidden)
        return 0.0;
    /* below 2^24 / 8, so exact in fp32 */
    return (double)(p->offset + e + 1) + 0.25 * (double)cls + 0.125 * (double)(mark % 2);
}

/* Unit of the model whose tensors the plan holds for those of unit u. */
static int planned(const ckpt_model *m, int u)
{
    return u == 0 || u == m->c.n_units - 1 ? u : 1;
}

void *ckpt_slab(const ckpt_model *m, const ech_shard_plan *plan, int tp_coord, int unit,
                ech_part part, ech_ckpt_class cls, ech_dtype dtype, int mark)
{
    const ech_shard_unit *u = ech_shard_unit_of(plan, unit);
    void *slab = NULL;
    if (u->part[part].elems == 0)
        return NULL;
    assert_ok(ech_calloc((size_t)u->part[part].elems, ech_dtype_bytes(dtype), &slab));
    for (int i = u->first; i < u->first + u->n; i++) {
        const ech_shard_param *p = &plan->param[i];
        const int tensor = m->c.unit_first[unit] + p->param - m->c.unit_first[planned(m, unit)];
        if (p->part != part)
            continue;
        for (int64_t r = 0; r < ech_shard_run_count(plan, p); r++) {
            const ech_shard_run run = ech_shard_run_get(plan, p, tp_coord, r);
            for (int64_t k = 0; k < run.elems; k++)
                ech_dtype_store(dtype, slab, (size_t)(p->offset + run.local + k),
                                ckpt_value(m, cls, tensor, run.canonical + k, mark));
        }
    }
    return slab;
}

/* --- saving --- */

/* A rank's slabs, alive until it has written. */
typedef struct slabs {
    void *item[512];
    int n;
} slabs;

static int64_t share_of(const ech_shard_part *p, const ckpt_layout *l, int64_t data, int64_t *first)
{
    /* replicas of a shard write a part of it each */
    const ech_range r = ech_split(p->shard, l->replicas, (int)(data / l->shards));
    *first = data % l->shards * p->shard + r.begin;
    return r.end - r.begin;
}

static ech_status list_rank(const ckpt_save_spec *s, const ech_shard_plan *plan, int rank,
                            ech_ckpt_writer *w, slabs *hold)
{
    const size_t es = ech_dtype_bytes(s->dtype);
    for (int u = 0; u < s->model->c.n_units; u++)
        for (int part = 0; part < ECH_N_PARTS; part++)
            for (int c = 0; c < s->n_classes; c++) {
                const ech_shard_part *p = &ech_shard_unit_of(plan, u)->part[part];
                ech_ckpt_span span = {plan, rank % plan->tp, u, (ech_part)part, 0, 0};
                span.n = share_of(p, &s->layout, rank / plan->tp, &span.first);
                char *slab = ckpt_slab(s->model, plan, span.tp_coord, u, span.part,
                                       (ech_ckpt_class)c, s->dtype, s->mark);
                if (!slab)
                    continue;
                if (s->spoil)
                    s->spoil(slab, p->elems * (int64_t)es, u, span.part);
                assert_true(hold->n < 512);
                hold->item[hold->n++] = slab;
                ECH_TRY(ech_ckpt_writer_add(w, (ech_ckpt_class)c, s->dtype, &span,
                                            slab + (size_t)span.first * es));
            }
    return ECH_OK;
}

static ech_status save_rank(const ckpt_save_spec *s, const ech_shard_plan *plan, int rank,
                            const char *tmp)
{
    slabs hold = {.n = 0};
    ech_ckpt_writer *w = NULL;
    ECH_TRY(ech_ckpt_writer_create(&s->model->m, &s->model->c, rank, &w));
    ech_status st = list_rank(s, plan, rank, w, &hold);
    if (st == ECH_OK)
        st = ech_ckpt_writer_write(w, tmp);
    ech_ckpt_writer_destroy(&w);
    while (hold.n > 0)
        free(hold.item[--hold.n]);
    return st;
}

ech_status ckpt_save(const char *dir, const ckpt_save_spec *s, ech_ckpt_saved *out)
{
    char tmp[4096];
    ech_shard_plan plan;
    const int world = s->layout.tp * s->layout.shards * s->layout.replicas;
    ech_ckpt_head head = {.run = {.step = s->step,
                                  .generation = s->generation,
                                  .updates = s->step,
                                  .samples = 8 * s->step,
                                  .seed = 42,
                                  .lr = 3e-4,
                                  .loss_scale = 1.0},
                          .layout = {.world = world,
                                     .tp = s->layout.tp,
                                     .cp = 1,
                                     .pp = 1,
                                     .shards = s->layout.shards,
                                     .replicas = s->layout.replicas,
                                     .is_sequence_parallel = s->layout.is_sequence_parallel},
                          .model = &s->model->m,
                          .canon = &s->model->c,
                          .config = "{\"note\": \"made up {\\\"}\"}"};
    for (int c = 0; c < ECH_N_CKPT_CLASSES; c++)
        head.dtype[c] = c < s->n_classes ? s->dtype : ECH_N_DTYPES;
    ckpt_plan(s->model, &s->layout, &plan);
    ECH_TRY(ech_ckpt_begin(dir, s->step, tmp, sizeof tmp));
    ech_status st = ECH_OK;
    for (int r = 0; r < world && st == ECH_OK; r++)
        st = save_rank(s, &plan, r, tmp);
    if (st == ECH_OK)
        st = ech_ckpt_publish(dir, tmp, &head, out);
    if (st < 0)
        ech_ckpt_abandon(tmp);
    return st;
}

/* --- loading --- */

/* Saved elements of a tensor's run: all but padding rows. */
static int64_t saved_elems(const ckpt_model *m, const ech_param *p, const ech_shard_run *run,
                           int64_t begin, int64_t end)
{
    const bool is_padded = p->kind == ECH_PARAM_TOKEN_EMBED || p->kind == ECH_PARAM_HEAD;
    const int64_t most = is_padded ? m->m.vocab * m->m.hidden : p->elems;
    int64_t n = 0;
    for (int64_t k = 0; k < run->elems; k++)
        n += run->local + k >= begin && run->local + k < end && run->canonical + k < most;
    return n;
}

static int64_t wanted_elems(const ckpt_model *m, const ech_ckpt_span *s)
{
    const ech_shard_unit *u = ech_shard_unit_of(s->plan, s->unit);
    int64_t n = 0;
    for (int i = u->first; i < u->first + u->n; i++) {
        const ech_shard_param *p = &s->plan->param[i];
        for (int64_t r = 0; p->part == s->part && r < ech_shard_run_count(s->plan, p); r++) {
            const ech_shard_run run = ech_shard_run_get(s->plan, p, s->tp_coord, r);
            n += saved_elems(m, &m->c.param[p->param], &run, s->first - p->offset,
                             s->first + s->n - p->offset);
        }
    }
    return n;
}

static void compare(const ckpt_save_spec *saved, const ech_ckpt_span *s, ech_ckpt_class cls,
                    ech_dtype dtype, const void *got)
{
    void *wanted =
        ckpt_slab(saved->model, s->plan, s->tp_coord, s->unit, s->part, cls, dtype, saved->mark);
    for (int64_t i = 0; i < s->n; i++) {
        const double g = ech_dtype_load(dtype, got, (size_t)i);
        const double w = ech_dtype_load(dtype, wanted, (size_t)(s->first + i));
        if (g != w)
            fail_msg("tp %d shards %d: unit %d part %d class %d element %lld: got %g, wanted %g",
                     s->plan->tp, s->plan->shards, s->unit, (int)s->part, (int)cls,
                     (long long)(s->first + i), g, w);
    }
    free(wanted);
}

int64_t ckpt_load_and_compare(ech_ckpt *c, const ckpt_save_spec *saved, const ckpt_layout *l,
                              ech_dtype dtype)
{
    ech_shard_plan plan;
    int64_t bytes = 0;
    ckpt_plan(saved->model, l, &plan);
    for (int rank = 0; rank < l->tp * l->shards; rank++)
        for (int u = 0; u < saved->model->c.n_units; u++)
            for (int part = 0; part < ECH_N_PARTS; part++)
                for (int k = 0; k < saved->n_classes; k++) {
                    const ech_shard_part *p = &ech_shard_unit_of(&plan, u)->part[part];
                    const ech_ckpt_span s = {
                        &plan, rank % l->tp, u, (ech_part)part, rank / l->tp * p->shard, p->shard};
                    void *got = NULL;
                    if (p->elems == 0)
                        continue;
                    assert_ok(ech_calloc((size_t)s.n, ech_dtype_bytes(dtype), &got));
                    memset(got, 0x55, (size_t)s.n * ech_dtype_bytes(dtype));
                    assert_ok(ech_ckpt_read_span(c, (ech_ckpt_class)k, &s, dtype, got));
                    compare(saved, &s, (ech_ckpt_class)k, dtype, got);
                    bytes +=
                        wanted_elems(saved->model, &s) * (int64_t)ech_dtype_bytes(saved->dtype);
                    free(got);
                }
    return bytes;
}
