/* Rules about pipelines: stages, schedules, micro-batches. */
#include "layout/legal_rules.h"

#include "base/checked.h"

#include <string.h>

/* --- what is asked --- */

static const char *schedule_of(const ech_legal_query *q)
{
    return q->schedule ? q->schedule : "1f1b";
}

static bool is_schedule(const ech_legal_query *q, const char *word)
{
    return !q->is_schedule_file && strcmp(schedule_of(q), word) == 0;
}

/* Virtual stages that a pipeline rank has, or is asked to have. */
static bool is_interleaved(const ech_legal_query *q)
{
    return is_schedule(q, "interleaved") && q->pp > 1 && q->virtual_stages > 1;
}

static int64_t chunks_of(const ech_legal_query *q)
{
    if (is_schedule(q, "zb-v") && q->pp > 1)
        return 2;
    return is_interleaved(q) ? q->virtual_stages : 1;
}

int64_t ech_legal_stages(const ech_legal_query *q)
{
    return q->is_schedule_file ? q->file_stages : ech_legal_ranks(q->pp, chunks_of(q));
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- stages --- */

/* Fewer layers than stages, each of which is to have one. */
static bool lacks_layers(const ech_legal_query *q)
{
    return q->layers && !q->n_stage_layers && ech_legal_stages(q) > q->layers;
}

/* Fewer virtual stages of a rank would do. */
static bool has_many_chunks(const ech_legal_query *q)
{
    return is_interleaved(q) && q->pp <= q->layers;
}

static bool find_layers(const ech_legal_query *q, ech_text *words)
{
    if (!lacks_layers(q) || has_many_chunks(q))
        return false;
    if (q->is_schedule_file)
        ech_text_add(words, "the %lld stages of %.200s", (long long)q->file_stages, q->schedule);
    else if (chunks_of(q) > 1)
        ech_text_add(words, "pp %lld x %lld virtual stages = %lld stages", (long long)q->pp,
                     (long long)chunks_of(q), (long long)ech_legal_stages(q));
    else
        ech_text_add(words, "pp %lld", (long long)q->pp);
    ech_text_add(words,
                 " for a model of %lld layers: balanced, every stage has one; a list in "
                 "layout.stages may leave some without",
                 (long long)q->layers);
    return true;
}

/* The most pipeline ranks that have layers for all their stages, and go into the ranks. */
static void near_layers(const ech_legal_query *q, ech_near *out)
{
    const int64_t others = ech_legal_ranks(q->tp, q->cp);
    const int64_t most = q->layers / smaller(chunks_of(q), q->layers);
    int64_t pp = smaller(most, q->pp);
    if (q->is_schedule_file)
        return; /* the table says how many there are */
    if (q->ranks && others && q->ranks % others == 0)
        while (q->ranks / others % pp)
            pp--;
    *out = (ech_near){.n = 1, .value = {pp}};
}

static bool find_chunks(const ech_legal_query *q, ech_text *words)
{
    if (!lacks_layers(q) || !has_many_chunks(q))
        return false;
    ech_text_add(words,
                 "pp %lld x %lld virtual stages = %lld stages for a model of %lld layers: "
                 "balanced, every stage has one",
                 (long long)q->pp, (long long)q->virtual_stages, (long long)ech_legal_stages(q),
                 (long long)q->layers);
    return true;
}

static void near_chunks(const ech_legal_query *q, ech_near *out)
{
    *out = (ech_near){.n = 1, .value = {q->layers / q->pp}};
}

/* Of the listed layers; the largest number there is where they are more than that. */
static int64_t listed_layers(const ech_legal_query *q)
{
    int64_t sum = 0;
    for (int i = 0; i < q->n_stage_layers; i++)
        sum = q->stage_layers[i] > INT64_MAX - sum ? INT64_MAX : sum + q->stage_layers[i];
    return sum;
}

static bool find_list(const ech_legal_query *q, ech_text *words)
{
    const int64_t stages = ech_legal_stages(q);
    const bool is_long = stages && q->n_stage_layers != stages;
    const bool is_off = q->layers && listed_layers(q) != q->layers;
    if (!q->n_stage_layers || !(is_long || is_off))
        return false;
    if (is_long && q->is_schedule_file)
        ech_text_add(words, "%d stages are listed, %.200s has %lld", q->n_stage_layers, q->schedule,
                     (long long)stages);
    else if (is_long)
        ech_text_add(words, "%d stages are listed, pp %lld x %lld a rank under %.40s makes %lld",
                     q->n_stage_layers, (long long)q->pp, (long long)chunks_of(q), schedule_of(q),
                     (long long)stages);
    if (is_off)
        ech_text_add(words, "%sthey have %lld layers, the model has %lld", is_long ? "; " : "",
                     (long long)listed_layers(q), (long long)q->layers);
    return true;
}

static void near_auto(const ech_legal_query *q, ech_near *out)
{
    (void)q;
    out->word = "auto";
}

/* --- virtual stages --- */

static int64_t most_chunks(const ech_legal_query *q)
{
    return is_schedule(q, "zb-v") ? 2 : 1;
}

static bool find_virtual(const ech_legal_query *q, ech_text *words)
{
    if (q->is_schedule_file || is_schedule(q, "interleaved") || q->pp == 1 ||
        q->virtual_stages <= most_chunks(q))
        return false;
    if (is_schedule(q, "zb-v"))
        ech_text_add(words, "%lld under zb-v, which has two chunks a rank",
                     (long long)q->virtual_stages);
    else
        ech_text_add(words, "%lld under %.40s, which has one chunk a rank",
                     (long long)q->virtual_stages, schedule_of(q));
    ech_text_add(words, "; layout.schedule interleaved has as many as are asked for%s",
                 q->virtual_stages == 2 && !is_schedule(q, "zb-v") ? ", zb-v has two" : "");
    return true;
}

static void near_virtual(const ech_legal_query *q, ech_near *out)
{
    *out = (ech_near){.n = 1, .value = {most_chunks(q)}};
}

static bool find_virtual_alone(const ech_legal_query *q, ech_text *words)
{
    if (q->virtual_stages < 2 || (q->pp > 1 && !q->is_schedule_file))
        return false;
    if (q->is_schedule_file)
        ech_text_add(words, "%lld: stages are as %.200s has them", (long long)q->virtual_stages,
                     q->schedule);
    else
        ech_text_add(words, "%lld: pp is 1, all layers are on every rank",
                     (long long)q->virtual_stages);
    return true;
}

static bool find_schedule_alone(const ech_legal_query *q, ech_text *words)
{
    const bool is_any =
        is_schedule(q, "interleaved") || is_schedule(q, "zb-h1") || is_schedule(q, "zb-v");
    if (q->pp > 1 || !is_any)
        return false;
    ech_text_add(words, "%.40s: pp is 1, each micro-batch goes forward and back as under 1f1b",
                 schedule_of(q));
    return true;
}

static bool find_interleaved_alone(const ech_legal_query *q, ech_text *words)
{
    if (q->pp == 1 || !is_schedule(q, "interleaved") || q->virtual_stages > 1)
        return false;
    ech_text_add(words, "interleaved with virtual_stages 1 is 1f1b");
    return true;
}

/* --- micro-batches --- */

static int64_t group_of(const ech_legal_query *q)
{
    return q->schedule_group ? q->schedule_group : q->pp;
}

static bool find_group(const ech_legal_query *q, ech_text *words)
{
    if (!is_interleaved(q) || group_of(q) >= q->pp)
        return false;
    ech_text_add(words, "%lld micro-batches go through a chunk together, fewer than pp %lld",
                 (long long)q->schedule_group, (long long)q->pp);
    return true;
}

static void near_group(const ech_legal_query *q, ech_near *out)
{
    *out = (ech_near){.n = 1, .value = {q->pp}};
}

static bool find_group_alone(const ech_legal_query *q, ech_text *words)
{
    if (!q->schedule_group || is_interleaved(q))
        return false;
    ech_text_add(words, "%lld: only interleaved virtual stages go in groups",
                 (long long)q->schedule_group);
    return true;
}

/* Of the last group, where it is not whole: they must be as many as there are pipeline ranks. */
static int64_t left_over(const ech_legal_query *q, int64_t m)
{
    return m % group_of(q);
}

static bool find_interleaving(const ech_legal_query *q, ech_text *words)
{
    const int64_t m = ech_legal_accumulation(q);
    if (!m || !is_interleaved(q) || group_of(q) < q->pp || left_over(q, m) == 0 ||
        left_over(q, m) >= q->pp)
        return false;
    const int64_t whole = m - left_over(q, m);
    ech_text_add(words, "%lld micro-batches a step (global %lld / micro %lld / dp %lld)",
                 (long long)m, (long long)q->global, (long long)q->micro, (long long)q->dp);
    ech_text_add(words, " are interleaved in groups of %lld", (long long)group_of(q));
    if (group_of(q) > q->pp)
        ech_text_add(words, ", of which the last has at least pp = %lld", (long long)q->pp);
    ech_text_add(words, ": nearest legal ");
    if (whole)
        ech_text_add(words, "%lld and ", (long long)whole);
    ech_text_add(words, "%lld", (long long)(whole + q->pp));
    return true;
}

/* Add the global batch of m micro-batches, where 64 bits hold it. */
static void add_global(const ech_legal_query *q, int64_t m, ech_near *out)
{
    int64_t global = 0;
    if (ech_mul_i64(m, q->micro, &global) == ECH_OK &&
        ech_mul_i64(global, q->dp, &global) == ECH_OK)
        out->value[out->n++] = global;
    else
        ech_error_clear();
}

static void near_interleaving(const ech_legal_query *q, ech_near *out)
{
    const int64_t m = ech_legal_accumulation(q);
    const int64_t whole = m - left_over(q, m);
    if (whole)
        add_global(q, whole, out);
    add_global(q, whole + q->pp, out);
}

/* Whole backwards on equal stages: the first micro-batch takes pp - 1 stages' time to reach the
 * last (facts of GPipe and 1F1B). */
static bool find_few(const ech_legal_query *q, ech_text *words)
{
    const int64_t m = ech_legal_accumulation(q);
    if (!m || q->pp == 1 || m >= q->pp || is_interleaved(q))
        return false;
    ech_text_add(words, "%lld micro-batch%s a step for pp %lld: ", (long long)m, m == 1 ? "" : "es",
                 (long long)q->pp);
    const double percent = 100.0 * (double)(q->pp - 1) / (double)(m + q->pp - 1);
    ech_text_add(words, "%s%.1f %% of the ranks' time is idle, (pp - 1) / (m + pp - 1)",
                 is_schedule(q, "zb-h1") || is_schedule(q, "zb-v") || q->is_schedule_file
                     ? "under 1f1b "
                     : "",
                 percent);
    return true;
}

static void near_few(const ech_legal_query *q, ech_near *out)
{
    add_global(q, q->pp, out);
}

/* --- a table of the user's own --- */

static bool find_file_ranks(const ech_legal_query *q, ech_text *words)
{
    if (!q->is_schedule_file || !q->file_ranks || q->file_ranks == q->pp)
        return false;
    ech_text_add(words, "%lld, but %.200s has a line for %lld pipeline ranks", (long long)q->pp,
                 q->schedule, (long long)q->file_ranks);
    return true;
}

static void near_file_ranks(const ech_legal_query *q, ech_near *out)
{
    *out = (ech_near){.n = 1, .value = {q->file_ranks}};
}

static bool find_file_micros(const ech_legal_query *q, ech_text *words)
{
    const int64_t m = ech_legal_accumulation(q);
    if (!q->is_schedule_file || !q->file_micros || !m || m == q->file_micros)
        return false;
    ech_text_add(words,
                 "%lld micro-batches a step (global %lld / micro %lld / dp %lld), but %.200s has "
                 "%lld",
                 (long long)m, (long long)q->global, (long long)q->micro, (long long)q->dp,
                 q->schedule, (long long)q->file_micros);
    return true;
}

static void near_file_micros(const ech_legal_query *q, ech_near *out)
{
    add_global(q, q->file_micros, out);
}

/* --- with sharded state --- */

static bool find_sharded(const ech_legal_query *q, ech_text *words)
{
    const int64_t m = ech_legal_accumulation(q);
    const int64_t gathers = q->reshard_after_forward ? 2 : 1;
    if (q->pp == 1 || q->zero_stage < 2 || ech_legal_group(q) < 2 || !m)
        return false;
    ech_text_add(words, "zero.stage %lld with pp %lld and %lld micro-batch%s: of each unit ",
                 (long long)q->zero_stage, (long long)q->pp, (long long)m, m == 1 ? "" : "es");
    ech_text_add(words, "%lld reduction%s of gradients", q->reduce_each ? (long long)m : 1LL,
                 q->reduce_each && m > 1 ? "s" : "");
    if (q->zero_stage > 2)
        ech_text_add(words, " and %s%lld gathers of parameters",
                     q->reshard_after_forward ? "" : "at most ", (long long)(gathers * m));
    ech_text_add(words, " a step");
    return true;
}

/* --- the rows --- */

static const ech_legal_rule rules[] = {
    {"layers", "layout.pp", "fewer layers than stages, stages auto", REFUSED,
     "balanced stages have a layer each", find_layers, near_layers},
    {"layers of chunks", "layout.virtual_stages",
     "enough layers for pp, but not for pp x virtual_stages, stages auto", REFUSED,
     "balanced stages have a layer each", find_chunks, near_chunks},
    {"stage list", "layout.stages",
     "not as many numbers as there are stages, or their sum is not the model's layers", REFUSED,
     "the list says for every stage, in the order of the model, how many layers it has", find_list,
     near_auto},
    {"virtual stages", "layout.virtual_stages",
     "above 1 under 1f1b, gpipe or zb-h1, above 2 under zb-v", REFUSED,
     "those have one chunk of layers on a rank, zb-v two; interleaved has any number", find_virtual,
     near_virtual},
    {"virtual stages alone", "layout.virtual_stages", "above 1 with pp 1 or a schedule of a file",
     LEGAL, "nothing to cut, or the table says how", find_virtual_alone, NULL},
    {"schedule alone", "layout.schedule", "interleaved, zb-h1 or zb-v with pp 1", LEGAL,
     "each micro-batch goes forward and back at once, as under 1f1b", find_schedule_alone, NULL},
    {"interleaved alone", "layout.schedule", "interleaved with virtual_stages 1", LEGAL,
     "it is 1f1b", find_interleaved_alone, NULL},
    {"group", "layout.schedule_group", "interleaved and the group is smaller than pp", REFUSED,
     "the first micro-batch of a group is back from the last rank only then", find_group,
     near_group},
    {"group alone", "layout.schedule_group", "not 0 without interleaved virtual stages", LEGAL,
     "only they go in groups", find_group_alone, NULL},
    {"interleaving", "batch.global",
     "interleaved and the micro-batches of a step are no multiple of the group, and leave fewer "
     "than pp",
     REFUSED, "a group goes through a chunk together, and must fill the pipeline",
     find_interleaving, near_interleaving},
    {"few micro-batches", "batch.global", "fewer micro-batches a step than pp", COST,
     "ranks are idle for (pp - 1) / (m + pp - 1) of the time", find_few, near_few},
    {"ranks of a schedule", "layout.pp", "a schedule of a file has other ranks than pp", REFUSED,
     "each line of the table is a pipeline rank", find_file_ranks, near_file_ranks},
    {"micro-batches of a schedule", "batch.global",
     "a schedule of a file has other micro-batches than the step", REFUSED,
     "the table says what is done with each", find_file_micros, near_file_micros},
    {"sharded stages", "layout.zero.stage", "zero.stage 2 or 3 over several ranks with pp above 1",
     COST,
     "of each unit, m reductions a step with reduce each, one with last; at stage 3, 2 m gathers",
     find_sharded, NULL},
};

const ech_legal_rule *ech_legal_pipeline_rules(int *n)
{
    *n = sizeof rules / sizeof rules[0];
    return rules;
}
