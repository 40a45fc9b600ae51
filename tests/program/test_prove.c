/* RUN: np=1 timeout=30 tags=fast */
/* The whole proof of hand-written programs, its report, and programs as documents. */
#include "check.h"
#include "hand.h"
#include "tiny.h"
#include "base/clock.h"
#include "layout/shard.h"
#include "program/program_file.h"
#include "program/prove.h"

#include <stdlib.h>
#include <unistd.h>

/* CPU seconds that the largest programs may take; sanitizers take several times as long. */
#ifdef __SANITIZE_ADDRESS__
#define MOST_SECONDS 3.0
#else
#define MOST_SECONDS 0.5
#endif

static ech_placement scaled(double factor)
{
    return hand_partial(1, factor);
}

/* out = sum over dp of 3 (a + b), through a transient t; `times` times: add, scale, start, wait,
 * copy. */
static void five_ops(ech_program *p, int dp, int times)
{
    const ech_layout l = ech_layout_data_parallel(dp);
    const hand_op add = {.kind = ECH_OP_ADD, .request = -1};
    const hand_op scale = {.kind = ECH_OP_SCALE, .request = -1, .real = 3.0};
    const hand_op start = {.kind = ECH_OP_ALL_REDUCE_START};
    const hand_op wait = {.kind = ECH_OP_ALL_REDUCE_WAIT};
    const hand_op copy = {.kind = ECH_OP_COPY, .request = -1};
    const int64_t staging = ech_reduce_staging_elems(7, dp);
    const ech_placement part = hand_partial(dp, 1.0);
    const ech_placement part3 = hand_partial(dp, 3.0);
    ech_program_init(p, "five", &l);
    const int a = hand_slot(p, "a", true, 8, part);
    const int b = hand_slot(p, "b", true, 8, part);
    const int out = hand_slot(p, "out", true, 8, scaled(1.0));
    const int t = hand_slot(p, "t", false, 7, scaled(1.0));
    const int s = hand_slot(p, "staging", false, staging, scaled(1.0));
    (void)HAND_ADD(p, add, {a, 1, 7, part}, {b, 1, 7, part}, {t, 0, 7, part});
    (void)HAND_ADD(p, scale, {t, 0, 7, part3});
    (void)HAND_ADD(p, start, {t, 0, 7, part3}, {s, 0, staging, scaled(1.0)});
    (void)HAND_ADD(p, wait, {t, 0, 7, scaled(3.0)}, {s, 0, staging, scaled(1.0)});
    (void)HAND_ADD(p, copy, {t, 0, 7, scaled(3.0)}, {out, 1, 7, scaled(3.0)});
    for (int i = 5; i < 5 * times; i++) {
        const ech_item again = p->item[i - 5];
        assert_ok(ech_program_add_item(p, &again));
    }
    assert_ok(ech_program_place(p, NULL));
}

static ech_status prove(const ech_program *p, ech_prove_report *report)
{
    const ech_prove_spec spec = {.program = &p, .n_classes = 1};
    return ech_prove(&spec, report);
}

/* --- the report --- */

static void test_all_parts_hold(void **state)
{
    static const int64_t looked[ECH_N_PROOF_PARTS] = {5, 5, 5, 7, 2, 2, 0, 5};
    ech_program p;
    ech_prove_report r;
    (void)state;
    five_ops(&p, 3, 1);
    assert_ok(prove(&p, &r));
    for (int part = 0; part < ECH_N_PROOF_PARTS; part++) {
        const bool is_cover = part == ECH_PROOF_COVER;
        assert_int_equal(r.row[part].verdict, is_cover ? ECH_PROOF_LEFT_OUT : ECH_PROOF_HOLDS);
        assert_int_equal(r.row[part].looked, looked[part]); /* order: 5 ops, 2 ends of lives */
        assert_true(r.row[part].seconds >= 0.0 && r.row[part].seconds < 1.0);
        assert_string_equal(r.row[part].text, is_cover ? "no plan of shards was given" : "");
        assert_true(strlen(ech_proof_claim((ech_proof_part)part)) > 20);
    }
    assert_string_equal(ech_proof_name(ECH_PROOF_QUEUE), "one queue");
    assert_int_equal(r.followed, 1);
    assert_int_equal(r.world, 3);
    ech_program_fini(&p);
}

/* One fault: the part that finds it, and what it says. */
#define REFUSE(change, status, part, words)                                                        \
    do {                                                                                           \
        ech_program p;                                                                             \
        ech_prove_report r;                                                                        \
        five_ops(&p, 3, 2);                                                                        \
        change;                                                                                    \
        assert_fails(prove(&p, &r), (status), "program 'five', proof of ");                        \
        assert_int_equal(r.row[part].verdict, ECH_PROOF_FAULT);                                    \
        if (!strstr(r.row[part].text, (words)))                                                    \
            fail_msg("'%s' does not say '%s'", r.row[part].text, (words));                         \
        ech_program_fini(&p);                                                                      \
    } while (0)

static void test_each_part_finds_its_fault(void **state)
{
    (void)state;
    REFUSE(p.slot[3].offset = p.slot[4].offset, ECH_E_PROOF, ECH_PROOF_LIVES,
           "belong to slot 3 ('t') and slot 4 ('staging') at once");
    REFUSE(p.item[7].segment = ECH_SEGMENT_REDUCE, ECH_E_PROOF, ECH_PROOF_ONCE,
           "it would never run");
    REFUSE(p.block[1].op[0].real[0] = 2.0, ECH_E_PROOF, ECH_PROOF_TYPES,
           "every rank: item 1 (hand-written scale), op scale, argument 0: bytes 0..56 of 't', "
           "written by item 0 (hand-written add), hold a value of scale 1, wanted 1 x 1.5");
    REFUSE(p.item[8].request = 1; p.n_requests = 2, ECH_E_PROOF, ECH_PROOF_ORDER,
                                  "waits for request 1, which was not started");
    REFUSE(
        p.item[8].request = 1;
        p.n_requests = 2, ECH_E_PROOF, ECH_PROOF_MATCH,
        "every rank, item 8 (hand-written all_reduce_wait), op all_reduce_wait over dp: it waits "
        "for a request that was not started");
    REFUSE(p.state_bytes[0] += ECH_ALIGN, ECH_E_PROOF, ECH_PROOF_PEAKS,
           "state takes 192 bytes of device memory, predicted are 256");
    REFUSE(p.peak_live_bytes[0] -= ECH_ALIGN, ECH_E_PROOF, ECH_PROOF_PEAKS,
           "transient bytes of device memory are alive at once, predicted are");
}

static void test_the_first_fault_is_returned_and_all_are_told(void **state)
{
    ech_program p;
    ech_prove_report r;
    (void)state;
    five_ops(&p, 3, 2);
    p.block[1].op[0].real[0] = 2.0;
    p.peak_live_bytes[0]--;
    assert_fails(prove(&p, &r), ECH_E_PROOF, "program 'five', proof of types: every rank: item 1");
    for (int part = 0; part < ECH_N_PROOF_PARTS; part++)
        assert_int_equal(r.row[part].verdict == ECH_PROOF_FAULT,
                         part == ECH_PROOF_TYPES || part == ECH_PROOF_PEAKS);
    ech_program_fini(&p);
}

static void test_caps(void **state)
{
    ech_program p;
    ech_prove_report r;
    const ech_program *one = &p;
    (void)state;
    five_ops(&p, 2, 1);
    const size_t total = p.state_bytes[0] + p.transient_bytes[0];
    ech_prove_spec spec = {.program = &one, .n_classes = 1, .cap_bytes = {total}};
    assert_ok(ech_prove(&spec, &r));
    spec.cap_bytes[0]--;
    assert_fails(ech_prove(&spec, &r), ECH_E_INFEASIBLE, "bytes of device memory, the cap is");
    ech_program_fini(&p);
}

static void test_several_classes(void **state)
{
    static const int class_of[] = {0, 1};
    ech_program p[2];
    ech_prove_report r;
    const ech_program *both[] = {&p[0], &p[1]};
    const ech_prove_spec spec = {.program = both, .n_classes = 2, .class_of = class_of};
    (void)state;
    five_ops(&p[0], 2, 2);
    five_ops(&p[1], 2, 2);
    assert_ok(ech_prove(&spec, &r));
    assert_int_equal(r.followed, 2);
    ech_program_fini(&p[1]);
    five_ops(&p[1], 2, 1); /* one sum less */
    assert_fails(
        ech_prove(&spec, &r), ECH_E_PROOF,
        "program 'five', proof of match: rank 0 (dp 0) waits in item 8 (hand-written "
        "all_reduce_wait), op all_reduce_wait over dp: rank 1 (dp 1) never starts a second "
        "collective over dp; it has come to its end");
    p[1].block[1].op[0].real[0] = 2.0;
    assert_fails(ech_prove(&spec, &r), ECH_E_PROOF,
                 "proof of types: every rank of class 1: item 1");
    assert_int_equal(r.row[ECH_PROOF_QUEUE].verdict, ECH_PROOF_FAULT);
    ech_program_fini(&p[0]);
    ech_program_fini(&p[1]);
}

static void test_cover_wants_a_plan(void **state)
{
    const ech_model m = tiny_model(TINY_LLAMA, 0.0);
    ech_canon canon;
    ech_shard_plan plan;
    ech_program p;
    ech_prove_report r;
    const ech_program *one = &p;
    (void)state;
    assert_ok(ech_canon_create(&m, &canon));
    ech_shard_spec shard = {
        .model = &m, .canon = &canon, .tp = 1, .is_sequence_parallel = false, .shards = 1};
    assert_ok(ech_shard_plan_make(&shard, &plan));
    five_ops(&p, 2, 1);
    const ech_shard_plan *planned = &plan;
    const ech_prove_spec spec = {.program = &one, .n_classes = 1, .plan = &planned};
    assert_fails(ech_prove(&spec, &r), ECH_E_PROOF,
                 "proof of cover: every rank: 'embed.token.weight' is read by no block");
    assert_int_equal(r.row[ECH_PROOF_COVER].verdict, ECH_PROOF_FAULT);
    ech_program_fini(&p);
    ech_canon_fini(&canon);
}

/* 200 thousand ops, a fifth of them starts and a fifth waits. */
static void test_time(void **state)
{
    ech_program p;
    ech_prove_report r;
    (void)state;
    five_ops(&p, 4, 40000);
    const double t0 = ech_clock_cpu_s();
    assert_ok(prove(&p, &r));
    const double seconds = ech_clock_cpu_s() - t0;
    for (int part = 0; part < ECH_N_PROOF_PARTS; part++)
        (void)printf("  %-10s %8lld %.3f s\n", ech_proof_name((ech_proof_part)part),
                     (long long)r.row[part].looked, r.row[part].seconds);
    (void)printf("%d ops: %.3f s\n", p.n_items, seconds);
    assert_int_equal(p.n_items, 200000);
    assert_true(seconds < MOST_SECONDS);
    ech_program_fini(&p);
}

/* --- documents --- */

/* Of everything that a document may hold, something. */
static void odd_program(ech_program *p)
{
    five_ops(p, 6, 2);
    const ech_layout_spec spec = {.tp = 2,
                                  .cp = 1,
                                  .pp = 3,
                                  .dp = 6,
                                  .tied = {0, 2},
                                  .shard_group = 3,
                                  .node_ranks = 4,
                                  .kv_share = 2,
                                  .order = {ECH_AXIS_DP, ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_PP}};
    assert_ok(ech_layout_make(&spec, &p->layout));
    p->micro_batches = 3;
    p->rows_per_micro = 4;
    p->after = ECH_BORDER_WEIGHTS_GATHERED;
    p->slot[0].is_scratch = p->slot[0].is_copy = true;
    p->slot[1].is_constant = true;
    p->slot[1].place.over[ECH_AXIS_TP] = ech_place_sharded(1, ECH_MAP_HEAD_GROUP);
    p->slot[2].place.over[ECH_AXIS_DP] = ech_place_sharded(0, ECH_MAP_SLICES);
    p->slot[2].space = ECH_SPACE_HOST;
    (void)snprintf(p->slot[2].name, sizeof p->slot[2].name, "\"out\" of\tit");
    p->item[6].layer = 2;
    p->item[6].chunk = 1;
    p->item[6].micro = 2;
    p->item[9].segment = ECH_SEGMENT_COMMIT;
    ech_op *op = &p->block[4].op[0];
    op->attr[0] = ech_expr_const(-5);
    op->attr[ECH_MAX_ATTRS - 1] = ech_expr_micro();
    op->attr[2] = ech_expr_binary(ECH_EXPR_MUL, ech_expr_coord(ECH_AXIS_TP), ech_expr_micro());
    op->real[3] = 0.1;
    op->work_offset = 64;
    op->work_bytes = 128;
    op->arg[0].shift = (ech_shift){ECH_AXIS_DP, 24};
    op->arg[0].context = 1;
    op->arg[0].dim[0].extent = op->arg[1].dim[0].extent = ECH_CELL_NEW_TOKENS;
    op->arg[0].place.scale = (ech_scale){1, -1, 2, 1.0 / 3.0};
    p->block[2].op[0].request = p->block[3].op[0].request = 2;
    p->block[2].role = ECH_ROLE_HOST_SCALARS;
    p->n_requests = 3;
}

static void compare_slots(const ech_slot *a, const ech_slot *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->space, b->space);
    assert_int_equal(a->klass, b->klass);
    assert_int_equal(a->is_state, b->is_state);
    assert_int_equal(a->is_constant, b->is_constant);
    assert_int_equal(a->is_scratch, b->is_scratch);
    assert_int_equal(a->is_copy, b->is_copy);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->first, b->first);
    assert_int_equal(a->last, b->last);
    assert_true(ech_placement_is_equal(&a->place, &b->place));
}

static void compare_items(const ech_item *a, const ech_item *b)
{
    assert_int_equal(a->block, b->block);
    assert_int_equal(a->layer, b->layer);
    assert_int_equal(a->chunk, b->chunk);
    assert_int_equal(a->micro, b->micro);
    assert_int_equal(a->segment, b->segment);
    assert_int_equal(a->request, b->request);
    for (int r = 0; r < ECH_N_REGIONS; r++) {
        assert_int_equal(a->bind[r].slot, b->bind[r].slot);
        assert_int_equal(a->bind[r].offset, b->bind[r].offset);
    }
}

static void compare_operands(const ech_operand *a, const ech_operand *b)
{
    assert_int_equal(a->region, b->region);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->access, b->access);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->shift.bytes, b->shift.bytes);
    assert_int_equal(a->shift.axis, b->shift.axis);
    assert_int_equal(a->rank, b->rank);
    for (int d = 0; d < b->rank; d++) {
        assert_int_equal(a->dim[d].bound, b->dim[d].bound);
        assert_int_equal(a->dim[d].extent, b->dim[d].extent);
    }
    assert_true(ech_placement_is_equal(&a->place, &b->place));
}

static void compare_blocks(const ech_block *a, const ech_block *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->role, b->role);
    assert_int_equal(a->n_ops, b->n_ops);
    assert_memory_equal(a->region_bytes, b->region_bytes, sizeof b->region_bytes);
    for (int k = 0; k < b->n_ops; k++) {
        const ech_op *x = &a->op[k];
        const ech_op *y = &b->op[k];
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->axis, y->axis);
        assert_int_equal(x->request, y->request);
        assert_int_equal(x->work_offset, y->work_offset);
        assert_int_equal(x->work_bytes, y->work_bytes);
        assert_memory_equal(x->real, y->real, sizeof y->real);
        for (int i = 0; i < ECH_MAX_ATTRS; i++) {
            assert_int_equal(x->attr[i].n, y->attr[i].n);
            for (int n = 0; n < y->attr[i].n; n++) {
                assert_int_equal(x->attr[i].node[n].op, y->attr[i].node[n].op);
                assert_int_equal(x->attr[i].node[n].value, y->attr[i].node[n].value);
            }
        }
        assert_int_equal(x->n_args, y->n_args);
        for (int i = 0; i < y->n_args; i++)
            compare_operands(&x->arg[i], &y->arg[i]);
    }
}

static void round_trip(const ech_program *p)
{
    ech_text a = {0};
    ech_text b = {0};
    ech_program again;
    ech_program_write(p, &a);
    assert_false(a.failed);
    assert_ok(ech_program_read(a.data, a.bytes, "document", &again));
    ech_program_write(&again, &b);
    assert_string_equal(a.data, b.data);
    /* what is not in the text is missing in both: so a field of each kind by itself */
    assert_int_equal(again.layout.is_nested, p->layout.is_nested);
    assert_int_equal(again.layout.node_ranks, p->layout.node_ranks);
    assert_memory_equal(again.layout.tied, p->layout.tied, sizeof p->layout.tied);
    assert_memory_equal(again.layout.degree, p->layout.degree, sizeof p->layout.degree);
    assert_memory_equal(again.layout.order, p->layout.order, sizeof p->layout.order);
    assert_memory_equal(again.state_bytes, p->state_bytes, sizeof p->state_bytes);
    assert_memory_equal(again.transient_bytes, p->transient_bytes, sizeof p->transient_bytes);
    assert_memory_equal(again.peak_live_bytes, p->peak_live_bytes, sizeof p->peak_live_bytes);
    assert_int_equal(again.n_requests, p->n_requests);
    assert_int_equal(again.n_state, p->n_state);
    assert_int_equal(again.micro_batches, p->micro_batches);
    assert_int_equal(again.rows_per_micro, p->rows_per_micro);
    assert_int_equal(again.scalars, p->scalars);
    assert_int_equal(again.before, p->before);
    assert_int_equal(again.after, p->after);
    for (int i = 0; i < p->n_slots; i++)
        compare_slots(&again.slot[i], &p->slot[i]);
    for (int i = 0; i < p->n_items; i++)
        compare_items(&again.item[i], &p->item[i]);
    for (int i = 0; i < p->n_blocks; i++)
        compare_blocks(&again.block[i], &p->block[i]);
    ech_program_fini(&again);
    ech_text_fini(&a);
    ech_text_fini(&b);
}

static void test_documents_round_trip(void **state)
{
    ech_program p;
    ech_program again;
    ech_prove_report r;
    char path[64];
    (void)state;
    five_ops(&p, 3, 2);
    round_trip(&p);
    (void)snprintf(path, sizeof path, "/tmp/echelon-program-%d.json", (int)getpid());
    assert_ok(ech_program_save(&p, path));
    assert_ok(ech_program_load(path, &again));
    assert_ok(prove(&again, &r)); /* a program that no compiler made */
    ech_program_fini(&again);
    (void)unlink(path);
    assert_fails(ech_program_load(path, &again), ECH_E_IO, path);
    ech_program_fini(&p);
    odd_program(&p);
    round_trip(&p);
    ech_program_fini(&p);
}

/* The document of five_ops with one piece replaced. */
static void refuse(const char *from, const char *to, ech_status status, const char *words)
{
    ech_program p;
    ech_program again = {0};
    ech_text a = {0};
    ech_text b = {0};
    five_ops(&p, 3, 1);
    ech_program_write(&p, &a);
    const char *at = strstr(a.data, from);
    if (!at)
        fail_msg("'%s' is nowhere in the document", from);
    ech_text_add_bytes(&b, a.data, (size_t)(at - a.data));
    ech_text_add(&b, "%s%s", to, at + strlen(from));
    assert_fails(ech_program_read(b.data, b.bytes, "document", &again), status, words);
    assert_int_equal(strncmp(ech_error_message(), "document:", 9), 0);
    assert_null(again.item);
    ech_program_fini(&p);
    ech_text_fini(&a);
    ech_text_fini(&b);
}

static void test_hostile_documents(void **state)
{
    static const struct {
        const char *from, *to;
        ech_status status;
        const char *words;
    } rows[] = {
        {"echelon program 1", "echelon program 2", ECH_E_PARSE,
         "format 'echelon program 2' is unknown"},
        {"\"items\": [", "\"itens\": [", ECH_E_PARSE,
         "key 'itens' is unknown; did you mean 'items'?"},
        {"\"block\": 4", "\"block\": 5", ECH_E_PARSE, "item 4: block is 5, wanted 0..4"},
        {"\"tied\": [0, 0]", "\"tied\": [0, 1]", ECH_E_PARSE, "tied is 1, wanted 0..0"},
        {"\"tied\": [0, 0]", "\"tied\": [-1, 0]", ECH_E_PARSE, "tied is -1, wanted 0..0"},
        {"\"tied\": [0, 0]", "\"tied\": [0]", ECH_E_PARSE, "tied"},
        {"\"block\": 4", "\"block\": -1", ECH_E_PARSE, "item 4: block is -1, wanted 0..4"},
        {"\"block\": 4", "\"block\": 4.0", ECH_E_PARSE,
         "item 4: block is a real number, wanted an integer"},
        {"\"block\": 4", "\"block\": 4, \"layer\": 99999999", ECH_E_PARSE, "layer is 99999999"},
        {"\"block\": 4", "\"block\": 4, \"micro\": 0", ECH_E_PARSE,
         "item 4: micro is 0, wanted -1..-1"},
        {"\"block\": 4", "\"block\": 4, \"request\": 2000000", ECH_E_PARSE, "request is 2000000"},
        {"\"bind\": {\"in\": [0,", "\"bind\": {\"in\": [5,", ECH_E_PARSE,
         "item 0: in is bound to a slot that is not there"},
        {"\"bind\": {\"in\": [0,", "\"bind\": {\"inn\": [0,", ECH_E_PARSE, "did you mean 'in'?"},
        {"\"bind\": {\"in\": [0, 8]", "\"bind\": {\"in\": [0, 9]", ECH_E_PROOF,
         "region in needs 56 bytes, slot 'a' has 64 at offset 9"},
        {"\"bind\": {\"in\": [0, 8]", "\"bind\": {\"in\": [0, -8]", ECH_E_PARSE, "bind is -8"},
        {"\"bind\": {\"in\": [0, 8]", "\"bind\": {\"in\": [0, 72057594037927937]", ECH_E_PARSE,
         "item 0: bind is"},
        {"\"bind\": {\"in\": [0, 8]", "\"bind\": {\"in\": [0]", ECH_E_PARSE,
         "bind has 1 values, wanted 2"},
        {"\"segment\": \"accumulate\"", "\"segment\": \"acumulate\"", ECH_E_PARSE,
         "did you mean 'accumulate'?"},
        {"\"op\": \"scale\"", "\"op\": \"skale\"", ECH_E_PARSE, "block 1: op 'skale' is unknown"},
        {"\"op\": \"scale\"", "\"op\": \"gelu\"", ECH_E_PROOF,
         "block 1: gelu: 1 arguments, wanted 2"},
        {"\"dims\": [7]", "\"dims\": [8]", ECH_E_PROOF, "block 0: add"},
        {"\"dims\": [7]", "\"dims\": [-7]", ECH_E_PARSE, "block 0: dimension is -7"},
        {"\"dims\": [7]", "\"dims\": [16777216, 16777216, 2]", ECH_E_PARSE, "too many elements"},
        {"\"dims\": [7]", "\"dims\": [0, 281474976710656, 2]", ECH_E_PARSE, "too many elements"},
        {"\"dims\": [7]", "\"dims\": [1, 1, 1, 1, 7]", ECH_E_PARSE, "dims are too many"},
        {"\"type\": \"fp64\"", "\"type\": \"fp65\"", ECH_E_PARSE, "type 'fp65' is unknown"},
        {"\"at\": 0", "\"at\": 99999999999999999", ECH_E_PARSE, "at is 99999999999999999"},
        {"\"at\": 0", "\"at\": 0, \"shift\": [\"dp\", 72057594037927936]", ECH_E_PARSE,
         "shift leaves what a slot may hold"},
        {"\"at\": 0", "\"at\": 0, \"extent\": \"CLIP\"", ECH_E_PROOF, "an extent that is no int64"},
        {"\"regions\": {", "\"regions\": {\"work\": -1, ", ECH_E_PARSE, "block 0: region is -1"},
        {"\"real\": [3]", "\"real\": [\"x\"]", ECH_E_PARSE, "block 1: real is no finite number"},
        {"\"real\": [3]", "\"real\": [1, 2, 3, 4, 5]", ECH_E_PARSE, "are too many"},
        {"\"real\": [3]", "\"attr\": [[[\"add\"]]]", ECH_E_PARSE, "is too long or lacks operands"},
        {"\"real\": [3]", "\"attr\": [[[\"micro\"], [\"micro\"]]]", ECH_E_PARSE,
         "leaves values over"},
        {"\"real\": [3]", "\"attr\": [[[\"coord\", \"tq\"]]]", ECH_E_PARSE, "did you mean 'tp'?"},
        {"\"role\": \"transfer\"", "\"role\": 3", ECH_E_PARSE, "role is missing, or no name"},
        {"\"state\": true", "\"state\": 1", ECH_E_PARSE, "slot 0: state is neither true nor false"},
        {", \"state\": true", "", ECH_E_PARSE, "slot 1: state comes after a transient slot"},
        {"\"bytes\": 64", "\"bytes\": -64", ECH_E_PARSE, "slot 0: bytes is -64"},
        {"\"life\": [0, 4]", "\"life\": [0, 5]", ECH_E_PARSE, "slot 3: life is 5, wanted -1..4"},
        {"\"life\": [0, 4]", "\"life\": [4, 0]", ECH_E_PARSE, "life ends before it begins"},
        {"\"over\": {\"dp\": \"P\"}", "\"over\": {\"dp\": \"S\"}", ECH_E_PARSE,
         "S lacks its dimension"},
        {"\"over\": {\"dp\": \"P\"}", "\"over\": {\"dp\": [\"S\", 4, \"flat\"]}", ECH_E_PARSE,
         "dimension is 4, wanted 0..3"},
        {"\"scale\": [0, 0, 0, 1]", "\"scale\": [0, 0, 0]", ECH_E_PARSE, "scale has 3 values"},
        {"\"dp\": 3", "\"dp\": 4", ECH_E_PARSE, "degrees do not multiply to the world"},
        {"\"dp\": 3", "\"dp\": 0", ECH_E_PARSE, "degree is 0"},
        {"\"order\": [\"tp\"", "\"order\": [\"cp\"", ECH_E_PARSE, "order names an axis twice"},
        {"\"order\": [\"tp\"", "\"order\": [\"kv\"", ECH_E_PARSE,
         "order names an axis that is not of the mesh"},
        {"\"node_ranks\": 0", "\"node_ranks\": 2", ECH_E_PARSE, "node_ranks do not divide"},
        {"\"dp\": [3]", "\"dp\": [2]", ECH_E_PARSE, "tree does not multiply to its degree"},
        {"\"scalars\": -1", "\"scalars\": 3", ECH_E_PARSE, "scalars is 3, wanted -1..2"},
        {"\"micro_batches\": 0", "\"micro_batches\": 1048577", ECH_E_PARSE, "micro_batches is"},
        {"\"state_bytes\": [192, 0, 0]", "\"state_bytes\": [192, 0]", ECH_E_PARSE,
         "state_bytes has 2 values, wanted 3"},
        {"\"name\": \"five\"", "\"name\": \"a name that is much longer than thirty-two bytes are\"",
         ECH_E_PARSE, "name is missing, no text or too long"},
        {"]}\n", "]", ECH_E_PARSE, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refuse(rows[i].from, rows[i].to, rows[i].status, rows[i].words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_parts_hold),
        cmocka_unit_test(test_each_part_finds_its_fault),
        cmocka_unit_test(test_the_first_fault_is_returned_and_all_are_told),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_several_classes),
        cmocka_unit_test(test_cover_wants_a_plan),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_documents_round_trip),
        cmocka_unit_test(test_hostile_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
