/* Token files as numbered samples. */
#include "data/dataset.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { MASK_CHUNK = 4096 };

struct ech_dataset {
    ech_token_file **files; /* owned [n_files] */
    ech_mask_file **masks;  /* owned [n_files]; NULL: no masks */
    int64_t *first;         /* owned [n_files + 1]: first sample of each file in the whole space */
    int n_files;
    int64_t seq;
    int64_t ignore_id;
    int64_t begin; /* of the chosen part in the whole space */
    int64_t n_samples;
    int64_t n_tokens;
};

ech_dataset_config ech_dataset_config_default(void)
{
    return (ech_dataset_config){.ignore_id = -1, .tokens = ech_token_options_default()};
}

static ech_status check_config(const ech_dataset_config *c)
{
    ECH_CHECK(c->n_files >= 1, ECH_E_CONFIG, "no token file is given");
    ECH_CHECK(c->n_masks == 0 || c->n_masks == c->n_files, ECH_E_CONFIG,
              "%d mask files for %d token files: give one for each, or none", c->n_masks,
              c->n_files);
    ECH_CHECK(c->seq >= 1 && c->seq <= INT32_MAX, ECH_E_CONFIG,
              "a sequence of %lld tokens, wanted 1..%d", (long long)c->seq, INT32_MAX);
    ECH_CHECK(c->hold_out >= 0, ECH_E_CONFIG, "%lld samples held out, wanted >= 0",
              (long long)c->hold_out);
    return ECH_OK;
}

static ech_status open_file(ech_dataset *ds, const ech_dataset_config *c, int i)
{
    ECH_TRY(ech_token_file_open(c->files[i], &c->tokens, &ds->files[i]));
    const int64_t n = ech_token_file_info(ds->files[i])->n_tokens;
    ECH_CHECK(n >= ds->seq + 1, ECH_E_DATA,
              "%s: %lld tokens are too few for a sequence of %lld (and one more as last label)",
              c->files[i], (long long)n, (long long)ds->seq);
    if (ds->masks)
        ECH_TRY(ech_mask_file_open(c->masks[i], n, &ds->masks[i]));
    ds->first[i + 1] = ds->first[i] + (n - 1) / ds->seq;
    ds->n_tokens += n;
    return ECH_OK;
}

static ech_status choose_part(ech_dataset *ds, const ech_dataset_config *c)
{
    const int64_t all = ds->first[ds->n_files];

    if (c->part == ECH_DATA_ALL) {
        ds->n_samples = all;
        return ECH_OK;
    }
    ECH_CHECK(c->hold_out < all && (c->part == ECH_DATA_TRAIN || c->hold_out > 0), ECH_E_CONFIG,
              "%lld samples held out of %lld, wanted %s%lld", (long long)c->hold_out,
              (long long)all, c->part == ECH_DATA_TRAIN ? "0.." : "1..", (long long)all - 1);
    ds->begin = c->part == ECH_DATA_TRAIN ? 0 : all - c->hold_out;
    ds->n_samples = c->part == ECH_DATA_TRAIN ? all - c->hold_out : c->hold_out;
    return ECH_OK;
}

static ech_status open_parts(ech_dataset *ds, const ech_dataset_config *c)
{
    ECH_TRY(ech_calloc((size_t)c->n_files, sizeof(ech_token_file *), &ds->files));
    ECH_TRY(ech_calloc((size_t)c->n_files + 1, sizeof *ds->first, &ds->first));
    if (c->n_masks > 0)
        ECH_TRY(ech_calloc((size_t)c->n_files, sizeof(ech_mask_file *), &ds->masks));
    ds->n_files = c->n_files;
    for (int i = 0; i < c->n_files; i++)
        ECH_TRY(open_file(ds, c, i));
    return choose_part(ds, c);
}

ech_status ech_dataset_open(const ech_dataset_config *config, ech_dataset **out)
{
    ech_dataset *ds = NULL;

    ECH_TRY(check_config(config));
    ECH_TRY(ech_calloc(1, sizeof *ds, &ds));
    ds->seq = config->seq;
    ds->ignore_id = config->ignore_id;
    const ech_status st = open_parts(ds, config);
    if (st < 0) {
        ech_dataset_close(&ds);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = ds;
    return ECH_OK;
}

void ech_dataset_close(ech_dataset **ds)
{
    if (!*ds)
        return;
    for (int i = 0; i < (*ds)->n_files; i++) {
        ech_token_file_close(&(*ds)->files[i]);
        if ((*ds)->masks)
            ech_mask_file_close(&(*ds)->masks[i]);
    }
    free((*ds)->files);
    free((*ds)->masks);
    free((*ds)->first);
    free(*ds);
    *ds = NULL;
}

int64_t ech_dataset_samples(const ech_dataset *ds)
{
    return ds->n_samples;
}

int64_t ech_dataset_tokens(const ech_dataset *ds)
{
    return ds->n_tokens;
}

const ech_token_file *ech_dataset_file(const ech_dataset *ds, int i)
{
    ECH_ASSERT(i >= 0 && i < ds->n_files);
    return ds->files[i];
}

/* File that holds a sample of the whole space. */
static int file_of(const ech_dataset *ds, int64_t sample)
{
    int low = 0;
    int high = ds->n_files - 1;

    while (low < high) {
        const int mid = (low + high + 1) / 2;
        if (ds->first[mid] <= sample)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* Labels without loss become -1; start is the place of the first label in the file. */
static ech_status mask_labels(const ech_dataset *ds, int file, int64_t start, int32_t *labels)
{
    uint8_t mask[MASK_CHUNK];

    for (int64_t at = 0; ds->masks && at < ds->seq; at += MASK_CHUNK) {
        const int64_t n = ds->seq - at < MASK_CHUNK ? ds->seq - at : MASK_CHUNK;
        ECH_TRY(ech_mask_file_read(ds->masks[file], start + at, n, mask));
        for (int64_t i = 0; i < n; i++)
            labels[at + i] = mask[i] ? labels[at + i] : -1;
    }
    for (int64_t i = 0; ds->ignore_id >= 0 && i < ds->seq; i++)
        labels[i] = labels[i] == ds->ignore_id ? -1 : labels[i];
    return ECH_OK;
}

static ech_status fill_row(const ech_dataset *ds, int64_t sample, int32_t *inputs, int32_t *labels)
{
    ECH_ASSERT(sample >= 0 && sample < ds->n_samples);
    const int64_t global = ds->begin + sample;
    const int file = file_of(ds, global);
    const int64_t start = (global - ds->first[file]) * ds->seq;

    /* Labels are the inputs one token on: read once, then the one token more. */
    ECH_TRY(ech_token_file_read(ds->files[file], start, ds->seq, inputs));
    memcpy(labels, inputs + 1, (size_t)(ds->seq - 1) * sizeof *labels);
    ECH_TRY(ech_token_file_read(ds->files[file], start + ds->seq, 1, labels + ds->seq - 1));
    return mask_labels(ds, file, start + 1, labels);
}

static int64_t count_labels(const int32_t *labels, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += labels[i] >= 0;
    return count;
}

ech_status ech_dataset_fill(const ech_dataset *ds, const int64_t *samples, int64_t n_rows,
                            int32_t *inputs, int32_t *labels, int64_t *n_labels)
{
    for (int64_t r = 0; r < n_rows; r++)
        ECH_TRY(fill_row(ds, samples[r], inputs + r * ds->seq, labels + r * ds->seq));
    if (n_labels)
        *n_labels = count_labels(labels, n_rows * ds->seq);
    return ECH_OK;
}

ech_status ech_batch_fill(const ech_dataset *ds, const ech_sampler *sampler,
                          const ech_batch_request *request, int32_t *inputs, int32_t *labels,
                          int64_t *n_labels)
{
    ECH_ASSERT(sampler->n_samples == ds->n_samples);
    for (int64_t r = 0; r < request->n_rows; r++) {
        const int64_t sample = ech_sampler_sample(sampler, request->step, request->rows[r]);
        ECH_TRY(fill_row(ds, sample, inputs + r * ds->seq, labels + r * ds->seq));
    }
    if (n_labels)
        *n_labels = count_labels(labels, request->n_rows * ds->seq);
    return ECH_OK;
}
