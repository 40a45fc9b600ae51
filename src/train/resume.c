#include "train/resume.h"

#include "base/checked.h"
#include "base/io.h"
#include "base/log.h"
#include "base/node.h"
#include "storage/ckpt_folder.h"
#include "train/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ech_resume_fini(ech_resume *r)
{
    ech_text_fini(&r->passed_over);
    ech_lock_release(&r->hold.lock);
    *r = (ech_resume){0};
}

/* What is left to look at. */
typedef struct search {
    const ech_resume_request *asked;
    const ech_config *cfg;
    const ech_session *s;
    const char *named;    /* by its own path; NULL: none, or looked at */
    const char *dir;      /* else a folder with some; NULL: none */
    bool is_wanted;       /* by its path: starting anew is no answer */
    ech_ckpt_entry *list; /* owned, [n] */
    size_t n, next;
} search;

/* --- what changed since it was saved --- */

static bool is_same(const ech_node *a, const ech_node *b)
{
    if (a->kind != b->kind || a->n != b->n)
        return false;
    switch (a->kind) {
    case ECH_NODE_BOOL:
        return a->boolean == b->boolean;
    case ECH_NODE_INT:
        return a->integer == b->integer;
    case ECH_NODE_REAL:
        return memcmp(&a->real, &b->real, sizeof a->real) == 0;
    case ECH_NODE_STRING:
        return a->string_bytes == b->string_bytes &&
               memcmp(a->string, b->string, a->string_bytes) == 0;
    default:
        break;
    }
    const ech_node *y = b->child;
    for (const ech_node *x = a->child; x; x = x->next, y = y->next)
        if ((x->key && strcmp(x->key, y->key) != 0) || !is_same(x, y))
            return false;
    return true;
}

/* Sections in which a change makes it another run; beside them stand keys that do not. */
static const struct {
    const char *section, *free;
} rows[] = {{"data", " valid tokenizer "},
            {"batch", " micro "},
            {"precision", " "},
            {"optim", " "},
            {"train", " steps log_every eval_every "}};

static void compare_section(const ech_node *then, const ech_node *now, size_t row, ech_text *out)
{
    for (const ech_node *x = now ? now->child : NULL; x; x = x->next) {
        char word[64];
        const ech_node *y = ech_node_find(then, x->key);
        (void)snprintf(word, sizeof word, " %s ", x->key);
        if (!strstr(rows[row].free, word) && (!y || !is_same(x, y)))
            ech_text_add(out, "%s%s.%s", out->bytes ? ", " : "", rows[row].section, x->key);
    }
}

/* Keys that are in no such section, or matter with others only. */
static void compare_rest(const search *f, const ech_ckpt *c, const ech_node *train, ech_text *out)
{
    const ech_node *steps = ech_node_find(train, "steps");
    const bool is_horizon = f->cfg->optim.schedule != ECH_LR_CONSTANT;
    if (is_horizon && steps && steps->kind == ECH_NODE_INT && steps->integer != f->cfg->train.steps)
        ech_text_add(
            out, "%strain.steps (the learning rate falls over %" PRId64 " steps, not %" PRId64 ")",
            out->bytes ? ", " : "", f->cfg->train.steps, steps->integer);
    ech_ckpt_model_changes(c, &f->s->model, out);
}

/* The same path, other contents: its samples are not those that would have followed. */
static void say_other_data(const search *f, const ech_ckpt *c)
{
    ech_text changed = {0};
    ech_inputs_changes(f->asked->inputs, ech_ckpt_manifest_of(c)->data, &changed);
    if (changed.bytes)
        ech_log(ECH_LOG_WARN, "goes on with other data than %s was saved with: %s",
                ech_ckpt_path_of(c), ech_text_get(&changed));
    ech_text_fini(&changed);
}

/* The run goes on under another configuration than it was saved under: legal, but said. */
static void say_changes(const search *f, const ech_ckpt *c)
{
    const ech_config *cfg = f->cfg;
    const char *saved = ech_ckpt_manifest_of(c)->config;
    ech_text json = {0};
    ech_text changed = {0};
    ech_node *then = NULL;
    ech_node *now = NULL;
    ech_config_to_json(cfg, &json);
    if (ech_node_parse_json(saved, strlen(saved), "config", &then) >= 0 &&
        ech_node_parse_json(ech_text_get(&json), json.bytes, "config", &now) >= 0)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            compare_section(ech_node_find(then, rows[i].section),
                            ech_node_find(now, rows[i].section), i, &changed);
    else
        ech_error_clear();
    compare_rest(f, c, ech_node_find(then, "train"), &changed);
    if (changed.bytes)
        ech_log(ECH_LOG_WARN, "goes on with other values than %s was saved with: %s",
                ech_ckpt_path_of(c), ech_text_get(&changed));
    say_other_data(f, c);
    ech_node_destroy(&then);
    ech_node_destroy(&now);
    ech_text_fini(&json);
    ech_text_fini(&changed);
}

/* --- rank 0 looks for it --- */

static ech_status start_search(search *f, ech_checkpoint_hold *hold)
{
    const char *wish = f->asked->wish;
    const ech_config_checkpoint *own = &f->cfg->checkpoint;
    const bool is_auto = strcmp(wish, ECH_RESUME_AUTO) == 0;
    int64_t swept = 0;
    ECH_TRY(ech_checkpoint_lock(f->cfg, hold)); /* before anything of another run is swept */
    if (own->every_steps > 0)
        ECH_TRY(ech_ckpt_sweep(own->dir, &swept));
    if (swept)
        ech_log(ECH_LOG_INFO, "%s: cleared away what killed saves had left", own->dir);
    if (strcmp(wish, ECH_RESUME_NO) == 0 || (is_auto && own->every_steps == 0))
        return ECH_OK;
    f->is_wanted = !is_auto;
    if (f->is_wanted && ech_ckpt_exists(wish)) {
        f->named = wish;
        return ECH_OK;
    }
    f->dir = is_auto ? own->dir : wish;
    ECH_CHECK(is_auto || ech_path_is_folder(wish), ECH_E_IO, "--resume %s: no such folder", wish);
    return ech_ckpt_list(f->dir, &f->list, &f->n);
}

/* The sampler's order is a function of the step: the same batch leads to the same samples. */
static ech_status check_position(const ech_config *cfg, const ech_ckpt *c)
{
    const ech_ckpt_position *at = &ech_ckpt_manifest_of(c)->run;
    const int64_t global = cfg->batch.global;
    int64_t samples = 0;
    const bool fits = ech_mul_i64(at->step, global, &samples) >= 0;
    if (fits && samples == at->samples)
        return ECH_OK;
    ECH_ASSERT(at->step > 0); /* 0 steps have 0 samples: ech_ckpt_check_run */
    return ECH_RAISE(ECH_E_CONFIG,
                     "batch.global is %" PRId64 ", and %s has consumed %" PRId64
                     " samples in %" PRId64 " steps: its data goes on with batch.global %" PRId64,
                     global, ech_ckpt_path_of(c), at->samples, at->step, at->samples / at->step);
}

static ech_status check_open(const search *f, ech_ckpt *c, ech_resume *out)
{
    ech_status st = ech_ckpt_check_model(c, &f->s->model, &f->s->canon);
    if (st == ECH_E_CONFIG)
        return ECH_E_FAILED; /* the message says so */
    ECH_TRY(st);
    ECH_TRY(ech_ckpt_check_files(c));
    ECH_TRY(check_position(f->cfg, c));
    if (f->cfg->checkpoint.every_steps > 0)
        ECH_TRY(ech_ckpt_next_generation(f->cfg->checkpoint.dir, c, &out->generation));
    out->at = ech_ckpt_manifest_of(c)->run;
    return ECH_OK;
}

static ech_status examine(const search *f, ech_resume *out)
{
    ech_ckpt *c = NULL;
    ECH_TRY(ech_ckpt_open(out->path, &c));
    const ech_status st = check_open(f, c, out);
    if (st == ECH_OK)
        say_changes(f, c);
    ech_ckpt_close(&c);
    return st;
}

/* Is it the checkpoint's fault, so that an older one may do?  What cannot be read may be whole. */
static bool is_its_fault(ech_status st)
{
    return st == ECH_E_CORRUPT || st == ECH_E_FAILED || st == ECH_E_UNSUPPORTED ||
           st == ECH_E_ILLEGAL;
}

static void pass_over(ech_resume *out)
{
    const char *why = ech_error_message();
    const bool is_named = strstr(why, out->path) != NULL;
    ech_log(ECH_LOG_WARN, "passed over: %s%s%s", is_named ? "" : out->path, is_named ? "" : ": ",
            why);
    ech_text_add(&out->passed_over, "%s%s%s\n", is_named ? "" : out->path, is_named ? "" : ": ",
                 why);
    out->path[0] = '\0';
    ech_error_clear();
}

static ech_status refuse_all(const search *f, const ech_resume *out)
{
    ECH_CHECK(f->n > 0, ECH_E_CORRUPT,
              "--resume %s: holds neither a manifest.json nor step-N folders: no checkpoint, or a "
              "damaged one",
              f->dir);
    return ECH_RAISE(
        ECH_E_CORRUPT,
        "no checkpoint in %s can be used: --resume no starts anew beside them, --resume PATH "
        "goes on from another folder:\n%s",
        f->dir, ech_text_get(&out->passed_over));
}

/* The next that looks whole; out->path stays "" where the run starts anew. */
static ech_status next_candidate(search *f, ech_resume *out)
{
    if (f->named) {
        (void)snprintf(out->path, sizeof out->path, "%s", f->named);
        return examine(f, out);
    }
    while (f->next < f->n) {
        ECH_TRY(ech_path_join(f->dir, f->list[f->next++].name, out->path, sizeof out->path));
        const ech_status st = examine(f, out);
        if (st == ECH_OK || !is_its_fault(st))
            return st;
        pass_over(out);
    }
    if (f->n > 0 || f->is_wanted)
        return refuse_all(f, out);
    if (f->cfg->checkpoint.every_steps > 0)
        return ech_ckpt_next_generation(f->cfg->checkpoint.dir, NULL, &out->generation);
    return ECH_OK;
}

/* Will this run save step `step`, unless it is stopped? */
static bool is_saved(const search *f, const ech_resume *out, int64_t step)
{
    const int64_t last = f->asked->steps;
    return step > out->at.step && step <= last &&
           (step % f->cfg->checkpoint.every_steps == 0 || step == last);
}

/* An earlier run's checkpoints stay: better refused now than at a save. */
static ech_status check_place(const search *f, const ech_resume *out, int64_t step)
{
    char path[4096];
    ECH_TRY(ech_ckpt_path(f->cfg->checkpoint.dir, step, path, sizeof path));
    ech_status st = ech_ckpt_check_free(path, out->generation);
    if (st != ECH_E_IO)
        return st;
    return ech_error_prefix(ECH_E_CONFIG,
                            "this run would save its step %" PRId64 " in place of an earlier "
                            "run's: give it another checkpoint.dir%s: ",
                            step,
                            strcmp(f->asked->wish, ECH_RESUME_AUTO) == 0
                                ? ""
                                : ", or go on from the newest with --resume auto");
}

static ech_status check_places(const search *f, const ech_resume *out)
{
    ech_ckpt_entry *list = NULL;
    size_t n = 0;
    ech_status st = ECH_OK;
    if (f->cfg->checkpoint.every_steps == 0)
        return ECH_OK;
    ECH_TRY(ech_ckpt_list(f->cfg->checkpoint.dir, &list, &n));
    for (size_t i = n; i > 0 && st == ECH_OK; i--) /* the oldest of them is named */
        if (list[i - 1].generation != out->generation && is_saved(f, out, list[i - 1].step))
            st = check_place(f, out, list[i - 1].step);
    free(list);
    return st;
}

/* A candidate, and room for what the run will save. */
static ech_status next_place(search *f, ech_resume *out)
{
    ECH_TRY(next_candidate(f, out));
    if (!out->path[0])
        out->at = (ech_ckpt_position){0};
    return check_places(f, out);
}

/* --- all of them --- */

/* What rank 0 tells the others. */
typedef struct offer {
    char path[sizeof((ech_resume *)0)->path];
    ech_ckpt_position at;
    int64_t generation;
    bool is_named;
} offer;

static ech_status spread(ech_session *s, const search *f, offer *all, ech_resume *out, bool *named)
{
    ech_transport *t = s->local[0].transport;
    offer mine = {.at = out->at, .generation = out->generation, .is_named = f->named != NULL};
    memcpy(mine.path, out->path, sizeof mine.path);
    *named = mine.is_named;
    if (s->n_local > 1 || t->size == 1)
        return ECH_OK;
    ECH_TRY(t->exchange(t, &mine, sizeof mine, all));
    memcpy(out->path, all->path, sizeof out->path);
    out->at = all->at;
    out->generation = all->generation;
    *named = all->is_named;
    return ECH_OK;
}

static ech_status load_open(ech_session *s, const ech_resume *from, ech_ckpt *c)
{
    const ech_ckpt_position *at = &ech_ckpt_manifest_of(c)->run;
    const ech_transport *t = s->local[0].transport;
    const bool is_whole_world = s->n_local == t->size;
    ECH_CHECK(at->step == from->at.step && at->generation == from->at.generation &&
                  strcmp(at->saved, from->at.saved) == 0,
              ECH_E_ENV,
              "%s is another checkpoint on rank %d than on rank 0: do all hosts share "
              "this folder?",
              from->path, t->rank);
    ECH_TRY(ech_ckpt_verify_share(c, is_whole_world ? 0 : t->rank, is_whole_world ? 1 : t->size));
    return ech_state_load(s, c);
}

/* Every byte is read once for its hash, by one of the processes, and what is needed again: so a
 * flipped bit is found before the first step, whatever the layout. */
static ech_status load(ech_session *s, const ech_resume *from)
{
    ech_ckpt *c = NULL;
    ECH_TRY(ech_ckpt_open(from->path, &c));
    const ech_status st = load_open(s, from, c);
    ech_ckpt_close(&c);
    return st;
}

static ech_status find(ech_session *s, search *f, offer *all, ech_resume *out)
{
    const bool is_root = s->local[0].rank == 0;
    bool is_named = false;
    ech_status st = all ? ECH_OK : ECH_RAISE(ECH_E_NOMEM, "no memory to look for a checkpoint");
    if (st == ECH_OK && is_root)
        st = start_search(f, &out->hold);
    ECH_TRY(ech_session_agree(s, st));
    for (;;) {
        ECH_TRY(ech_session_agree(s, is_root ? next_place(f, out) : ECH_OK));
        ECH_TRY(spread(s, f, all, out, &is_named));
        if (!out->path[0])
            return ECH_OK;
        st = ech_session_agree(s, load(s, out));
        if (st == ECH_OK || is_named || !is_its_fault(st))
            return st;
        if (is_root)
            pass_over(out);
    }
}

ech_status ech_resume_find(const ech_resume_request *request, ech_session *s, ech_resume *out)
{
    ech_transport *t = s->local[0].transport;
    const double deadline_s = t->deadline_s;
    search f = {.asked = request, .cfg = request->cfg, .s = s};
    offer *all = calloc((size_t)t->size, sizeof *all);
    t->deadline_s = 0; /* files take the time they take */
    ech_status st = find(s, &f, all, out);
    t->deadline_s = deadline_s;
    free(f.list);
    free(all);
    if (st < 0)
        return st;
    if (!out->path[0])
        out->at = (ech_ckpt_position){0};
    ECH_CHECK(!out->passed_over.failed, ECH_E_NOMEM, "no memory to look for a checkpoint");
    return ECH_OK;
}
