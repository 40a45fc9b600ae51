/* The file of a calibration: YAML read with every finding, written so that it reads back the same. */
#include "base/node.h"
#include "catalog/key_reader.h"
#include "price/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- reading --- */

static void read_words(const ech_key_reader *r, const char *key, char *out, size_t n)
{
    const char *s = NULL;
    if (ech_key_string(r, ECH_KEYS(key), &s) != ECH_KEY_GOOD)
        return;
    if (strlen(s) < n)
        (void)snprintf(out, n, "%s", s);
    else
        ech_key_complain(r, ech_key_find(r, key), "%s: %zu bytes, wanted less than %zu", key,
                         strlen(s), n);
}

static void read_count(const ech_key_reader *r, const char *key, int *out)
{
    int64_t value = 0;
    const ech_key_got got = ech_key_int(r, ECH_KEYS(key), 1, &value);
    if (got == ECH_KEY_ABSENT)
        ech_key_complain(r, NULL, "%s: missing, wanted a whole number >= 1", key);
    else if (got == ECH_KEY_GOOD && value > 1000000)
        ech_key_complain(r, ech_key_find(r, key), "%s: %lld, wanted 1..1000000", key,
                         (long long)value);
    else
        *out = (int)value;
}

static void read_dtype(const ech_key_reader *r, ech_dtype *out)
{
    const char *names[ECH_N_DTYPES];
    int i = 0;
    for (int t = 0; t < ECH_N_DTYPES; t++)
        names[t] = ech_dtype_name((ech_dtype)t);
    const ech_key_got got = ech_key_choice(r, "dtype", names, ECH_N_DTYPES, &i);
    if (got == ECH_KEY_GOOD)
        *out = (ech_dtype)i;
    else if (got == ECH_KEY_ABSENT)
        ech_key_complain(r, NULL, "dtype: missing, wanted fp32 or fp64");
}

/* Positive finite numbers, at most `room`; returns how many, 0 after a finding. */
static int read_list(const ech_key_reader *r, const char *key, int room, double *out)
{
    const ech_node *list = NULL;
    const ech_key_got got = ech_key_tree(r, key, ECH_NODE_LIST, &list);
    int n = 0;
    if (got == ECH_KEY_ABSENT)
        ech_key_complain(r, NULL, "%s: missing, wanted a list of numbers", key);
    if (got != ECH_KEY_GOOD)
        return 0;
    if (list->n < 1 || list->n > room) {
        ech_key_complain(r, list, "%s: %lld values, wanted 1..%d", key, (long long)list->n, room);
        return 0;
    }
    for (const ech_node *v = list->child; v; v = v->next) {
        const bool is_number = v->kind == ECH_NODE_INT || v->kind == ECH_NODE_REAL;
        if (!is_number || !(v->real > 0.0) || !isfinite(v->real)) {
            char buf[64];
            ech_key_complain(r, v, "%s: value %d is %s, wanted a number > 0", key, n + 1,
                             ech_key_describe(v, buf, sizeof buf));
            return 0;
        }
        out[n++] = v->real;
    }
    return n;
}

static bool read_axis(const ech_key_reader *r, const char *key, ech_grid *g, int axis)
{
    double *at = g->at[axis];
    g->n[axis] = read_list(r, key, ECH_GRID_POINTS, at);
    for (int i = 1; i < g->n[axis]; i++)
        if (!(at[i] > at[i - 1])) {
            ech_key_complain(r, ech_key_find(r, key), "%s: %g after %g, wanted growing values", key,
                             at[i], at[i - 1]);
            return false;
        }
    return g->n[axis] > 0;
}

static void check_grid_keys(const ech_key_reader *r, const char *const *names, int n)
{
    const char *known[ECH_GRID_AXES + 1];
    for (int i = 0; i < n; i++)
        known[i] = names[i];
    known[n] = "seconds";
    ech_key_check_known(r, known, (size_t)n + 1);
}

/* A grid that has a finding stays unmeasured. */
static void read_grid(const ech_key_reader *r, ech_op_kind kind, ech_grid *out)
{
    const char *names[ECH_GRID_AXES];
    ech_grid g = {.n_axes = ech_grid_axes_of(kind, names)};
    int points = 1;
    bool is_good = true;
    if (g.n_axes == 0) {
        ech_key_complain(r, r->map, "this kind of op has no cost of its own");
        return;
    }
    check_grid_keys(r, names, g.n_axes);
    for (int a = 0; a < g.n_axes; a++) {
        is_good &= read_axis(r, names[a], &g, a);
        points *= g.n[a];
    }
    const int n = read_list(r, "seconds", ECH_GRID_VALUES, g.seconds);
    if (is_good && n && n != points)
        ech_key_complain(r, ech_key_find(r, "seconds"),
                         "seconds: %d values, the axes have %d points", n, points);
    else if (is_good && n)
        *out = g;
}

static void read_cost(const ech_key_reader *r, ech_calibration *c)
{
    const char *known[ECH_N_OPS];
    for (int k = 0; k < ECH_N_OPS; k++)
        known[k] = ech_op_name((ech_op_kind)k);
    ech_key_check_known(r, known, ECH_N_OPS);
    for (int k = 0; k < ECH_N_OPS; k++) {
        char name[512];
        const ech_node *map = NULL;
        if (ech_key_tree(r, known[k], ECH_NODE_MAP, &map) != ECH_KEY_GOOD)
            continue;
        (void)snprintf(name, sizeof name, "%.300s.%s", r->name, known[k]);
        read_grid(&(ech_key_reader){map, name, r->findings}, (ech_op_kind)k, &c->cost[k]);
    }
}

static void read_all(const ech_key_reader *r, ech_calibration *c)
{
    static const char *const known[] = {"echelon",   "date",         "host",    "cpu",   "kernels",
                                        "transport", "ranks",        "threads", "dtype", "op_s",
                                        "comm_busy", "memory_bytes", "in_step", "cost"};
    char name[400];
    const ech_node *cost = NULL;
    ech_key_check_known(r, known, sizeof known / sizeof known[0]);
    read_words(r, "echelon", c->echelon, sizeof c->echelon);
    read_words(r, "date", c->date, sizeof c->date);
    read_words(r, "host", c->host, sizeof c->host);
    read_words(r, "cpu", c->cpu, sizeof c->cpu);
    read_words(r, "kernels", c->kernels, sizeof c->kernels);
    read_words(r, "transport", c->transport, sizeof c->transport);
    read_count(r, "ranks", &c->ranks);
    read_count(r, "threads", &c->threads);
    read_dtype(r, &c->real);
    (void)ech_key_real(r, ECH_KEYS("op_s"), 0.0, 1.0, &c->op_s);
    (void)ech_key_real(r, ECH_KEYS("comm_busy"), 0.0, 1.0, &c->comm_busy);
    (void)ech_key_real(r, ECH_KEYS("memory_bytes"), 1.0, 1e18, &c->memory_bytes);
    (void)ech_key_real(r, ECH_KEYS("in_step"), 0.1, 10.0, &c->in_step);
    const ech_key_got got = ech_key_tree(r, "cost", ECH_NODE_MAP, &cost);
    if (got == ECH_KEY_ABSENT)
        ech_key_complain(r, NULL, "cost: missing, wanted a map of op kinds");
    if (got != ECH_KEY_GOOD)
        return;
    (void)snprintf(name, sizeof name, "%.380s: cost", r->name);
    read_cost(&(ech_key_reader){cost, name, r->findings}, c);
}

static ech_status from_node(const ech_node *root, const char *name, ech_calibration *out)
{
    ech_findings findings = {0};
    ech_calibration c;
    ech_calibration_init(&c);
    const ech_key_reader r = {root, name, &findings};
    ECH_CHECK(
        !ech_node_find(root, "base"), ECH_E_CONFIG,
        "%s: this is the file of a cluster, which plan, fit and sim of a --model take; wanted "
        "the calibration of a machine, as 'echelon bench --save' writes it",
        name);
    if (root->kind == ECH_NODE_MAP)
        read_all(&r, &c);
    else
        ech_key_complain(&r, root, "%s, wanted a map: the calibration of a machine",
                         ech_node_kind_name(root->kind));
    const ech_status st = ech_findings_raise(&findings, ECH_E_CONFIG);
    ech_findings_fini(&findings);
    if (st >= 0)
        *out = c;
    return st;
}

ech_status ech_calibration_parse(const char *text, size_t bytes, const char *name,
                                 ech_calibration *out)
{
    ech_node *root = NULL;
    ECH_TRY(ech_node_parse_yaml(text, bytes, name, &root));
    const ech_status st = from_node(root, name, out);
    ech_node_destroy(&root);
    return st;
}

ech_status ech_calibration_read(const char *path, ech_calibration *out)
{
    ech_node *root = NULL;
    ECH_TRY(ech_node_read_file(path, false, &root));
    const ech_status st = from_node(root, path, out);
    ech_node_destroy(&root);
    return st;
}

/* --- writing --- */

static void write_words(ech_text *out, const char *key, const char *s)
{
    ech_text_add(out, "%s: ", key);
    ech_text_add_json_string(out, s, strlen(s));
    ech_text_add(out, "\n");
}

static void write_number(ech_text *out, const char *key, double x)
{
    ech_text_add(out, "%s: ", key);
    ech_text_add_double(out, x);
    ech_text_add(out, "\n");
}

static void write_list(ech_text *out, const char *key, const double *x, int n)
{
    ech_text_add(out, "    %s: [", key);
    for (int i = 0; i < n; i++) {
        ech_text_add(out, i ? ", " : "");
        ech_text_add_double(out, x[i]);
    }
    ech_text_add(out, "]\n");
}

static void write_grid(ech_text *out, ech_op_kind kind, const ech_grid *g)
{
    const char *names[ECH_GRID_AXES];
    int points = 1;
    ECH_ASSERT(ech_grid_axes_of(kind, names) == g->n_axes);
    ech_text_add(out, "  %s:\n", ech_op_name(kind));
    for (int a = 0; a < g->n_axes; a++) {
        write_list(out, names[a], g->at[a], g->n[a]);
        points *= g->n[a];
    }
    write_list(out, "seconds", g->seconds, points);
}

static bool has_costs(const ech_calibration *c)
{
    for (int k = 0; k < ECH_N_OPS; k++)
        if (c->cost[k].n_axes)
            return true;
    return false;
}

void ech_calibration_write(const ech_calibration *c, ech_text *out)
{
    ech_text_add(out, "# what one rank does on this machine: measured by 'echelon bench --save'\n");
    write_words(out, "echelon", c->echelon);
    write_words(out, "date", c->date);
    write_words(out, "host", c->host);
    write_words(out, "cpu", c->cpu);
    write_words(out, "kernels", c->kernels);
    write_words(out, "transport", c->transport);
    ech_text_add(out, "ranks: %d\nthreads: %d\ndtype: %s\n", c->ranks, c->threads,
                 ech_dtype_name(c->real));
    write_number(out, "op_s", c->op_s);
    write_number(out, "comm_busy", c->comm_busy);
    write_number(out, "memory_bytes", c->memory_bytes);
    if (isfinite(c->in_step))
        write_number(out, "in_step", c->in_step);
    ech_text_add(out, has_costs(c) ? "cost:\n" : "cost: {}\n");
    for (int k = 0; k < ECH_N_OPS; k++)
        if (c->cost[k].n_axes)
            write_grid(out, (ech_op_kind)k, &c->cost[k]);
}
