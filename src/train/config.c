/* A configuration's life: defaults, what is auto, sums over it. */
#include "train/config.h"

#include "base/checked.h"
#include "base/io.h"
#include "train/config_value.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH_BYTES = 4096 };

/* The defaults stand in the table as YAML, so that they take the same way as what a user writes. */
static ech_status set_default(const ech_option *row, const char *base_dir, ech_config *cfg)
{
    ech_node *node = NULL;
    ech_text problem = {0};
    ECH_TRY(ech_node_parse_yaml(row->fallback, strlen(row->fallback), row->path, &node));
    const ech_status st = ech_value_read(row, node, base_dir, cfg, &problem);
    ECH_ASSERT(problem.bytes == 0);
    ech_text_fini(&problem);
    ech_node_destroy(&node);
    return st;
}

ech_status ech_config_init_in(const char *base_dir, ech_config *out)
{
    ech_config cfg = {0};
    size_t n_rows = 0;
    const ech_option *row = ech_options(&n_rows);
    ech_status st = ECH_OK;
    ECH_TRY_GOTO(st, ech_calloc(n_rows, sizeof *cfg.place, &cfg.place), fail);
    for (size_t i = 0; i < n_rows; i++)
        if (row[i].type != ECH_OPTION_MODEL)
            ECH_TRY_GOTO(st, set_default(&row[i], base_dir, &cfg), fail);
    *out = cfg;
    return ECH_OK;
fail:
    ech_config_fini(&cfg);
    return st;
}

ech_status ech_config_init(ech_config *out)
{
    return ech_config_init_in(".", out);
}

void ech_config_fini(ech_config *cfg)
{
    size_t n_rows = 0;
    const ech_option *row = ech_options(&n_rows);
    for (size_t i = 0; i < n_rows; i++)
        if (row[i].type != ECH_OPTION_MODEL)
            ech_value_free(&row[i], cfg);
    ech_schedule_fini(&cfg->layout.table);
    free(cfg->layout.stage_layers);
    free(cfg->path);
    free(cfg->model_json);
    free(cfg->model_hf);
    free(cfg->place);
    *cfg = (ech_config){0};
}

/* tp cp pp, or 0 where it leaves 64 bits (the degrees are at most a million each). */
static int64_t ranks_per_replica(const ech_config_layout *l)
{
    int64_t n = 0;
    if (ech_mul_i64(l->tp, l->cp, &n) < 0 || ech_mul_i64(n, l->pp, &n) < 0)
        return 0;
    return n;
}

int64_t ech_config_world(const ech_config *cfg)
{
    int64_t n = ranks_per_replica(&cfg->layout);
    const int64_t dp = cfg->layout.dp == ECH_AUTO ? 1 : cfg->layout.dp;
    return ech_mul_i64(n, dp, &n) < 0 ? 0 : n;
}

int64_t ech_config_accumulation(const ech_config *cfg)
{
    return cfg->batch.global / (cfg->batch.micro * cfg->layout.dp);
}

size_t ech_config_bucket_bytes(const ech_config *cfg)
{
    const double bytes = cfg->layout.zero.bucket_mb * 1048576.0;
    const double most = 1024.0 * 1024.0 * 1024.0 * 1024.0;
    return bytes < 1 ? 1 : (size_t)(bytes < most ? bytes : most);
}

static void resolve_precision(ech_config_precision *p)
{
    const bool is_fp64 = p->compute == ECH_COMPUTE_FP64;
    if (is_fp64) {
        p->grads = p->wire_grads = p->wire_tp = ECH_WIRE_FP64;
        return;
    }
    if (p->grads == ECH_WIRE_AUTO)
        p->grads = ECH_WIRE_FP32;
    if (p->wire_grads == ECH_WIRE_AUTO)
        p->wire_grads = p->grads;
    if (p->wire_tp == ECH_WIRE_AUTO)
        p->wire_tp = p->compute == ECH_COMPUTE_FP32 ? ECH_WIRE_FP32 : ECH_WIRE_BF16;
}

/* "runs/NAME" beside the configuration file, NAME its name without the ending. */
static ech_status resolve_run_dir(ech_config *cfg)
{
    char folder[MAX_PATH_BYTES];
    char dir[MAX_PATH_BYTES + 16];
    if (cfg->run.dir)
        return ECH_OK;
    const char *path = cfg->path ? cfg->path : "default";
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    const int bytes = dot && dot > name ? (int)(dot - name) : (int)strlen(name);
    ECH_TRY(ech_path_folder(path, folder, sizeof folder));
    const bool is_here = strcmp(folder, ".") == 0;
    const int n = snprintf(dir, sizeof dir, "%s%sruns/%.*s", is_here ? "" : folder,
                           is_here ? "" : "/", bytes, name);
    ECH_CHECK(n > 0 && (size_t)n < sizeof dir, ECH_E_CONFIG, "run.dir: the path is too long");
    cfg->run.dir = strdup(dir);
    ECH_CHECK(cfg->run.dir, ECH_E_NOMEM, "run.dir");
    return ECH_OK;
}

/* The list as the compiler takes it; what an int does not hold is no number of layers anyway. */
static ech_status resolve_stages(ech_config_layout *l)
{
    free(l->stage_layers);
    l->stage_layers = NULL;
    if (l->stages.n == 0)
        return ECH_OK;
    ECH_TRY(ech_calloc((size_t)l->stages.n, sizeof *l->stage_layers, &l->stage_layers));
    for (int i = 0; i < l->stages.n; i++)
        l->stage_layers[i] = l->stages.item[i] < INT_MAX ? (int)l->stages.item[i] : INT_MAX;
    return ECH_OK;
}

ech_status ech_config_resolve(ech_config *cfg, int ranks)
{
    const int64_t replica = ranks_per_replica(&cfg->layout);
    if (cfg->layout.dp == ECH_AUTO && replica > 0 && ranks % replica == 0)
        cfg->layout.dp = ranks > 0 ? ranks / replica : 1;
    if (cfg->batch.global == ECH_AUTO && cfg->layout.dp != ECH_AUTO) {
        int64_t global = 0;
        if (ech_mul_i64(cfg->batch.micro, cfg->layout.dp, &global) == ECH_OK)
            cfg->batch.global = global;
    }
    if (cfg->batch.seq == ECH_AUTO && cfg->model.context > 0)
        cfg->batch.seq = cfg->model.context;
    resolve_precision(&cfg->precision);
    ECH_TRY(resolve_stages(&cfg->layout));
    return resolve_run_dir(cfg);
}
