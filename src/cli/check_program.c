/* Programs that nobody here has made: one, or of a pipeline one a pipeline rank. */
#include "cli/check_program.h"
#include "base/checked.h"
#include "base/io.h"
#include "cli/command.h"
#include "cli/proof_table.h"
#include "program/program_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the files bring. */
typedef struct loaded {
    int n;
    ech_program *program; /* owned, [n] */
    size_t capacity;
    const ech_program **klass; /* owned, [n]: each program */
    int *class_of;             /* owned, [world]; NULL: one program for all ranks */
} loaded;

static void loaded_fini(loaded *l)
{
    for (int k = 0; k < l->n; k++)
        ech_program_fini(&l->program[k]);
    free(l->program);
    free(l->klass);
    free(l->class_of);
}

static bool is_same_layout(const ech_layout *a, const ech_layout *b)
{
    return memcmp(a->degree, b->degree, sizeof a->degree) == 0 && a->is_nested == b->is_nested &&
           memcmp(a->order, b->order, sizeof a->order) == 0 && a->node_ranks == b->node_ranks &&
           memcmp(a->tied, b->tied, sizeof a->tied) == 0 &&
           memcmp(a->tree, b->tree, sizeof a->tree) == 0;
}

static ech_status load_one(loaded *l, const char *path)
{
    ECH_TRY(ech_grow(&l->program, (size_t)l->n, &l->capacity, sizeof *l->program));
    ECH_TRY(ech_program_load(path, &l->program[l->n]));
    l->n++;
    ECH_CHECK(is_same_layout(&l->program[0].layout, &l->program[l->n - 1].layout), ECH_E_PROOF,
              "%s: its layout is another than that of the first pipeline rank's program", path);
    return ECH_OK;
}

/* A rank's class is its pipeline rank. */
static ech_status set_classes(loaded *l)
{
    int64_t coord[ECH_N_AXES];
    const ech_layout *mesh = &l->program[0].layout;
    ECH_TRY(ech_calloc((size_t)mesh->world, sizeof *l->class_of, &l->class_of));
    for (int r = 0; r < mesh->world; r++) {
        ech_layout_coords(mesh, r, coord);
        l->class_of[r] = (int)coord[ECH_AXIS_PP];
    }
    return ECH_OK;
}

static ech_status load_stages(loaded *l, const char *path)
{
    char name[4096];
    do {
        (void)snprintf(name, sizeof name, "%s.%d", path, l->n);
        ECH_TRY(load_one(l, name));
    } while (l->n < l->program[0].layout.degree[ECH_AXIS_PP]);
    return l->n > 1 ? set_classes(l) : ECH_OK;
}

static ech_status load(loaded *l, const char *path)
{
    char first[4096];
    const int length = snprintf(first, sizeof first, "%s.0", path);
    const bool is_one =
        length >= (int)sizeof first || ech_path_exists(path) || !ech_path_exists(first);
    ECH_TRY(is_one ? load_one(l, path) : load_stages(l, path));
    ECH_TRY(ech_calloc((size_t)l->n, sizeof *l->klass, &l->klass));
    for (int k = 0; k < l->n; k++)
        l->klass[k] = &l->program[k];
    return ECH_OK;
}

static ech_status print_proof(const loaded *l, bool is_json, const ech_prove_report *report)
{
    ech_jout j = {0};
    int64_t items = 0;
    int64_t ops = 0;
    const ech_program *p = &l->program[0];
    for (int k = 0; k < l->n; k++) {
        int64_t its_items;
        int64_t its_ops;
        ech_program_count(&l->program[k], &its_items, &its_ops);
        items += its_items;
        ops += its_ops;
    }
    if (!is_json) {
        (void)printf("%lld items, %lld ops\n", (long long)items, (long long)ops);
        ech_cli_print_proof(p, report);
        return ECH_OK;
    }
    ech_jout_open(&j, NULL, '{');
    ech_jout_string(&j, "program", p->name);
    ech_jout_int(&j, "ranks", p->layout.world);
    ech_jout_int(&j, "classes", l->n);
    ech_jout_int(&j, "items", items);
    ech_jout_int(&j, "ops", ops);
    ech_jout_open(&j, "proof", '[');
    ech_cli_jout_proof(&j, p, report);
    ech_jout_close(&j);
    ech_jout_close(&j);
    return ech_cli_print_json(&j);
}

/* Of no model: cover is left out. */
static ech_status prove(const loaded *l, bool is_json)
{
    ech_prove_report report;
    const ech_prove_spec spec = {.program = l->klass, .n_classes = l->n, .class_of = l->class_of};
    const ech_status proof = ech_prove(&spec, &report);
    const ech_status told = proof == ECH_E_NOMEM ? proof : print_proof(l, is_json, &report);
    return proof < 0 ? proof : told;
}

ech_status ech_cli_check_program(const char *path, bool is_json)
{
    loaded l = {0};
    ech_status st = load(&l, path);
    if (st >= 0)
        st = prove(&l, is_json);
    loaded_fini(&l);
    return st;
}
