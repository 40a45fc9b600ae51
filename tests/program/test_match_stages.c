/* RUN: np=1 timeout=30 tags=fast */
/* Matching and progress of pipelines written by hand: what stages send each other, group by group. */
#include "check.h"
#include "base/clock.h"
#include "program/match.h"
#include "program/op_signature.h"

#include <stdlib.h>

/* CPU seconds that the largest run may take, one way; sanitizers take several times as long. */
#ifdef __SANITIZE_ADDRESS__
#define MOST_SECONDS 4.0
#else
#define MOST_SECONDS 0.5
#endif

enum { ELEMS = 8 };

/* What a stage does for its neighbours; the letters of a script.  Activations come from above
 * (a) and go down (A); gradients come from below (g) and go up (G). */
enum { TAKE_ACT, GIVE_ACT, TAKE_GRAD, GIVE_GRAD, N_HOPS };
static const char letters[] = "aAgG";

/* A pipeline: a program a stage; blocks 2 h and 2 h + 1 are start and wait of hop h, the last one
 * is work that parts groups. */
typedef struct pipe {
    ech_layout layout;
    int n;
    ech_program *program;
    const ech_program **borrowed;
    int *class_of;
    int (*next)[N_HOPS]; /* [n] micro-batch of each hop's next message */
    ech_match_count count;
} pipe;

static ech_block block_of(ech_op_kind kind, int hop, int peer)
{
    const ech_signature sig = ech_signature_read(kind);
    ech_block b = {.role = ECH_ROLE_TRANSFER};
    assert_ok(ech_grow(&b.op, 0, &b.capacity, sizeof *b.op));
    (void)snprintf(b.name, sizeof b.name, "%s", ech_op_name(kind));
    b.n_ops = 1;
    b.op[0] = (ech_op){.kind = kind, .n_args = 1, .axis = ECH_AXIS_PP, .request = 0};
    b.op[0].attr[0] = ech_expr_const(peer);
    b.op[0].arg[0] = (ech_operand){.region = ECH_REGION_OUT,
                                   .access = sig.arg[0].access,
                                   .dtype = ECH_F64,
                                   .rank = 1,
                                   .dim = {{ELEMS, ECH_EXTENT_BOUND}},
                                   .place = ech_placement_invariant()};
    b.op[0].arg[0].place.over[ECH_AXIS_PP] = ech_place_of(ECH_PLACE_UNRELATED);
    if (hop >= TAKE_GRAD)
        b.op[0].arg[0].place.scale = ech_grad_scale();
    return b;
}

static pipe *pipe_make(int n, int dp)
{
    pipe *p = calloc(1, sizeof *p);
    assert_non_null(p);
    const ech_layout_spec spec = {.tp = 1, .cp = 1, .pp = n, .dp = dp, .kv_share = 1};
    assert_ok(ech_layout_make(&spec, &p->layout));
    p->n = n;
    p->program = calloc((size_t)n, sizeof *p->program);
    p->borrowed = calloc((size_t)n, sizeof *p->borrowed);
    p->class_of = calloc((size_t)p->layout.world, sizeof *p->class_of);
    p->next = calloc((size_t)n, sizeof *p->next);
    for (int r = 0; r < p->layout.world; r++) {
        int64_t coord[ECH_N_AXES];
        ech_layout_coords(&p->layout, r, coord);
        p->class_of[r] = (int)coord[ECH_AXIS_PP];
    }
    for (int s = 0; s < n; s++) {
        p->borrowed[s] = &p->program[s];
        ech_program_init(&p->program[s], "stage", &p->layout);
        for (int k = 0; k < 2 * N_HOPS + 1; k++) {
            const bool sends = k / 2 == GIVE_ACT || k / 2 == GIVE_GRAD;
            const int peer = k / 2 == TAKE_ACT || k / 2 == GIVE_GRAD ? s - 1 : s + 1;
            const ech_op_kind kinds[2][2] = {{ECH_OP_RECV_START, ECH_OP_RECV_WAIT},
                                             {ECH_OP_SEND_START, ECH_OP_SEND_WAIT}};
            ech_block b =
                block_of(k == 2 * N_HOPS ? ECH_OP_ZERO : kinds[sends][k % 2], k / 2, peer);
            int id;
            assert_ok(ech_program_add_block(&p->program[s], &b, &id));
        }
    }
    return p;
}

static void pipe_free(pipe *p)
{
    for (int s = 0; s < p->n; s++)
        ech_program_fini(&p->program[s]);
    free(p->program);
    free(p->borrowed);
    free(p->class_of);
    free(p->next);
    free(p);
}

static void add(ech_program *p, int block, int hop, int micro)
{
    ech_item it = ech_item_make(block, ECH_SEGMENT_ACCUMULATE);
    it.request = hop;
    it.micro = micro;
    assert_ok(ech_program_add_item(p, &it));
}

/* A script: each letter is the start of a hop, '.' waits for all that is in flight in the order of
 * its starts, '-' is work.  A hop's k-th letter is of micro-batch k. */
static void play(pipe *all, int stage, const char *script)
{
    ech_program *p = &all->program[stage];
    int *next = all->next[stage];
    int open[2 * N_HOPS];
    int n = 0;
    for (const char *c = script; *c; c++) {
        const char *letter = strchr(letters, *c);
        if (*c == '-') {
            add(p, 2 * N_HOPS, -1, -1);
        } else if (*c == '.') {
            for (int i = 0; i < n; i++)
                add(p, 2 * open[i] + 1, open[i], next[open[i]] - 1);
            n = 0;
        } else {
            const int hop = (int)(letter - letters);
            add(p, 2 * hop, hop, next[hop]++);
            open[n++] = hop;
        }
    }
}

static ech_status check(pipe *p, ech_match_how how)
{
    const ech_match_spec spec = {&p->layout, p->borrowed, p->n, p->class_of};
    return ech_match_check(&spec, how, &p->count);
}

static pipe *pipe_of(int n, const char *const *script)
{
    pipe *p = pipe_make(n, 3);
    for (int s = 0; s < n; s++)
        play(p, s, script[s]);
    return p;
}

/* Verdicts of both machines; NULL: it holds. */
static void judge(int n, const char *const *script, const char *meeting, const char *serial)
{
    pipe *p = pipe_of(n, script);
    const char *const words[2] = {meeting, serial};
    for (int how = 0; how < 2; how++) {
        const ech_status st = check(p, (ech_match_how)how);
        if (words[how])
            assert_fails(st, ECH_E_PROOF, words[how]);
        else
            assert_ok(st);
        assert_int_equal(p->count.followed, n); /* of 3 n ranks */
    }
    pipe_free(p);
}

static void test_two_stages(void **state)
{
    static const char *const right[] = {"A.Ag.Ag.g.", "a.a-G.aG.G."};
    static const char *const lost[] = {"A.Ag.Ag.g.", "a.a.G.aG."};
    (void)state;
    const char *const plain[] = {"A.A.g.g.", "a.a.G.G."};
    judge(2, plain, NULL, NULL);
    judge(2, right, NULL, NULL);
    judge(2, lost, "never sends a third message over pp with it", "never sends a third");
}

/* Each stage sends to the other: posted together it is one exchange, apart each waits for the
 * other's receive. */
static void test_two_sends_face_each_other(void **state)
{
    static const char *const together[] = {"Ag.", "Ga."};
    static const char *const waited[] = {"A.g.", "G.a."};
    static const char *const apart[] = {"A-g.", "G-a."};
    (void)state;
    judge(2, together, NULL, NULL);
    judge(2, waited, "waits in item 1 (send_wait", "waits in item 0 (send_start");
    judge(2, apart, NULL,
          "with the communication of a rank one after the other, every rank like rank 0 (dp 0, "
          "pp 0) waits in item 0 (send_start, micro-batch 0), op send_start over pp: every rank "
          "like rank 3 (dp 0, pp 1) never receives a first message over pp with it; it stands in "
          "item 0 (send_start, micro-batch 0)");
}

/* A group ends with its segment, and with an item that does anything else. */
static void test_what_ends_a_group(void **state)
{
    static const char *const together[] = {"Ag.", "Ga."};
    pipe *p = pipe_of(2, together);
    (void)state;
    for (int s = 0; s < 2; s++)
        for (int i = 1; i < p->program[s].n_items; i++)
            p->program[s].item[i].segment = ECH_SEGMENT_REDUCE;
    assert_ok(check(p, ECH_MATCH_RENDEZVOUS));
    assert_fails(check(p, ECH_MATCH_SERIAL), ECH_E_PROOF, "waits in item 0 (send_start");
    pipe_free(p);
    p = pipe_of(2, together);
    for (int s = 0; s < 2; s++) { /* the second item: its message, then work */
        ech_block *b = &p->program[s].block[p->program[s].item[1].block];
        ech_block work = block_of(ECH_OP_ZERO, 0, 0);
        assert_ok(ech_grow(&b->op, (size_t)b->n_ops, &b->capacity, sizeof *b->op));
        b->op[b->n_ops++] = work.op[0];
        free(work.op);
    }
    assert_ok(check(p, ECH_MATCH_RENDEZVOUS));
    assert_fails(check(p, ECH_MATCH_SERIAL), ECH_E_PROOF, "waits in item 0 (send_start");
    pipe_free(p);
}

/* --- one forward, one backward --- */

/* A stage of a run in rounds: what it has done, and what has come to it. */
typedef struct progress {
    int forwards, backwards, acts, grads;
} progress;

/* Does stage s of n go forward ('f'), back ('b') or wait (' ')?  At most n - s micro-batches are
 * between the two (Narayanan et al. 2019). */
static char step_of(const progress *x, int s, int n, int m)
{
    const bool forward = x->forwards < m && x->forwards - x->backwards < n - s;
    if (forward)
        return s == 0 || x->acts > x->forwards ? 'f' : ' ';
    return x->backwards < x->forwards && (s == n - 1 || x->grads > x->backwards) ? 'b' : ' ';
}

/* In each round every stage does one step if it can; then all that it made is sent, and both ends
 * post it in that round. */
static pipe *rounds(int n, int m)
{
    pipe *p = pipe_make(n, 3);
    progress at[64] = {{0}};
    while (at[0].backwards < m) {
        char did[66];
        for (int s = 0; s < n; s++)
            did[s] = step_of(&at[s], s, n, m);
        for (int s = 0; s < n; s++) {
            char script[8] = "";
            const bool is_last = s == n - 1;
            (void)snprintf(
                script, sizeof script, "%s%s%s%s.", s > 0 && did[s - 1] == 'f' ? "a" : "",
                !is_last && did[s] == 'f' ? "A" : "", !is_last && did[s + 1] == 'b' ? "g" : "",
                s > 0 && did[s] == 'b' ? "G" : "");
            at[s].forwards += did[s] == 'f';
            at[s].backwards += did[s] == 'b';
            at[s].acts += s > 0 && did[s - 1] == 'f';
            at[s].grads += !is_last && did[s + 1] == 'b';
            if (did[s] != ' ')
                add(&p->program[s], 2 * N_HOPS, -1, -1);
            play(p, s, script);
        }
    }
    return p;
}

static void test_one_forward_one_backward(void **state)
{
    static const int stages[] = {2, 3, 4, 7};
    static const int micros[] = {1, 2, 5, 16};
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            pipe *p = rounds(stages[i], micros[k]);
            assert_ok(check(p, ECH_MATCH_RENDEZVOUS));
            assert_ok(check(p, ECH_MATCH_SERIAL));
            assert_int_equal(p->count.followed, stages[i]);
            assert_int_equal(p->count.messages, 4 * (stages[i] - 1) * micros[k]);
            pipe_free(p);
        }
}

/* --- faults --- */

/* The item of a stage's k-th start of a hop. */
static ech_item *start_of(pipe *p, int stage, int hop, int micro)
{
    for (int i = 0; i < p->program[stage].n_items; i++) {
        ech_item *it = &p->program[stage].item[i];
        if (it->block == 2 * hop && it->micro == micro)
            return it;
    }
    fail_msg("stage %d has no such start", stage);
    return NULL;
}

static void refused(pipe *p, const char *words)
{
    assert_fails(check(p, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, words);
    pipe_free(p);
}

static void test_messages_that_are_not_one(void **state)
{
    (void)state;
    pipe *p = rounds(4, 5);
    ech_item *const swapped[] = {start_of(p, 1, GIVE_ACT, 2), start_of(p, 1, GIVE_ACT, 3)};
    swapped[0]->micro = 3; /* two sends in each other's place */
    swapped[1]->micro = 2;
    refused(p, "(dp 0, pp 2) (item 8 (recv_start, micro-batch 2), op recv_start over pp): they "
               "are of different micro-batches");
    p = rounds(4, 5);
    p->program[2].block[2 * TAKE_ACT].op[0].arg[0].dim[0].bound = ELEMS / 2;
    refused(p, "meets recv_start of 4 fp64 of");
    p = rounds(4, 5);
    p->program[1].block[2 * GIVE_GRAD].op[0].arg[0].place.scale.factor = 0.5;
    refused(p, "they are placed or scaled differently");
    p = rounds(4, 5);
    p->program[1].block[2 * GIVE_ACT].op[0].arg[0].place.over[ECH_AXIS_DP] =
        ech_place_of(ECH_PLACE_PARTIAL);
    refused(p, "they are placed or scaled differently");
    p = rounds(4, 5); /* activations to another stage than the one that awaits them */
    p->program[2].block[2 * GIVE_ACT].op[0].attr[0] = ech_expr_const(0);
    refused(p, "never sends a first message over pp with it; it stands in item ");
    p = rounds(4, 5);
    p->program[3].block[2 * GIVE_GRAD].op[0].attr[0] = ech_expr_const(3);
    refused(p, "peer 3 of 4 is no other member of the group");
}

/* Two chunks a rank: what chunk 0 sends goes to chunk 1 from the last rank to the first, and
 * nowhere else. */
static void test_chunks_keep_to_their_own(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        static const char *const script[] = {"A.A.A.A.", "a.a.a.a."};
        pipe *p = pipe_of(2, script);
        for (int s = 0; s < 2; s++)
            for (int i = 0; i < p->program[s].n_items; i++) {
                ech_item *it = &p->program[s].item[i];
                it->chunk = s ? 1 - it->micro % 2 : it->micro % 2;
                it->micro /= 2;
            }
        if (wrong)
            start_of(p, 1, TAKE_ACT, 1)->chunk = 0;
        if (wrong)
            refused(p, "an earlier message between them was of other chunks");
        else {
            assert_ok(check(p, ECH_MATCH_RENDEZVOUS));
            pipe_free(p);
        }
    }
}

/* --- time --- */

/* 64 stages of 3 ranks, 2048 micro-batches: a million starts and waits. */
static void test_time(void **state)
{
    pipe *p = rounds(64, 2048);
    int64_t items = 0;
    (void)state;
    for (int s = 0; s < p->n; s++)
        items += p->program[s].n_items;
    for (int how = 0; how < 2; how++) {
        const double t0 = ech_clock_cpu_s();
        assert_ok(check(p, (ech_match_how)how));
        const double seconds = ech_clock_cpu_s() - t0;
        (void)printf("%lld items, %lld starts and waits: %.3f s\n", (long long)items,
                     (long long)p->count.ops, seconds);
        assert_true(seconds < MOST_SECONDS);
    }
    assert_true(p->count.ops > 1000000);
    pipe_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_stages),
        cmocka_unit_test(test_two_sends_face_each_other),
        cmocka_unit_test(test_what_ends_a_group),
        cmocka_unit_test(test_one_forward_one_backward),
        cmocka_unit_test(test_messages_that_are_not_one),
        cmocka_unit_test(test_chunks_keep_to_their_own),
        cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
