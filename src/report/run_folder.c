#include "report/run_folder.h"

#include "base/clock.h"
#include "base/io.h"
#include "measure/machine.h"
#include "report/jout.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PATH_BYTES = 4096 };

static void add_files(ech_jout *j, const char *key, const ech_inputs *inputs)
{
    const bool is_mask = strcmp(key, "mask") == 0;
    ech_jout_open(j, key, '[');
    for (int i = 0; i < inputs->n; i++) {
        const ech_input *in = &inputs->item[i];
        if (strcmp(in->key, key) != 0)
            continue;
        ech_jout_open(j, NULL, '{');
        ech_jout_string(j, "path", in->path);
        ech_jout_int(j, is_mask ? "bytes" : "tokens", in->count);
        ech_jout_string(j, is_mask ? "xxh128" : "tokens_hash", in->hash);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

static void add_inputs(ech_jout *j, const ech_inputs *inputs)
{
    ech_jout_open(j, "data", '{');
    add_files(j, "train", inputs);
    add_files(j, "valid", inputs);
    add_files(j, "mask", inputs);
    ech_jout_close(j);
}

static ech_status add_data(ech_jout *j, const ech_run_facts *facts)
{
    ech_inputs own = {0};
    if (!facts->inputs)
        ECH_TRY(ech_inputs_hash(facts->cfg, &own));
    add_inputs(j, facts->inputs ? facts->inputs : &own);
    ech_inputs_fini(&own);
    return ECH_OK;
}

static void add_versions(ech_jout *j)
{
    ech_jout_open(j, "versions", '{');
    ech_jout_string(j, "echelon", ECH_VERSION);
#ifdef __clang__
    ech_jout_string(j, "compiler", "clang " __clang_version__);
#else
    ech_jout_string(j, "compiler", "gcc " __VERSION__);
#endif
    ech_jout_close(j);
}

static void add_machine(ech_jout *j)
{
    ech_machine m;
    ech_machine_get(&m);
    ech_jout_open(j, "machine", '{');
    ech_jout_string(j, "host", m.host);
    ech_jout_string(j, "system", m.system);
    ech_jout_string(j, "cpu", m.cpu[0] ? m.cpu : NULL);
    ech_jout_int(j, "cores_usable", m.cores_usable);
    ech_jout_int(j, "memory_bytes", m.memory_bytes);
    ech_jout_close(j);
}

static void add_start(ech_jout *j, const ech_run_facts *facts)
{
    char hex[17];
    (void)snprintf(hex, sizeof hex, "%016llx", (unsigned long long)facts->weights_hash);
    ech_jout_open(j, "start", '{');
    ech_jout_string(j, "weights", facts->weights);
    ech_jout_string(j, "xxh64", hex);
    ech_jout_close(j);
}

static void add_layout(ech_jout *j, const ech_run_facts *facts)
{
    const ech_config_layout *l = &facts->cfg->layout;
    ech_jout_open(j, "layout", '{');
    ech_jout_int(j, "ranks", facts->ranks);
    ech_jout_int(j, "tp", l->tp);
    ech_jout_int(j, "cp", l->cp);
    ech_jout_int(j, "pp", l->pp);
    ech_jout_int(j, "dp", l->dp);
    if (facts->layout_auto)
        ech_jout_string(j, "auto", facts->layout_auto);
    ech_jout_string(j, "transport", facts->transport);
    ech_jout_string(j, "kernels", facts->kernels);
    ech_jout_close(j);
}

static void add_command(ech_jout *j, const ech_run_facts *facts)
{
    char utc[32];
    ech_clock_utc(utc, sizeof utc);
    ech_jout_int(j, "format", 1);
    ech_jout_string(j, "started", utc);
    ech_jout_open(j, "command", '[');
    for (int i = 0; i < facts->argc; i++)
        ech_jout_string(j, NULL, facts->argv[i]);
    ech_jout_close(j);
}

static void add_config(ech_jout *j, const ech_config *cfg)
{
    ech_text text = {0};
    ech_jout_open(j, "seeds", '{');
    ech_jout_int(j, "train", cfg->train.seed);
    ech_jout_int(j, "data", cfg->data.seed);
    ech_jout_close(j);
    ech_config_to_json(cfg, &text);
    j->text.failed |= text.failed;
    ech_jout_raw(j, "config", text.failed ? "null" : ech_text_get(&text));
    ech_text_fini(&text);
}

static ech_status write_record(const ech_run_facts *facts, ech_jout *j)
{
    char path[MAX_PATH_BYTES];
    ech_jout_open(j, NULL, '{');
    add_command(j, facts);
    add_versions(j);
    add_machine(j);
    add_layout(j, facts);
    add_start(j, facts);
    ECH_TRY(add_data(j, facts));
    add_config(j, facts->cfg);
    ech_jout_close(j);
    ECH_CHECK(!j->text.failed, ECH_E_NOMEM, "no memory for the run record");
    ECH_TRY(ech_path_join(facts->cfg->run.dir, "run.json", path, sizeof path));
    return ech_write_whole(path, ech_jout_get(j), j->text.bytes);
}

ech_status ech_run_folder_create(const ech_run_facts *facts)
{
    ech_jout j = {0};
    ECH_TRY(ech_make_folders(facts->cfg->run.dir));
    const ech_status st = write_record(facts, &j);
    ech_jout_fini(&j);
    return st < 0 ? ech_error_trace(st, __FILE__, __LINE__) : ECH_OK;
}

ech_status ech_run_metrics_path(const ech_config *cfg, char *buf, size_t n)
{
    ECH_TRY(ech_path_join(cfg->run.dir, "metrics.jsonl", buf, n));
    return ECH_OK;
}
