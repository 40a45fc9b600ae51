#include "layout/legal_rules.h"

#include "base/checked.h"
#include "layout/shard.h"

/* a b, or 0 where it leaves what a world may be. */
int64_t ech_legal_ranks(int64_t a, int64_t b)
{
    return a > 0 && b > 0 && a <= ECH_MAX_WORLD / b ? a * b : 0;
}

/* Ranks of one replica of the model; 0: too many. */
int64_t ech_legal_replica(const ech_legal_query *q)
{
    return ech_legal_ranks(ech_legal_ranks(q->tp, q->cp), q->pp);
}

/* Micro-batches of a step; 0: not known or not whole. */
int64_t ech_legal_accumulation(const ech_legal_query *q)
{
    int64_t pass = 0;
    if (!q->global || !q->micro || !q->dp)
        return 0;
    if (ech_mul_i64(q->micro, q->dp, &pass) < 0) {
        ech_error_clear(); /* the configuration's check of sizes says so */
        return 0;
    }
    return q->global % pass ? 0 : q->global / pass;
}

/* What tp must divide: the heads, and the ranks that cp and pp leave. */
int64_t ech_legal_tp_divides(const ech_legal_query *q, int64_t also)
{
    const int64_t others = ech_legal_ranks(q->cp, q->pp);
    int64_t n = q->heads;
    if (q->ranks && others && q->ranks % others == 0)
        n = n ? ech_gcd(n, q->ranks / others) : q->ranks / others;
    return also ? ech_gcd(n ? n : also, also) : n;
}

int ech_legal_kv_copies(const ech_legal_query *q)
{
    if (!q->heads || !q->kv_heads || q->tp < 2 || q->heads % q->tp || q->heads % q->kv_heads)
        return 1;
    return ech_shard_heads(q->heads, q->kv_heads, (int)q->tp).copies;
}

/* Ranks that share state. */
int64_t ech_legal_group(const ech_legal_query *q)
{
    return q->zero_group ? q->zero_group : q->dp;
}

void ech_legal_near_one(const ech_legal_query *q, ech_near *out)
{
    (void)q;
    *out = (ech_near){.n = 1, .value = {1}};
}

/* Product of the tree's factors; 0: more than any group. */
int64_t ech_legal_tree_size(const ech_legal_query *q)
{
    int64_t n = 1;
    for (int i = 0; i < q->n_tree && n; i++)
        n = ech_legal_ranks(n, q->tree[i]);
    return n;
}
