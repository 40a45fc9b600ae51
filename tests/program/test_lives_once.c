/* RUN: np=1 timeout=20 tags=fast */
/* What the checks of lives, counts and bindings refuse, and in which words. */
#include "check.h"
#include "mutants.h"
#include "program/lives.h"
#include "program/once.h"
#include "tiny.h"

static tiny_run compiled(void)
{
    tiny_run run;
    tiny_spec spec = tiny_spec_default();
    spec.dp = 2;
    spec.accumulation = 3;
    tiny_start(&spec, &run);
    assert_ok(ech_lives_check(&run.session->train.klass[0].program));
    assert_ok(ech_once_check(&run.session->train.klass[0].program));
    return run;
}

static void test_a_slot_touched_after_its_life(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    const int item = program_find(p, "mlp backward", 0);
    const int slot = p->item[item].bind[ECH_REGION_SAVED_FB].slot;
    char words[96];
    (void)state;
    assert_int_equal(p->slot[slot].last, item);
    p->slot[slot].last = item - 1;
    (void)snprintf(words, sizeof words, "life is from item %d to %d", p->slot[slot].first,
                   item - 1);
    assert_fails(ech_lives_check(p), ECH_E_PROOF, words);
    assert_non_null(strstr(ech_error_message(), "(mlp backward, layer 1, micro-batch 0) touches "
                                                "'saved' (region saved_fb)"));
    tiny_stop(&run);
}

static void test_two_slots_on_the_same_bytes(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    const int item = program_find(p, "mlp backward", 0);
    (void)state;
    p->slot[p->item[item].bind[ECH_REGION_DOUT].slot].offset =
        p->slot[p->item[item].bind[ECH_REGION_SAVED_FB].slot].offset;
    assert_fails(ech_lives_check(p), ECH_E_PROOF, "('saved')");
    assert_non_null(strstr(ech_error_message(), "('activation gradient') at once"));
    tiny_stop(&run);
    run = compiled();
    run.session->train.klass[0].program.slot[1].offset -=
        ECH_ALIGN; /* gradients slip onto the parameters */
    assert_fails(ech_lives_check(&run.session->train.klass[0].program), ECH_E_PROOF,
                 "of the device arena belong to slot 0 ('params') and slot 1 ('grads') at once");
    tiny_stop(&run);
}

static void test_a_slot_outside_its_arena(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    p->transient_bytes[ECH_SPACE_DEVICE] -= ECH_ALIGN;
    assert_fails(ech_lives_check(p), ECH_E_PROOF, "leaves its arena");
    p->transient_bytes[ECH_SPACE_DEVICE] += ECH_ALIGN;
    p->slot[0].offset = 8;
    assert_fails(ech_lives_check(p), ECH_E_PROOF, "slot 0 ('params') at 8");
    tiny_stop(&run);
}

static void test_operands_and_workspaces_lie_in_their_regions(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    const int item = program_find(p, "mlp backward", 0);
    ech_block *b = &p->block[p->item[item].block];
    const int norm = program_find_op(p, item, ECH_OP_RMSNORM_BACKWARD);
    ech_op kept = b->op[norm];
    (void)state;
    b->op[norm].arg[3].offset = b->region_bytes[ECH_REGION_WORK];
    assert_fails(ech_lives_check(p), ECH_E_PROOF,
                 "block 'mlp backward', op rmsnorm_backward, argument 3 leaves region work");
    b->op[norm] = kept;
    b->op[norm].work_offset = b->region_bytes[ECH_REGION_WORK] - 64;
    assert_fails(ech_lives_check(p), ECH_E_PROOF, "its workspace leaves region work");
    b->op[norm] = kept;
    b->op[norm].work_offset = b->op[norm].arg[3].offset;
    assert_fails(ech_lives_check(p), ECH_E_PROOF,
                 "op rmsnorm_backward, argument 3 lies on the op's workspace");
    b->op[norm] = kept;
    p->item[item].bind[ECH_REGION_SAVED_FB].offset = 64;
    assert_fails(ech_lives_check(p), ECH_E_PROOF, "region saved_fb of");
    assert_non_null(strstr(ech_error_message(), "leaves its slot"));
    tiny_stop(&run);
}

static void test_an_item_run_again(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    const int item = program_find(p, "attention forward", 3);
    (void)state;
    program_insert(p, item + 2, p->item[item]);
    assert_fails(ech_once_check(p), ECH_E_PROOF,
                 "(attention forward, layer 0, micro-batch 0) is run again as item");
    tiny_stop(&run);
}

static void test_a_micro_batch_left_out(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    program_remove(p, program_find(p, "embedding backward", 0));
    assert_fails(ech_once_check(p), ECH_E_PROOF,
                 "(embedding backward, micro-batch 1) runs for 2 of "
                 "3 micro-batches");
    p->item[program_find(p, "head forward", 0)].micro = 3;
    program_remove(p, program_find(p, "embedding backward", 0));
    program_remove(p, program_find(p, "embedding backward", 0));
    assert_fails(ech_once_check(p), ECH_E_PROOF, "the step has 3 micro-batches, this one is 3");
    tiny_stop(&run);
}

static void test_a_block_never_run(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    for (int k = 0; k < 3; k++)
        program_remove(p, program_find(p, "embedding backward", 0));
    assert_fails(ech_once_check(p), ECH_E_PROOF, "(embedding backward) is never run");
    tiny_stop(&run);
}

/* The loss summed in the commit segment, but standing before it: no segment would run it. */
static void test_an_item_behind_a_later_segment(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    (void)state;
    p->item[program_find(p, "loss sum", 0)].segment = ECH_SEGMENT_COMMIT;
    assert_fails(ech_once_check(p), ECH_E_PROOF,
                 "of segment reduce stands behind segment commit: it would never run");
    tiny_stop(&run);
}

static void test_parameters_of_another_layer(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    const int a = program_find(p, "mlp forward", 0);
    const int b = program_find(p, "mlp forward", a + 1);
    const ech_view kept = p->item[b].bind[ECH_REGION_PARAM];
    (void)state;
    p->item[b].bind[ECH_REGION_PARAM] = p->item[a].bind[ECH_REGION_PARAM];
    assert_fails(ech_once_check(p), ECH_E_PROOF, "(mlp forward, layer 1, micro-batch 0)");
    assert_non_null(strstr(ech_error_message(), "the same exactly for the same layer"));
    p->item[b].bind[ECH_REGION_PARAM] = kept;
    assert_ok(ech_once_check(p));
    p->item[b].bind[ECH_REGION_PARAM].offset += 8;
    assert_fails(ech_once_check(p), ECH_E_PROOF, "are bound to param at");
    tiny_stop(&run);
}

static void test_labels_of_another_micro_batch(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    const int a = program_find(p, "head backward", 0);
    const int b = program_find(p, "head backward", a + 1);
    (void)state;
    p->item[b].bind[ECH_REGION_DATA] = p->item[a].bind[ECH_REGION_DATA];
    assert_fails(ech_once_check(p), ECH_E_PROOF, "(head backward, micro-batch 1)");
    assert_non_null(strstr(ech_error_message(), "the same exactly for the same micro-batch"));
    tiny_stop(&run);
}

/* What an op changes it changes once; another op of that kind may stand beside it. */
static void test_an_op_once_more(void **state)
{
    tiny_run run = compiled();
    ech_program *p = &run.session->train.klass[0].program;
    const int item = program_find(p, "attention backward", 0);
    const int k = program_find_op(p, item, ECH_OP_LINEAR_WGRAD);
    ech_block *b = &p->block[p->item[item].block];
    (void)state;
    block_insert(b, k + 1, b->op[k]);
    assert_fails(ech_once_check(p), ECH_E_PROOF, "block 'attention backward': op");
    assert_non_null(strstr(ech_error_message(), "(linear_wgrad) is op"));
    b->op[k + 1].arg[2].offset += 8;
    assert_ok(ech_once_check(p));
    b->op[k + 1] = b->op[program_find_op(p, item, ECH_OP_ATTENTION_BACKWARD)];
    assert_ok(ech_once_check(p)); /* the same from the same: nothing is changed twice */
    tiny_stop(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slot_touched_after_its_life),
        cmocka_unit_test(test_two_slots_on_the_same_bytes),
        cmocka_unit_test(test_a_slot_outside_its_arena),
        cmocka_unit_test(test_operands_and_workspaces_lie_in_their_regions),
        cmocka_unit_test(test_an_item_run_again),
        cmocka_unit_test(test_a_micro_batch_left_out),
        cmocka_unit_test(test_a_block_never_run),
        cmocka_unit_test(test_an_item_behind_a_later_segment),
        cmocka_unit_test(test_parameters_of_another_layer),
        cmocka_unit_test(test_labels_of_another_micro_batch),
        cmocka_unit_test(test_an_op_once_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
