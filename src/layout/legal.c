#include "layout/legal.h"

#include "layout/legal_rules.h"

#include <stdio.h>
#include <string.h>

const char *ech_verdict_name(ech_verdict verdict)
{
    static const char *const names[] = {"no effect", "legal at a cost", "refused"};
    return names[verdict];
}

ech_legal_query ech_legal_query_default(void)
{
    return (ech_legal_query){.tp = 1,
                             .pp = 1,
                             .cp = 1,
                             .ep = 1,
                             .etp = 1,
                             .virtual_stages = 1,
                             .prefetch = 1,
                             .reshard_after_forward = true};
}

/* Row i of the table, its parts one after the other; NULL past the end. */
static const ech_legal_rule *rule_at(int i)
{
    static const ech_legal_rule *(*const part[])(int *) = {
        ech_legal_mesh_rules, ech_legal_tensor_rules, ech_legal_state_rules,
        ech_legal_pipeline_rules, ech_legal_unbuilt_rules};
    for (size_t k = 0; k < sizeof part / sizeof part[0]; k++) {
        int n;
        const ech_legal_rule *rule = part[k](&n);
        if (i < n)
            return &rule[i];
        i -= n;
    }
    return NULL;
}

static void add_finding(const ech_legal_rule *rule, const ech_legal_query *q, const char *words,
                        ech_legal_report *out)
{
    ECH_ASSERT(out->n < ECH_LEGAL_MAX); /* a test counts the rules */
    ech_legal_finding *f = &out->item[out->n++];
    *f = (ech_legal_finding){.rule = rule->name,
                             .key = rule->key,
                             .verdict = rule->verdict,
                             .is_unbuilt = rule->is_unbuilt};
    (void)snprintf(f->message, sizeof f->message, "%s", words);
    if (rule->nearest)
        rule->nearest(q, &f->near);
}

void ech_legal_check(const ech_legal_query *q, ech_legal_report *out)
{
    const ech_legal_rule *rule;
    out->n = 0;
    for (int i = 0; (rule = rule_at(i)) != NULL; i++) {
        ech_text words = {0};
        if (rule->find(q, &words))
            add_finding(rule, q, ech_text_get(&words), out);
        ech_text_fini(&words);
    }
}

int ech_legal_count(const ech_legal_report *report, ech_verdict verdict)
{
    int n = 0;
    for (int i = 0; i < report->n; i++)
        n += report->item[i].verdict == verdict;
    return n;
}

/* --- nearest values --- */

void ech_legal_print(const ech_legal_finding *f, ech_text *out)
{
    const ech_near *near = &f->near;
    ech_text_add(out, "%s", f->message);
    if (near->n || near->word)
        ech_text_add(out, "%s", strchr(f->message, '\n') ? "\n    " : "; ");
    if (near->n == 1)
        ech_text_add(out, "nearest legal value %lld", (long long)near->value[0]);
    if (near->n == 2)
        ech_text_add(out, "nearest legal values %lld and %lld", (long long)near->value[0],
                     (long long)near->value[1]);
    if (near->word)
        ech_text_add(out, "legal: %s", near->word);
}

static ech_near pair_of(int64_t below, int64_t above)
{
    return below == above ? (ech_near){.n = 1, .value = {below}}
                          : (ech_near){.n = 2, .value = {below, above}};
}

ech_near ech_near_divisors(int64_t n, int64_t x)
{
    int64_t below = 1;
    int64_t above = n;
    if (x >= n)
        return pair_of(n, n);
    for (int64_t d = 1; d <= n / d; d++) {
        const int64_t both[2] = {d, n / d};
        for (int i = 0; i < 2 && n % d == 0; i++) {
            below = both[i] <= x && both[i] > below ? both[i] : below;
            above = both[i] >= x && both[i] < above ? both[i] : above;
        }
    }
    return pair_of(below, above);
}

ech_near ech_near_multiples(int64_t n, int64_t x)
{
    const int64_t below = x - x % n;
    if (below == 0)
        return pair_of(n, n);
    return pair_of(below, below == x || below > INT64_MAX - n ? below : below + n);
}

/* --- the page --- */

void ech_legal_markdown(ech_text *out)
{
    const ech_legal_rule *rule;
    ech_text_add(
        out,
        "# Layouts: what is legal\n\n"
        "Made by `echelon help layouts --markdown`; a test holds it equal to the table in "
        "`src/layout/legal_*.c`.\n\n"
        "Every product of parallelisms is *legal*, *legal at a cost* that is named here and when a "
        "run starts, or\n*refused* before anything starts (exit 2), all findings at once, each "
        "with the nearest legal value.  What no\nrow speaks of is legal.  `check --json` and the "
        "start event of `train --json` list costs under `costs`.\n\n"
        "| rule | key | when | verdict | why, or what it costs |\n|---|---|---|---|---|\n");
    for (int i = 0; (rule = rule_at(i)) != NULL; i++)
        ech_text_add(out, "| %s | `%s` | %s | %s | %s |\n", rule->name, rule->key, rule->says,
                     rule->is_unbuilt ? "refused: not built yet" : ech_verdict_name(rule->verdict),
                     rule->reason);
}
