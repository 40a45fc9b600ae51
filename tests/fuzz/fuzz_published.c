#include "fuzz.h"

#include "plan/validate_private.h"

#include <math.h>
#include <string.h>

/* A row that is not skipped has a legal layout, and a price or bytes; one that is says why. */
static void check_row(const ech_published *p)
{
    ECH_ASSERT(memchr(p->id, '\0', sizeof p->id) && memchr(p->group, '\0', sizeof p->group));
    ECH_ASSERT(memchr(p->assumed, '\0', sizeof p->assumed));
    if (p->skipped[0]) {
        ECH_ASSERT(isnan(p->predicted));
        return;
    }
    ECH_ASSERT(p->measured > 0.0 && p->n_options > 0);
    ECH_ASSERT(ech_point_is_legal(&p->job, &p->point, NULL));
    ECH_ASSERT(p->predicted >= 0.0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { MOST = 8 };
    ech_validation v;
    if (ech_validation_parse((const char *)data, bytes, "input", &v) < 0) {
        ECH_ASSERT(strstr(ech_error_message(), "input"));
        return 0;
    }
    if (v.n <= MOST) { /* each takes its time */
        ECH_ASSERT(ech_validation_price(&v, NULL) == ECH_OK);
        for (int i = 0; i < v.n; i++)
            check_row(&v.row[i]);
    }
    ech_validation_fini(&v);
    return 0;
}
