/* A schedule of the user's own: the table that layout.schedule names. */
#include "train/config_check.h"

#include "base/io.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static const int64_t MAX_TABLE_BYTES = INT64_C(1) << 28;

/* As the table's messages name it: by its whole path where that is short. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && strlen(path) >= sizeof(((ech_schedule *)0)->name) ? slash + 1 : path;
}

/* Each fault that was raised, a line each, becomes a finding of its own. */
static void adopt_error(ech_config_report *report)
{
    const char *at = ech_error_message();
    while (*at) {
        const size_t n = strcspn(at, "\n");
        ech_findings_add(report->findings, "%.*s", (int)n, at);
        at += n + (at[n] == '\n');
    }
    ech_error_clear();
}

static ech_status read_table(const char *path, ech_schedule *out)
{
    char *text = NULL;
    size_t n = 0;
    ECH_TRY(ech_read_whole(path, MAX_TABLE_BYTES, &text, &n));
    const ech_status st = ech_schedule_read(text, n, name_of(path), out);
    free(text);
    return st;
}

ech_status ech_config_schedule_read(ech_config *cfg, ech_config_report *report)
{
    const char *path = cfg->layout.schedule;
    if (ech_schedule_kind_of(path) != ECH_SCHEDULE_FILE)
        return ECH_OK;
    ech_schedule_fini(&cfg->layout.table);
    if (!ech_path_exists(path)) {
        ech_config_report_add(report, cfg, "layout.schedule", "'%s' does not exist", path);
        return ECH_OK;
    }
    const ech_status st = read_table(path, &cfg->layout.table);
    if (st == ECH_E_NOMEM)
        return ech_error_trace(st, __FILE__, __LINE__);
    if (st < 0)
        adopt_error(report);
    return ECH_OK;
}
