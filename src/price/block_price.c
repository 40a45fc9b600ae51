#include "price/block_price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- places --- */

ech_group ech_group_of(const ech_point *p, ech_axis axis)
{
    const double tp = p->tp, cp = p->cp, dp = p->dp, pp = p->pp;
    const double inner = p->order == ECH_ORDER_DP_TP_PP ? dp : 1; /* below tp */
    const double over = p->order == ECH_ORDER_TP_PP_DP ? pp : 1;  /* between cp and dp */
    const double dp_stride = p->order == ECH_ORDER_DP_TP_PP ? 1 : tp * over;
    switch (axis) {
    case ECH_AXIS_TP:
        return (ech_group){tp, inner};
    case ECH_AXIS_CP:
        return (ech_group){cp, inner * tp};
    case ECH_AXIS_EP:
        return (ech_group){p->ep, p->etp};
    case ECH_AXIS_EDP:
        return (ech_group){p->zero_stage > 0 ? ech_point_expert_shards(p)
                                             : (double)ech_point_edp(p),
                           (double)p->ep * p->etp};
    case ECH_AXIS_DP:
        return (ech_group){(double)ech_point_shard_group(p), dp_stride};
    case ECH_AXIS_HSDP:
        return (ech_group){dp * cp / (double)ech_point_shard_group(p),
                           dp_stride * (double)ech_point_shard_group(p)};
    case ECH_AXIS_PP:
    case ECH_AXIS_TIED:
        return (ech_group){pp, p->order == ECH_ORDER_TP_PP_DP ? tp * cp : tp * cp * dp};
    case ECH_AXIS_KV:
    case ECH_AXIS_WORLD:
    case ECH_N_AXES:
        break;
    }
    return (ech_group){tp * cp * dp * pp, 1};
}

/* --- kernels into work --- */

/* The device waits for the host where kernels are shorter than their launches. */
static double launched(const ech_rates *r, double seconds, double launches)
{
    const double host = launches * r->launch_s;
    return pow(pow(seconds, 4) + pow(host, 4), 0.25);
}

/* Kernels of a block by pass, the last index those that run again: seconds on the device, launches. */
typedef struct block_sum {
    double seconds[ECH_N_PASSES + 1], launches[ECH_N_PASSES + 1];
} block_sum;

static block_sum sum(const ech_rates *r, const ech_kernels *ks, uint32_t recompute,
                     double layer_launches, ech_block_price *out)
{
    double seconds[ECH_N_PASSES] = {0}, again = 0, launches = 0, again_launches = 0;
    for (int i = 0; i < ks->n; i++) {
        const ech_kernel *k = &ks->k[i];
        seconds[k->pass] += k->seconds;
        out->flops[k->pass] += k->flops;
        launches += k->pass == ECH_PASS_FORWARD ? k->launches : 0;
        if ((k->again & recompute) != 0) {
            again += k->seconds;
            again_launches += k->launches;
            out->again_flops += k->flops;
            out->again_counted += k->counted;
        }
    }
    const double per = launches > 0 ? r->habit->launches[0] / launches : 0;
    const double forward = layer_launches * r->habit->launches[0];
    const double backward = layer_launches * r->habit->launches[1];
    const block_sum all = {
        .seconds = {seconds[0], seconds[1], seconds[2], again},
        .launches = {forward, backward * 0.7, backward * 0.3,
                     layer_launches * per * again_launches},
    };
    for (int pass = 0; pass < ECH_N_PASSES; pass++)
        out->work_s[pass] = launched(r, all.seconds[pass], all.launches[pass]);
    out->again_s = again > 0 ? launched(r, again, all.launches[ECH_N_PASSES]) : 0;
    return all;
}

/* Messages wait in the device's queue as kernels do: where the host is behind, they take time that the
 * device would have been idle. */
static void absorb(const ech_rates *r, const block_sum *all, ech_block_price *b)
{
    static const int kernels[] = {ECH_PASS_FORWARD, ECH_PASS_INPUT, ECH_N_PASSES};
    ech_block_messages *axes[] = {&b->tp, &b->cp, &b->ep};
    for (int pass = 0; pass < 3; pass++) {
        const double alone = all->seconds[kernels[pass]], host = all->launches[kernels[pass]];
        const double sent = b->tp.exposed_s[pass] + b->cp.exposed_s[pass] + b->ep.exposed_s[pass];
        if (sent <= 0)
            continue;
        const double more = launched(r, alone + sent, host) - launched(r, alone, host);
        for (int i = 0; i < 3; i++)
            axes[i]->exposed_s[pass] *= more / sent;
    }
}

/* --- messages --- */

static void put(ech_block_messages *m, int pass, double seconds, double hidden, double bytes)
{
    m->exposed_s[pass] += seconds * (1 - hidden);
    m->hidden_s[pass] += seconds * hidden;
    m->sent_bytes[pass] += bytes;
}

/* Two all-reduces of a layer forward and two backward, or as many pairs of a gather and a scatter. */
static void tensor_messages(const ech_rates *r, const ech_point *p, const ech_shape *s,
                            double count, ech_block_price *out)
{
    const ech_group g = ech_group_of(p, ECH_AXIS_TP);
    const double bytes = (double)s->micro_tokens * (double)s->hidden * r->act_bytes;
    const double wire = bytes * (g.ranks - 1) / g.ranks;
    if (p->tp <= 1)
        return;
    const double gathered = bytes * r->gather_share;
    const double pair = p->sequence_parallel
                            ? ech_collective_seconds(r, ECH_COLLECTIVE_GATHER, g, bytes) +
                                  ech_collective_seconds(r, ECH_COLLECTIVE_GATHER, g, gathered)
                            : ech_collective_seconds(r, ECH_COLLECTIVE_ALL_REDUCE, g, bytes);
    const double sent = p->sequence_parallel ? (1 + r->gather_share) * wire : 2 * wire;
    for (int pass = 0; pass < 3; pass++)
        put(&out->tp, pass, count * pair, r->tp_hidden, count * sent);
    if (p->sequence_parallel)
        put(&out->tp, 1, count * ech_collective_seconds(r, ECH_COLLECTIVE_GATHER, g, gathered),
            fmax(r->tp_hidden, 0.8), count * wire * r->gather_share);
}

/* A layer of experts.  Sequence parallel ranks each send their own tokens to experts: with whole
 * experts tp sends nothing; with cut ones the rows that came are gathered over the ranks of an expert
 * and their results scattered (before they are sent where all experts are here: each token once).
 * Other ranks have all tokens alike: results are summed where experts are cut, gathered where not.
 * Experts that all tokens pass are a plain MLP. */
static void expert_tensor_messages(const ech_rates *r, const ech_job *job, const ech_point *p,
                                   const ech_shape *s, ech_block_price *out)
{
    const ech_group g = {p->etp, ech_group_of(p, ECH_AXIS_TP).stride};
    const double whole = p->etp > 1 ? 1 : 0.5;
    tensor_messages(r, p, s, 1 + (s->shared_ffn > 0) + (p->sequence_parallel ? 0 : whole), out);
    if (!p->sequence_parallel || p->etp <= 1)
        return;
    const double copies = p->ep > 1 ? (double)job->model->moe.topk : 1;
    const double bytes = (double)s->own_tokens * p->etp * copies * (double)s->hidden * r->act_bytes;
    const double pair = 2 * ech_collective_seconds(r, ECH_COLLECTIVE_GATHER, g, bytes);
    for (int pass = 0; pass < 3; pass++)
        put(&out->tp, pass, pair, 0, 2 * bytes * (g.ranks - 1) / g.ranks);
}

static void context_messages(const ech_rates *r, const ech_point *p, const ech_shape *s,
                             double attention_s, ech_block_price *out)
{
    const ech_group g = ech_group_of(p, ECH_AXIS_CP);
    const double c = p->cp, tokens = (double)s->micro_tokens;
    if (p->cp <= 1)
        return;
    const double kv = tokens * (double)(s->attention.k_out + s->attention.v_out) * r->act_bytes;
    if (p->cp_kind == ECH_CP_RING) {
        const double hop = ech_message_seconds(r, g.stride * (c - 1), g.stride * c, kv);
        const double forward = (c - 1) * hop, backward = forward + c * 2 * hop;
        const double hide = fmin(1, 0.9 * attention_s / fmax(forward, 1e-12));
        put(&out->cp, 0, forward, hide, (c - 1) * kv);
        put(&out->cp, 1, backward, fmin(1, 0.9 * 2.5 * attention_s / backward),
            (c - 1) * kv + c * 2 * kv);
        put(&out->cp, 2, forward, hide, (c - 1) * kv);
        return;
    }
    if (p->cp_kind == ECH_CP_GATHER) {
        const double s1 = ech_collective_seconds(r, ECH_COLLECTIVE_GATHER, g, c * kv);
        put(&out->cp, 0, s1, 0, (c - 1) * kv);
        put(&out->cp, 1, 2 * s1, 0, 2 * (c - 1) * kv);
        put(&out->cp, 2, s1, 0, (c - 1) * kv);
        return;
    }
    const double copies = fmax(1, c / fmax(1, (double)s->attention.kv_heads));
    const double all =
        tokens * (double)(s->attention.q_out + s->attention.o_in) * r->act_bytes + kv * copies;
    for (int pass = 0; pass < 3; pass++)
        put(&out->cp, pass, ech_collective_seconds(r, ECH_COLLECTIVE_ALL_TO_ALL, g, all), 0,
            all * (c - 1) / c);
}

static void expert_messages(const ech_rates *r, const ech_job *job, const ech_point *p,
                            const ech_shape *s, ech_block_price *out)
{
    const ech_group g = ech_group_of(p, ECH_AXIS_EP);
    if (p->ep <= 1)
        return;
    const double tokens = (double)s->own_tokens * (double)job->model->moe.topk;
    const double bytes = tokens * (double)s->hidden * r->act_bytes;
    const double one = ech_collective_seconds(r, ECH_COLLECTIVE_ROUTE, g, bytes * s->imbalance);
    for (int pass = 0; pass < 3; pass++)
        put(&out->ep, pass, 2 * one, 0, 2 * bytes * (g.ranks - 1) / g.ranks);
}

static double attention_of(const ech_kernels *ks)
{
    double s = 0;
    for (int i = 0; i < ks->n; i++)
        if (ks->k[i].pass == ECH_PASS_FORWARD && strcmp(ks->k[i].name, "attention") == 0)
            s += ks->k[i].seconds;
    return s;
}

/* Forward messages run again only where the whole layer does. */
static void keep_again(uint32_t recompute, ech_block_messages *m, bool too)
{
    if ((recompute & ECH_RECOMPUTE_FULL) == 0 && !too)
        m->exposed_s[2] = m->hidden_s[2] = m->sent_bytes[2] = 0;
}

/* Kernels of all blocks, whatever is recomputed. */
static void list_kernels(const ech_rates *r, const ech_job *job, const ech_point *point,
                         const ech_shape *s, ech_kernels ks[ECH_N_BLOCKS])
{
    ech_kernels_layer(r, job, point, s, false, &ks[ECH_BLOCK_DENSE]);
    if (job->model->moe.experts > 0)
        ech_kernels_layer(r, job, point, s, true, &ks[ECH_BLOCK_SPARSE]);
    ech_kernels_embedding(r, s, &ks[ECH_BLOCK_EMBEDDING]);
    ech_kernels_head(r, job, s, &ks[ECH_BLOCK_HEAD]);
}

static void price_kernels(const ech_rates *r, const ech_job *job, const ech_point *point,
                          const ech_kernels ks[ECH_N_BLOCKS], ech_blocks *out)
{
    const ech_shape *s = &out->shape;
    for (int sparse = 0; sparse < 2; sparse++) {
        ech_block_price *b = &out->block[sparse];
        if (sparse == 1 && job->model->moe.experts == 0)
            continue;
        const block_sum all = sum(r, &ks[sparse], point->recompute, 1, b);
        if (sparse == 1)
            expert_tensor_messages(r, job, point, s, b);
        else
            tensor_messages(r, point, s, 2, b);
        context_messages(r, point, s, attention_of(&ks[sparse]), b);
        if (sparse == 1)
            expert_messages(r, job, point, s, b);
        keep_again(point->recompute, &b->tp, false);
        keep_again(point->recompute, &b->cp, (point->recompute & ECH_RECOMPUTE_ATTENTION) != 0);
        keep_again(point->recompute, &b->ep, false);
        absorb(r, &all, b);
    }
    (void)sum(r, &ks[ECH_BLOCK_EMBEDDING], 0, 0.3, &out->block[ECH_BLOCK_EMBEDDING]);
    tensor_messages(r, point, s, 0.5, &out->block[ECH_BLOCK_EMBEDDING]);
    (void)sum(r, &ks[ECH_BLOCK_HEAD], 0, 0.5, &out->block[ECH_BLOCK_HEAD]);
    tensor_messages(r, point, s, 0.5, &out->block[ECH_BLOCK_HEAD]);
    for (int b = ECH_BLOCK_EMBEDDING; b < ECH_N_BLOCKS; b++)
        keep_again(0, &out->block[b].tp, false);
}

void ech_blocks_price(const ech_rates *r, const ech_job *job, const ech_point *point,
                      ech_blocks *out)
{
    ech_kernels ks[ECH_N_BLOCKS];
    *out = (ech_blocks){0};
    ech_shape_of(job, point, &out->shape);
    list_kernels(r, job, point, &out->shape, ks);
    price_kernels(r, job, point, ks, out);
}

/* --- kept --- */

/* What a price depends on; compared as bytes, so padding is zeroed. */
typedef struct block_key {
    int32_t tp, cp, ep, etp, micro, below_tp;
    uint32_t recompute, flags;
} block_key;

typedef struct slot {
    block_key key;
    uint32_t round; /* it was filled in, 0: never */
    ech_blocks blocks;
} slot;

struct ech_block_cache {
    size_t n;
    uint32_t round; /* what is kept counts as long as this stays the same */
    slot *slot;     /* owned [n] */
    /* Kernels that were listed last: sets to recompute are asked for one after the other. */
    block_key listed;
    uint32_t listed_round;
    ech_kernels kernels[ECH_N_BLOCKS];
};

ech_status ech_block_cache_create(size_t n, ech_block_cache **out)
{
    ech_block_cache *c = calloc(1, sizeof(*c));
    ECH_CHECK(c != NULL, ECH_E_NOMEM, "cache of block prices");
    c->n = n;
    c->round = 1;
    c->slot = calloc(n, sizeof(*c->slot));
    if (c->slot == NULL)
        ech_block_cache_destroy(&c);
    ECH_CHECK(c != NULL, ECH_E_NOMEM, "cache of %zu block prices", n);
    *out = c;
    return ECH_OK;
}

void ech_block_cache_destroy(ech_block_cache **cache)
{
    if (*cache != NULL)
        free((*cache)->slot);
    free(*cache);
    *cache = NULL;
}

void ech_block_cache_forget(ech_block_cache *cache)
{
    cache->round++;
    for (size_t i = 0; cache->round == 0 && i < cache->n; i++)
        cache->slot[i].round = 0;
    cache->round += cache->round == 0;
}

static block_key key_of(const ech_point *p)
{
    return (block_key){.tp = p->tp,
                       .cp = p->cp,
                       .ep = p->ep,
                       .etp = p->etp,
                       .micro = p->micro,
                       .below_tp = p->order == ECH_ORDER_DP_TP_PP ? p->dp : 1,
                       .recompute = p->recompute,
                       .flags = (uint32_t)p->cp_kind * 2 + p->sequence_parallel};
}

static size_t hash_of(const block_key *k)
{
    uint64_t h = (uint64_t)(uint32_t)k->tp + ((uint64_t)(uint32_t)k->cp << 16) +
                 ((uint64_t)(uint32_t)k->ep << 32) + ((uint64_t)k->recompute << 48);
    h ^= ((uint64_t)(uint32_t)k->micro << 8) + ((uint64_t)(uint32_t)k->etp << 24) +
         ((uint64_t)(uint32_t)k->below_tp << 40) + ((uint64_t)k->flags << 60);
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h >> 32);
}

static void fill(ech_block_cache *cache, const ech_rates *r, const ech_job *job,
                 const ech_point *point, slot *s)
{
    block_key kernels = s->key;
    kernels.recompute = 0;
    s->blocks = (ech_blocks){0};
    ech_shape_of(job, point, &s->blocks.shape);
    if (cache->listed_round != cache->round ||
        memcmp(&cache->listed, &kernels, sizeof(kernels)) != 0)
        list_kernels(r, job, point, &s->blocks.shape, cache->kernels);
    cache->listed = kernels;
    cache->listed_round = cache->round;
    price_kernels(r, job, point, cache->kernels, &s->blocks);
}

const ech_blocks *ech_block_cache_get(ech_block_cache *cache, const ech_rates *r,
                                      const ech_job *job, const ech_point *point)
{
    const block_key key = key_of(point);
    slot *s = &cache->slot[hash_of(&key) & (cache->n - 1)];
    if (s->round != cache->round || memcmp(&s->key, &key, sizeof(key)) != 0) {
        s->key = key;
        fill(cache, r, job, point, s);
        s->round = cache->round;
    }
    return &s->blocks;
}
