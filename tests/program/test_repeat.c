/* RUN: np=1 timeout=300 tags=fast */
/* Rolled programs: what they are unrolled to is the program that the whole table makes, item by item
 * and byte by byte; their size does not grow with micro-batches, nor does the time to make and to
 * prove them. */
#include "check.h"
#include "program/compile.h"
#include "program/deps.h"
#include "program/fingerprint.h"
#include "program/match.h"
#include "program/program_file.h"
#include "program/repeat.h"
#include "program/types.h"
#include "tiny.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct wanted {
    ech_schedule_kind schedule;
    int pp, micros, tp, dp;
    int64_t layers;
    bool is_tied;
    int zero, chunks;
    bool reduces_each;
} wanted;

typedef struct made {
    ech_model model;
    ech_canon canon;
    ech_compile_spec spec;
    ech_prove_report report;
    ech_run run;
} made;

static made *make(const wanted *w, bool rolls)
{
    made *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->model = tiny_model(TINY_LLAMA, 0.0);
    m->model.layers = w->layers;
    m->model.tie_embeddings = w->is_tied;
    assert_ok(ech_canon_create(&m->model, &m->canon));
    const int last = w->schedule == ECH_SCHEDULE_ZB_V ? 0 : w->pp - 1;
    const ech_layout_spec layout = {.tp = w->tp,
                                    .cp = 1,
                                    .pp = w->pp,
                                    .dp = w->dp,
                                    .tied = {0, w->is_tied ? last : 0},
                                    .kv_share = 1};
    m->spec = (ech_compile_spec){.block = {.model = &m->model,
                                           .canon = &m->canon,
                                           .real = ECH_F32,
                                           .policy = {.zero_stage = w->zero,
                                                      .prefetch = 1,
                                                      .reduces_each = w->reduces_each,
                                                      .is_sequence_parallel = w->tp > 1},
                                           .rows = 1,
                                           .seq = 6,
                                           .optim = ECH_UPDATE_ADAMW,
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .clip = 1.0},
                                 .micro_batches = w->micros,
                                 .schedule = w->schedule,
                                 .chunks = w->chunks,
                                 .rolls = rolls,
                                 .bucket_bytes = 1 << 20,
                                 .report = &m->report};
    assert_ok(ech_layout_make(&layout, &m->spec.block.layout));
    const ech_status st = ech_run_compile(&m->spec, ECH_MODE_TRAIN, &m->run);
    if (st < 0)
        fail_msg("schedule %s, pp %d, tp %d, dp %d, zero %d, %d micro-batches: %s",
                 ech_schedule_name(w->schedule), w->pp, w->tp, w->dp, w->zero, w->micros,
                 ech_error_message());
    return m;
}

static void made_free(made *m)
{
    ech_run_fini(&m->run);
    ech_canon_fini(&m->canon);
    free(m);
}

/* --- one program, made in two ways --- */

/* Who wrote each four bytes of a space last. */
typedef struct writers {
    int *of;
    size_t n;
} writers;

static writers writers_make(const ech_program *p)
{
    const size_t bytes = p->state_bytes[ECH_SPACE_DEVICE] + p->transient_bytes[ECH_SPACE_DEVICE];
    writers w = {malloc(bytes / 4 * sizeof(int)), bytes / 4};
    assert_non_null(w.of);
    for (size_t i = 0; i < w.n; i++)
        w.of[i] = -1;
    return w;
}

typedef struct range {
    size_t begin, end; /* in units of four bytes */
} range;

static range range_of(const ech_program *p, int item, const ech_operand *a)
{
    const ech_extent e = ech_item_extent(p, &p->item[item], a);
    if (e.slot < 0)
        return (range){0, 0};
    assert_true(e.end <= p->slot[e.slot].bytes);
    return (range){(p->slot[e.slot].offset + e.begin) / 4,
                   (p->slot[e.slot].offset + e.end + 3) / 4};
}

/* What an op reads was written by the same items in both programs. */
static void check_reads(const ech_program *p[2], const writers w[2], int item, const ech_op *op)
{
    for (int i = 0; i < op->n_args; i++) {
        const range a = range_of(p[0], item, &op->arg[i]);
        const range b = range_of(p[1], item, &op->arg[i]);
        assert_int_equal(a.end - a.begin, b.end - b.begin);
        for (size_t k = 0; k < a.end - a.begin && (op->arg[i].access & ECH_READ); k++)
            if (w[0].of[a.begin + k] != w[1].of[b.begin + k])
                fail_msg("item %d, op %s, argument %d: written by item %d in one program, by %d in "
                         "the other",
                         item, ech_op_name(op->kind), i, w[0].of[a.begin + k],
                         w[1].of[b.begin + k]);
    }
}

static void note_writes(const ech_program *p, const writers *w, int item, const ech_op *op)
{
    for (int i = 0; i < op->n_args; i++) {
        const range a = range_of(p, item, &op->arg[i]);
        for (size_t k = a.begin; k < a.end && (op->arg[i].access & ECH_WRITE); k++)
            w->of[k] = item;
    }
}

static void check_same_items(const ech_program *a, const ech_program *b)
{
    assert_int_equal(a->n_items, b->n_items);
    assert_int_equal(a->n_blocks, b->n_blocks);
    assert_int_equal(a->micro_batches, b->micro_batches);
    for (int i = 0; i < a->n_items; i++) {
        const ech_item *x = &a->item[i];
        const ech_item *y = &b->item[i];
        if (x->block != y->block || x->layer != y->layer || x->chunk != y->chunk ||
            x->micro != y->micro || x->segment != y->segment || x->request != y->request)
            fail_msg("item %d: block %d layer %d chunk %d micro %d request %d, and %d %d %d %d %d",
                     i, x->block, x->layer, x->chunk, x->micro, x->request, y->block, y->layer,
                     y->chunk, y->micro, y->request);
        assert_string_equal(a->block[x->block].name, b->block[y->block].name);
    }
}

/* Both run the same items, and every byte that one reads comes from where it does in the other. */
static void check_same_program(const ech_program *a, const ech_program *b)
{
    const ech_program *p[2] = {a, b};
    const writers w[2] = {writers_make(a), writers_make(b)};
    check_same_items(a, b);
    for (int i = 0; i < a->n_items; i++) {
        const ech_block *block = &a->block[a->item[i].block];
        for (int k = 0; k < block->n_ops; k++) {
            check_reads(p, w, i, &block->op[k]);
            for (int side = 0; side < 2; side++)
                note_writes(p[side], &w[side], i, &p[side]->block[a->item[i].block].op[k]);
        }
    }
    free(w[0].of);
    free(w[1].of);
}

/* Predictions of a rolled program are those of what it is unrolled to. */
static void check_same_predictions(const ech_program *rolled, const ech_program *plain, int rank)
{
    ech_memory m[2];
    ech_traffic t[2][ECH_N_AXES];
    const ech_program *p[2] = {rolled, plain};
    for (int k = 0; k < 2; k++) {
        assert_ok(ech_program_memory(p[k], ECH_SPACE_DEVICE, &m[k]));
        ech_program_traffic(p[k], rank, t[k]);
    }
    assert_int_equal(m[0].total, m[1].total);
    assert_int_equal(m[0].arena, m[1].arena);
    for (int c = 0; c < ECH_N_CLASSES; c++)
        assert_int_equal(m[0].own_max[c], m[1].own_max[c]);
    for (int a = 0; a < ECH_N_AXES; a++)
        assert_int_equal(t[0][a].wire_bytes, t[1][a].wire_bytes);
    const double flops = ech_program_flops(plain);
    assert_true(flops > 0);
    assert_true(ech_program_flops(rolled) / flops - 1.0 < 1e-12);
    assert_true(flops / ech_program_flops(rolled) - 1.0 < 1e-12);
}

static void check_two_ways(const wanted *w)
{
    made *rolled = make(w, true);
    made *plain = make(w, false);
    double loss[2] = {0, 0};
    for (int k = 0; k < plain->run.n_classes; k++) {
        ech_program p;
        const ech_program *r = rolled->run.program[k];
        if (r->repeat.times < ECH_LEAST_ROUNDS)
            fail_msg("pp %d, class %d is not rolled", w->pp, k);
        assert_true(r->n_items < plain->run.program[k]->n_items);
        assert_ok(ech_program_unroll(r, r->repeat.times, &p));
        check_same_program(&p, plain->run.program[k]);
        for (int rank = 0; rank < p.layout.world; rank++)
            if (plain->run.class_of[rank] == k)
                check_same_predictions(r, &p, rank);
        const double more = (double)r->transient_bytes[ECH_SPACE_DEVICE] /
                            (double)plain->run.program[k]->transient_bytes[ECH_SPACE_DEVICE];
        loss[0] = more > loss[0] ? more : loss[0];
        ech_program_fini(&p);
    }
    (void)printf(
        "pp %d, %d micro-batches: %d items for %d, arena at most %.3f of the plain one's\n", w->pp,
        w->micros, rolled->run.program[0]->n_items, plain->run.program[0]->n_items, loss[0]);
    made_free(rolled);
    made_free(plain);
}

static void test_unrolled_is_what_the_whole_table_makes(void **state)
{
    static const wanted rows[] = {
        {ECH_SCHEDULE_1F1B, 2, 40, 1, 1, 4, false, 0, 1, false},
        {ECH_SCHEDULE_1F1B, 3, 41, 1, 1, 6, false, 0, 1, false},
        {ECH_SCHEDULE_1F1B, 4, 60, 2, 1, 4, false, 0, 1, false},
        {ECH_SCHEDULE_1F1B, 4, 45, 1, 2, 5, false, 0, 1, false},
        {ECH_SCHEDULE_1F1B, 3, 47, 1, 1, 3, true, 0, 1, false},
        {ECH_SCHEDULE_ZB_H1, 2, 40, 1, 1, 4, false, 0, 1, false},
        {ECH_SCHEDULE_ZB_H1, 4, 50, 1, 1, 4, false, 0, 1, false},
        {ECH_SCHEDULE_1F1B, 1, 40, 1, 1, 2, false, 0, 1, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_two_ways(&rows[i]);
}

/* --- proofs --- */

static ech_status prove(const made *m, ech_prove_report *report)
{
    const ech_prove_spec spec = {.program = m->run.program,
                                 .n_classes = m->run.n_classes,
                                 .class_of = m->run.class_of,
                                 .plan = m->run.plan};
    return ech_prove(&spec, report);
}

/* What the proof takes from few rounds holds for all: the plain programs are proved, too. */
static void test_unrolled_is_proved(void **state)
{
    const wanted w = {ECH_SCHEDULE_1F1B, 3, 40, 1, 2, 3, false, 0, 1, false};
    (void)state;
    made *m = make(&w, true);
    int64_t looked[2];
    for (int k = 0; k < m->run.n_classes; k++)
        assert_true(m->run.program[k]->repeat.times > 20);
    assert_ok(prove(m, &m->report));
    looked[0] = m->report.row[ECH_PROOF_ORDER].looked;
    assert_ok(ech_run_unroll(&m->run));
    for (int k = 0; k < m->run.n_classes; k++)
        assert_int_equal(m->run.program[k]->repeat.times, 0);
    assert_ok(prove(m, &m->report));
    looked[1] = m->report.row[ECH_PROOF_ORDER].looked;
    assert_true(looked[1] > 2 * looked[0]);
    made_free(m);
}

/* The first item of a role in a round, and its region that lies in a ring; region < 0: none. */
static ech_item *in_round(ech_program *p, ech_role role, int *region)
{
    for (int i = p->repeat.first; i < p->repeat.end; i++)
        for (int r = 0; r < ECH_N_REGIONS; r++) {
            ech_item *it = &p->item[i];
            if (p->block[it->block].role == role && p->block[it->block].region_bytes[r] &&
                it->bind[r].slot >= 0 && p->slot[it->bind[r].slot].ring > 1) {
                *region = r;
                return it;
            }
        }
    fail_msg("no item of role %d has a ring", (int)role);
    return NULL;
}

static void shrink_ring(ech_program *p)
{
    int region = -1;
    ech_item *it = in_round(p, ECH_ROLE_FORWARD, &region);
    p->slot[it->bind[region].slot].ring--;
}

static void share_element(ech_program *p)
{
    int region = -1;
    ech_item *it = in_round(p, ECH_ROLE_FORWARD, &region);
    p->slot[it->bind[region].slot].micro_bytes = 0;
}

static void take_longer_steps(ech_program *p)
{
    p->repeat.step = 2;
}

static void run_once_more(ech_program *p)
{
    p->repeat.times++;
}

static void run_once_less(ech_program *p)
{
    p->repeat.times--;
}

static void take_another_micro(ech_program *p)
{
    int region = -1;
    in_round(p, ECH_ROLE_BACKWARD, &region)->micro++;
}

static void begin_one_item_later(ech_program *p)
{
    p->repeat.first++;
}

static void begin_one_item_earlier(ech_program *p)
{
    p->repeat.first--;
}

static void repeat_only_backward(ech_program *p)
{
    while (p->block[p->item[p->repeat.first].block].role != ECH_ROLE_BACKWARD)
        p->repeat.first++;
}

/* A ring that lies nowhere else: its elements are all one place, which goes from round to round. */
static void forget_ring(ech_program *p)
{
    int region = -1;
    ech_item *it = in_round(p, ECH_ROLE_FORWARD, &region);
    p->slot[it->bind[region].slot].ring = 0;
}

static void wait_a_round_later(ech_program *p)
{
    for (int i = p->repeat.first; i < p->repeat.end; i++)
        if (p->block[p->item[i].block].op[0].kind == ECH_OP_RECV_WAIT) {
            const ech_item wait = p->item[i];
            memmove(&p->item[i], &p->item[i + 1],
                    (size_t)(p->repeat.end - i - 1) * sizeof *p->item);
            p->item[p->repeat.end - 1] = wait;
            return;
        }
    fail_msg("no message is awaited in a round");
}

static void test_faults_in_rounds_are_found(void **state)
{
    static const struct {
        const char *name;
        void (*change)(ech_program *);
    } rows[] = {{"shrink_ring", shrink_ring},
                {"share_element", share_element},
                {"take_longer_steps", take_longer_steps},
                {"run_once_more", run_once_more},
                {"run_once_less", run_once_less},
                {"take_another_micro", take_another_micro},
                {"begin_one_item_later", begin_one_item_later},
                {"begin_one_item_earlier", begin_one_item_earlier},
                {"repeat_only_backward", repeat_only_backward},
                {"forget_ring", forget_ring},
                {"wait_a_round_later", wait_a_round_later}};
    const wanted w = {ECH_SCHEDULE_1F1B, 3, 40, 1, 1, 3, false, 0, 1, false};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        made *m = make(&w, true);
        const ech_repeat before = m->run.program[1]->repeat;
        rows[i].change(&m->run.klass[1].program);
        const ech_status st = prove(m, &m->report);
        if (st != ECH_E_PROOF)
            fail_msg("%s passes (%d), rounds [%d, %d) x %d", rows[i].name, (int)st, before.first,
                     before.end, before.times);
        (void)printf("%s: %s\n", rows[i].name, ech_error_message());
        made_free(m);
    }
}

/* A rolled program is a document, too, and means the same. */
static void test_documents_of_rolled_programs(void **state)
{
    const wanted w = {ECH_SCHEDULE_1F1B, 3, 40, 1, 1, 3, false, 0, 1, false};
    (void)state;
    made *m = make(&w, true);
    for (int k = 0; k < m->run.n_classes; k++) {
        ech_text t = {0};
        ech_program *p = &m->run.klass[k].program;
        ech_program again;
        ech_program_write(p, &t);
        assert_ok(ech_program_read(ech_text_get(&t), t.bytes, "again", &again));
        assert_memory_equal(&again.repeat, &p->repeat, sizeof p->repeat);
        assert_true(ech_program_fingerprint(&again) == ech_program_fingerprint(p));
        again.repeat.times--;
        assert_true(ech_program_fingerprint(&again) != ech_program_fingerprint(p));
        again.repeat.times++;
        ech_program_fini(p);
        *p = again;
        ech_text_fini(&t);
    }
    assert_ok(prove(m, &m->report));
    made_free(m);
}

static void test_documents_of_no_rounds(void **state)
{
    static const struct {
        const char *repeat, *why;
    } rows[] = {{"[5, 5, 2, 1]", "is no repetition"},  {"[0, 100000, 2, 1]", "is no repetition"},
                {"[0, 4, 0, 1]", "is no repetition"},  {"[0, 4, 2, 0]", "is no repetition"},
                {"[0, 4, 30, 2]", "is no repetition"}, {"[0, 4, 2]", "repeat"}};
    const wanted w = {ECH_SCHEDULE_1F1B, 3, 40, 1, 1, 3, false, 0, 1, false};
    ech_program again;
    ech_text t = {0};
    (void)state;
    made *m = make(&w, true);
    ech_program_write(m->run.program[0], &t);
    const char *text = ech_text_get(&t);
    const char *from = strstr(text, "\"repeat\": ");
    assert_non_null(from);
    const char *to = strchr(from, ']') + 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ech_text bad = {0};
        ech_text_add_bytes(&bad, text, (size_t)(from - text));
        ech_text_add(&bad, "\"repeat\": %s%s", rows[i].repeat, to);
        assert_fails(ech_program_read(ech_text_get(&bad), bad.bytes, "bad", &again), ECH_E_PARSE,
                     rows[i].why);
        ech_text_fini(&bad);
    }
    ech_text_fini(&t);
    made_free(m);
}

/* Plain programs that are right as they are, said to have rounds that they have not: with more of them
 * they would be others. */
typedef struct unrolled {
    made *m;
    ech_program program[3];
} unrolled;

static unrolled unroll(void)
{
    const wanted w = {ECH_SCHEDULE_1F1B, 3, 30, 1, 1, 3, false, 0, 1, false};
    unrolled u = {.m = make(&w, true)};
    for (int k = 0; k < 3; k++)
        assert_ok(ech_program_unroll(u.m->run.program[k], u.m->run.program[k]->repeat.times,
                                     &u.program[k]));
    return u;
}

static void unrolled_free(unrolled *u)
{
    for (int k = 0; k < 3; k++)
        ech_program_fini(&u->program[k]);
    made_free(u->m);
}

static void test_bytes_that_do_not_repeat(void **state)
{
    (void)state;
    unrolled u = unroll();
    ech_program *p = &u.program[0];
    assert_ok(ech_types_check(p));
    for (int s = p->n_state; s < p->n_slots; s++) /* as if each element were the same each time */
        if (p->slot[s].ring > 1)
            p->slot[s].micro_bytes = 0;
    assert_fails(ech_types_check(p), ECH_E_PROOF, "but the last time leaves byte");
    p->rounds.times = 0; /* without rounds there is nothing to be said against it */
    assert_ok(ech_types_check(p));
    unrolled_free(&u);
}

/* Rounds of as many items that begin `by` items later, one fewer. */
static void shift_rounds(ech_program *p, int by)
{
    p->rounds.first += by;
    p->rounds.end += by;
    p->rounds.times--;
}

static void test_what_crosses_rounds_is_a_ring(void **state)
{
    (void)state;
    unrolled u = unroll();
    ech_program *p = &u.program[1];
    const int n = p->rounds.end - p->rounds.first;
    shift_rounds(p, n);
    assert_ok(ech_types_check(p));
    for (int s = p->n_state; s < p->n_slots; s++)
        if (!p->slot[s].ring && p->slot[s].first >= p->rounds.first &&
            p->slot[s].last < p->rounds.end) {
            p->slot[s].last += n;
            break;
        }
    assert_fails(ech_types_check(p), ECH_E_PROOF, "goes from one time to the next and is no ring");
    unrolled_free(&u);
}

static ech_status derive(const ech_program *p)
{
    ech_deps d;
    ECH_TRY(ech_deps_derive(p, ECH_DEPS_ON_ADDRESSES, &d));
    ech_deps_fini(&d);
    return ECH_OK;
}

static void test_messages_in_flight_repeat(void **state)
{
    (void)state;
    unrolled u = unroll();
    ech_program *p = &u.program[1];
    int start = p->rounds.first;
    assert_ok(derive(p));
    while (!ech_op_row_get(p->block[p->item[start].block].op[0].kind)->is_start)
        start++;
    assert_true(start < p->rounds.end);
    shift_rounds(p, start + 1 - p->rounds.first); /* now one is in flight where a round ends */
    assert_ok(derive(p));
    p->rounds.times += 2; /* into the end of the step, where it is another */
    assert_fails(derive(p), ECH_E_PROOF, "is in flight otherwise at the end of the last time");
    unrolled_free(&u);
}

static ech_status match(const unrolled *u)
{
    ech_match_count count;
    const ech_program *const of[3] = {&u->program[0], &u->program[1], &u->program[2]};
    const ech_match_spec spec = {&u->program[0].layout, of, 3, u->m->run.class_of};
    ECH_TRY(ech_match_check(&spec, ECH_MATCH_RENDEZVOUS, &count));
    return ech_match_check(&spec, ECH_MATCH_SERIAL, &count);
}

static void test_ranks_go_on_round_by_round(void **state)
{
    (void)state;
    unrolled u = unroll();
    assert_ok(match(&u));
    u.program[2].rounds.end = u.program[2].rounds.first + 1; /* fewer messages than it has */
    assert_fails(match(&u), ECH_E_UNSUPPORTED,
                 "it does not go on by one where the first class does");
    unrolled_free(&u);
}

static double core_s(clock_t from)
{
    return (double)(clock() - from) / CLOCKS_PER_SEC;
}

/* Seconds are of a core, since others may run here. */
static void test_many_micro_batches_in_a_second(void **state)
{
    const wanted w = {ECH_SCHEDULE_1F1B, 64, 4096, 1, 1, 64, false, 0, 1, false};
    int items = 0;
    (void)state;
    const clock_t t0 = clock();
    made *m = make(&w, true);
    const double both = core_s(t0);
    const clock_t t1 = clock();
    assert_ok(prove(m, &m->report));
    const double proof = core_s(t1);
    for (int k = 0; k < m->run.n_classes; k++) {
        items += m->run.program[k]->n_items;
        assert_true(m->run.program[k]->repeat.times > 4000);
        assert_int_equal(m->run.program[k]->micro_batches, 4096);
    }
    (void)printf("64 stages, 4096 micro-batches: %d items; compiled in %.3f s, proved in %.3f s\n",
                 items, both - proof, proof);
    assert_true(items < 40000);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(both - proof < 1.0 && proof < 1.0);
#endif
    made_free(m);
}

/* Twice the micro-batches, the same items. */
static void test_size_does_not_grow_with_micro_batches(void **state)
{
    wanted w = {ECH_SCHEDULE_1F1B, 4, 120, 1, 1, 4, false, 0, 1, false};
    (void)state;
    made *few = make(&w, true);
    w.micros = 240;
    made *many = make(&w, true);
    for (int k = 0; k < 4; k++) {
        const ech_program *a = few->run.program[k];
        const ech_program *b = many->run.program[k];
        assert_int_equal(a->n_items, b->n_items);
        assert_int_equal(a->n_slots, b->n_slots);
        assert_int_equal(a->transient_bytes[ECH_SPACE_DEVICE],
                         b->transient_bytes[ECH_SPACE_DEVICE]);
        assert_int_equal(b->repeat.times - a->repeat.times, 120);
    }
    made_free(few);
    made_free(many);
}

/* Whatever is asked for, rolled or not: the programs are proved. */
static void test_any_run_may_be_rolled(void **state)
{
    static const ech_schedule_kind kinds[] = {ECH_SCHEDULE_1F1B, ECH_SCHEDULE_INTERLEAVED,
                                              ECH_SCHEDULE_ZB_H1, ECH_SCHEDULE_ZB_V};
    int n = 0;
    (void)state;
    for (int kind = 0; kind < 4; kind++)
        for (int pp = 1; pp <= 3; pp++)
            for (int dp = 1; dp <= 2; dp++)
                for (int zero = 0; zero <= (dp > 1 ? 3 : 0); zero++)
                    for (int more = 0; more < 2; more++) {
                        const wanted w = {.schedule = kinds[kind],
                                          .pp = pp,
                                          .micros = 24 + 6 * more,
                                          .tp = 1 + more % 2,
                                          .dp = dp,
                                          .layers = 6,
                                          .is_tied = more == 0,
                                          .zero = zero,
                                          .chunks = kinds[kind] == ECH_SCHEDULE_1F1B ||
                                                            kinds[kind] == ECH_SCHEDULE_ZB_H1
                                                        ? 1
                                                        : 2,
                                          .reduces_each = more == 1};
                        if (kind > 0 && (pp != 2 || (zero > 1 && more == 0)))
                            continue;
                        made *m = make(&w, true);
                        n += m->run.program[0]->repeat.times > 0;
                        made_free(m);
                    }
    (void)printf("%d runs rolled\n", n);
    assert_true(n > 20);
}

/* Too few micro-batches, or a table in which no micro-batch is like the one before: plain programs. */
static void test_what_does_not_repeat_is_plain(void **state)
{
    static const wanted rows[] = {{ECH_SCHEDULE_1F1B, 4, 12, 1, 1, 4, false, 0, 1, false},
                                  {ECH_SCHEDULE_GPIPE, 4, 60, 1, 1, 4, false, 0, 1, false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        made *m = make(&rows[i], true);
        for (int k = 0; k < m->run.n_classes; k++)
            assert_int_equal(m->run.program[k]->repeat.times, 0);
        made_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unrolled_is_what_the_whole_table_makes),
        cmocka_unit_test(test_unrolled_is_proved),
        cmocka_unit_test(test_faults_in_rounds_are_found),
        cmocka_unit_test(test_documents_of_rolled_programs),
        cmocka_unit_test(test_documents_of_no_rounds),
        cmocka_unit_test(test_bytes_that_do_not_repeat),
        cmocka_unit_test(test_what_crosses_rounds_is_a_ring),
        cmocka_unit_test(test_messages_in_flight_repeat),
        cmocka_unit_test(test_ranks_go_on_round_by_round),
        cmocka_unit_test(test_size_does_not_grow_with_micro_batches),
        cmocka_unit_test(test_any_run_may_be_rolled),
        cmocka_unit_test(test_what_does_not_repeat_is_plain),
        cmocka_unit_test(test_many_micro_batches_in_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
