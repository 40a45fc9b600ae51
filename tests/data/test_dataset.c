/* RUN: np=1 timeout=20 tags=fast */
/* Samples, labels one token on, masks, several files, a part held out; the same rows however many
 * ranks ask for them. */
#include "check.h"
#include "folder.h"

#include "data/dataset.h"

#include <stdlib.h>

/* Tokens base, base + 1, ... */
static const char *counting_file(const char *name, int base, int n)
{
    uint16_t *t = calloc((size_t)n, sizeof *t);
    for (int i = 0; i < n; i++)
        t[i] = (uint16_t)(base + i);
    const char *path = scratch_write(name, t, (size_t)n * sizeof *t);
    free(t);
    return path;
}

static ech_dataset_config config_of(const char *const *files, int n, int64_t seq)
{
    ech_dataset_config c = ech_dataset_config_default();
    c.files = files;
    c.n_files = n;
    c.seq = seq;
    return c;
}

/* Sample i = tokens [i*seq, i*seq + seq]: 21 tokens hold 5 samples of 4, 20 hold only 4. */
static void samples_are_counted_with_their_last_label(void **state)
{
    (void)state;
    const char *files[2] = {counting_file("a.bin", 100, 21), counting_file("b.bin", 200, 20)};
    ech_dataset_config c = config_of(files, 2, 4);
    ech_dataset *ds = NULL;
    const int64_t samples[4] = {0, 4, 5, 8};
    static const int first[4] = {100, 116, 200, 212};
    int32_t in[16];
    int32_t labels[16];
    int64_t n_labels = 0;

    assert_ok(ech_dataset_open(&c, &ds));
    assert_int_equal(ech_dataset_samples(ds), 9);
    assert_int_equal(ech_dataset_tokens(ds), 41);
    assert_string_equal(ech_token_file_path(ech_dataset_file(ds, 1)), files[1]);
    assert_ok(ech_dataset_fill(ds, samples, 4, in, labels, &n_labels));
    assert_int_equal(n_labels, 16);
    for (int r = 0; r < 4; r++) {
        for (int i = 0; i < 4; i++) {
            assert_int_equal(in[4 * r + i], first[r] + i);
            assert_int_equal(labels[4 * r + i], first[r] + i + 1);
        }
    }
    ech_dataset_close(&ds);
    assert_null(ds);
}

/* A mask byte belongs to the token as a target; an ignored id is none either. */
static void masked_labels_carry_no_loss(void **state)
{
    (void)state;
    const uint8_t mask[9] = {0, 1, 0, 1, 1, 1, 1, 1, 0};
    const char *files[1] = {counting_file("m.bin", 10, 9)};
    const char *masks[1] = {scratch_write("m.mask", mask, 9)};
    ech_dataset_config c = config_of(files, 1, 4);
    ech_dataset *ds = NULL;
    const int64_t samples[2] = {0, 1};
    static const int32_t wanted[8] = {11, -1, 13, 14, 15, 16, -1, -1};
    int32_t in[8];
    int32_t labels[8];
    int64_t n_labels = 0;

    c.masks = masks;
    c.n_masks = 1;
    c.ignore_id = 17;
    assert_ok(ech_dataset_open(&c, &ds));
    assert_ok(ech_dataset_fill(ds, samples, 2, in, labels, &n_labels));
    for (int i = 0; i < 8; i++)
        assert_int_equal(labels[i], wanted[i]);
    assert_int_equal(n_labels, 5);
    assert_int_equal(in[7], 17); /* as input it stays */
    ech_dataset_close(&ds);
}

static void a_held_out_part_is_the_end(void **state)
{
    (void)state;
    const char *files[1] = {counting_file("h.bin", 0, 101)};
    ech_dataset_config c = config_of(files, 1, 10);
    ech_dataset *ds = NULL;
    const int64_t first = 0;
    int32_t in[10];
    int32_t labels[10];

    c.hold_out = 3;
    c.part = ECH_DATA_TRAIN;
    assert_ok(ech_dataset_open(&c, &ds));
    assert_int_equal(ech_dataset_samples(ds), 7);
    ech_dataset_close(&ds);
    c.part = ECH_DATA_HELD_OUT;
    assert_ok(ech_dataset_open(&c, &ds));
    assert_int_equal(ech_dataset_samples(ds), 3);
    assert_ok(ech_dataset_fill(ds, &first, 1, in, labels, NULL));
    assert_int_equal(in[0], 70);
    ech_dataset_close(&ds);
    c.hold_out = 10;
    assert_fails(ech_dataset_open(&c, &ds), ECH_E_CONFIG, "10 samples held out of 10");
    c.hold_out = 0;
    assert_fails(ech_dataset_open(&c, &ds), ECH_E_CONFIG, "wanted 1..9");
}

/* One global batch of 6 rows: all at once, or by 1, 2, 3 or 6 ranks, in any micro-batches. */
static void rows_do_not_depend_on_who_asks(void **state)
{
    (void)state;
    enum { SEQ = 8, BATCH = 6 };
    const char *files[1] = {counting_file("r.bin", 0, 401)};
    ech_dataset_config c = config_of(files, 1, SEQ);
    ech_dataset *ds = NULL;
    ech_sampler sampler;
    const int64_t all[BATCH] = {0, 1, 2, 3, 4, 5};
    int32_t want_in[BATCH * SEQ], want_labels[BATCH * SEQ];

    assert_ok(ech_dataset_open(&c, &ds));
    assert_ok(ech_sampler_init(&sampler, ech_dataset_samples(ds), BATCH, 9));
    for (int64_t step = 0; step < 20; step++) { /* 120 rows of 50 samples: into the third epoch */
        ech_batch_request whole = {.step = step, .rows = all, .n_rows = BATCH};
        assert_ok(ech_batch_fill(ds, &sampler, &whole, want_in, want_labels, NULL));
        for (int64_t r = 0; r < BATCH; r++)
            assert_int_equal(want_in[r * SEQ], SEQ * ech_sampler_sample(&sampler, step, r));
        for (int64_t dp = 1; dp <= BATCH; dp++) {
            if (BATCH % dp != 0)
                continue;
            for (int64_t rank = 0; rank < dp; rank++) {
                const int64_t n = BATCH / dp;
                ech_batch_request mine = {.step = step, .rows = all + rank * n, .n_rows = n};
                int32_t in[BATCH * SEQ], labels[BATCH * SEQ];
                assert_ok(ech_batch_fill(ds, &sampler, &mine, in, labels, NULL));
                assert_memory_equal(in, want_in + rank * n * SEQ, (size_t)(n * SEQ) * 4);
                assert_memory_equal(labels, want_labels + rank * n * SEQ, (size_t)(n * SEQ) * 4);
            }
        }
    }
    ech_dataset_close(&ds);
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    const char *files[2] = {counting_file("s.bin", 0, 8), scratch_path("none.bin")};
    ech_dataset_config c = config_of(files, 1, 8);
    ech_dataset *ds = NULL;

    assert_fails(ech_dataset_open(&c, &ds), ECH_E_DATA, "8 tokens are too few for a sequence of 8");
    c.seq = 0;
    assert_fails(ech_dataset_open(&c, &ds), ECH_E_CONFIG, "a sequence of 0");
    c.seq = 7;
    c.n_files = 0;
    assert_fails(ech_dataset_open(&c, &ds), ECH_E_CONFIG, "no token file");
    c.n_files = 2;
    assert_fails(ech_dataset_open(&c, &ds), ECH_E_DATA, "does not exist");
    c.masks = files;
    c.n_masks = 1;
    assert_fails(ech_dataset_open(&c, &ds), ECH_E_CONFIG, "1 mask files for 2 token files");
    c.n_files = 1;
    assert_fails(ech_dataset_open(&c, &ds), ECH_E_DATA, "16 bytes for a file of 8 tokens");
    c.n_masks = 0;
    c.tokens.vocab = 5;
    assert_fails(ech_dataset_open(&c, &ds), ECH_E_DATA, "token 5 has id 5");
    assert_null(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_counted_with_their_last_label),
        cmocka_unit_test(masked_labels_carry_no_loss),
        cmocka_unit_test(a_held_out_part_is_the_end),
        cmocka_unit_test(rows_do_not_depend_on_who_asks),
        cmocka_unit_test(wrong_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
