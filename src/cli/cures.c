#include "cli/cures.h"

#include "base/text.h"
#include "train/loop.h"

#include <stdio.h>
#include <string.h>

/* What is changed, and what a rank needs then. */
typedef struct cure {
    ech_config cfg; /* a copy that shares what the first one owns */
    char change[96];
    size_t bytes[ECH_N_SPACES];
} cure;

static ech_status measure(cure *c)
{
    ech_canon canon = {0};
    ech_run run = {0};
    ech_session_config s = ech_loop_session_config(&c->cfg, NULL, 1, 0);
    memset(s.compile.cap_bytes, 0, sizeof s.compile.cap_bytes);
    ECH_TRY(ech_canon_create(&c->cfg.model, &canon));
    s.compile.block.model = &c->cfg.model;
    s.compile.block.canon = &canon;
    const ech_status st = ech_run_compile(&s.compile, ECH_MODE_TRAIN, &run);
    for (int k = 0; k < run.n_classes; k++)
        for (int i = 0; i < ECH_N_SPACES; i++) {
            const ech_program *p = run.program[k];
            const size_t bytes = p->state_bytes[i] + p->transient_bytes[i];
            c->bytes[i] = bytes > c->bytes[i] ? bytes : c->bytes[i];
        }
    ech_run_fini(&run);
    ech_canon_fini(&canon);
    return st;
}

static bool is_legal(const cure *c)
{
    ech_findings findings = {0};
    const ech_status st = ech_config_validate(&c->cfg, (int)ech_config_world(&c->cfg), &findings);
    const bool legal = st >= 0 && findings.n == 0;
    ech_findings_fini(&findings);
    return legal;
}

/* --- the changes, in the order of what they cost --- */

static bool next_stage(cure *c)
{
    ech_config_layout *l = &c->cfg.layout;
    if (l->dp < 2 || l->zero.stage > 2)
        return false;
    (void)snprintf(c->change, sizeof c->change, "layout.zero.stage %lld (now %lld)",
                   (long long)l->zero.stage + 1, (long long)l->zero.stage);
    l->zero.stage++;
    return is_legal(c);
}

/* Its largest divisor, so that the global batch stays. */
static bool smaller_micro(cure *c)
{
    int64_t *micro = &c->cfg.batch.micro;
    int64_t by = 2;
    while (by * by <= *micro && *micro % by)
        by++;
    if (*micro < 2)
        return false;
    by = *micro % by ? *micro : by; /* a prime */
    (void)snprintf(c->change, sizeof c->change, "batch.micro %lld (now %lld)",
                   (long long)(*micro / by), (long long)*micro);
    *micro /= by;
    return is_legal(c);
}

static bool set_tp(cure *c, int64_t tp)
{
    ech_config_layout *l = &c->cfg.layout;
    const int64_t before = l->tp;
    const int64_t by = tp / before;
    const bool takes_dp = l->dp % by == 0;
    l->tp = tp;
    l->dp = takes_dp ? l->dp / by : l->dp;
    (void)snprintf(c->change, sizeof c->change, "layout.tp %lld (now %lld), dp %lld, on %lld ranks",
                   (long long)tp, (long long)before, (long long)l->dp,
                   (long long)ech_config_world(&c->cfg));
    return is_legal(c);
}

/* Of the same ranks where dp gives some, else of more. */
static bool more_tp(cure *c)
{
    const ech_config whole = c->cfg;
    for (int64_t tp = 2 * whole.layout.tp; tp <= whole.model.heads; tp += whole.layout.tp) {
        c->cfg = whole;
        if (whole.model.heads % tp == 0 && set_tp(c, tp))
            return true;
    }
    return false;
}

/* --- telling --- */

static bool fits(const cure *c, const size_t cap[ECH_N_SPACES])
{
    for (int i = 0; i < ECH_N_SPACES; i++)
        if (cap[i] && c->bytes[i] > cap[i])
            return false;
    return true;
}

static void tell(const cure *c, const size_t cap[ECH_N_SPACES], ech_text *out)
{
    char buf[32];
    ech_text_add(out, "\n  %s: %s of device memory, %s", c->change,
                 ech_format_bytes((double)c->bytes[ECH_SPACE_DEVICE], buf, sizeof buf),
                 fits(c, cap) ? "fits" : "not enough alone");
}

/* What makes it no smaller is no cure. */
static void try_all(const ech_config *cfg, const size_t cap[ECH_N_SPACES], ech_text *out)
{
    static bool (*const change[])(cure *) = {next_stage, smaller_micro, more_tp};
    cure now = {.cfg = *cfg};
    if (measure(&now) < 0)
        return;
    for (size_t i = 0; i < sizeof change / sizeof change[0]; i++) {
        cure c = {.cfg = *cfg};
        if (change[i](&c) && measure(&c) >= 0 &&
            c.bytes[ECH_SPACE_DEVICE] < now.bytes[ECH_SPACE_DEVICE])
            tell(&c, cap, out);
    }
}

ech_status ech_cures_add(const ech_config *cfg, const ech_session_config *session, ech_status st)
{
    ech_text words = {0};
    if (st != ECH_E_INFEASIBLE)
        return st;
    ech_text_add(&words, "%s\nwhat would help first:", ech_error_message());
    const size_t before = words.bytes;
    try_all(cfg, session->compile.cap_bytes, &words);
    if (words.bytes == before)
        ech_text_add(&words, "\n  a smaller model or batch.seq, or more ranks: no zero stage, "
                             "micro-batch or tp makes it smaller");
    const ech_status told = words.failed ? st : ECH_RAISE(st, "%s", ech_text_get(&words));
    ech_text_fini(&words);
    return told;
}
