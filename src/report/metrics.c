#include "report/metrics.h"

#include "base/checked.h"
#include "base/io.h"

#include <stdlib.h>
#include <string.h>

struct ech_metrics {
    char *path; /* owned; NULL: none */
    ech_metrics_sink sink;
    void *user; /* borrowed */
    ech_jout json;
};

ech_status ech_metrics_create(const char *path, bool adds, ech_metrics_sink sink, void *user,
                              ech_metrics **out)
{
    ech_metrics *m = NULL;
    ech_status st = ECH_OK;
    ECH_TRY(ech_calloc(1, sizeof *m, &m));
    m->sink = sink;
    m->user = user;
    if (path) {
        m->path = strdup(path);
        if (!m->path)
            ECH_TRY_GOTO(st, ECH_RAISE(ECH_E_NOMEM, "%s", path), fail);
        if (!adds || !ech_path_exists(path))
            ECH_TRY_GOTO(st, ech_write_whole(path, "", 0), fail);
    }
    *out = m;
    return ECH_OK;
fail:
    ech_metrics_destroy(&m);
    return st;
}

ech_jout *ech_metrics_begin(ech_metrics *m, const char *event)
{
    ech_jout_reset(&m->json);
    ech_jout_open(&m->json, NULL, '{');
    ech_jout_string(&m->json, "event", event);
    return &m->json;
}

ech_status ech_metrics_end(ech_metrics *m)
{
    ech_jout_close(&m->json);
    ECH_CHECK(!m->json.text.failed, ECH_E_NOMEM, "no memory for a line of metrics");
    const char *line = ech_jout_get(&m->json);
    const ech_status to_file = m->path ? ech_append_line(m->path, line) : ECH_OK;
    if (m->sink)
        ECH_TRY(m->sink(line, m->user));
    return to_file < 0 ? ech_error_trace(to_file, __FILE__, __LINE__) : ECH_OK;
}

void ech_metrics_destroy(ech_metrics **m)
{
    if (!*m)
        return;
    ech_jout_fini(&(*m)->json);
    free((*m)->path);
    free(*m);
    *m = NULL;
}
