/* echelon model: shapes and exact counts of a model. */
#include "catalog/show.h"
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

/* What was asked for. */
typedef struct request {
    bool is_json;
    int64_t seq; /* 0: the whole context */
    ech_opt_list words;
} request;

static ech_status show(const request *rq, ech_text *out)
{
    ech_model m;
    ECH_CHECK(
        rq->words.n == 2, ECH_E_USAGE,
        "'model show' wants one NAME, config.json, folder or shape, got %zu (echelon model list "
        "names the known ones)",
        rq->words.n - 1);
    ECH_TRY(ech_model_load(rq->words.item[1], &m));
    ech_model_take_seq(&m, rq->seq);
    return rq->is_json ? ech_model_show_json(&m, rq->seq, out) : ech_model_show(&m, rq->seq, out);
}

/* One line a preset: name, parameters, active ones, family. */
static ech_status list(const request *rq, ech_text *out)
{
    size_t n;
    const char *const *names = ech_model_presets(&n);
    ECH_CHECK(rq->words.n == 1, ECH_E_USAGE, "'model list' takes no argument, got '%s'",
              rq->words.item[1]);
    if (rq->is_json)
        ech_text_add(out, "[");
    for (size_t i = 0; i < n; i++) {
        ech_model m;
        ech_param_count c;
        ECH_TRY(ech_model_load(names[i], &m));
        ECH_TRY(ech_model_count(&m, &c));
        if (rq->is_json)
            ech_text_add(out,
                         "%s{\"name\":\"%s\",\"family\":\"%s\",\"params\":%lld,"
                         "\"params_active\":%lld,\"executable\":%s}",
                         i ? "," : "", m.name, m.family, (long long)c.total, (long long)c.active,
                         m.is_executable ? "true" : "false");
        else
            ech_text_add(out, "%-26s %16lld  %-12s %s\n", m.name, (long long)c.total, m.family,
                         m.is_executable ? "" : "known for counting");
    }
    if (rq->is_json)
        ech_text_add(out, "]\n");
    return ECH_OK;
}

static ech_status run(int argc, char **argv, request *rq, ech_text *out)
{
    static const char *const verbs[] = {"show", "list"};
    const ech_opt opts[] = {{"json", ECH_OPT_FLAG, &rq->is_json}, {"seq", ECH_OPT_INT, &rq->seq}};
    ECH_TRY(ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &rq->words));
    ECH_CHECK(rq->words.n > 0, ECH_E_USAGE, "model: wanted show or list; see 'echelon help model'");
    ECH_CHECK(rq->seq >= 0, ECH_E_USAGE, "--seq is %lld, it must be positive", (long long)rq->seq);
    const char *verb = rq->words.item[0];
    if (strcmp(verb, verbs[0]) == 0)
        return show(rq, out);
    if (strcmp(verb, verbs[1]) == 0)
        return list(rq, out);
    const char *near = ech_nearest_name(verb, verbs, 2);
    return ECH_RAISE(ECH_E_USAGE, "model: '%.40s' is neither show nor list%s%s%s", verb,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int cmd_model(int argc, char **argv)
{
    request rq = {0};
    ech_text out = {0};
    ech_status st = run(argc, argv, &rq, &out);
    if (st == ECH_OK)
        st = ech_cli_print(&out);
    ech_text_fini(&out);
    ech_opt_list_fini(&rq.words);
    return ech_cli_fail(st);
}

const ech_command ech_command_model = {
    "model",
    "shapes, exact parameter counts, memory of the state, FLOPs per token",
    "Usage: echelon model show NAME | config.json | FOLDER | SHAPE [--seq N] [--json]\n"
    "       echelon model list [--json]\n"
    "\n"
    "show prints every tensor's shape, exact parameter counts (all, and those active for a "
    "token),\n"
    "the memory of the training state and FLOPs per token.  list names the known models.\n"
    "A SHAPE is words such as\n"
    "  layers=24,hidden=2304,heads=24,kv_heads=24,ffn=9216,vocab=51200,arch=gpt\n"
    "(or arch=llama; experts=8,topk=2,expert_ffn=...; preset=NAME with what differs).\n"
    "\n"
    "  --seq N   tokens of a sequence, for FLOPs; default: the model's context\n"
    "  --json    one JSON document\n",
    cmd_model,
};
