/* Rules about sharded state and the batch. */
#include "layout/legal_rules.h"

#include "base/checked.h"

/* --- sharding of state --- */

static bool find_group(const ech_legal_query *q, ech_text *words)
{
    if (!q->dp || !q->zero_group || q->dp % q->zero_group == 0)
        return false;
    ech_text_add(words, "%lld does not divide the %lld data parallel ranks",
                 (long long)q->zero_group, (long long)q->dp);
    return true;
}

static void near_group(const ech_legal_query *q, ech_near *out)
{
    *out = ech_near_divisors(q->dp, q->zero_group);
}

static bool find_group_of_nothing(const ech_legal_query *q, ech_text *words)
{
    if (q->zero_stage || !q->dp || !q->zero_group || q->zero_group == q->dp)
        return false;
    ech_text_add(words,
                 "a shard group of %lld, but zero.stage 0 shards nothing; wanted stage 1, 2 "
                 "or 3, or group 0",
                 (long long)q->zero_group);
    return true;
}

static void near_group_of_nothing(const ech_legal_query *q, ech_near *out)
{
    *out = (ech_near){.n = 2, .value = {0, q->dp}};
}

static bool find_nothing_to_shard(const ech_legal_query *q, ech_text *words)
{
    if (!q->zero_stage || !q->dp || ech_legal_group(q) > 1)
        return false;
    ech_text_add(words, "a shard group of one rank: nothing is sharded");
    return true;
}

/* Is state sharded as stage says: that stage reached, and over more ranks than one. */
static bool shards(const ech_legal_query *q, int64_t stage)
{
    return q->zero_stage >= stage && ech_legal_group(q) > 1;
}

static bool find_each_without_shards(const ech_legal_query *q, ech_text *words)
{
    if (!q->reduce_each || q->zero_stage > 1)
        return false;
    ech_text_add(words,
                 "each with zero.stage %lld: whole gradients are kept anyway; wanted stage "
                 "2 or 3",
                 (long long)q->zero_stage);
    return true;
}

static void near_reduce(const ech_legal_query *q, ech_near *out)
{
    (void)q;
    out->word = "last";
}

static bool find_each(const ech_legal_query *q, ech_text *words)
{
    const int64_t m = ech_legal_accumulation(q);
    if (!q->reduce_each || !shards(q, 2) || m < 2)
        return false;
    ech_text_add(words, "each: gradients are sent %lld times a step, once a micro-batch",
                 (long long)m);
    if (ech_legal_kv_copies(q) > 1)
        ech_text_add(words, "; so are, over tp, those of key/value heads that %d ranks hold each",
                     ech_legal_kv_copies(q));
    return true;
}

static bool find_last(const ech_legal_query *q, ech_text *words)
{
    const int64_t m = ech_legal_accumulation(q);
    if (q->reduce_each || !shards(q, 2) || m < 2)
        return false;
    ech_text_add(words,
                 "last over %lld micro-batches: whole gradients are kept to the end of the "
                 "step, as many bytes as at stage 1",
                 (long long)m);
    return true;
}

static void near_last(const ech_legal_query *q, ech_near *out)
{
    (void)q;
    out->word = "each";
}

static bool find_gather_each(const ech_legal_query *q, ech_text *words)
{
    const int64_t m = ech_legal_accumulation(q);
    if (!shards(q, 3) || m < 2)
        return false;
    ech_text_add(words, "parameters are gathered anew for each of %lld micro-batches",
                 (long long)m);
    return true;
}

static bool find_reshard_alone(const ech_legal_query *q, ech_text *words)
{
    if (q->reshard_after_forward || q->zero_stage > 2)
        return false;
    ech_text_add(words, "false with zero.stage %lld: parameters are never sharded",
                 (long long)q->zero_stage);
    return true;
}

static bool find_no_reshard(const ech_legal_query *q, ech_text *words)
{
    if (q->reshard_after_forward || !shards(q, 3))
        return false;
    ech_text_add(words, "false: gathered parameters of all layers stay from forward to backward");
    return true;
}

static void near_reshard(const ech_legal_query *q, ech_near *out)
{
    (void)q;
    out->word = "true";
}

static bool find_prefetch_alone(const ech_legal_query *q, ech_text *words)
{
    if (q->prefetch == 1 || q->zero_stage > 2)
        return false;
    ech_text_add(words, "%lld with zero.stage %lld: nothing is gathered in forward or backward",
                 (long long)q->prefetch, (long long)q->zero_stage);
    return true;
}

static bool find_no_prefetch(const ech_legal_query *q, ech_text *words)
{
    if (q->prefetch || !shards(q, 3))
        return false;
    ech_text_add(words, "0: every layer waits for its parameters, no gather is hidden");
    return true;
}

/* Embedding, layers, head: all but the one in hand can be ahead of it. */
static bool find_far_prefetch(const ech_legal_query *q, ech_text *words)
{
    if (!q->layers || q->prefetch <= q->layers + 1)
        return false;
    ech_text_add(words, "%lld units ahead, the model has %lld", (long long)q->prefetch,
                 (long long)q->layers + 2);
    return true;
}

static void near_far_prefetch(const ech_legal_query *q, ech_near *out)
{
    *out = (ech_near){.n = 1, .value = {q->layers + 1}};
}

/* Largest product of the tree's first factors up to `most`. */
static int64_t nested_group(const ech_legal_query *q, int64_t most)
{
    const ech_tree t = ech_tree_default((int)q->dp);
    const int n = q->n_tree ? q->n_tree : t.n;
    int64_t product = 1;
    for (int i = 0; i < n; i++) {
        const int64_t f = q->n_tree ? q->tree[i] : t.factor[i];
        if (product * f > most)
            break;
        product *= f;
    }
    return product;
}

static bool find_not_nested(const ech_legal_query *q, ech_text *words)
{
    const int64_t group = q->zero_group;
    if (!q->zero_stage || !q->dp || q->dp > ECH_MAX_WORLD || !group || q->dp % group ||
        (q->n_tree && ech_legal_tree_size(q) != q->dp) || nested_group(q, group) == group)
        return false;
    ech_text_add(words,
                 "%lld is no product of the first factors of comm.tree: sums are not claimed "
                 "to equal those over all %lld ranks at once, bit for bit",
                 (long long)group, (long long)q->dp);
    return true;
}

static void near_nested(const ech_legal_query *q, ech_near *out)
{
    *out = (ech_near){.n = 1, .value = {nested_group(q, q->zero_group)}};
}

/* --- batch --- */

static bool find_global(const ech_legal_query *q, ech_text *words)
{
    int64_t pass = 0;
    if (!q->global || !q->micro || !q->dp)
        return false;
    if (ech_mul_i64(q->micro, q->dp, &pass) < 0) {
        ech_error_clear(); /* the configuration's check of sizes says so */
        return false;
    }
    if (q->global % pass == 0)
        return false;
    ech_text_add(words, "%lld is no multiple of micro %lld x dp %lld = %lld", (long long)q->global,
                 (long long)q->micro, (long long)q->dp, (long long)pass);
    return true;
}

static void near_global(const ech_legal_query *q, ech_near *out)
{
    *out = ech_near_multiples(q->micro * q->dp, q->global);
}

/* --- the rows --- */

static const ech_legal_rule rules[] = {
    {"shard group", "layout.zero.group", "the group does not divide dp", REFUSED,
     "replicas of the group make up dp", find_group, near_group},
    {"shard group of nothing", "layout.zero.group", "zero.stage 0 with a group other than dp",
     REFUSED, "nothing is sharded", find_group_of_nothing, near_group_of_nothing},
    {"nothing to shard", "layout.zero.stage", "zero.stage 1 or more and a shard group of one rank",
     LEGAL, "each rank holds everything", find_nothing_to_shard, NULL},
    {"each without shards", "layout.zero.reduce", "reduce each with zero.stage 0 or 1", REFUSED,
     "whole gradients are kept anyway, so it would cost traffic and save nothing",
     find_each_without_shards, near_reduce},
    {"reduce each", "layout.zero.reduce",
     "reduce each with accumulation, state sharded over several ranks", COST,
     "gradients are sent once a micro-batch, and over tp those of shared key/value heads",
     find_each, near_reduce},
    {"reduce last", "layout.zero.reduce",
     "reduce last with zero.stage 2 or 3 over several ranks and accumulation", COST,
     "whole gradients are kept to the end of the step: stage 1's bytes", find_last, near_last},
    {"gathers", "layout.zero.stage", "zero.stage 3 over several ranks, with accumulation", COST,
     "parameters are gathered for every micro-batch", find_gather_each, NULL},
    {"reshard alone", "layout.zero.reshard_after_forward", "false with zero.stage 0 to 2", LEGAL,
     "parameters are never sharded", find_reshard_alone, NULL},
    {"no reshard", "layout.zero.reshard_after_forward",
     "false with zero.stage 3 over several ranks", COST,
     "gathered parameters of all layers stay from forward to backward", find_no_reshard,
     near_reshard},
    {"prefetch alone", "layout.zero.prefetch", "not 1 with zero.stage 0 to 2", LEGAL,
     "nothing is gathered in forward or backward", find_prefetch_alone, NULL},
    {"no prefetch", "layout.zero.prefetch", "0 with zero.stage 3 over several ranks", COST,
     "gathers are not hidden under the layer before", find_no_prefetch, ech_legal_near_one},
    {"far prefetch", "layout.zero.prefetch", "more units than the model has beside the one in hand",
     REFUSED, "there is nothing further ahead", find_far_prefetch, near_far_prefetch},
    {"tree of replicas", "layout.zero.group",
     "the group is no product of the first factors of comm.tree", COST,
     "sums within the group and then over replicas are not bit-equal to those over dp at once",
     find_not_nested, near_nested},

    {"global batch", "batch.global", "micro x dp does not divide the global batch", REFUSED,
     "every rank makes as many passes", find_global, near_global},
};

const ech_legal_rule *ech_legal_state_rules(int *n)
{
    *n = sizeof rules / sizeof rules[0];
    return rules;
}
