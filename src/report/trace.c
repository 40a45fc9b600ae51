#include "report/trace.h"
#include "base/io.h"
#include "report/jout.h"
#include "report/picture.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FLUSH_BYTES = 1 << 16,
    MAIN_THREAD = 1,
    FIRST_PID = 1,
};

/* One end of a message between two ranks. */
typedef struct message_end {
    ech_axis axis;
    int from, to;       /* ranks */
    int item, op;       /* of the start: the order in which the rank starts its messages */
    int pid, tid;       /* of its bar */
    int64_t begin, end; /* ns */
} message_end;

typedef struct message_ends {
    message_end *end; /* owned */
    size_t n, capacity;
} message_ends;

/* The threads of an axis of a rank: until when each is taken. */
typedef struct threads {
    int64_t *until; /* owned, ns */
    size_t n, capacity;
} threads;

/* A trace being written. */
typedef struct writer {
    ech_file *file;
    ech_jout event;
    ech_text text; /* events that are not in the file yet */
    bool has_event;
    int pid;         /* of rank 0 of the line in work */
    int64_t flows;   /* so far */
    threads *thread; /* owned [world, ECH_N_AXES] of the line in work */
    int *members;    /* owned [world] */
    message_ends sent, received;
} writer;

const char *ech_role_word(ech_role role)
{
    static const char *const word[] = {
        [ECH_ROLE_FORWARD] = "forward",
        [ECH_ROLE_BACKWARD] = "backward",
        [ECH_ROLE_BACKWARD_INPUT] = "input gradient",
        [ECH_ROLE_BACKWARD_WEIGHT] = "weight gradient",
        [ECH_ROLE_RECOMPUTE] = "recompute",
        [ECH_ROLE_UPDATE] = "update",
        [ECH_ROLE_TRANSFER] = "transfer",
        [ECH_ROLE_HOST_SCALARS] = "scalars",
    };
    return word[role];
}

/* --- writing --- */

static ech_status flush(writer *w)
{
    ECH_CHECK(!w->text.failed && !w->event.text.failed, ECH_E_NOMEM, "no memory for a trace");
    if (w->text.bytes)
        ECH_TRY(ech_file_write(w->file, ech_text_get(&w->text), w->text.bytes));
    w->text.bytes = 0;
    return ECH_OK;
}

/* ns as microseconds: exact, so that what ended when the next began still does. */
static void add_us(ech_jout *j, const char *key, int64_t ns)
{
    char us[40];
    const char *sign = ns < 0 ? "-" : "";
    const int64_t x = ns < 0 ? -ns : ns;
    (void)snprintf(us, sizeof us, "%s%" PRId64 ".%03d", sign, x / 1000, (int)(x % 1000));
    ech_jout_raw(j, key, us);
}

static ech_jout *begin_event(writer *w, const char *phase, const char *name, int pid, int tid)
{
    ech_jout *j = &w->event;
    ech_jout_reset(j);
    ech_jout_open(j, NULL, '{');
    ech_jout_string(j, "ph", phase);
    ech_jout_string(j, "name", name);
    ech_jout_int(j, "pid", pid);
    ech_jout_int(j, "tid", tid);
    return j;
}

static ech_status end_event(writer *w)
{
    ech_jout_close(&w->event);
    ech_text_add(&w->text, "%s\n", w->has_event ? "," : "");
    ech_text_add_bytes(&w->text, ech_jout_get(&w->event), w->event.text.bytes);
    w->has_event = true;
    return w->text.bytes < FLUSH_BYTES && !w->text.failed ? ECH_OK : flush(w);
}

/* A process_name and its like. */
static ech_status write_name(writer *w, const char *what, int pid, int tid, const char *name)
{
    ech_jout *j = begin_event(w, "M", what, pid, tid);
    add_us(j, "ts", 0);
    ech_jout_open(j, "args", '{');
    ech_jout_string(j, "name", name);
    ech_jout_close(j);
    return end_event(w);
}

static ech_status write_order(writer *w, const char *what, int pid, int tid, int order)
{
    ech_jout *j = begin_event(w, "M", what, pid, tid);
    add_us(j, "ts", 0);
    ech_jout_open(j, "args", '{');
    ech_jout_int(j, "sort_index", order);
    ech_jout_close(j);
    return end_event(w);
}

static ech_status write_thread(writer *w, int pid, int tid, const char *name)
{
    ECH_TRY(write_name(w, "thread_name", pid, tid, name));
    return write_order(w, "thread_sort_index", pid, tid, tid);
}

/* "measured: rank 3 (tp 1, pp 1)": coordinates along axes that have more than one rank. */
static ech_status write_process(writer *w, const ech_timeline *l, const char *name, int rank)
{
    const ech_layout *layout = &ech_timeline_program(l, rank)->layout;
    int64_t coord[ECH_N_AXES];
    ech_text words = {0};
    const char *between = " (";
    ech_layout_coords(layout, rank, coord);
    ech_text_add(&words, "%s: rank %d", name, rank);
    for (int i = 0; i < ECH_MESH_AXES; i++) {
        const ech_axis a = layout->order[i];
        if (layout->degree[a] == 1)
            continue;
        ech_text_add(&words, "%s%s %lld", between, ech_axis_name(a), (long long)coord[a]);
        between = ", ";
    }
    ech_text_add(&words, "%s", *between == ',' ? ")" : "");
    w->text.failed |= words.failed;
    const int pid = w->pid + rank;
    ech_status st = write_name(w, "process_name", pid, MAIN_THREAD, ech_text_get(&words));
    ech_text_fini(&words);
    ECH_TRY(st);
    ECH_TRY(write_order(w, "process_sort_index", pid, MAIN_THREAD, pid));
    return write_thread(w, pid, MAIN_THREAD, "kernels and waits");
}

/* --- bars --- */

static int64_t ns_of(double s)
{
    return llrint(s * 1e9);
}

/* The first thread of the axis that is free by then. */
static ech_status take_thread(writer *w, const ech_bar *b, int64_t begin, int64_t end, int *tid)
{
    threads *t = &w->thread[b->rank * ECH_N_AXES + (int)b->axis];
    char name[48];
    size_t k = 0;
    while (k < t->n && t->until[k] > begin)
        k++;
    *tid = MAIN_THREAD + 1 + (int)b->axis + (int)k * ECH_N_AXES;
    if (k == t->n) {
        ECH_TRY(ech_grow(&t->until, t->n, &t->capacity, sizeof *t->until));
        t->n++;
        (void)snprintf(name, sizeof name, k ? "messages over %s (%zu)" : "messages over %s",
                       ech_axis_name(b->axis), k + 1);
        ECH_TRY(write_thread(w, w->pid + b->rank, *tid, name));
    }
    t->until[k] = end;
    return ECH_OK;
}

/* What is communicated. */
static int64_t bytes_of(const ech_program *p, const ech_op *op, int rank)
{
    int64_t coord[ECH_N_AXES];
    if (op->kind == ECH_OP_RECV_START)
        return (int64_t)ech_operand_bytes(&op->arg[0]);
    ech_layout_coords(&p->layout, rank, coord);
    return ech_op_traffic(op, p->layout.degree[op->axis], (int)coord[op->axis]).payload_bytes;
}

static void add_where(ech_jout *j, const char *key, int index)
{
    if (index >= 0)
        ech_jout_int(j, key, index);
    else
        ech_jout_null(j, key);
}

static void add_args(ech_jout *j, const ech_program *p, const ech_bar *b)
{
    const ech_item *it = &p->item[b->item];
    const ech_block *block = &p->block[it->block];
    ech_jout_open(j, "args", '{');
    ech_jout_int(j, "rank", b->rank);
    ech_jout_int(j, "item", b->item);
    ech_jout_string(j, "block", block->name);
    ech_jout_string(j, "op", b->op >= 0 ? ech_op_name(block->op[b->op].kind) : NULL);
    add_where(j, "layer", it->layer);
    add_where(j, "chunk", it->chunk);
    add_where(j, "micro", it->micro);
    ech_jout_string(j, "segment", ech_segment_name(it->segment));
    if (b->lane == ECH_LANE_COMM)
        ech_jout_int(j, "bytes", bytes_of(p, &block->op[b->op], b->rank));
    ech_jout_close(j);
}

static const char *category(const ech_program *p, const ech_bar *b)
{
    if (b->lane == ECH_LANE_COMPUTE)
        return ech_role_word(p->block[p->item[b->item].block].role);
    return b->lane == ECH_LANE_WAIT ? "wait" : "message";
}

/* "attention forward"; "wait dp"; "all_reduce dp" */
static void name_bar(const ech_program *p, const ech_bar *b, char *buf, size_t n)
{
    const ech_block *block = &p->block[p->item[b->item].block];
    const char *start = "_start";
    if (b->lane == ECH_LANE_COMPUTE) {
        (void)snprintf(buf, n, "%s", block->name);
        return;
    }
    if (b->lane == ECH_LANE_WAIT) {
        (void)snprintf(buf, n, "wait %s", ech_axis_name(b->axis));
        return;
    }
    const char *op = ech_op_name(block->op[b->op].kind);
    const size_t len = ech_has_suffix(op, start) ? strlen(op) - strlen(start) : strlen(op);
    (void)snprintf(buf, n, "%.*s %s", (int)len, op, ech_axis_name(b->axis));
}

/* Keep an end of a message between two ranks, for its arrow. */
static ech_status note_message(writer *w, const ech_program *p, const ech_bar *b,
                               const message_end *at)
{
    const ech_item *it = &p->item[b->item];
    const ech_op *op = &p->block[it->block].op[b->op];
    const bool is_send = op->kind == ECH_OP_SEND_START;
    message_ends *ends = is_send ? &w->sent : &w->received;
    int64_t coord[ECH_N_AXES];
    if (!is_send && op->kind != ECH_OP_RECV_START)
        return ECH_OK;
    ech_layout_coords(&p->layout, b->rank, coord);
    const int64_t peer = ech_expr_eval(&op->attr[0], coord, it->micro);
    (void)ech_layout_group(&p->layout, b->rank, b->axis, w->members);
    ECH_ASSERT(peer >= 0 && peer < p->layout.degree[b->axis]);
    ECH_TRY(ech_grow(&ends->end, ends->n, &ends->capacity, sizeof *ends->end));
    message_end *e = &ends->end[ends->n++];
    *e = *at;
    e->axis = b->axis;
    e->item = b->item;
    e->op = b->op;
    e->from = is_send ? b->rank : w->members[peer];
    e->to = is_send ? w->members[peer] : b->rank;
    return ECH_OK;
}

static ech_status write_bar(writer *w, const ech_timeline *l, const ech_bar *b)
{
    char name[96];
    const ech_program *p = ech_timeline_program(l, b->rank);
    message_end at = {.pid = w->pid + b->rank,
                      .tid = MAIN_THREAD,
                      .begin = ns_of(b->begin_s),
                      .end = ns_of(b->end_s)};
    if (b->lane == ECH_LANE_COMM)
        ECH_TRY(take_thread(w, b, at.begin, at.end, &at.tid));
    name_bar(p, b, name, sizeof name);
    ech_jout *j = begin_event(w, "X", name, at.pid, at.tid);
    ech_jout_string(j, "cat", category(p, b));
    add_us(j, "ts", at.begin);
    add_us(j, "dur", at.end - at.begin);
    add_args(j, p, b);
    ECH_TRY(end_event(w));
    return b->lane == ECH_LANE_COMM ? note_message(w, p, b, &at) : ECH_OK;
}

/* --- arrows --- */

static int sign_of(int a, int b)
{
    return (a > b) - (a < b);
}

static int compare_pairs(const message_end *a, const message_end *b)
{
    if (a->axis != b->axis)
        return sign_of((int)a->axis, (int)b->axis);
    return a->from != b->from ? sign_of(a->from, b->from) : sign_of(a->to, b->to);
}

/* Messages between two ranks match in the order in which each of them starts them. */
static int compare_ends(const void *x, const void *y)
{
    const message_end *a = x;
    const message_end *b = y;
    const int pair = compare_pairs(a, b);
    if (pair)
        return pair;
    return a->item != b->item ? sign_of(a->item, b->item) : sign_of(a->op, b->op);
}

static ech_status write_flow_end(writer *w, const message_end *e, bool is_end, int64_t at)
{
    ech_jout *j = begin_event(w, is_end ? "f" : "s", "message", e->pid, e->tid);
    ech_jout_string(j, "cat", "message");
    ech_jout_int(j, "id", w->flows);
    add_us(j, "ts", at);
    if (is_end)
        ech_jout_string(j, "bp", "e"); /* to the bar around it, not to the next one */
    return end_event(w);
}

/* Into the last moment of the receive's bar, which is when it had all. */
static ech_status write_flow(writer *w, const message_end *from, const message_end *to)
{
    w->flows++;
    ECH_TRY(write_flow_end(w, from, false, from->begin));
    return write_flow_end(w, to, true, to->end > to->begin ? to->end - 1 : to->begin);
}

static void sort_ends(message_ends *m)
{
    if (m->n)
        qsort(m->end, m->n, sizeof *m->end, compare_ends);
}

/* Bars are lost at the end of a recording alone, so the k-th of both sides belong together. */
static ech_status write_flows(writer *w)
{
    sort_ends(&w->sent);
    sort_ends(&w->received);
    size_t s = 0;
    size_t r = 0;
    while (s < w->sent.n && r < w->received.n) {
        const message_end *from = &w->sent.end[s];
        const message_end *to = &w->received.end[r];
        const int order = compare_pairs(from, to);
        if (order == 0)
            ECH_TRY(write_flow(w, from, to));
        s += order <= 0;
        r += order >= 0;
    }
    return ECH_OK;
}

/* --- files --- */

static ech_status write_head(writer *w, const ech_timeline *const *line, const char *const *name,
                             int n)
{
    ech_jout *j = &w->event;
    ech_jout_reset(j);
    ech_jout_open(j, NULL, '{');
    ech_jout_string(j, "producer", "echelon " ECH_VERSION);
    ech_jout_open(j, "lines", '[');
    for (int i = 0; i < n; i++) {
        ech_jout_open(j, NULL, '{');
        ech_jout_string(j, "name", name[i]);
        ech_jout_real(j, "step_s", line[i]->step_s);
        ech_jout_int(j, "ranks", line[i]->world);
        ech_jout_int(j, "bars", (int64_t)line[i]->n);
        ech_jout_int(j, "lost", (int64_t)line[i]->lost);
        ech_jout_string(j, "note", line[i]->note);
        ech_jout_close(j);
    }
    ech_jout_close(j);
    ech_jout_close(j);
    ech_text_add(&w->text, "{\"displayTimeUnit\": \"ms\", \"otherData\": %s, \"traceEvents\": [",
                 ech_jout_get(j));
    return flush(w);
}

static void drop_threads(writer *w, int world)
{
    for (int i = 0; w->thread && i < world * ECH_N_AXES; i++)
        free(w->thread[i].until);
    free(w->thread);
    w->thread = NULL;
    free(w->members);
    w->members = NULL;
    w->sent.n = w->received.n = 0;
}

static ech_status write_line(writer *w, const ech_timeline *l, const char *name)
{
    ECH_TRY(ech_calloc((size_t)l->world * ECH_N_AXES, sizeof *w->thread, &w->thread));
    ECH_TRY(ech_calloc((size_t)l->world, sizeof *w->members, &w->members));
    for (int r = 0; r < l->world; r++)
        ECH_TRY(write_process(w, l, name, r));
    for (size_t i = 0; i < l->n; i++)
        ECH_TRY(write_bar(w, l, &l->bar[i]));
    return write_flows(w);
}

static ech_status write_all(writer *w, const ech_timeline *const *line, const char *const *name,
                            int n, const char *path)
{
    ECH_TRY(ech_file_create(path, &w->file));
    ECH_TRY(write_head(w, line, name, n));
    w->pid = FIRST_PID;
    for (int i = 0; i < n; i++) {
        const ech_status st = write_line(w, line[i], name[i]);
        drop_threads(w, line[i]->world);
        ECH_TRY(st);
        w->pid += line[i]->world;
    }
    ech_text_add(&w->text, "\n]}\n");
    ECH_TRY(flush(w));
    return ech_file_publish(w->file);
}

ech_status ech_trace_write(const ech_timeline *const *line, const char *const *name, int n,
                           const char *path)
{
    writer w = {0};
    const ech_status st = write_all(&w, line, name, n, path);
    ech_file_close(&w.file);
    ech_jout_fini(&w.event);
    ech_text_fini(&w.text);
    free(w.sent.end);
    free(w.received.end);
    return st;
}

ech_status ech_trace_check_path(const char *path)
{
    ECH_CHECK(ech_has_suffix(path, ".json") || ech_has_suffix(path, ".svg"), ECH_E_USAGE,
              "%s: a time line is written as FILE.json (a trace for Perfetto) or FILE.svg (a "
              "picture)",
              path);
    return ECH_OK;
}

ech_status ech_trace_try_path(const char *path)
{
    ech_file *f;
    ECH_TRY(ech_file_create(path, &f));
    ech_file_close(&f);
    return ECH_OK;
}

ech_status ech_trace_write_as(const ech_timeline *const *line, const char *const *name, int n,
                              const char *path)
{
    return ech_has_suffix(path, ".svg") ? ech_picture_write(line, name, n, path)
                                        : ech_trace_write(line, name, n, path);
}
