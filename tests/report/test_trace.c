/* RUN: np=1 timeout=60 tags=fast */
/* Time lines as traces and pictures, of a step that is made up: 1F1B on four pipeline ranks, forward
 * 1 ms, backward 2 ms, messages for nothing.  Its times have a closed form: the forward of
 * micro-batch 0 begins on rank r at r, its backward at p + 2 (p - 1 - r), and all ends at 3 (m + p -
 * 1). */
#include "check.h"
#include "folder.h"

#include "base/io.h"
#include "base/node.h"
#include "report/picture.h"
#include "report/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { P = 4, M = 6, PARTS = 2 /* items of a cell */, BYTES = 400 };

/* Blocks of each rank's program, by number. */
enum { FORWARD, BACKWARD, SEND_ON, SEND_BACK, RECV_ON, RECV_BACK, WAIT, N_BLOCKS };

/* A made-up step, held in one place. */
typedef struct made {
    ech_program program[P];
    const ech_program *list[P];
    int class_of[P];
    ech_op op[P][N_BLOCKS];
    ech_block block[P][N_BLOCKS];
    ech_timeline line;
} made;

static ech_op op_of(int block, int rank)
{
    static const ech_op_kind kind[] = {
        [FORWARD] = ECH_OP_LINEAR,     [BACKWARD] = ECH_OP_LINEAR_DGRAD,
        [SEND_ON] = ECH_OP_SEND_START, [SEND_BACK] = ECH_OP_SEND_START,
        [RECV_ON] = ECH_OP_RECV_START, [RECV_BACK] = ECH_OP_RECV_START,
        [WAIT] = ECH_OP_RECV_WAIT,
    };
    const int peer = block == SEND_ON || block == RECV_BACK ? rank + 1 : rank - 1;
    ech_op op = {.kind = kind[block], .axis = ECH_AXIS_PP, .n_args = 1};
    op.arg[0] = (ech_operand){.dtype = ECH_F32, .rank = 1, .dim = {{BYTES / 4, -1}}};
    op.attr[0] = ech_expr_const(peer);
    return op;
}

static void make_programs(made *m)
{
    static const ech_role role[] = {ECH_ROLE_FORWARD,  ECH_ROLE_BACKWARD, ECH_ROLE_TRANSFER,
                                    ECH_ROLE_TRANSFER, ECH_ROLE_TRANSFER, ECH_ROLE_TRANSFER,
                                    ECH_ROLE_TRANSFER};
    const ech_layout_spec spec = {.tp = 1, .cp = 1, .pp = P, .dp = 1, .kv_share = 1};
    memset(m, 0, sizeof *m);
    for (int r = 0; r < P; r++) {
        ech_program *p = &m->program[r];
        assert_ok(ech_layout_make(&spec, &p->layout));
        for (int b = 0; b < N_BLOCKS; b++) {
            m->op[r][b] = op_of(b, r);
            m->block[r][b] = (ech_block){.role = role[b], .op = &m->op[r][b], .n_ops = 1};
            (void)snprintf(m->block[r][b].name, sizeof m->block[r][b].name, "block %d", b);
        }
        p->block = m->block[r];
        p->n_blocks = N_BLOCKS;
        m->list[r] = p;
        m->class_of[r] = r;
    }
    m->line = (ech_timeline){.program = m->list, .class_of = m->class_of, .world = P};
}

static int add_item(ech_program *p, int block, int micro)
{
    assert_ok(ech_grow(&p->item, (size_t)p->n_items, &p->item_capacity, sizeof *p->item));
    p->item[p->n_items] = (ech_item){.block = block, .layer = -1, .micro = micro};
    return p->n_items++;
}

static void add_bar(made *m, int rank, ech_lane lane, int item, double begin, double end)
{
    ech_timeline *l = &m->line;
    assert_ok(ech_grow(&l->bar, l->n, &l->capacity, sizeof *l->bar));
    l->bar[l->n++] = (ech_bar){.rank = rank,
                               .lane = lane,
                               .axis = ECH_AXIS_PP,
                               .item = item,
                               .op = lane == ECH_LANE_COMPUTE ? -1 : 0,
                               .begin_s = 1e-3 * begin,
                               .end_s = 1e-3 * end};
}

/* A rank's cell: its message in (taken when it is sent), a wait for it, its parts, its message out. */
static double add_cell(made *m, int rank, bool is_forward, int micro, double free_at, double ready)
{
    ech_program *p = &m->program[rank];
    const double length = is_forward ? 1.0 : 2.0;
    const double begin = free_at > ready ? free_at : ready;
    const bool has_in = is_forward ? rank > 0 : rank < P - 1;
    const bool has_out = is_forward ? rank < P - 1 : rank > 0;
    if (has_in)
        add_bar(m, rank, ECH_LANE_COMM, add_item(p, is_forward ? RECV_ON : RECV_BACK, micro),
                free_at, begin);
    if (begin > free_at)
        add_bar(m, rank, ECH_LANE_WAIT, add_item(p, WAIT, micro), free_at, begin);
    for (int k = 0; k < PARTS; k++)
        add_bar(m, rank, ECH_LANE_COMPUTE, add_item(p, is_forward ? FORWARD : BACKWARD, micro),
                begin + length * k / PARTS, begin + length * (k + 1) / PARTS);
    if (has_out)
        add_bar(m, rank, ECH_LANE_COMM, add_item(p, is_forward ? SEND_ON : SEND_BACK, micro),
                begin + length, begin + length);
    return begin + length;
}

/* 1F1B: rank r does min(p - 1 - r, m) forwards, then one of each in turn. */
static void make_1f1b(made *m)
{
    double done[2][P][M];
    double free_at[P] = {0};
    int next[P][2] = {{0}};
    int left = 2 * P * M;
    make_programs(m);
    while (left > 0)
        for (int r = 0; r < P; r++) {
            const int ahead = next[r][0] - next[r][1];
            const int warm = P - r < M ? P - r : M;
            const bool is_forward = next[r][0] < M && ahead < warm;
            const int k = next[r][!is_forward];
            if (k == M)
                continue;
            const int from = is_forward ? r - 1 : r + 1;
            if (from >= 0 && from < P && next[from][!is_forward] <= k)
                continue; /* not there yet */
            const double own = is_forward ? 0.0 : done[0][r][k];
            const double in = from >= 0 && from < P ? done[!is_forward][from][k] : own;
            done[!is_forward][r][k] = free_at[r] = add_cell(m, r, is_forward, k, free_at[r], in);
            next[r][!is_forward]++;
            left--;
        }
    for (int r = 0; r < P; r++)
        m->line.step_s = fmax(m->line.step_s, 1e-3 * free_at[r]);
    assert_near(m->line.step_s, 3e-3 * (M + P - 1), 1e-12);
}

static void drop(made *m)
{
    for (int r = 0; r < P; r++)
        free(m->program[r].item);
    ech_timeline_fini(&m->line);
}

/* --- the trace --- */

static const ech_node *events_of(const ech_node *root)
{
    return ech_node_find(root, "traceEvents");
}

static double real_of(const ech_node *e, const char *key)
{
    const ech_node *v = ech_node_find(e, key);
    assert_non_null(v);
    assert_true(v->kind == ECH_NODE_REAL || v->kind == ECH_NODE_INT);
    return v->real;
}

static int int_of(const ech_node *e, const char *key)
{
    return (int)real_of(e, key);
}

static char phase_of(const ech_node *e)
{
    return ech_node_find(e, "ph")->string[0];
}

static int count_phase(const ech_node *root, char phase)
{
    int n = 0;
    for (const ech_node *e = events_of(root)->child; e; e = e->next)
        n += phase_of(e) == phase;
    return n;
}

static void write_and_read(void **state, const ech_timeline *const *line, const char *const *name,
                           int n, ech_node **root)
{
    const char *path = in_folder(state, "t.json");
    assert_ok(ech_trace_write_as(line, name, n, path));
    assert_ok(ech_node_read_file(path, true, root));
}

/* The bar that an arrow's end lies in. */
static const ech_node *bar_at(const ech_node *root, const ech_node *flow)
{
    const double ts = real_of(flow, "ts");
    for (const ech_node *e = events_of(root)->child; e; e = e->next) {
        if (phase_of(e) != 'X' || int_of(e, "pid") != int_of(flow, "pid") ||
            int_of(e, "tid") != int_of(flow, "tid"))
            continue;
        const double from = real_of(e, "ts");
        if (from <= ts + 1e-6 && ts <= from + real_of(e, "dur") + 1e-6 &&
            int_of(ech_node_find(e, "args"), "bytes") == BYTES)
            return e;
    }
    return NULL;
}

/* Every arrow leads from a send to the receive of its micro-batch on the neighbour. */
static void check_arrows(const ech_node *root, int first_pid)
{
    int n = 0;
    for (const ech_node *s = events_of(root)->child; s; s = s->next) {
        const ech_node *f = s->next;
        if (phase_of(s) != 's' || int_of(s, "pid") < first_pid || int_of(s, "pid") >= first_pid + P)
            continue;
        assert_int_equal(phase_of(f), 'f');
        assert_int_equal(int_of(f, "id"), int_of(s, "id"));
        assert_true(real_of(f, "ts") >= real_of(s, "ts") - 0.002);
        assert_int_equal(abs(int_of(f, "pid") - int_of(s, "pid")), 1);
        const ech_node *to = bar_at(root, f);
        assert_non_null(bar_at(root, s));
        assert_non_null(to);
        n++;
    }
    assert_int_equal(n, 2 * (P - 1) * M);
}

static void check_bars(const ech_node *root, const made *m, int first_pid)
{
    size_t i = 0;
    for (const ech_node *e = events_of(root)->child; e; e = e->next) {
        if (phase_of(e) != 'X' || int_of(e, "pid") < first_pid || int_of(e, "pid") >= first_pid + P)
            continue;
        const ech_bar *b = &m->line.bar[i++];
        const ech_node *args = ech_node_find(e, "args");
        assert_int_equal(int_of(e, "pid"), first_pid + b->rank);
        assert_near(real_of(e, "ts"), 1e6 * b->begin_s, 1e-3);
        assert_near(real_of(e, "dur"), 1e6 * (b->end_s - b->begin_s), 1e-3);
        assert_int_equal(int_of(args, "item"), b->item);
        assert_int_equal(int_of(args, "micro"), m->program[b->rank].item[b->item].micro);
        assert_int_equal(ech_node_find(args, "layer")->kind, ECH_NODE_NULL);
        assert_int_equal(int_of(e, "tid") == 1, b->lane != ECH_LANE_COMM);
    }
    assert_int_equal(i, m->line.n);
}

static void test_a_trace_has_every_bar_and_arrow(void **state)
{
    made *m = malloc(sizeof *m);
    ech_node *root;
    make_1f1b(m);
    const ech_timeline *line[] = {&m->line, &m->line};
    static const char *const name[] = {"measured", "predicted \"x\""};
    write_and_read(state, line, name, 2, &root);
    for (int i = 0; i < 2; i++) { /* the second line stands behind the first */
        check_bars(root, m, 1 + i * P);
        check_arrows(root, 1 + i * P);
    }
    assert_int_equal(count_phase(root, 'f'), 4 * (P - 1) * M);
    const ech_node *lines = ech_node_find(ech_node_find(root, "otherData"), "lines");
    assert_int_equal(lines->n, 2);
    assert_string_equal(ech_node_find(lines->child->next, "name")->string, name[1]);
    assert_near(real_of(lines->child, "step_s"), 3e-3 * (M + P - 1), 1e-12);
    ech_node_destroy(&root);
    drop(m);
    free(m);
}

/* Messages on their way at once have threads of their own, so that none hides another. */
static void test_messages_at_once_do_not_overlap(void **state)
{
    made *m = malloc(sizeof *m);
    ech_node *root;
    int tid[4];
    int n = 0;
    make_programs(m);
    for (int i = 0; i < 4; i++) /* [0, 3) [1, 4) [2, 5) [3, 6): three threads */
        add_bar(m, 0, ECH_LANE_COMM, add_item(&m->program[0], SEND_ON, i), i, i + 3);
    m->line.step_s = 6e-3;
    const ech_timeline *line = &m->line;
    const char *const name = "simulated";
    write_and_read(state, &line, &name, 1, &root);
    for (const ech_node *e = events_of(root)->child; e; e = e->next)
        if (phase_of(e) == 'X')
            tid[n++] = int_of(e, "tid");
    assert_int_equal(n, 4);
    assert_int_equal(tid[3], tid[0]);
    assert_true(tid[0] != tid[1] && tid[1] != tid[2] && tid[0] != tid[2] && tid[0] != 1);
    assert_int_equal(count_phase(root, 's'), 0); /* nobody receives */
    ech_node_destroy(&root);
    drop(m);
    free(m);
}

static void test_nothing_half_written(void **state)
{
    made *m = malloc(sizeof *m);
    make_1f1b(m);
    const ech_timeline *line = &m->line;
    const char *const name = "measured";
    assert_fails(ech_trace_write_as(&line, &name, 1, in_folder(state, "no/t.json")), ECH_E_IO,
                 "no/");
    assert_fails(ech_trace_write_as(&line, &name, 1, in_folder(state, "no/t.svg")), ECH_E_IO,
                 "no/");
    assert_int_equal(folder_count(*state), 0);
    assert_ok(ech_trace_try_path(in_folder(state, "t.json")));
    assert_int_equal(folder_count(*state), 0);
    assert_fails(ech_trace_check_path("t.txt"), ECH_E_USAGE, "FILE.json");
    assert_ok(ech_trace_check_path("a/t.json"));
    assert_ok(ech_trace_check_path("t.svg"));
    drop(m);
    free(m);
}

/* --- the picture --- */

typedef struct box {
    char class[4];
    double x, y, width;
    int micro; /* written into it; -1: no number */
} box;

/* Cells of a rank's row, in order.  @return how many */
static int read_row(const char *svg, int line, int rank, box *out, int room)
{
    char id[64];
    int n = 0;
    (void)snprintf(id, sizeof id, "<g id=\"line%d-rank%d\">", line, rank);
    const char *at = strstr(svg, id);
    assert_non_null(at);
    const char *end = strstr(at, "</g>");
    for (at = strstr(at, "<rect"); at && at < end; at = strstr(at + 1, "<rect")) {
        assert_true(n < room);
        box *b = &out[n++];
        assert_int_equal(sscanf(at, "<rect class=\"%3[^\"]\" x=\"%lf\" y=\"%lf\" width=\"%lf\"",
                                b->class, &b->x, &b->y, &b->width),
                         4);
        const char *text = strchr(at, '\n');
        if (sscanf(text, "\n<text class=\"m\" x=\"%*f\" y=\"%*d\">%d<", &b->micro) != 1)
            b->micro = -1;
    }
    return n;
}

static char *draw(void **state, const ech_timeline *const *line, const char *const *name, int n,
                  size_t *bytes)
{
    char *svg;
    const char *path = in_folder(state, "t.svg");
    assert_ok(ech_trace_write_as(line, name, n, path));
    assert_ok(ech_read_whole(path, 1 << 30, &svg, bytes));
    return svg;
}

/* The k-th cell of a class. */
static const box *find(const box *b, int n, const char *class, int k)
{
    for (int i = 0; i < n; i++)
        if (strcmp(b[i].class, class) == 0 && k-- == 0)
            return &b[i];
    fail_msg("no cell of class %s", class);
    return NULL;
}

static int count_class(const box *b, int n, const char *class)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found += strcmp(b[i].class, class) == 0;
    return found;
}

/* x of rank 0's first forward is time 0; the end of its last backward is the step's. */
static void test_a_picture_shows_the_staircase(void **state)
{
    made *m = malloc(sizeof *m);
    size_t bytes;
    box row[P][64];
    int n[P];
    make_1f1b(m);
    const ech_timeline *line = &m->line;
    const char *const name = "made up";
    char *svg = draw(state, &line, &name, 1, &bytes);
    for (int r = 0; r < P; r++)
        n[r] = read_row(svg, 0, r, row[r], 64);
    const double x0 = find(row[0], n[0], "f", 0)->x;
    const box *last = find(row[0], n[0], "b", M - 1);
    const double ms = (last->x + last->width - x0) / (3 * (M + P - 1));
    assert_true(ms > 5.0);
    for (int r = 0; r < P; r++) {
        assert_int_equal(count_class(row[r], n[r], "f"), M); /* two items are one cell */
        assert_int_equal(count_class(row[r], n[r], "b"), M);
        assert_true(r == 0 || row[r][0].y > row[r - 1][0].y);
        assert_near(find(row[r], n[r], "f", 0)->x, x0 + r * ms, 0.8);
        assert_near(find(row[r], n[r], "b", 0)->x, x0 + (P + 2 * (P - 1 - r)) * ms, 0.8);
        for (int k = 0; k < M; k++) {
            const box *f = find(row[r], n[r], "f", k);
            const box *b = find(row[r], n[r], "b", k);
            assert_int_equal(f->micro, k);
            assert_int_equal(b->micro, k);
            assert_near(f->width, ms, 1.0);
            assert_near(b->width, 2 * ms, 1.0);
        }
        /* what is neither is a wait, to the row's last cell */
        double waits = 0.0;
        for (int k = 0; k < count_class(row[r], n[r], "q"); k++)
            waits += find(row[r], n[r], "q", k)->width;
        const box *end = find(row[r], n[r], "b", M - 1);
        assert_near(waits, end->x + end->width - x0 - 3 * M * ms, 2.0 * M);
    }
    assert_non_null(strstr(svg, "time (ms)"));
    assert_non_null(strstr(svg, "prefers-color-scheme:dark"));
    assert_non_null(strstr(svg, ">forward</text>"));
    assert_null(strstr(svg, ">recompute</text>")); /* the legend has what is there */
    free(svg);
    drop(m);
    free(m);
}

/* The same thousand times over: what cannot be seen is joined, and all of it stays in bounds. */
static void test_a_picture_of_many_bars_is_small(void **state)
{
    made *m = malloc(sizeof *m);
    size_t bytes;
    make_1f1b(m);
    const size_t n = m->line.n;
    const double step = m->line.step_s;
    for (int k = 1; k < 400; k++)
        for (size_t i = 0; i < n; i++) {
            const ech_bar b = m->line.bar[i];
            assert_ok(ech_grow(&m->line.bar, m->line.n, &m->line.capacity, sizeof b));
            m->line.bar[m->line.n] = b;
            m->line.bar[m->line.n].begin_s += k * step;
            m->line.bar[m->line.n++].end_s += k * step;
        }
    m->line.step_s = 400 * step;
    const ech_timeline *line[] = {&m->line, &m->line, &m->line, &m->line, &m->line, &m->line};
    static const char *const name[] = {"a", "b", "c", "d", "e", "f"};
    char *svg = draw(state, line, name, 6, &bytes);
    (void)printf("picture of %zu bars: %zu bytes\n", 6 * m->line.n, bytes);
    assert_true(bytes <= ECH_PICTURE_BYTES);
    assert_true(bytes > ECH_PICTURE_BYTES / 4); /* no coarser than it must be */
    static box row[4096];
    for (int r = 0; r < P; r++) {
        const int got = read_row(svg, 5, r, row, 4096);
        double covered = 0.0; /* nothing vanished: the last cell ends where the step does */
        for (int i = 0; i < got; i++)
            covered = fmax(covered, row[i].x + row[i].width);
        assert_true(got > 50);
        assert_near(covered, 986.0, 10.0 * (r + 1));
    }
    free(svg);
    drop(m);
    free(m);
}

/* Names that others chose stand as text. */
static void test_names_are_text(void **state)
{
    made *m = malloc(sizeof *m);
    size_t bytes;
    make_1f1b(m);
    (void)snprintf(m->line.note, sizeof m->line.note, "a & b");
    const ech_timeline *line = &m->line;
    const char *const name = "<x>";
    char *svg = draw(state, &line, &name, 1, &bytes);
    assert_non_null(strstr(svg, "&lt;x&gt;: a step of 27 ms on 4 ranks"));
    assert_non_null(strstr(svg, "a &amp; b"));
    assert_null(strstr(svg, "<x>"));
    free(svg);
    drop(m);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)
        TEST(test_a_trace_has_every_bar_and_arrow),
        TEST(test_messages_at_once_do_not_overlap),
        TEST(test_nothing_half_written),
        TEST(test_a_picture_shows_the_staircase),
        TEST(test_a_picture_of_many_bars_is_small),
        TEST(test_names_are_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
