#include "train/feed.h"
#include "base/checked.h"

#include <stdlib.h>

static ech_status open_set(const ech_config *cfg, const ech_strings *files,
                           const ech_strings *masks, bool scans, ech_dataset **out)
{
    ech_dataset_config c = ech_dataset_config_default();
    c.files = (const char *const *)files->item;
    c.n_files = files->n;
    c.masks = masks ? (const char *const *)masks->item : NULL;
    c.n_masks = masks ? masks->n : 0;
    c.seq = cfg->batch.seq;
    c.ignore_id = cfg->data.ignore_id;
    c.tokens.dtype = cfg->data.dtype;
    c.tokens.vocab = cfg->model.vocab;
    c.tokens.skips_scan = !scans;
    return ech_dataset_open(&c, out);
}

ech_status ech_feed_open(const ech_config *cfg, bool scans, ech_feed *out)
{
    ech_feed f = {.micro_rows = cfg->batch.micro};
    ech_status st = open_set(cfg, &cfg->data.train, &cfg->data.mask, scans, &f.train);
    if (st >= 0 && cfg->data.valid.n)
        st = open_set(cfg, &cfg->data.valid, NULL, scans, &f.valid);
    if (st >= 0)
        st = ech_sampler_init(&f.order, ech_dataset_samples(f.train), cfg->batch.global,
                              (uint64_t)cfg->data.seed);
    if (st >= 0)
        st = ech_calloc((size_t)f.micro_rows, sizeof *f.rows, &f.rows);
    if (st >= 0)
        st = ech_calloc((size_t)(f.micro_rows * cfg->batch.seq), sizeof *f.unread, &f.unread);
    if (st < 0) {
        ech_feed_close(&f);
        return st;
    }
    *out = f;
    return ECH_OK;
}

void ech_feed_close(ech_feed *feed)
{
    ech_dataset_close(&feed->train);
    ech_dataset_close(&feed->valid);
    free(feed->rows);
    free(feed->unread);
    *feed = (ech_feed){0};
}

/* Where micro-batch k of local rank i lies in its token slot. */
static size_t slot_offset(const ech_session *s, int k)
{
    const ech_block_spec *b = &s->config.compile.block;
    return (size_t)k * (size_t)(b->rows * b->seq);
}

/* Element `at` of local rank i's token slot; a stage that takes no tokens is fed them in vain. */
static int32_t *tokens_of(const ech_feed *feed, ech_session *s, int i, size_t at)
{
    int32_t *tokens = ech_session_tokens(s, i);
    return tokens ? tokens + at : feed->unread;
}

ech_status ech_feed_step(ech_feed *feed, ech_session *s, int64_t step)
{
    for (int i = 0; i < s->n_local; i++)
        for (int k = 0; k < s->config.compile.micro_batches; k++) {
            const int64_t first = ech_first_row(&s->local[i].klass->program, s->local[i].rank, k);
            const size_t at = slot_offset(s, k);
            for (int64_t j = 0; j < feed->micro_rows; j++)
                feed->rows[j] = first + j;
            const ech_batch_request request = {step, feed->rows, feed->micro_rows};
            ECH_TRY(ech_batch_fill(feed->train, &feed->order, &request, tokens_of(feed, s, i, at),
                                   ech_session_labels(s, i) + at, NULL));
        }
    return ECH_OK;
}

static int64_t global_rows(const ech_session *s)
{
    return (int64_t)ech_layout_data_degree(&s->config.compile.block.layout) *
           s->config.compile.micro_batches * s->config.compile.block.rows;
}

int64_t ech_feed_eval_batches(const ech_feed *feed, const ech_session *s)
{
    return feed->valid ? ech_ceil_div(ech_dataset_samples(feed->valid), global_rows(s)) : 0;
}

/* One row; past the end a masked copy of sample 0, whose tokens are valid ids. */
static ech_status feed_eval_row(const ech_feed *feed, int64_t sample, int64_t seq, int32_t *tokens,
                                int32_t *labels)
{
    const bool is_past = sample >= ech_dataset_samples(feed->valid);
    const int64_t from = is_past ? 0 : sample;
    ECH_TRY(ech_dataset_fill(feed->valid, &from, 1, tokens, labels, NULL));
    for (int64_t t = 0; is_past && t < seq; t++)
        labels[t] = -1;
    return ECH_OK;
}

ech_status ech_feed_eval(ech_feed *feed, ech_session *s, int64_t index)
{
    const int64_t seq = s->config.compile.block.seq;
    for (int i = 0; i < s->n_local; i++)
        for (int k = 0; k < s->config.compile.micro_batches; k++)
            for (int64_t j = 0; j < feed->micro_rows; j++) {
                const int64_t row =
                    ech_first_row(&s->local[i].klass->program, s->local[i].rank, k) + j;
                const size_t at = slot_offset(s, k) + (size_t)(j * seq);
                ECH_TRY(feed_eval_row(feed, index * global_rows(s) + row, seq,
                                      tokens_of(feed, s, i, at), ech_session_labels(s, i) + at));
            }
    return ECH_OK;
}

int64_t ech_feed_sample(const ech_feed *feed, int64_t step, int64_t row)
{
    return ech_sampler_sample(&feed->order, step, row);
}
