/* RUN: np=1 timeout=30 tags=fast */
/* Blocks of a split backward: roles that there are, bytes of the three saved sets against a closed
 * form, what each block binds, how long each set lives, documents, gradients of other tensors. */
#include "check.h"
#include "mutants.h"
#include "program/cover.h"
#include "program/program_file.h"
#include "program/types.h"
#include "split.h"

#include <stdlib.h>

enum { ROWS = 2, SEQ = 6, MICROS = 3 };
enum { EMBEDDING, ATTENTION, MLP, HEAD };

static tiny_spec spec_of(tiny_kind kind, int tp, bool is_dealt, bool keeps, double dropout)
{
    tiny_spec s = tiny_spec_default();
    s.kind = kind;
    s.heads = 4;
    s.kv_heads = kind == TINY_GPT2 ? 4 : 2;
    s.tp = tp;
    s.rows = ROWS;
    s.seq = SEQ;
    s.accumulation = MICROS;
    s.dropout = dropout;
    s.policy.is_sequence_parallel = is_dealt;
    s.policy.keeps_inputs = keeps;
    return s;
}

/* --- roles --- */

static void test_roles_go_with_the_kind_of_backward(void **state)
{
    static const struct {
        ech_role role;
        bool is_split, is_known;
    } roles[] = {
        {ECH_ROLE_FORWARD, false, true},          {ECH_ROLE_FORWARD, true, true},
        {ECH_ROLE_BACKWARD, false, true},         {ECH_ROLE_BACKWARD, true, false},
        {ECH_ROLE_BACKWARD_INPUT, false, false},  {ECH_ROLE_BACKWARD_INPUT, true, true},
        {ECH_ROLE_BACKWARD_WEIGHT, false, false}, {ECH_ROLE_BACKWARD_WEIGHT, true, true},
        {ECH_ROLE_RECOMPUTE, false, false},       {ECH_ROLE_RECOMPUTE, true, false},
    };
    const tiny_spec spec = spec_of(TINY_LLAMA, 1, false, false, 0.0);
    split_case c;
    (void)state;
    split_case_init(&spec, &c);
    for (int k = 0; k < SPLIT_PIECES; k++)
        for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
            ech_block b;
            ech_block_spec s = c.block;
            const bool has_none = k == EMBEDDING && roles[i].role == ECH_ROLE_BACKWARD_WEIGHT;
            s.splits_backward = roles[i].is_split;
            if (roles[i].is_known && !has_none) {
                assert_ok(split_makers[k](&s, roles[i].role, &b));
                assert_int_equal(b.role, roles[i].role);
                free(b.op);
                continue;
            }
            assert_fails(split_makers[k](&s, roles[i].role, &b), ECH_E_UNSUPPORTED,
                         has_none            ? "all of its backward is for input"
                         : roles[i].is_split ? "a backward split into input and weight"
                                             : "a whole backward only");
        }
    assert_false(ech_unit_has_weight_role(ECH_UNIT_EMBEDDING));
    assert_true(ech_unit_has_weight_role(ECH_UNIT_LAYER));
    assert_true(ech_unit_has_weight_role(ECH_UNIT_HEAD));
    split_case_fini(&c);
}

/* --- bytes --- */

/* Values of so many fp64 elements one behind the other, each at a multiple of 64 bytes; those of 0
 * are not there. */
static size_t laid(const int64_t *elems, int n)
{
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at = elems[i] ? (at + 63) / 64 * 64 + 8 * (size_t)elems[i] : at;
    return at;
}

#define LAID(...)                                                                                  \
    laid((const int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

typedef struct saved_sizes {
    size_t fb, fw, bw, dout; /* dout: of the gradient that the weight block reads itself */
} saved_sizes;

/* By hand: hidden 12, 4 query heads, head_dim 6 (gpt2: 4), ffn 20 (gpt2: 48), 37 words in a table of
 * 128 rows; `own` tokens of the stream on this rank. */
static saved_sizes sizes_of(const tiny_spec *s, int piece)
{
    const bool is_gpt2 = s->kind == TINY_GPT2;
    const int64_t tokens = (int64_t)ROWS * SEQ;
    const int64_t own = s->policy.is_sequence_parallel ? tokens / s->tp : tokens;
    const int64_t y = (s->policy.keeps_inputs ? tokens : own) * 12;
    const int64_t mean = is_gpt2 ? own : 0;
    const int64_t queries = 4 / s->tp;
    const int64_t pairs = s->kv_heads < s->tp ? 1 : s->kv_heads / s->tp; /* keys and values */
    const int64_t d = is_gpt2 ? 4 : 6;
    const int64_t qkv = tokens * (queries + 2 * pairs) * d;
    const int64_t raw = s->kind == TINY_QWEN ? qkv : 0;
    const int64_t rstd_qk = s->kind == TINY_QWEN ? tokens * (queries + pairs) : 0;
    const int64_t act = tokens * (is_gpt2 ? 48 : 20) / s->tp;
    const int64_t up = is_gpt2 ? act : 2 * act;
    const bool is_handed_on = s->policy.is_sequence_parallel || s->dropout > 0.0;
    const int64_t dy = is_handed_on ? tokens * 12 : 0;
    const size_t dout = is_handed_on ? 0 : 8 * (size_t)tokens * 12;
    switch (piece) {
    case ATTENTION:
        return (saved_sizes){LAID(own, mean, raw, rstd_qk, qkv, tokens * queries),
                             LAID(y, tokens * queries * d), LAID(qkv, dy), dout};
    case MLP:
        return (saved_sizes){LAID(own, mean, up), LAID(y, act), LAID(up, dy), dout};
    case HEAD:
        return (saved_sizes){LAID(own, mean, tokens), LAID(y, tokens * 128 / s->tp), 0, 0};
    default:
        return (saved_sizes){0, 0, 0, 0};
    }
}

static size_t bytes_of(const ech_block *b, ech_region r)
{
    return b->region_bytes[r];
}

static bool has_op(const ech_block *b, ech_op_kind kind)
{
    for (int k = 0; k < b->n_ops; k++)
        if (b->op[k].kind == kind)
            return true;
    return false;
}

static void check_weight_block(const split_case *c, int piece, const saved_sizes *want)
{
    static const ech_region unbound[] = {
        ECH_REGION_IN,           ECH_REGION_OUT,         ECH_REGION_DIN,     ECH_REGION_DATA,
        ECH_REGION_SAVED_FB,     ECH_REGION_CONST,       ECH_REGION_SCALARS, ECH_REGION_PARAM,
        ECH_REGION_PARAM_SUMMED, ECH_REGION_PARAM_WHOLE, ECH_REGION_TIED,    ECH_REGION_SHARD};
    ech_block b = split_block(c, piece, ECH_ROLE_BACKWARD_WEIGHT, true);
    for (size_t i = 0; i < sizeof unbound / sizeof unbound[0]; i++)
        assert_int_equal(bytes_of(&b, unbound[i]), 0);
    assert_int_equal(bytes_of(&b, ECH_REGION_SAVED_FW), want->fw);
    assert_int_equal(bytes_of(&b, ECH_REGION_SAVED_BW), want->bw);
    assert_int_equal(bytes_of(&b, ECH_REGION_DOUT), want->dout);
    for (int k = 0; k < b.n_ops; k++)
        assert_true(b.op[k].kind == ECH_OP_LINEAR_WGRAD || b.op[k].kind == ECH_OP_BIAS_BACKWARD ||
                    ech_op_is_comm(b.op[k].kind));
    free(b.op);
}

static void check_sizes(const tiny_spec *spec)
{
    split_case c;
    split_case_init(spec, &c);
    for (int k = 0; k < SPLIT_PIECES; k++) {
        const saved_sizes want = sizes_of(spec, k);
        ech_block f = split_block(&c, k, ECH_ROLE_FORWARD, true);
        ech_block i = split_block(&c, k, ECH_ROLE_BACKWARD_INPUT, true);
        assert_int_equal(bytes_of(&f, ECH_REGION_SAVED_FB), want.fb);
        assert_int_equal(bytes_of(&f, ECH_REGION_SAVED_FW), want.fw);
        assert_int_equal(bytes_of(&f, ECH_REGION_SAVED_BW), 0);
        assert_int_equal(bytes_of(&i, ECH_REGION_SAVED_FB), want.fb);
        assert_int_equal(bytes_of(&i, ECH_REGION_SAVED_FW), k == MLP ? 0 : want.fw);
        assert_int_equal(bytes_of(&i, ECH_REGION_SAVED_BW), want.bw);
        assert_false(has_op(&i, ECH_OP_LINEAR_WGRAD));
        assert_false(has_op(&i, ECH_OP_BIAS_BACKWARD));
        if (k != EMBEDDING)
            check_weight_block(&c, k, &want);
        free(f.op);
        free(i.op);
    }
    split_case_fini(&c);
}

static void each_spec(void (*check)(const tiny_spec *spec))
{
    for (int kind = 0; kind < N_TINY; kind++)
        for (int how = 0; how < 5; how++) /* alone, tp 2, by tokens, inputs kept, shared heads */
            for (int d = 0; d < 2; d++) {
                tiny_spec s =
                    spec_of((tiny_kind)kind, how ? 2 : 1, how >= 2, how == 3, d ? 0.25 : 0.0);
                if (how == 4 && kind != TINY_GPT2)
                    s.kv_heads = 1;
                check(&s);
            }
}

static void test_saved_sets_are_of_the_size_of_their_values(void **state)
{
    (void)state;
    each_spec(check_sizes);
}

/* --- lives --- */

static int piece_of(const ech_block *b)
{
    static const char *const names[] = {"embedding ", "attention ", "mlp ", "head "};
    for (int k = 0; k < SPLIT_PIECES; k++)
        if (strncmp(b->name, names[k], strlen(names[k])) == 0)
            return k;
    return -1;
}

/* Class ACTIVATIONS behind the last input block and before the first weight block: linear inputs
 * and what is handed on, of everything; nothing else. */
static size_t alive_between(const ech_program *p)
{
    size_t alive = 0;
    int last_input = -1;
    for (int i = 0; i < p->n_items; i++)
        if (p->block[p->item[i].block].role == ECH_ROLE_BACKWARD_INPUT)
            last_input = i;
    for (int s = p->n_state; s < p->n_slots; s++)
        if (p->slot[s].klass == ECH_CLASS_ACTIVATIONS && p->slot[s].first <= last_input &&
            p->slot[s].last > last_input)
            alive += p->slot[s].bytes;
    return alive;
}

/* And behind the last forward and before the first input block, all forwards first: both saved sets
 * and the blocks' inputs. */
static size_t alive_behind_forwards(const ech_program *p)
{
    size_t alive = 0;
    int last_forward = -1;
    for (int i = 0; i < p->n_items; i++)
        if (p->block[p->item[i].block].role == ECH_ROLE_FORWARD)
            last_forward = i;
    for (int s = p->n_state; s < p->n_slots; s++)
        if (p->slot[s].klass == ECH_CLASS_ACTIVATIONS && p->slot[s].first <= last_forward &&
            p->slot[s].last > last_forward)
            alive += p->slot[s].bytes;
    return alive;
}

static void check_lives(const tiny_spec *spec)
{
    tiny_run run;
    split_case c;
    ech_program p;
    tiny_spec forwards_first = *spec;
    const size_t layers = 2;
    const saved_sizes a = sizes_of(spec, ATTENTION);
    const saved_sizes m = sizes_of(spec, MLP);
    const saved_sizes h = sizes_of(spec, HEAD);
    const size_t stream =
        (size_t)ROWS * SEQ * 12 * 8 / (spec->policy.is_sequence_parallel ? (size_t)spec->tp : 1);
    forwards_first.schedule = ECH_SCHEDULE_GPIPE;
    split_case_init(spec, &c);
    tiny_start(&forwards_first, &run);
    split_program(&c, &run.session->train.klass[0].program, SPLIT_LAST, &p);
    assert_int_equal(alive_behind_forwards(&p), MICROS * (layers * (a.fb + a.fw + m.fb + m.fw) +
                                                          h.fb + h.fw + (2 * layers + 1) * stream));
    if (spec->kv_heads >= spec->tp) /* else sums of shared heads call for weights in between */
        assert_int_equal(alive_between(&p), MICROS * (layers * (a.fw + a.bw + m.fw + m.bw) + h.fw));
    ech_program_fini(&p);
    tiny_stop(&run);
    split_case_fini(&c);
}

static void test_saved_sets_live_from_their_writer_to_their_last_reader(void **state)
{
    (void)state;
    each_spec(check_lives);
}

/* --- the proof --- */

/* A program whose weight blocks come two later. */
static void make(tiny_kind kind, split_case *c, ech_program *p)
{
    tiny_run run;
    const tiny_spec spec = spec_of(kind, 2, kind == TINY_GPT2, false, 0.0);
    split_case_init(&spec, c);
    tiny_start(&spec, &run);
    split_program(c, &run.session->train.klass[0].program, SPLIT_LATER, p);
    tiny_stop(&run);
}

static void test_documents_say_all_of_it(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++) {
        ech_text a = {0};
        ech_text b = {0};
        split_case c;
        ech_program p;
        ech_program again;
        int by;
        make((tiny_kind)kind, &c, &p);
        ech_program_write(&p, &a);
        assert_ok(ech_program_read(a.data, a.bytes, "document", &again));
        ech_program_write(&again, &b);
        assert_string_equal(a.data, b.data);
        assert_non_null(strstr(a.data, "backward weight"));
        assert_int_equal(again.n_items, p.n_items);
        for (int i = 0; i < p.n_blocks; i++)
            assert_int_equal(again.block[i].role, p.block[i].role);
        assert_ok(mutant_prove(&again, &c.plan, &by));
        ech_text_fini(&a);
        ech_text_fini(&b);
        ech_program_fini(&p);
        ech_program_fini(&again);
        split_case_fini(&c);
    }
}

static int weight_item(const ech_program *p, int piece, int layer)
{
    for (int i = 0; i < p->n_items; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        if (b->role == ECH_ROLE_BACKWARD_WEIGHT && piece_of(b) == piece &&
            p->item[i].layer == layer)
            return i;
    }
    fail_msg("no weight block of piece %d", piece);
    return -1;
}

static ech_status covers(const ech_program *p, const ech_shard_plan *plan)
{
    int64_t looked;
    const ech_cover_spec spec = {.program = &p, .plan = &plan, .n_classes = 1};
    return ech_cover_check_run(&spec, &looked);
}

/* One fault in a right program, and what the cover says. */
#define REFUSE(kind, change, words)                                                                \
    do {                                                                                           \
        split_case c;                                                                              \
        ech_program p;                                                                             \
        make((kind), &c, &p);                                                                      \
        assert_ok(covers(&p, &c.plan));                                                            \
        change;                                                                                    \
        assert_fails(covers(&p, &c.plan), ECH_E_PROOF, (words));                                   \
        ech_program_fini(&p);                                                                      \
        split_case_fini(&c);                                                                       \
    } while (0)

/* The last weight gradient of a block is the column-parallel one. */
static ech_op *last_wgrad(ech_program *p, int item)
{
    ech_block *b = program_own_block(p, item);
    for (int k = b->n_ops - 1; k >= 0; k--)
        if (b->op[k].kind == ECH_OP_LINEAR_WGRAD)
            return &b->op[k];
    fail_msg("no weight gradient");
    return NULL;
}

/* The weight block's dy and the input block's are other bytes. */
static void hand_on_elsewhere(ech_program *p)
{
    last_wgrad(p, weight_item(p, MLP, 1))->arg[1].offset += 64;
}

/* The weight block reads the gradient above another layer. */
static void take_other_gradient(ech_program *p)
{
    const int i = weight_item(p, MLP, 1);
    p->item[i].bind[ECH_REGION_DOUT] = p->item[weight_item(p, MLP, 0)].bind[ECH_REGION_DOUT];
}

static void drop_weight(ech_program *p)
{
    program_remove(p, weight_item(p, ATTENTION, 0));
}

/* It comes before its input block. */
static void come_early(ech_program *p)
{
    const int i = weight_item(p, HEAD, -1);
    for (int k = i; k > 0 && p->block[p->item[k].block].role != ECH_ROLE_FORWARD; k--)
        program_swap(p, k, k - 1);
}

static void test_weight_gradients_are_of_what_their_input_went_through(void **state)
{
    (void)state;
    REFUSE(TINY_LLAMA, hand_on_elsewhere(&p), "no input block of this layer and micro-batch");
    REFUSE(TINY_LLAMA, take_other_gradient(&p), "no input block of this layer and micro-batch");
    REFUSE(TINY_QWEN, come_early(&p), "no input block of this layer and micro-batch");
    REFUSE(TINY_LLAMA, drop_weight(&p), "times, its gradient is added to");
    REFUSE(TINY_GPT2, last_wgrad(&p, weight_item(&p, HEAD, -1))->arg[2].region = ECH_REGION_GRAD,
           "goes through another tensor");
}

/* The bias' gradient takes its share of a gathered gradient: first tokens of rank 1 where those of
 * rank 0 end. */
static void test_a_share_of_a_gathered_gradient_is_a_run(void **state)
{
    (void)state;
    for (int fault = 0; fault < 3; fault++) {
        split_case c;
        ech_program p;
        make(TINY_GPT2, &c, &p);
        const int i = weight_item(&p, ATTENTION, 1);
        ech_operand *a = &program_own_block(&p, i)->op[0].arg[0];
        assert_int_equal(p.block[p.item[i].block].op[0].kind, ECH_OP_BIAS_BACKWARD);
        assert_int_equal(a->region, ECH_REGION_SAVED_BW);
        assert_int_equal(a->shift.axis, ECH_AXIS_TP);
        assert_int_equal(a->shift.bytes, ROWS * SEQ / 2 * 12 * 8);
        if (fault == 1)
            a->place.over[ECH_AXIS_TP].map = ECH_MAP_ZIGZAG;
        if (fault == 2)
            a->shift.bytes /= 2;
        if (fault)
            assert_fails(ech_types_check(&p), ECH_E_PROOF, "hold a value that is I over tp");
        else
            assert_ok(ech_types_check(&p));
        ech_program_fini(&p);
        split_case_fini(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roles_go_with_the_kind_of_backward),
        cmocka_unit_test(test_saved_sets_are_of_the_size_of_their_values),
        cmocka_unit_test(test_saved_sets_live_from_their_writer_to_their_last_reader),
        cmocka_unit_test(test_documents_say_all_of_it),
        cmocka_unit_test(test_weight_gradients_are_of_what_their_input_went_through),
        cmocka_unit_test(test_a_share_of_a_gathered_gradient_is_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
