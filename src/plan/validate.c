#include "plan/validate.h"

#include "base/checked.h"
#include "base/io.h"
#include "plan/validate_private.h"

#include <stdlib.h>

/* Rows in place: their jobs borrow from them, so that they do not move any more. */
static ech_status read_rows(const ech_table *t, ech_validation *v)
{
    ech_findings findings = {0};
    ech_status st = ECH_OK;
    for (size_t i = 0; i < t->n && st >= 0; i++) {
        ech_published *p = &v->row[i];
        st = ech_published_read(&t->row[i], t->path, &findings, p);
        p->job.model = &p->model;
        p->job.cluster = &p->cluster;
        v->n = (int)i + 1;
    }
    if (st >= 0)
        st = ech_findings_raise(&findings, ECH_E_CONFIG);
    ech_findings_fini(&findings);
    return st;
}

ech_status ech_validation_parse(const char *text, size_t bytes, const char *name,
                                ech_validation *out)
{
    ech_validation v = {0};
    ech_table t = {0};
    ech_status st = ech_table_parse(text, bytes, name, &t);
    if (st >= 0)
        st = ech_calloc(t.n, sizeof *v.row, &v.row);
    if (st >= 0)
        st = read_rows(&t, &v);
    ech_table_fini(&t);
    if (st < 0) {
        ech_validation_fini(&v);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = v;
    return ECH_OK;
}

ech_status ech_validation_read(const char *path, ech_validation *out)
{
    enum { MAX_BYTES = 1 << 26 };
    char *text = NULL;
    size_t bytes = 0;
    ECH_TRY(ech_read_whole(path, MAX_BYTES, &text, &bytes));
    const ech_status st = ech_validation_parse(text, bytes, path, out);
    free(text);
    return st;
}

void ech_validation_fini(ech_validation *v)
{
    for (int i = 0; i < v->n; i++)
        free(v->row[i].option);
    free(v->row);
    free(v->family);
    *v = (ech_validation){0};
}
