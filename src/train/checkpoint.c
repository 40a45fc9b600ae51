#include "train/checkpoint.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/io_folder.h"
#include "base/log.h"
#include "base/text.h"
#include "data/tokenizer.h"
#include "storage/ckpt_folder.h"
#include "storage/hf_folder.h"
#include "train/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* --- before the run --- */

static ech_status try_beside(const char *path)
{
    char tmp[4096];
    ECH_TRY(ech_folder_create(path, tmp, sizeof tmp));
    return ech_folder_remove(tmp);
}

/* Can a file be put at path: created beside it and dropped again. */
static ech_status try_file(const char *path)
{
    ech_file *f;
    ECH_TRY(ech_file_create(path, &f));
    ech_file_close(&f);
    return ECH_OK;
}

/* A tokenizer that is to stand beside the weights must be one, and not know more ids than the model. */
static ech_status check_tokenizer(const ech_config *cfg)
{
    ech_tokenizer *t;
    if (!cfg->data.tokenizer)
        return ECH_OK;
    const ech_status st = ech_tokenizer_open(cfg->data.tokenizer, &t);
    if (st < 0)
        return ech_error_prefix(ECH_E_CONFIG, "data.tokenizer: ");
    const int32_t vocab = ech_tokenizer_vocab(t);
    ech_tokenizer_destroy(&t);
    ECH_CHECK(vocab <= cfg->model.vocab, ECH_E_CONFIG,
              "data.tokenizer: %s has %d tokens, the model's vocabulary is %lld",
              cfg->data.tokenizer, vocab, (long long)cfg->model.vocab);
    return ECH_OK;
}

/* Who holds the folder, for the one that cannot have it. */
static void describe_holder(const ech_config *cfg, char *buf, size_t n)
{
    char host[256] = "?";
    char since[32];
    (void)gethostname(host, sizeof host - 1);
    ech_clock_utc(since, sizeof since);
    (void)snprintf(buf, n, "host %s, process %ld, run.dir %s, since %s", host, (long)getpid(),
                   cfg->run.dir, since);
}

ech_status ech_checkpoint_lock(const ech_config *cfg, ech_checkpoint_hold *hold)
{
    enum { TRIES = 20 }; /* of a killed job the last process may still be ending */
    const struct timespec pause = {0, 100000000};
    const char *dir = cfg->checkpoint.dir;
    char path[4096];
    char mine[4096];
    char holder[4096];
    if (hold->is_asked || cfg->checkpoint.every_steps == 0 || !ech_path_is_folder(dir))
        return ECH_OK;
    ECH_TRY(ech_path_join(dir, "lock", path, sizeof path));
    describe_holder(cfg, mine, sizeof mine);
    ech_status st = ech_lock_take(path, mine, &hold->lock, holder, sizeof holder);
    for (int i = 0; i < TRIES && st == ECH_BLOCKED; i++) {
        (void)nanosleep(&pause, NULL);
        st = ech_lock_take(path, mine, &hold->lock, holder, sizeof holder);
    }
    ECH_CHECK(st != ECH_BLOCKED, ECH_E_ENV,
              "checkpoint.dir %s is in use by another run (%s): end that one, or give this one "
              "another checkpoint.dir",
              dir, holder[0] ? holder : "which does not say who");
    ECH_TRY(st);
    if (!hold->lock)
        ech_log(ECH_LOG_WARN,
                "%s: this file system has no locks: nothing keeps a second run out of it", dir);
    hold->is_asked = true;
    return ECH_OK;
}

ech_status ech_checkpoint_prepare(const ech_config *cfg, const char *grads,
                                  ech_checkpoint_hold *hold)
{
    char path[4096];
    if (grads)
        ECH_TRY(try_file(grads));
    if (cfg->checkpoint.every_steps == 0)
        return ECH_OK;
    ECH_TRY(check_tokenizer(cfg));
    ECH_TRY(ech_make_folders(cfg->checkpoint.dir));
    ECH_TRY(ech_checkpoint_lock(cfg, hold));
    ECH_TRY(ech_ckpt_path(cfg->checkpoint.dir, 0, path, sizeof path));
    return try_beside(path);
}

/* --- saving --- */

static bool is_root(const ech_session *s)
{
    return s->local[0].rank == 0;
}

ech_status ech_checkpoint_save(const ech_config *cfg, ech_session *s, const ech_ckpt_position *at,
                               const char *data, ech_ckpt_saved *out)
{
    ech_text json = {0};
    const char *dir = cfg->checkpoint.dir;
    ech_config_to_json(cfg, &json);
    const ech_state_spec spec = {.dir = dir,
                                 .run = *at,
                                 .config = json.failed ? NULL : ech_text_get(&json),
                                 .data = data,
                                 .tokenizer = cfg->data.tokenizer};
    ech_status st = ech_state_save(s, &spec, out);
    ech_text_fini(&json);
    ECH_TRY(st);
    if (is_root(s) && ech_ckpt_prune(dir, at->generation, cfg->checkpoint.keep) < 0) {
        ech_log(ECH_LOG_WARN, "more checkpoints stay than checkpoint.keep: %s",
                ech_error_message());
        ech_error_clear();
    }
    s->local[0].transport->spares_root = true; /* removing much is no hang */
    if (s->n_local == 1)
        st = ech_comm_agree(s->local[0].comm, st);
    s->local[0].transport->spares_root = false;
    return st;
}

/* --- gradients --- */

/* A class of values of the whole model, on rank 0's process; NULL elsewhere.  *Collective*. */
static ech_status collect(ech_session *s, ech_held_class what, void **flat)
{
    ech_status st = ECH_OK;
    *flat = NULL;
    if (is_root(s))
        st =
            ech_calloc((size_t)s->canon.elems, ech_dtype_bytes(s->config.compile.block.real), flat);
    if (s->n_local == 1)
        st = ech_comm_agree(s->local[0].comm, st);
    if (st >= 0)
        st = ech_session_collect(s, what, *flat);
    if (st < 0) {
        free(*flat);
        *flat = NULL;
    }
    return st;
}

static ech_status write_grads(ech_session *s, double factor, void *flat, const char *file)
{
    void **param = NULL;
    ech_hf_map map = {0};
    ech_status st;
    const ech_dtype real = s->config.compile.block.real;
    for (size_t i = 0; i < (size_t)s->canon.elems; i++)
        ech_dtype_store(real, flat, i, factor * ech_dtype_load(real, flat, i));
    ECH_TRY_GOTO(st, ech_hf_map_create(&s->model, &s->canon, &map), done);
    ECH_TRY_GOTO(st, ech_hf_flat_params(&s->canon, real, flat, &param), done);
    const ech_hf_values values = {real, param};
    ECH_TRY_GOTO(st, ech_hf_export_file(&map, &values, real, file), done);
done:
    ech_hf_map_fini(&map);
    free(param);
    return st;
}

ech_status ech_checkpoint_dump_grads(ech_session *s, double factor, const char *file)
{
    void *flat;
    ECH_TRY(collect(s, ECH_HELD_GRADS, &flat));
    const ech_status st = is_root(s) ? write_grads(s, factor, flat, file) : ECH_OK;
    free(flat);
    return st;
}
