/* RUN: np=1 timeout=20 tags=fast */
/* Ranks whose buckets or gradients come in another order hold another program, and its fingerprint
 * says so before step 0; names alone do not count. */
#include "program/fingerprint.h"
#include "tiny.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void expect(bool ok, const char *what)
{
    if (!ok)
        (void)fprintf(stderr, "%s\n", what);
    failures += !ok;
}

static int find_start(const ech_program *p, int from)
{
    for (int i = from; i < p->n_items; i++)
        if (p->block[p->item[i].block].op[0].kind == ECH_OP_ALL_REDUCE_START)
            return i;
    return -1;
}

static void compare(tiny_run *one, tiny_run *other)
{
    ech_program *p = &other->session->train.klass[0].program;
    const uint64_t wanted = ech_program_fingerprint(&one->session->train.klass[0].program);
    expect(ech_program_fingerprint(p) == wanted, "equal programs have different fingerprints");
    (void)snprintf(p->block[0].name, sizeof p->block[0].name, "renamed");
    expect(ech_program_fingerprint(p) == wanted, "a name changed the fingerprint");
    const int a = find_start(p, 0);
    const int b = find_start(p, a + 1);
    expect(a >= 0 && b > a, "the program has fewer than two buckets");
    const ech_view kept = p->item[a].bind[ECH_REGION_GRAD];
    p->item[a].bind[ECH_REGION_GRAD] = p->item[b].bind[ECH_REGION_GRAD];
    p->item[b].bind[ECH_REGION_GRAD] = kept;
    expect(ech_program_fingerprint(p) != wanted,
           "buckets in another order have the same fingerprint");
    p->item[b].bind[ECH_REGION_GRAD] = p->item[a].bind[ECH_REGION_GRAD];
    p->item[a].bind[ECH_REGION_GRAD] = kept;
    expect(ech_program_fingerprint(p) == wanted,
           "undoing the swap does not restore the fingerprint");
}

int main(void)
{
    tiny_run one;
    tiny_run other;
    tiny_spec spec = tiny_spec_default();
    spec.dp = 2;
    spec.bucket_bytes = 1; /* a bucket a unit */
    tiny_start(&spec, &one);
    tiny_start(&spec, &other);
    compare(&one, &other);
    tiny_stop(&other);
    spec.rows = 2;
    tiny_start(&spec, &other);
    expect(ech_program_fingerprint(&other.session->train.klass[0].program) !=
               ech_program_fingerprint(&one.session->train.klass[0].program),
           "programs of different shapes have the same fingerprint");
    tiny_stop(&other);
    tiny_stop(&one);
    return failures != 0;
}
