/* RUN: np=1 timeout=20 tags=fast */
/* What the type check refuses, and the words it says it in: op, layer, axis. */
#include "check.h"
#include "hand.h"
#include "mutants.h"
#include "program/op_signature.h"
#include "program/types.h"
#include "tiny.h"

/* A compiled step of two layers, two ranks, two micro-batches, a bucket for every unit. */
static tiny_run compiled(tiny_kind kind)
{
    tiny_run run;
    tiny_spec spec = tiny_spec_default();
    spec.kind = kind;
    spec.dp = 2;
    spec.accumulation = 2;
    spec.optim = ECH_UPDATE_ADAMW;
    spec.dropout = kind == TINY_GPT2 ? 0.1 : 0.0;
    spec.bucket_bytes = 1;
    tiny_start(&spec, &run);
    assert_ok(ech_types_check(&run.session->train.klass[0].program));
    return run;
}

/* Refused, with all of these words. */
static void refused(tiny_run *run, const char *a, const char *b, const char *c)
{
    ech_program *p = &run->session->train.klass[0].program;
    assert_ok(ech_program_place(p, NULL));
    assert_fails(ech_types_check(p), ECH_E_PROOF, a);
    if (!strstr(ech_error_message(), b) || !strstr(ech_error_message(), c))
        fail_msg("message '%s' does not say '%s' and '%s'", ech_error_message(), b, c);
    tiny_stop(run);
}

static int item_of(const ech_program *p, const char *block, int layer)
{
    for (int i = program_find(p, block, 0); i >= 0; i = program_find(p, block, i + 1))
        if (p->item[i].layer == layer)
            return i;
    fail_msg("no item of block '%s', layer %d", block, layer);
    return -1;
}

static ech_op *first_op(ech_program *p, const char *block, ech_op_kind kind)
{
    const int i = program_find(p, block, 0);
    assert_true(i >= 0);
    const int k = program_find_op(p, i, kind);
    assert_true(k >= 0);
    return &p->block[p->item[i].block].op[k];
}

/* The first one that adds anything; before it stands the one that makes zeros. */
static int norm_of_embedding(const ech_program *p)
{
    int i = program_find(p, "gradient norm", 0);
    while (program_find_op(p, i, ECH_OP_SUMSQ) < 0)
        i++;
    return i;
}

static const hand_op copy = {.kind = ECH_OP_COPY, .request = -1};

/* --- reductions --- */

static void test_a_gradient_reduced_twice(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int start = program_find(p, "all-reduce of layer 1: start", 0);
    const int wait = program_find(p, "all-reduce of layer 1: wait", 0);
    (void)state;
    program_insert(p, wait + 1, p->item[start]);
    program_insert(p, wait + 2, p->item[wait]);
    refused(&run, "(all-reduce of layer 1: start, layer 1), op all_reduce_start",
            "I over dp, wanted P", "reduced twice");
}

static void test_a_gradient_not_reduced(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    program_remove(p, program_find(p, "all-reduce of layer 1: wait", 0));
    program_remove(p, program_find(p, "all-reduce of layer 1: start", 0));
    refused(&run, "op sumsq", "attention backward, layer 1, micro-batch 1",
            "P over dp, wanted I: it was not reduced there");
}

/* With a norm that does not look at the layer, the update itself says so. */
static void test_a_gradient_not_reduced_before_its_update(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    program_remove(p, program_find(p, "all-reduce of layer 1: wait", 0));
    program_remove(p, program_find(p, "all-reduce of layer 1: start", 0));
    program_remove(p, item_of(p, "gradient norm", 1));
    refused(&run, "layer update, layer 1), op adamw, argument 1", "P over dp, wanted I",
            "written by");
}

static void test_a_gradient_reduced_over_the_wrong_axis(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    first_op(p, "all-reduce of layer 0: start", ECH_OP_ALL_REDUCE_START)->axis = ECH_AXIS_TP;
    first_op(p, "all-reduce of layer 0: wait", ECH_OP_ALL_REDUCE_WAIT)->axis = ECH_AXIS_TP;
    refused(&run, "all-reduce of layer 0: start", "all_reduce_start over tp", "wrong axis");
}

/* A wait over tp may not declare that dp is done with as well. */
static void test_a_sum_changes_its_own_axis_only(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    ech_op *wait = first_op(p, "all-reduce of layer 0: wait", ECH_OP_ALL_REDUCE_WAIT);
    (void)state;
    wait->axis = ECH_AXIS_TP;
    refused(&run, "all-reduce of layer 0: wait", "op all_reduce_wait", "P over dp, wanted I");
}

static void test_a_sum_leaves_the_scale_alone(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    ech_op *wait = first_op(p, "all-reduce of layer 0: wait", ECH_OP_ALL_REDUCE_WAIT);
    (void)state;
    wait->arg[0].place.scale.factor = 0.5;
    refused(&run, "all-reduce of layer 0: wait", "op all_reduce_wait", "wanted 1 x loss_scale^1");
}

static void test_the_norm_before_the_reduction(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int norm = norm_of_embedding(p);
    const ech_item item = p->item[norm];
    (void)state;
    program_remove(p, norm);
    program_insert(p, program_find(p, "all-reduce of layer 0: wait", 0),
                   item); /* buckets before it are whole */
    refused(&run, "(gradient norm), op sumsq", "(embedding backward, micro-batch 1)",
            "P over dp, wanted I: it was not reduced there");
}

/* --- scales --- */

/* An op that multiplies the gradient before the update, as averaging by hand would. */
static void multiply(ech_program *p, double by, double declared)
{
    const int i = item_of(p, "layer update", 1);
    ech_block *b = program_own_block(p, i);
    ech_op op = {.kind = ECH_OP_SCALE, .n_args = 1, .real = {by}};
    op.arg[0] = b->op[b->n_ops - 1].arg[1];
    op.arg[0].access = ECH_READ_WRITE;
    op.arg[0].place.scale.factor = declared;
    block_insert(b, 0, op); /* two of them: the second runs first */
}

static void test_a_gradient_divided_by_the_ranks(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    (void)state;
    multiply(&run.session->train.klass[0].program, 0.5, 0.5);
    refused(&run, "(layer update, layer 1), op adamw, argument 1",
            "scale 1 x loss_scale^1 x (1/tokens)^1 x 0.5",
            "wanted 1 x loss_scale^1 x (1/tokens)^1");
}

static void test_a_gradient_divided_without_saying_so(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    (void)state;
    multiply(&run.session->train.klass[0].program, 0.5, 1.0);
    refused(&run, "(layer update, layer 1), op scale", "scale 1 x loss_scale^1 x (1/tokens)^1",
            "wanted 1 x loss_scale^1 x (1/tokens)^1 x 2");
}

static void test_a_gradient_multiplied_and_divided_back(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    (void)state;
    multiply(&run.session->train.klass[0].program, 2.0, 1.0);
    multiply(&run.session->train.klass[0].program, 0.5, 0.5);
    assert_ok(ech_program_place(&run.session->train.klass[0].program, NULL));
    assert_ok(ech_types_check(&run.session->train.klass[0].program));
    tiny_stop(&run);
}

static void test_an_update_that_wants_another_scale(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    (void)state;
    first_op(&run.session->train.klass[0].program, "layer update", ECH_OP_ADAMW)
        ->arg[1]
        .place.scale.per_token = 0;
    refused(&run, "(layer update, layer 0): adamw", "the gradient's scale is 1 x loss_scale^1",
            "the update wants loss_scale / tokens");
}

/* --- the seed --- */

static void test_tokens_not_summed_before_the_seed(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    program_remove(p, program_find(p, "sum of tokens: wait", 0));
    refused(&run, "(loss seed), op loss_seed, argument 0", "'scalars'", "nobody has written");
}

static void test_the_seed_of_a_ranks_own_tokens(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    first_op(p, "loss seed", ECH_OP_LOSS_SEED)->arg[0].offset = 8 * ECH_CELL_TOKENS_LOCAL;
    refused(&run, "(loss seed), op loss_seed, argument 0", "P over dp, wanted I",
            "written by item 0 (prologue)");
    run = compiled(TINY_LLAMA);
    ech_op *seed = first_op(&run.session->train.klass[0].program, "loss seed", ECH_OP_LOSS_SEED);
    seed->arg[0].offset = 8 * ECH_CELL_TOKENS_LOCAL;
    seed->arg[0].place.over[ECH_AXIS_DP] = ech_place_of(ECH_PLACE_PARTIAL);
    refused(&run, "(loss seed): loss_seed: argument 0 is P over dp", "non-linear function",
            "partial sum");
}

/* --- what the host reads --- */

static void test_a_cell_that_the_host_reads_too_early(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    int i = program_find(p, "loss sum", 0);
    (void)state;
    assert_true(i > 0);
    p->item[i].segment = ECH_SEGMENT_COMMIT;
    for (; p->item[i + 1].segment == ECH_SEGMENT_REDUCE; i++)
        program_swap(p, i, i + 1);
    refused(&run, "program 'train': the host reads cell LOSS after the reduce segment",
            "nobody has written it", "LOSS");
}

static void test_a_loss_that_is_not_summed(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    const int i = program_find(p, "loss sum", 0);
    ech_block *b = &p->block[p->item[i].block];
    assert_int_equal(p->item[i].segment, ECH_SEGMENT_REDUCE);
    assert_int_equal(b->op[2].arg[2].offset, 8 * ECH_CELL_LOSS);
    block_remove(b, 2); /* start and wait of its sum */
    block_remove(b, 1);
    b->op[0].arg[1].offset = 8 * ECH_CELL_LOSS;
    refused(&run, "the host reads cell LOSS", "it is P over dp", "program 'train'");
}

static void test_a_norm_that_is_never_computed(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int i = program_find(p, "gradient norm and clip", 0);
    const int k = program_find_op(p, i, ECH_OP_CLIP);
    ech_block *b = &p->block[p->item[i].block];
    const ech_op clip = b->op[k];
    ech_op factor = {.kind = ECH_OP_COPY, .n_args = 2}; /* from another cell */
    (void)state;
    b->op[k] = (ech_op){.kind = ECH_OP_ZERO, .n_args = 1, .arg = {clip.arg[4]}};
    factor.arg[0] = clip.arg[3];
    factor.arg[1] = clip.arg[5];
    block_insert(b, k, factor);
    refused(&run, "the host reads cell GRAD_SQ", "nothing was added to its zero", "train");
}

/* Every rank votes for itself: over an axis that nobody sums, the sum is no verdict. */
static void test_votes_of_every_axis_are_summed(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    (void)state;
    run.session->train.klass[0].program.layout.degree[ECH_AXIS_HSDP] = 2;
    refused(&run, "(loss sum), op sum_small_start", "P over hsdp, wanted I", "'scalars'");
}

/* --- updates --- */

static void test_a_parameter_updated_twice(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int i = item_of(p, "layer update", 1);
    (void)state;
    program_insert(p, i + 1, p->item[i]);
    refused(&run, "(layer update, layer 1), op adamw", "'params'", "updated twice in a step");
}

static void test_a_parameter_never_updated(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    program_remove(p, item_of(p, "layer update", 1));
    refused(&run, "of 'params'", "layer 1", "are never updated");
}

static void test_no_update_at_all(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    while (p->block[p->item[p->n_items - 1].block].role == ECH_ROLE_UPDATE)
        program_remove(p, p->n_items - 1);
    refused(&run, "of 'params'", "used by item", "are never updated");
}

static void test_a_gradient_used_by_two_updates(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int a = item_of(p, "layer update", 0);
    const int b = item_of(p, "layer update", 1);
    (void)state;
    p->item[b].bind[ECH_REGION_GRAD] = p->item[a].bind[ECH_REGION_GRAD];
    refused(&run, "(layer update, layer 1), op adamw, argument 1", "'grads'",
            "a gradient that two updates use");
}

static void test_moments_used_by_two_updates(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int a = item_of(p, "layer update", 0);
    const int b = item_of(p, "layer update", 1);
    (void)state;
    p->item[b].bind[ECH_REGION_MOMENT] = p->item[a].bind[ECH_REGION_MOMENT];
    refused(&run, "(layer update, layer 1), op adamw, argument 2", "'moments'",
            "optimizer state that two updates use");
}

static void test_an_update_before_the_clip_factor(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int i = item_of(p, "layer update", 1);
    const ech_item update = p->item[i];
    (void)state;
    program_remove(p, i);
    program_insert(p, program_find(p, "gradient norm", 0), update);
    refused(&run, "(layer update, layer 1), op adamw, argument 5", "'scalars'",
            "nobody has written");
}

static void test_an_update_before_the_reduction(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int i = item_of(p, "layer update", 1);
    const ech_item update = p->item[i];
    (void)state;
    program_remove(p, i);
    program_insert(p, program_find(p, "all-reduce of layer 1: wait", 0), update);
    refused(&run, "(layer update, layer 1), op adamw, argument 1", "'grads'",
            "P over dp, wanted I: it was not reduced there");
}

/* --- norms --- */

static void test_a_gradient_measured_twice(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int i = item_of(p, "gradient norm", 1);
    (void)state;
    program_insert(p, i, p->item[i]);
    refused(&run, "(gradient norm, layer 1), op sumsq, argument 0", "'grads'",
            "are measured twice in a step");
}

static void test_a_gradient_never_measured(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    program_remove(p, item_of(p, "gradient norm", 1));
    refused(&run, "of 'grads'", "layer 1", "are never measured");
}

static void test_a_norm_after_its_sum_was_read(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int i = program_find(p, "gradient norm and clip", 0);
    (void)state;
    program_swap(p, i - 1, i);
    refused(&run, "(gradient norm), op sumsq, argument 1", "'squares'",
            "are accumulated into after they were read");
}

/* --- shares --- */

/* Two ranks of dp that deal out their state; the gradients of three micro-batches each reduced. */
static tiny_run compiled_shares(int zero_stage)
{
    tiny_run run;
    tiny_spec spec = tiny_spec_default();
    spec.dp = 2;
    spec.accumulation = 3;
    spec.optim = ECH_UPDATE_ADAMW;
    spec.policy.zero_stage = zero_stage;
    spec.policy.reduces_each = true;
    tiny_start(&spec, &run);
    assert_ok(ech_types_check(&run.session->train.klass[0].program));
    return run;
}

static void test_updated_parameters_that_are_not_gathered(void **state)
{
    tiny_run run = compiled_shares(1);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    program_remove(p, program_find(p, "all-gather: wait", 0));
    program_remove(p, program_find(p, "all-gather: start", 0));
    refused(&run, "of 'params' are left S(0, flat) over dp", "the next step takes them as I", "");
}

static void test_a_micro_batch_that_is_not_added(void **state)
{
    tiny_run run = compiled_shares(2);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    program_remove(p, program_find(p, "gradients of a micro-batch added", 0));
    refused(&run, "of 'gradients of a micro-batch'", "reduce-scatter", "are never used");
}

static void test_a_micro_batch_that_is_added_twice(void **state)
{
    tiny_run run = compiled_shares(2);
    ech_program *p = &run.session->train.klass[0].program;
    const int i = program_find(p, "gradients of a micro-batch added", 0);
    (void)state;
    program_insert(p, i, p->item[i]);
    refused(&run, "(gradients of a micro-batch added), op add, argument 1", "reduce-scatter: wait",
            "are a micro-batch's gradient that is used twice");
}

static void test_a_micro_batch_in_place_of_those_before(void **state)
{
    tiny_run run = compiled_shares(2);
    ech_program *p = &run.session->train.klass[0].program;
    ech_op *add = first_op(p, "gradients of a micro-batch added", ECH_OP_ADD);
    (void)state;
    add->kind = ECH_OP_COPY;
    add->n_args = 2;
    add->arg[0] = add->arg[1];
    add->arg[1] = add->arg[2];
    refused(&run, "(gradients of a micro-batch added), op copy, argument 1", "'grads'",
            "are a gradient that is overwritten");
}

/* A rank's first row of the table, with a table that is dealt out. */
static void test_a_share_that_begins_elsewhere(void **state)
{
    tiny_run run;
    tiny_spec spec = tiny_spec_default();
    (void)state;
    spec.tp = 2;
    tiny_start(&spec, &run);
    first_op(&run.session->train.klass[0].program, "embedding forward", ECH_OP_EMBED)->attr[0] =
        ech_expr_const(0);
    refused(&run, "(embedding forward, micro-batch 0): embed: at coordinate 1 of tp",
            "its share of argument 1 begins at 64", "attribute 0 says 0");
}

/* --- reads and writes --- */

static void test_bytes_that_nobody_has_written(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    program_remove(p, item_of(p, "mlp forward", 0));
    refused(&run, "(attention forward, layer 1, micro-batch 0), op rmsnorm", "'activation'",
            "are read, but nobody has written them");
}

static void test_gradients_that_nobody_has_zeroed(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    block_remove(&p->block[p->item[0].block], 0);
    refused(&run, "(head backward, micro-batch 0), op linear_wgrad", "'grads'",
            "are accumulated into, but nobody has written them");
}

static void test_a_gradient_that_nobody_adds_to(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int i = item_of(p, "mlp backward", 1);
    (void)state;
    block_remove(&p->block[p->item[i].block], program_find_op(p, i, ECH_OP_LINEAR_WGRAD));
    refused(&run, "(all-reduce of layer 1: start, layer 1), op all_reduce_start",
            "written by item 0", "zeros to which nothing was added");
}

static void test_a_saved_set_of_another_micro_batch(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_program *p = &run.session->train.klass[0].program;
    const int a = item_of(p, "mlp backward", 1);
    const int next = program_find(p, "mlp backward", a + 1); /* layer 0 */
    const int b = program_find(p, "mlp backward", next + 1);
    (void)state;
    assert_int_equal(p->item[b].layer, 1);
    assert_int_equal(p->item[b].micro, 1);
    p->item[b].bind[ECH_REGION_SAVED_FB] = p->item[a].bind[ECH_REGION_SAVED_FB];
    refused(&run, "(mlp backward, layer 1, micro-batch 1)", "written by item",
            "another layer's or micro-batch's saved set");
}

/* out[0, n) = x[0, n), n in a cell of the step. */
static int with_extent(ech_program *p, int x)
{
    const ech_placement i = ech_placement_invariant();
    const int item = HAND_ADD(p, copy, {x, 0, 4, i}, {x, 4, 4, i});
    for (int a = 0; a < 2; a++)
        p->block[p->item[item].block].op[0].arg[a].dim[0].extent = ECH_CELL_TOKENS_LOCAL;
    return item;
}

static void test_extents_that_nobody_has_written(void **state)
{
    const ech_layout two = ech_layout_data_parallel(2);
    const ech_placement i = ech_placement_invariant();
    (void)state;
    for (int round = 0; round < 4; round++) {
        ech_program p;
        ech_program_init(&p, "extents", &two);
        const int x = hand_slot(&p, "x", true, 8, i);
        const int votes = hand_slot(&p, "votes", true, 1, hand_partial(2, 1.0));
        if (round > 0)
            p.scalars = hand_slot(&p, "scalars", true, ECH_N_CELLS, i);
        if (round == 2)
            (void)HAND_ADD(&p, copy, {votes, 0, 1, hand_partial(2, 1.0)},
                           {p.scalars, ECH_CELL_TOKENS_LOCAL, 1, hand_partial(2, 1.0)});
        if (round == 3)
            (void)HAND_ADD(&p, copy, {x, 0, 1, i}, {p.scalars, ECH_CELL_TOKENS_LOCAL, 1, i});
        (void)with_extent(&p, x);
        assert_ok(ech_program_place(&p, NULL));
        if (round == 3)
            assert_ok(ech_types_check(&p));
        else
            assert_fails(ech_types_check(&p), ECH_E_PROOF,
                         round == 0   ? "op copy, argument 0 has an extent, but there is no"
                         : round == 1 ? "bytes 16..24 of 'scalars' hold its extent, but nobody has"
                                      : "hold its extent, but differ between ranks");
        ech_program_fini(&p);
    }
}

/* --- placements of ops --- */

static void test_labels_dealt_out_unlike_tokens(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_op *xent = first_op(&run.session->train.klass[0].program, "head forward", ECH_OP_XENT);
    (void)state;
    xent->arg[1].place.over[ECH_AXIS_DP].map = ECH_MAP_ZIGZAG;
    refused(&run, "(head forward, micro-batch 0): xent: argument 1 is S(0, zig-zag) over dp",
            "another map", "xent");
}

static void test_a_residual_dealt_out_unlike_the_branch(void **state)
{
    tiny_run run = compiled(TINY_GPT2);
    ech_op *dropout =
        first_op(&run.session->train.klass[0].program, "attention forward", ECH_OP_DROPOUT);
    (void)state;
    dropout->arg[1].place.over[ECH_AXIS_DP].map = ECH_MAP_ZIGZAG;
    refused(&run, "(attention forward, layer 0, micro-batch 0): dropout: argument 1",
            "S(0, zig-zag) over dp", "another map");
}

static void test_a_parameter_not_marked_replicated(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_op *linear = first_op(&run.session->train.klass[0].program, "mlp forward", ECH_OP_LINEAR);
    (void)state;
    linear->arg[1].place.over[ECH_AXIS_DP] = ech_place_of(ECH_PLACE_INVARIANT);
    refused(&run, "(mlp forward, layer 0, micro-batch 0): linear: argument 1 is I over dp",
            "must be R", "gradient is partial");
}

static void test_a_gradient_declared_whole(void **state)
{
    tiny_run run = compiled(TINY_LLAMA);
    ech_op *wgrad =
        first_op(&run.session->train.klass[0].program, "mlp backward", ECH_OP_LINEAR_WGRAD);
    (void)state;
    wgrad->arg[2].place.over[ECH_AXIS_DP] = ech_place_of(ECH_PLACE_INVARIANT);
    refused(&run, "(mlp backward, layer 1, micro-batch 0): linear_wgrad",
            "declared I over dp, the rule gives P", "result 2");
}

/* Ops under tensor parallelism, by hand: the compiler makes none yet. */
static ech_operand shaped(ech_region region, ech_access access, int64_t d0, int64_t d1,
                          ech_place over_tp)
{
    ech_operand a = {.region = region, .access = access, .dtype = ECH_F64, .rank = d1 ? 2 : 1};
    a.dim[0] = (ech_dim){d0, ECH_EXTENT_BOUND};
    a.dim[1] = (ech_dim){d1, ECH_EXTENT_BOUND};
    a.place = ech_placement_with(ech_placement_invariant(), ECH_AXIS_TP, over_tp);
    return a;
}

static const ech_place whole = {.kind = ECH_PLACE_INVARIANT};
static const ech_place part = {.kind = ECH_PLACE_PARTIAL};

/* y = x w^T + bias with the contraction sharded: row-parallel. */
static ech_op row_parallel(ech_operand bias)
{
    const ech_place columns = ech_place_sharded(1, ECH_MAP_CONTIGUOUS);
    ech_op op = {.kind = ECH_OP_LINEAR, .n_args = 4};
    op.arg[0] = shaped(ECH_REGION_IN, ECH_READ, 6, 8, columns);
    op.arg[1] = shaped(ECH_REGION_PARAM, ECH_READ, 4, 8, columns);
    op.arg[2] = bias;
    op.arg[3] = shaped(ECH_REGION_OUT, ECH_WRITE, 6, 4, part);
    return op;
}

static void test_a_bias_added_to_a_partial_sum(void **state)
{
    const ech_operand none = {.region = ECH_REGION_NONE};
    ech_op op = row_parallel(none);
    (void)state;
    assert_ok(ech_op_check_placement(&op));
    op = row_parallel(shaped(ECH_REGION_PARAM, ECH_READ, 4, 0, ech_place_of(ECH_PLACE_REPLICATED)));
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF, "linear: argument 2 is R over tp");
    assert_non_null(strstr(ech_error_message(), "it would count once per rank"));
    op = row_parallel(none);
    op.arg[3].place.over[ECH_AXIS_TP] = whole;
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF, "declared I over tp, the rule gives P");
}

/* The same in place, as an op of its own. */
static void test_a_bias_of_a_partial_sum_in_place(void **state)
{
    ech_op op = {.kind = ECH_OP_BIAS, .n_args = 2};
    (void)state;
    op.arg[0] = shaped(ECH_REGION_OUT, ECH_READ_WRITE, 6, 4, whole);
    op.arg[1] = shaped(ECH_REGION_PARAM, ECH_READ, 4, 0, whole);
    assert_ok(ech_op_check_placement(&op));
    op.arg[0].place.over[ECH_AXIS_TP] = part;
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF, "bias: argument 1 is I over tp");
    assert_non_null(strstr(ech_error_message(), "it would count once per rank"));
}

static void test_column_parallel_is_sharded(void **state)
{
    ech_op op = row_parallel((ech_operand){.region = ECH_REGION_NONE});
    const ech_place rows = ech_place_sharded(0, ECH_MAP_CONTIGUOUS);
    (void)state;
    op.arg[0].place.over[ECH_AXIS_TP] = ech_place_of(ECH_PLACE_REPLICATED);
    op.arg[1].place.over[ECH_AXIS_TP] = rows;
    op.arg[2] = shaped(ECH_REGION_PARAM, ECH_READ, 4, 0, rows);
    op.arg[3].place.over[ECH_AXIS_TP] = ech_place_sharded(1, ECH_MAP_CONTIGUOUS);
    assert_ok(ech_op_check_placement(&op));
    op.arg[2].place.over[ECH_AXIS_TP] = whole;
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF, "linear: argument 2 is I over tp");
}

/* Column-parallel on what row-parallel left, and backward on what column-parallel left. */
static void test_a_partial_sum_meets_a_sharded_value(void **state)
{
    const ech_place rows = ech_place_sharded(0, ECH_MAP_CONTIGUOUS);
    const ech_place columns = ech_place_sharded(1, ECH_MAP_CONTIGUOUS);
    ech_op op = row_parallel((ech_operand){.region = ECH_REGION_NONE});
    (void)state;
    op.arg[0].place.over[ECH_AXIS_TP] = part;
    op.arg[1].place.over[ECH_AXIS_TP] = rows;
    for (int declared = 0; declared < 2; declared++) {
        op.arg[3].place.over[ECH_AXIS_TP] = declared ? columns : part;
        assert_fails(ech_op_check_placement(&op), ECH_E_PROOF, "linear: argument 0 is P over tp");
        assert_non_null(strstr(ech_error_message(), "forgot the all-reduce between row- and"));
    }
    op.kind = ECH_OP_LINEAR_DGRAD;
    op.n_args = 3;
    op.arg[0] = shaped(ECH_REGION_DOUT, ECH_READ, 6, 4, part);
    op.arg[1].place.over[ECH_AXIS_TP] = columns;
    op.arg[2] = shaped(ECH_REGION_DIN, ECH_WRITE, 6, 8, part);
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF, "linear_dgrad: argument 0 is P over tp");
    op.arg[1].place.over[ECH_AXIS_TP] = ech_place_of(ECH_PLACE_REPLICATED);
    assert_ok(ech_op_check_placement(&op));
}

/* A sum is partial by what it is a sum of, not by what is added to it. */
static void test_a_partial_bias_of_a_whole_value(void **state)
{
    ech_op op = row_parallel(shaped(ECH_REGION_PARAM, ECH_READ, 4, 0, part));
    (void)state;
    assert_ok(ech_op_check_placement(&op));
    op.arg[0].place.over[ECH_AXIS_TP] = whole;
    op.arg[1].place.over[ECH_AXIS_TP] = whole;
    for (int declared = 0; declared < 2; declared++) {
        op.arg[3].place.over[ECH_AXIS_TP] = declared ? whole : part;
        assert_fails(ech_op_check_placement(&op), ECH_E_PROOF, "linear: argument 2 is P over tp");
    }
}

static void test_non_linear_functions_of_partial_sums(void **state)
{
    ech_op op = {.kind = ECH_OP_GELU, .n_args = 2};
    (void)state;
    op.arg[0] = shaped(ECH_REGION_IN, ECH_READ, 6, 4, part);
    op.arg[1] = shaped(ECH_REGION_OUT, ECH_WRITE, 6, 4, part);
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF,
                 "gelu: argument 0 is P over tp: a non-linear function of a partial sum");
    op.kind = ECH_OP_COPY; /* a linear one may */
    assert_ok(ech_op_check_placement(&op));
    op.arg[0].place.over[ECH_AXIS_TP] = ech_place_of(ECH_PLACE_PARTIAL_MAX);
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF, "Pmax over tp");
}

static void test_sums_of_partial_and_whole(void **state)
{
    ech_op op = {.kind = ECH_OP_ADD, .n_args = 3};
    (void)state;
    for (int i = 0; i < 3; i++)
        op.arg[i] = shaped(ECH_REGION_IN, i < 2 ? ECH_READ : ECH_WRITE, 6, 4, part);
    assert_ok(ech_op_check_placement(&op));
    for (int i = 0; i < 2; i++) {
        ech_op mixed = op;
        mixed.arg[i].place.over[ECH_AXIS_TP] = whole;
        assert_fails(ech_op_check_placement(&mixed), ECH_E_PROOF, "it would count once per rank");
        assert_non_null(
            strstr(ech_error_message(), i ? "argument 1 is I over tp" : "argument 1 is P over tp"));
    }
    op.arg[0].place.scale.factor = 2.0;
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF,
                 "add: argument 0 has scale 1 x 2, argument 1 1");
}

static void test_sharded_and_whole_do_not_mix(void **state)
{
    ech_op op = {.kind = ECH_OP_ADD, .n_args = 3};
    const ech_place rows = ech_place_sharded(0, ECH_MAP_CONTIGUOUS);
    (void)state;
    for (int i = 0; i < 3; i++)
        op.arg[i] = shaped(ECH_REGION_IN, i < 2 ? ECH_READ : ECH_WRITE, 6, 4, rows);
    assert_ok(ech_op_check_placement(&op));
    op.arg[1].place.over[ECH_AXIS_TP] = whole;
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF,
                 "add: argument 1 is I over tp: another argument is sharded");
}

/* --- whole sequences and parts of them --- */

/* Every argument that has tokens is dealt out by one map over cp, the others are whole there. */
static ech_op on_tokens(ech_op_kind kind, ech_index_map map)
{
    const ech_signature sig = ech_signature_read(kind);
    ech_op op = {.kind = kind, .n_args = sig.n};
    for (int i = 0; i < sig.n; i++) {
        ech_operand *a = &op.arg[i];
        *a = (ech_operand){.region = ECH_REGION_IN,
                           .access = sig.arg[i].access,
                           .rank = sig.arg[i].n_labels,
                           .place = ech_placement_invariant()};
        const int tokens = ech_sig_dim(&sig.arg[i], a, 'n');
        if (tokens >= 0)
            a->place.over[ECH_AXIS_CP] = ech_place_sharded(tokens, map);
        else if (sig.arg[i].access != ECH_READ)
            a->place.over[ECH_AXIS_CP] = part;
    }
    return op;
}

static void test_tokens_are_gathered_before_attention(void **state)
{
    static const ech_op_kind by_sequence[] = {ECH_OP_ROPE, ECH_OP_ATTENTION,
                                              ECH_OP_ATTENTION_BACKWARD, ECH_OP_ATTENTION_CACHED};
    (void)state;
    for (size_t k = 0; k < sizeof by_sequence / sizeof by_sequence[0]; k++) {
        ech_op op = on_tokens(by_sequence[k], ECH_MAP_SEQUENCES);
        if (op.kind != ECH_OP_ATTENTION_CACHED) /* its cache has no tokens that are dealt out */
            assert_ok(ech_op_check_placement(&op));
        for (ech_index_map map = ECH_MAP_CONTIGUOUS; map <= ECH_MAP_ZIGZAG; map++) {
            op = on_tokens(by_sequence[k], map);
            assert_fails(ech_op_check_placement(&op), ECH_E_PROOF, ech_op_name(op.kind));
            assert_non_null(strstr(ech_error_message(), "S(0, "));
            assert_non_null(strstr(ech_error_message(), "whole sequences"));
        }
    }
}

static void test_tokens_may_be_anywhere_for_the_others(void **state)
{
    static const ech_op_kind by_token[] = {ECH_OP_LAYERNORM,    ECH_OP_LAYERNORM_BACKWARD,
                                           ECH_OP_RMSNORM,      ECH_OP_RMSNORM_BACKWARD,
                                           ECH_OP_LINEAR,       ECH_OP_LINEAR_DGRAD,
                                           ECH_OP_LINEAR_WGRAD, ECH_OP_QK_NORM,
                                           ECH_OP_SWIGLU,       ECH_OP_GELU,
                                           ECH_OP_XENT,         ECH_OP_COUNT_TOKENS,
                                           ECH_OP_EMBED,        ECH_OP_EMBED_BACKWARD,
                                           ECH_OP_POSITIONS,    ECH_OP_POSITIONS_BACKWARD,
                                           ECH_OP_DROPOUT};
    (void)state;
    for (size_t k = 0; k < sizeof by_token / sizeof by_token[0]; k++)
        for (ech_index_map map = ECH_MAP_SEQUENCES; map <= ECH_MAP_ZIGZAG; map++) {
            const ech_op op = on_tokens(by_token[k], map);
            assert_ok(ech_op_check_placement(&op));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gradient_reduced_twice),
        cmocka_unit_test(test_a_gradient_not_reduced),
        cmocka_unit_test(test_a_gradient_not_reduced_before_its_update),
        cmocka_unit_test(test_a_gradient_reduced_over_the_wrong_axis),
        cmocka_unit_test(test_a_sum_changes_its_own_axis_only),
        cmocka_unit_test(test_a_sum_leaves_the_scale_alone),
        cmocka_unit_test(test_the_norm_before_the_reduction),
        cmocka_unit_test(test_a_gradient_divided_by_the_ranks),
        cmocka_unit_test(test_a_gradient_divided_without_saying_so),
        cmocka_unit_test(test_a_gradient_multiplied_and_divided_back),
        cmocka_unit_test(test_an_update_that_wants_another_scale),
        cmocka_unit_test(test_tokens_not_summed_before_the_seed),
        cmocka_unit_test(test_the_seed_of_a_ranks_own_tokens),
        cmocka_unit_test(test_a_cell_that_the_host_reads_too_early),
        cmocka_unit_test(test_a_loss_that_is_not_summed),
        cmocka_unit_test(test_a_norm_that_is_never_computed),
        cmocka_unit_test(test_votes_of_every_axis_are_summed),
        cmocka_unit_test(test_a_parameter_updated_twice),
        cmocka_unit_test(test_a_parameter_never_updated),
        cmocka_unit_test(test_no_update_at_all),
        cmocka_unit_test(test_a_gradient_used_by_two_updates),
        cmocka_unit_test(test_moments_used_by_two_updates),
        cmocka_unit_test(test_an_update_before_the_clip_factor),
        cmocka_unit_test(test_an_update_before_the_reduction),
        cmocka_unit_test(test_a_gradient_measured_twice),
        cmocka_unit_test(test_a_gradient_never_measured),
        cmocka_unit_test(test_a_norm_after_its_sum_was_read),
        cmocka_unit_test(test_updated_parameters_that_are_not_gathered),
        cmocka_unit_test(test_a_micro_batch_that_is_not_added),
        cmocka_unit_test(test_a_micro_batch_that_is_added_twice),
        cmocka_unit_test(test_a_micro_batch_in_place_of_those_before),
        cmocka_unit_test(test_a_share_that_begins_elsewhere),
        cmocka_unit_test(test_bytes_that_nobody_has_written),
        cmocka_unit_test(test_gradients_that_nobody_has_zeroed),
        cmocka_unit_test(test_a_gradient_that_nobody_adds_to),
        cmocka_unit_test(test_a_saved_set_of_another_micro_batch),
        cmocka_unit_test(test_extents_that_nobody_has_written),
        cmocka_unit_test(test_labels_dealt_out_unlike_tokens),
        cmocka_unit_test(test_a_residual_dealt_out_unlike_the_branch),
        cmocka_unit_test(test_a_parameter_not_marked_replicated),
        cmocka_unit_test(test_a_gradient_declared_whole),
        cmocka_unit_test(test_a_bias_added_to_a_partial_sum),
        cmocka_unit_test(test_a_bias_of_a_partial_sum_in_place),
        cmocka_unit_test(test_column_parallel_is_sharded),
        cmocka_unit_test(test_a_partial_sum_meets_a_sharded_value),
        cmocka_unit_test(test_a_partial_bias_of_a_whole_value),
        cmocka_unit_test(test_non_linear_functions_of_partial_sums),
        cmocka_unit_test(test_sums_of_partial_and_whole),
        cmocka_unit_test(test_sharded_and_whole_do_not_mix),
        cmocka_unit_test(test_tokens_are_gathered_before_attention),
        cmocka_unit_test(test_tokens_may_be_anywhere_for_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
