#include "cli/bench_table.h"
#include "cli/command.h"
#include "report/jout.h"

#include <math.h>
#include <stdio.h>

static double call_s(const ech_bench_point *p)
{
    return p->seconds * p->pieces;
}

static bool counts_flop(const ech_bench_point *p)
{
    return ech_op_row_get(p->kind)->flops != NULL;
}

static void print_head(const ech_calibration *c)
{
    (void)printf("%s, %s: %d rank%s of %d thread%s, %s, kernels %s%s%s\n", c->cpu, c->date,
                 c->ranks, c->ranks == 1 ? "" : "s", c->threads, c->threads == 1 ? "" : "s",
                 ech_dtype_name(c->real), c->kernels, c->transport[0] ? ", messages over " : "",
                 c->transport);
    if (isfinite(c->op_s))
        (void)printf("executor %.3f us an op\n", 1e6 * c->op_s);
    if (isfinite(c->comm_busy))
        (void)printf("%.0f %% of a message occupies its ranks\n", 100 * c->comm_busy);
}

static void print_point(const ech_bench_point *p)
{
    const char *names[ECH_GRID_AXES];
    char where[96] = "";
    size_t used = 0;
    const int n = ech_grid_axes_of(p->kind, names);
    for (int a = 0; a < n && used < sizeof where; a++)
        used += (size_t)snprintf(where + used, sizeof where - used, "%s%s %.0f", a ? ", " : "",
                                 names[a], p->at[a]);
    (void)printf("%-22s %-40s %12.2f us %9.2f %s  spread %3.0f %%\n", ech_op_name(p->kind), where,
                 1e6 * call_s(p), 1e-9 * p->work / call_s(p),
                 counts_flop(p) ? "GFLOP/s" : "GB/s   ", 100 * p->spread);
}

static void add_point(ech_jout *j, const ech_bench_point *p)
{
    const char *names[ECH_GRID_AXES];
    const int n = ech_grid_axes_of(p->kind, names);
    ech_jout_open(j, NULL, '{');
    ech_jout_string(j, "op", ech_op_name(p->kind));
    for (int a = 0; a < n; a++)
        ech_jout_real(j, names[a], p->at[a]);
    ech_jout_real(j, "call_s", call_s(p));
    ech_jout_real(j, counts_flop(p) ? "flop_per_s" : "bytes_per_s", p->work / call_s(p));
    ech_jout_real(j, "spread", p->spread);
    ech_jout_close(j);
}

static ech_status print_json(const ech_calibration *c, const ech_bench_found *found)
{
    ech_jout j = {0};
    ech_jout_open(&j, NULL, '{');
    ech_jout_string(&j, "cpu", c->cpu);
    ech_jout_string(&j, "host", c->host);
    ech_jout_string(&j, "date", c->date);
    ech_jout_int(&j, "ranks", c->ranks);
    ech_jout_int(&j, "threads", c->threads);
    ech_jout_string(&j, "dtype", ech_dtype_name(c->real));
    ech_jout_string(&j, "kernels", c->kernels);
    ech_jout_string(&j, "transport", c->transport[0] ? c->transport : NULL);
    ech_jout_real(&j, "op_s", c->op_s);
    ech_jout_real(&j, "comm_busy", c->comm_busy);
    ech_jout_open(&j, "points", '[');
    for (size_t i = 0; i < found->n; i++)
        add_point(&j, &found->point[i]);
    ech_jout_close(&j);
    ech_jout_close(&j);
    return ech_cli_print_json(&j);
}

ech_status ech_bench_print(const ech_calibration *c, const ech_bench_found *found, bool as_json)
{
    if (as_json)
        return print_json(c, found);
    print_head(c);
    for (size_t i = 0; i < found->n; i++)
        print_point(&found->point[i]);
    return ECH_OK;
}
