/* What a published row leaves open: which micro-batch, chunks and recomputation it may have had. */
#include "base/checked.h"
#include "plan/validate_private.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_MICROS = 12, MAX_CHUNK_CHOICES = 16, MICRO_MOST = 64 };

/* Values to choose among, the stated one alone where there is one. */
typedef struct choices {
    int32_t micro[MAX_MICROS], chunks[MAX_CHUNK_CHOICES];
    int n_micro, n_chunks;
} choices;

/* Powers of two that divide a replica's sequences. */
static void choose_micros(const ech_published *p, choices *c)
{
    const int64_t rows = p->job.global_batch / p->point.dp;
    c->micro[c->n_micro++] = p->point.micro;
    if (!p->asks_micro)
        return;
    c->n_micro = 0;
    for (int32_t b = 1; b <= MICRO_MOST && c->n_micro < MAX_MICROS; b *= 2)
        if (rows % b == 0)
            c->micro[c->n_micro++] = b;
}

/* Chunks that cut the layers evenly, the ends counted as layers or not; one where nothing says that
 * the schedule is interleaved. */
static void choose_chunks(const ech_published *p, choices *c)
{
    const int64_t layers = p->model.layers;
    c->chunks[c->n_chunks++] = p->point.vpp;
    if (!p->asks_chunks)
        return;
    if (p->point.schedule == ECH_SCHEDULE_INTERLEAVED)
        c->n_chunks = 0;
    for (int32_t v = 2; v * (int64_t)p->point.pp <= layers && c->n_chunks < MAX_CHUNK_CHOICES; v++)
        if (ech_published_split(layers, v * (int64_t)p->point.pp) != ECH_SPLIT_BALANCED)
            c->chunks[c->n_chunks++] = v;
}

/* What the software calls selective and helps: with flash attention the core alone does not. */
static uint32_t selective_of(const ech_published *p)
{
    uint32_t some = (ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ACT) & ech_recompute_known(&p->job);
    int32_t layers = 0;
    if (p->model.moe.experts > 0)
        some |= ECH_RECOMPUTE_MOE;
    if (p->model.mla.kv_lora_rank > 0)
        some |= ECH_RECOMPUTE_MLA;
    if (p->job.system != ECH_SYSTEM_MEGATRON || p->job.generation == ECH_GENERATION_MEGATRON_2021)
        if (!ech_recompute_read("selective", &p->job, &some, &layers))
            some = ECH_RECOMPUTE_FULL;
    return some;
}

static ech_point point_of(const ech_published *p, int32_t micro, int32_t chunks, uint32_t recompute)
{
    ech_point point = p->point;
    point.micro = micro;
    point.vpp = chunks;
    point.recompute = recompute;
    if (p->asks_chunks) {
        point.schedule = chunks > 1 ? ECH_SCHEDULE_INTERLEAVED : ECH_SCHEDULE_1F1B;
        point.split = ech_published_split(p->model.layers, (int64_t)point.pp * chunks);
    }
    return point;
}

/* What was looked at so far. */
typedef struct search {
    ech_published *p;
    ech_point least; /* of what does not fit, the nearest to it */
    double least_bytes;
    ech_fit least_fit;
    ech_fit best_fit; /* of what was taken */
    bool is_any_legal;
} search;

/* Does a layout fit; one that is not legal does not. */
static bool fits(search *s, const ech_point *point)
{
    ech_footprint f;
    const char *binding;
    if (!ech_point_is_legal(&s->p->job, point, NULL))
        return false;
    s->is_any_legal = true;
    ech_footprint_of(&s->p->job, point, NULL, &f);
    const ech_fit fit = ech_footprint_fit(&s->p->job, &f, &binding);
    if (f.reserved_bytes < s->least_bytes) {
        s->least_bytes = f.reserved_bytes;
        s->least = *point;
        s->least_fit = fit;
    }
    if (fit != ECH_FIT_NO && fit < s->best_fit)
        s->best_fit = fit;
    return fit != ECH_FIT_NO;
}

/* As few layers of a stage recomputed in full as fit: more of them never need more memory. */
static ech_point least_layers(search *s, const ech_point *full)
{
    const int64_t stages = (int64_t)full->pp * full->vpp;
    int32_t low = 0, high = (int32_t)((s->p->model.layers + stages - 1) / stages);
    ech_point best = *full;
    while (high - low > 1) {
        ech_point some = *full;
        some.recompute_layers = low + (high - low) / 2;
        if (fits(s, &some)) {
            best = some;
            high = some.recompute_layers;
        } else
            low = some.recompute_layers;
    }
    return best;
}

static void take(search *s, const ech_point *point)
{
    s->p->option[s->p->n_options++] = *point;
}

/* The options of one micro-batch and number of chunks. */
static void take_recomputes(search *s, int32_t micro, int32_t chunks)
{
    const ech_published *p = s->p;
    const ech_point none = point_of(p, micro, chunks, p->point.recompute);
    const ech_point some = point_of(p, micro, chunks, selective_of(p));
    const ech_point full = point_of(p, micro, chunks, ECH_RECOMPUTE_FULL);
    if (fits(s, &none)) {
        take(s, &none);
        return;
    }
    if (!p->asks_recompute)
        return;
    if (fits(s, &some))
        take(s, &some);
    if (fits(s, &full)) {
        const ech_point best = least_layers(s, &full);
        take(s, &best);
    }
}

static ech_status refuse(ech_published *p)
{
    ech_findings why = {0};
    if (!ech_point_is_legal(&p->job, &p->point, &why))
        ech_published_skip(p, "not a legal layout: %s", ech_text_get(&why.text));
    else
        ech_published_skip(p, "no legal layout with any micro-batch and chunks");
    ech_findings_fini(&why);
    return ECH_OK;
}

ech_status ech_published_fill(ech_published *p)
{
    choices c = {0};
    choose_micros(p, &c);
    choose_chunks(p, &c);
    search s = {.p = p, .least_bytes = INFINITY, .best_fit = ECH_FIT_NO};
    ECH_TRY(ech_calloc((size_t)(2 * c.n_micro * c.n_chunks) + 1, sizeof *p->option, &p->option));
    for (int i = 0; i < c.n_micro; i++)
        for (int k = 0; k < c.n_chunks; k++)
            take_recomputes(&s, c.micro[i], c.chunks[k]);
    if (!s.is_any_legal)
        return refuse(p);
    p->fit = s.best_fit;
    if (p->n_options == 0) {
        take(&s, &s.least);
        p->fit = s.least_fit;
    }
    return ECH_OK;
}

/* What a framework's allocator calls reserved leaves the driver's context out; a driver's figure, as
 * the others print it, has it. */
static double reserved_bytes(const ech_published *p, const ech_footprint *f)
{
    const bool by_allocator =
        p->job.system == ECH_SYSTEM_FSDP2 || p->job.system == ECH_SYSTEM_TORCHTITAN;
    const double context = f->stage[f->fullest].held[ECH_USE_CONTEXT];
    return f->reserved_bytes - (by_allocator ? context : 0);
}

double ech_published_gib(const ech_published *p, const ech_footprint *f)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    double saved = 0.0;
    if (!p->is_part)
        return (p->is_allocated ? f->allocated_bytes : reserved_bytes(p, f)) / gib;
    for (int i = 0; i < f->n_stages; i++)
        saved = fmax(saved, f->stage[i].held[ECH_USE_SAVED]);
    return saved / gib;
}
