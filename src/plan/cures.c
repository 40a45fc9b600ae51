#include "plan/cures.h"
#include "plan/cure_changes.h"
#include "price/step.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CHANGES = 96 };

const char *ech_cure_cost_name(ech_cure_cost c)
{
    static const char *const names[] = {[ECH_CURE_LAYOUT] = "layout",
                                        [ECH_CURE_MACHINES] = "machines",
                                        [ECH_CURE_ARITHMETIC] = "arithmetic",
                                        [ECH_CURE_TRAINED] = "trained"};
    return names[c];
}

/* --- pricing --- */

/* What is asked about, and how it stands now. */
typedef struct asked {
    const ech_job *job;
    const ech_point *point;
    ech_pricer *pricer; /* borrowed: of the job as it is */
    double reserved_bytes, host_bytes, token_s;
    ech_fit wanted;           /* what is enough */
    bool runs;                /* the engine executes it today: so must a cure */
    const ech_change *change; /* [n_changes] */
    int n_changes;
    bool is_alone[MOST_CHANGES]; /* enough by themselves */
    ech_cures *out;
} asked;

static bool runs(const ech_job *job, const ech_point *point)
{
    ech_findings why = {0};
    const bool can = ech_point_is_executable(job, point, &why);
    ech_findings_fini(&why);
    return can;
}

/* Of an option that both changes say, the later one stays: it is what holds. */
static void drop_repeats(char *words)
{
    char *at = words;
    while (at) {
        char *next = strstr(at + 1, " --");
        const size_t n = strcspn(at + 1, " ") + 1;
        bool is_again = false;
        for (const char *p = next; p && !is_again; p = strstr(p + 1, " --"))
            is_again = strncmp(p, at, n) == 0 && (p[n] == ' ' || !p[n]);
        if (is_again)
            memmove(at, next, strlen(next) + 1);
        else
            at = next;
    }
}

/* Changes a and b (b < 0: a alone) applied to what is asked about: is there anything new. */
static bool apply(const asked *q, int a, int b, ech_trial *t)
{
    *t = (ech_trial){.cure = {.job = *q->job, .point = *q->point, .changes = b < 0 ? 1 : 2}};
    const int which[] = {a, b};
    for (int i = 0; i < t->cure.changes; i++) {
        const ech_change *c = &q->change[which[i]];
        if (!c->apply(t, c->value))
            return false;
        t->cure.gloss[i] = c->gloss;
        t->cure.cost = c->cost > t->cure.cost ? c->cost : t->cure.cost;
    }
    drop_repeats(t->cure.change);
    memmove(t->cure.change, t->cure.change + 1, strlen(t->cure.change)); /* the blank in front */
    return !t->is_full && ech_point_is_legal(&t->cure.job, &t->cure.point, NULL) &&
           (!q->runs || runs(&t->cure.job, &t->cure.point));
}

/* Bytes of a layout; its verdict. */
static void measure(const asked *q, ech_cure *c)
{
    ech_footprint f;
    const char *binding;
    ech_footprint_of(&c->job, &c->point, NULL, &f);
    c->fit = ech_footprint_fit(&c->job, &f, &binding);
    c->reserved_bytes = f.reserved_bytes;
    c->saves_bytes = q->reserved_bytes - f.reserved_bytes;
    c->saves_host_bytes = q->host_bytes - f.host_node_bytes;
}

static double tokens_of(const ech_job *job)
{
    return (double)job->global_batch * (double)job->seq;
}

static bool is_of_job(const asked *q, int i)
{
    return i >= 0 && ech_change_is_of_job(&q->change[i]);
}

/* Seconds of a layout; where the job is another, by a pricer of its own. */
static ech_status time_it(const asked *q, bool is_other_job, ech_cure *c)
{
    ech_step_price price;
    ech_pricer *own = NULL;
    if (is_other_job)
        ECH_TRY(ech_pricer_create(&c->job, NULL, &own));
    ech_pricer_step(own ? own : q->pricer, &c->point, NULL, &price);
    ech_pricer_destroy(&own);
    c->step_s = price.step_s;
    c->time_ratio = price.step_s / tokens_of(&c->job) / q->token_s;
    return ECH_OK;
}

/* --- choosing --- */

static int compare(const void *x, const void *y)
{
    const ech_cure *a = x;
    const ech_cure *b = y;
    if (a->changes != b->changes)
        return a->changes - b->changes;
    if (a->cost != b->cost)
        return (int)a->cost - (int)b->cost;
    if (a->fit != b->fit)
        return (int)a->fit - (int)b->fit;
    if (a->job.gpus != b->job.gpus)
        return a->job.gpus < b->job.gpus ? -1 : 1;
    const double d = a->time_ratio - b->time_ratio;
    return (d > 0) - (d < 0);
}

/* Of changes of the same kinds the cheapest stays; where there is no room, the dearest go. */
typedef struct kept {
    int a, b; /* kinds; b -1: one change */
} kept;

static void keep(ech_cures *out, kept *of, const ech_cure *c, kept k)
{
    int at = out->n;
    for (int i = 0; i < out->n; i++)
        if (of[i].a == k.a && of[i].b == k.b)
            at = i;
    const bool is_new = at == out->n;
    if (is_new && out->n == ECH_CURES) {
        at = 0;
        for (int i = 1; i < out->n; i++)
            at = compare(&out->cure[i], &out->cure[at]) > 0 ? i : at;
    }
    if ((!is_new || out->n == ECH_CURES) && compare(c, &out->cure[at]) >= 0)
        return;
    out->n += is_new && out->n < ECH_CURES;
    out->cure[at] = *c;
    of[at] = k;
}

/* What is missing is told by what is left of the largest device. */
static void note_nearest(ech_cures *out, const ech_cure *c)
{
    if (out->has_nearest && c->reserved_bytes >= out->nearest.reserved_bytes)
        return;
    out->nearest = *c;
    out->has_nearest = true;
}

static ech_status try_one(asked *q, kept *of, int a, int b)
{
    ech_trial t;
    if (!apply(q, a, b, &t))
        return ECH_OK;
    q->out->tried++;
    measure(q, &t.cure);
    if (t.cure.fit > q->wanted) {
        note_nearest(q->out, &t.cure);
        return ECH_OK;
    }
    ECH_TRY(time_it(q, is_of_job(q, a) || is_of_job(q, b), &t.cure));
    if (b < 0)
        q->is_alone[a] = true;
    const kept k = {(int)q->change[a].kind, b < 0 ? -1 : (int)q->change[b].kind};
    keep(q->out, of, &t.cure, k);
    return ECH_OK;
}

static ech_status try_all(asked *q)
{
    kept of[ECH_CURES];
    for (int a = 0; a < q->n_changes; a++)
        ECH_TRY(try_one(q, of, a, -1));
    for (int a = 0; a < q->n_changes; a++)
        for (int b = a + 1; b < q->n_changes && !q->is_alone[a]; b++)
            if (q->change[a].kind != q->change[b].kind && !q->is_alone[b])
                ECH_TRY(try_one(q, of, a, b));
    q->out->has_nearest &= q->out->n == 0;
    if (q->out->has_nearest)
        ECH_TRY(time_it(q, true, &q->out->nearest));
    qsort(q->out->cure, (size_t)q->out->n, sizeof *q->out->cure, compare);
    return ECH_OK;
}

ech_status ech_cures_find(const ech_job *job, const ech_point *point, ech_cures *out)
{
    ech_footprint f;
    ech_step_price price;
    ech_pricer *pricer = NULL;
    ech_cures found = {0};
    ECH_TRY(ech_pricer_create(job, NULL, &pricer));
    ech_pricer_step(pricer, point, NULL, &price);
    ech_footprint_of(job, point, NULL, &f);
    const char *binding;
    const ech_fit now = ech_footprint_fit(job, &f, &binding);
    asked q = {.job = job,
               .point = point,
               .pricer = pricer,
               .reserved_bytes = f.reserved_bytes,
               .host_bytes = f.host_node_bytes,
               .token_s = price.step_s / tokens_of(job),
               .runs = runs(job, point),
               .wanted = now == ECH_FIT_NO ? ECH_FIT_EDGE : ECH_FIT_YES,
               .out = &found};
    q.change = ech_changes(&q.n_changes);
    ECH_ASSERT(q.n_changes <= MOST_CHANGES);
    const ech_status st = try_all(&q);
    ech_pricer_destroy(&pricer);
    if (st >= 0)
        *out = found;
    return st;
}
