/* Rules about ranks: the mesh, and nodes. */
#include "layout/legal_rules.h"

#include "base/checked.h"

/* --- the mesh --- */

static const char *ending(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Either side may be the wrong one: how to start what the layout asks for, and the dp of what was
 * started. */
static void add_ranks_table(const ech_legal_query *q, ech_text *words)
{
    const int64_t replica = ech_legal_replica(q);
    const int64_t made = q->dp ? ech_legal_ranks(replica, q->dp) : replica;
    ech_text_add(words, "the layout makes %s%lld rank%s, the run has %lld",
                 q->dp ? "" : "a multiple of ", (long long)made, ending(made), (long long)q->ranks);
    if (made)
        ech_text_add(words, "; start them with --ranks %lld", (long long)made);
    ech_text_add(words, "\n    tp %lld x cp %lld x pp %lld x dp ", (long long)q->tp,
                 (long long)q->cp, (long long)q->pp);
    if (q->dp)
        ech_text_add(words, "%lld = %lld rank%s\n", (long long)q->dp, (long long)made,
                     ending(made));
    else
        ech_text_add(words, "auto = a multiple of %lld ranks\n", (long long)replica);
    ech_text_add(words,
                 "    started                     = %lld rank%s\n    legal dp for %lld rank%s: ",
                 (long long)q->ranks, ending(q->ranks), (long long)q->ranks, ending(q->ranks));
    if (replica && q->ranks % replica == 0)
        ech_text_add(words, "%lld", (long long)(q->ranks / replica));
    else
        ech_text_add(words, "none: the other degrees alone do not divide the ranks");
}

static bool find_world(const ech_legal_query *q, ech_text *words)
{
    const int64_t replica = ech_legal_replica(q);
    if (!q->ranks || !replica || q->ranks % replica || q->dp == q->ranks / replica)
        return false;
    add_ranks_table(q, words);
    return true;
}

static void near_world(const ech_legal_query *q, ech_near *out)
{
    *out = (ech_near){.n = 1, .value = {q->ranks / ech_legal_replica(q)}};
}

static bool find_replica(const ech_legal_query *q, ech_text *words)
{
    const int64_t replica = ech_legal_replica(q);
    if (!q->ranks || !replica || q->ranks % replica == 0)
        return false;
    add_ranks_table(q, words);
    return true;
}

static void near_replica(const ech_legal_query *q, ech_near *out)
{
    const int64_t others = ech_legal_ranks(q->cp, q->pp);
    if (others && q->ranks % others == 0)
        *out = ech_near_divisors(ech_legal_tp_divides(q, 0), q->tp);
}

static bool find_too_many(const ech_legal_query *q, ech_text *words)
{
    if (ech_legal_ranks(ech_legal_replica(q), q->dp ? q->dp : 1))
        return false;
    ech_text_add(words, "tp cp pp dp make more than %d ranks", ECH_MAX_WORLD);
    return true;
}

/* Ranks that experts share: dp cp tp; 0: not known or too many. */
static int64_t stage_of(const ech_legal_query *q)
{
    return ech_legal_ranks(ech_legal_ranks(q->tp, q->cp), q->dp ? q->dp : 1);
}

static bool find_experts(const ech_legal_query *q, ech_text *words)
{
    const int64_t stage = stage_of(q);
    const int64_t experts = ech_legal_ranks(q->ep, q->etp);
    if (!stage || (experts && stage % experts == 0))
        return false;
    ech_text_add(words, "ep %lld x etp %lld does not divide dp x cp x tp = %lld", (long long)q->ep,
                 (long long)q->etp, (long long)stage);
    return true;
}

static void near_experts(const ech_legal_query *q, ech_near *out)
{
    const int64_t stage = stage_of(q);
    if (stage % q->etp == 0)
        *out = ech_near_divisors(stage / q->etp, q->ep);
}

static bool find_order(const ech_legal_query *q, ech_text *words)
{
    ech_axis order[4];
    if (!q->order || ech_order_read(q->order, order))
        return false;
    ech_text_add(words, "'%.40s' is no order of tp, cp, ep, dp and pp, each once", q->order);
    return true;
}

static void near_order(const ech_legal_query *q, ech_near *out)
{
    (void)q;
    out->word = ECH_ORDER_DEFAULT;
}

static bool find_tree(const ech_legal_query *q, ech_text *words)
{
    if (!q->n_tree || !q->dp || q->dp > ECH_MAX_WORLD || ech_legal_tree_size(q) == q->dp)
        return false;
    const ech_tree legal = ech_tree_default((int)q->dp);
    ech_text_add(words,
                 "the factors multiply to %lld, the data-parallel axis has %lld ranks; "
                 "legal: auto",
                 (long long)ech_legal_tree_size(q), (long long)q->dp);
    for (int i = 0; i < legal.n; i++)
        ech_text_add(words, "%s%d%s", i ? ", " : " or [", legal.factor[i],
                     i + 1 == legal.n ? "]" : "");
    return true;
}

/* --- nodes --- */

/* How far apart the members of an axis lie; 0: not known. */
static int64_t stride_of(const ech_legal_query *q, ech_axis axis)
{
    ech_axis order[4];
    int degree[ECH_N_AXES] = {0};
    if (!ech_legal_ranks(ech_legal_replica(q), q->dp ? q->dp : 1) ||
        !ech_order_read(q->order ? q->order : ECH_ORDER_DEFAULT, order))
        return 0;
    degree[ECH_AXIS_TP] = (int)q->tp;
    degree[ECH_AXIS_CP] = (int)q->cp;
    degree[ECH_AXIS_DP] = (int)(q->dp ? q->dp : 1);
    degree[ECH_AXIS_PP] = (int)q->pp;
    return ech_order_stride(order, 4, degree, axis);
}

/* Do groups of `degree` along an axis leave their node? */
static bool leaves_node(const ech_legal_query *q, ech_axis axis, int64_t degree)
{
    const int node_ranks = q->n_nodes > 1 ? ech_node_ranks(q->node, q->n_nodes) : 0;
    const int64_t span = ech_legal_ranks(stride_of(q, axis), degree);
    return node_ranks && degree > 1 && span && node_ranks % span != 0;
}

/* "ranks 0-3  host a" a line each, the first and last of many. */
static void add_node_table(const ech_legal_query *q, ech_text *words)
{
    enum { SHOWN = 6 };
    for (int i = 0; i < q->n_nodes; i++) {
        const ech_node_run *r = &q->node[i];
        if (q->n_nodes > SHOWN + 1 && i == SHOWN)
            ech_text_add(words, "\n    ...");
        if (q->n_nodes > SHOWN + 1 && i >= SHOWN && i + 1 < q->n_nodes)
            continue;
        if (r->n > 1)
            ech_text_add(words, "\n    ranks %d-%d -> %.40s", r->first, r->first + r->n - 1,
                         r->name);
        else if (r->n == 1)
            ech_text_add(words, "\n    rank %d -> %.40s", r->first, r->name);
        else
            ech_text_add(words, "\n    no rank -> %.40s", r->name);
        if (r->slots)
            ech_text_add(words, " (%d slot%s)", r->slots, r->slots == 1 ? "" : "s");
    }
}

static int64_t slots_of(const ech_legal_query *q)
{
    int64_t n = 0;
    for (int i = 0; i < q->n_nodes; i++)
        n += q->node[i].slots;
    return n;
}

static bool find_slots(const ech_legal_query *q, ech_text *words)
{
    const int64_t slots = slots_of(q);
    if (!slots || q->may_oversubscribe || q->ranks <= slots)
        return false;
    ech_text_add(words, "%lld ranks for %lld slots; --oversubscribe shares processors",
                 (long long)q->ranks, (long long)slots);
    add_node_table(q, words);
    return true;
}

static void near_slots(const ech_legal_query *q, ech_near *out)
{
    *out = (ech_near){.n = 1, .value = {slots_of(q)}};
}

static bool find_scattered(const ech_legal_query *q, ech_text *words)
{
    if (!ech_node_is_scattered(q->node, q->n_nodes))
        return false;
    ech_text_add(words, "ranks of one node are not neighbours; wanted by slot (mpirun --map-by "
                        "slot, srun --distribution=block)");
    add_node_table(q, words);
    return true;
}

static bool find_unequal(const ech_legal_query *q, ech_text *words)
{
    if (q->n_nodes < 2 || ech_node_is_scattered(q->node, q->n_nodes) ||
        ech_node_ranks(q->node, q->n_nodes))
        return false;
    ech_text_add(words, "nodes hold unequal numbers of ranks");
    add_node_table(q, words);
    return true;
}

/* Does every node hold as many, or a multiple of the smallest, when ranks fill slots in turn? */
static bool fills_evenly(const ech_legal_query *q, int64_t ranks)
{
    int64_t least = ranks;
    int64_t most = 0;
    int64_t left = ranks;
    bool divides = true;
    for (int i = 0; i < q->n_nodes && left; i++) {
        const int64_t n = q->node[i].slots < left ? q->node[i].slots : left;
        least = n < least ? n : least;
        most = n > most ? n : most;
        left -= n;
    }
    left = ranks;
    for (int i = 0; i < q->n_nodes && left && least > 0; i++) {
        const int64_t n = q->node[i].slots < left ? q->node[i].slots : left;
        divides &= n % least == 0;
        left -= n;
    }
    return divides && (least > 1 || most == 1);
}

/* Where slots are known, other counts of ranks fill them evenly; one rank always does. */
static void near_unequal(const ech_legal_query *q, ech_near *out)
{
    const int64_t slots = slots_of(q);
    int64_t below = q->ranks - 1;
    int64_t above = q->ranks + 1;
    if (!slots || q->ranks < 2)
        return;
    while (below > 1 && !fills_evenly(q, below))
        below--;
    while (above <= slots && !fills_evenly(q, above))
        above++;
    *out = (ech_near){.n = above <= slots ? 2 : 1, .value = {below, above}};
}

static bool find_tp_over_nodes(const ech_legal_query *q, ech_text *words)
{
    if (!leaves_node(q, ECH_AXIS_TP, q->tp))
        return false;
    ech_text_add(words,
                 "tp %lld on nodes of %d ranks: activations of every layer cross between nodes",
                 (long long)q->tp, ech_node_ranks(q->node, q->n_nodes));
    return true;
}

static void near_tp_on_node(const ech_legal_query *q, ech_near *out)
{
    const int64_t stride = stride_of(q, ECH_AXIS_TP);
    const int64_t room = ech_node_ranks(q->node, q->n_nodes);
    if (stride && room % stride == 0)
        *out = ech_near_divisors(ech_legal_tp_divides(q, room / stride), q->tp);
}

static bool find_gather_over_nodes(const ech_legal_query *q, ech_text *words)
{
    if (q->zero_stage < 3 || !q->dp || !leaves_node(q, ECH_AXIS_DP, ech_legal_group(q)))
        return false;
    ech_text_add(words,
                 "parameters are gathered over %lld ranks on nodes of %d: each layer's cross "
                 "between nodes, %s a micro-batch",
                 (long long)ech_legal_group(q), ech_node_ranks(q->node, q->n_nodes),
                 q->reshard_after_forward ? "twice" : "once");
    return true;
}

static void near_group_on_node(const ech_legal_query *q, ech_near *out)
{
    const int64_t stride = stride_of(q, ECH_AXIS_DP);
    const int64_t room = ech_node_ranks(q->node, q->n_nodes);
    if (stride && room % stride == 0 && room / stride > 1)
        *out = ech_near_divisors(ech_gcd(q->dp, room / stride), ech_legal_group(q));
}

static bool find_shared_cores(const ech_legal_query *q, ech_text *words)
{
    int64_t most = 0;
    for (int i = 0; i < q->n_nodes; i++)
        most = q->node[i].n > most ? q->node[i].n : most;
    if (!q->node_cores || most <= q->node_cores)
        return false;
    ech_text_add(words, "%lld ranks of a node share %lld processors: they wait for one another",
                 (long long)most, (long long)q->node_cores);
    return true;
}

/* --- the rows --- */

static const ech_legal_rule rules[] = {
    {"world", "layout.dp", "tp x cp x pp x dp is not the number of ranks", REFUSED,
     "every rank has one place in the mesh", find_world, near_world},
    {"replica", "layout.tp", "tp x cp x pp does not divide the ranks", REFUSED,
     "no dp makes up the number of ranks", find_replica, near_replica},
    {"ranks", "layout.dp", "more than 16,777,216 ranks", REFUSED, "ranks are counted in 24 bits",
     find_too_many, NULL},
    {"experts", "layout.ep", "ep x etp does not divide dp x cp x tp", REFUSED,
     "experts are folded over the ranks of a stage", find_experts, near_experts},
    {"order", "layout.order", "not tp, cp, ep, dp and pp, once each", REFUSED,
     "the order numbers the ranks; ep folds into the others and has no place of its own",
     find_order, near_order},
    {"tree", "comm.tree", "the factors do not multiply to dp", REFUSED,
     "the tree has a leaf for each data parallel rank", find_tree, NULL},

    {"slots", "ranks", "more ranks than slots of the hosts, without --oversubscribe", REFUSED,
     "processors are shared only where that is asked for", find_slots, near_slots},
    {"scattered", "ranks", "the ranks of a node are not neighbours", REFUSED,
     "groups that belong on one node would be spread over several", find_scattered, NULL},
    {"unequal nodes", "ranks",
     "nodes hold unequal numbers of ranks, and the smallest has one or does not divide the others",
     REFUSED, "no group size fits all nodes", find_unequal, near_unequal},
    {"tp over nodes", "layout.tp", "a tp group has ranks on several nodes", COST,
     "activations of every layer cross between nodes", find_tp_over_nodes, near_tp_on_node},
    {"gathers over nodes", "layout.zero.group", "zero.stage 3 and a shard group on several nodes",
     COST, "parameters of every layer cross between nodes; a group within a node keeps them there",
     find_gather_over_nodes, near_group_on_node},
    {"shared processors", "ranks", "more ranks on a node than processors", COST,
     "ranks wait for one another", find_shared_cores, NULL},
};

const ech_legal_rule *ech_legal_mesh_rules(int *n)
{
    *n = sizeof rules / sizeof rules[0];
    return rules;
}
