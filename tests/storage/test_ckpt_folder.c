/* RUN: np=1 timeout=60 tags=fast */
/* Which checkpoint of a folder is the newest, which go, what a killed save has left. */
#include "check.h"
#include "ckpt_case.h"
#include "folder.h"

#include "base/io.h"
#include "base/io_folder.h"
#include "storage/ckpt_folder.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static ckpt_model model;

static void make(const char *dir, int64_t step, int64_t generation)
{
    ech_ckpt_saved saved;
    const ckpt_save_spec spec = {.model = &model,
                                 .layout = {1, 1, 1, false},
                                 .dtype = ECH_F32,
                                 .step = step,
                                 .generation = generation,
                                 .n_classes = 1};
    assert_ok(ckpt_save(dir, &spec, &saved));
}

/* Steps in order, newest first, as words. */
static void expect_list(const char *dir, const char *wanted)
{
    ech_ckpt_entry *list = NULL;
    size_t n = 0;
    char got[200] = "";
    assert_ok(ech_ckpt_list(dir, &list, &n));
    for (size_t i = 0; i < n; i++)
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%lld", i ? " " : "",
                       (long long)list[i].step);
    assert_string_equal(got, wanted);
    free(list);
}

static ech_ckpt *find(const char *dir)
{
    const ech_ckpt_query q = {.model = &model.m, .canon = &model.c};
    ech_text passed_over = {0};
    ech_ckpt *c = NULL;
    assert_ok(ech_ckpt_find(dir, &q, &passed_over, &c));
    ech_text_fini(&passed_over);
    return c;
}

static int64_t found_step(const char *dir)
{
    ech_ckpt *c = find(dir);
    const int64_t step = c ? ech_ckpt_manifest_of(c)->run.step : -1;
    ech_ckpt_close(&c);
    return step;
}

static const char *path_of(const char *dir, int64_t step)
{
    static char path[4096];
    assert_ok(ech_ckpt_path(dir, step, path, sizeof path));
    return path;
}

static void damage(const char *dir, int64_t step)
{
    char file[4200];
    (void)snprintf(file, sizeof file, "%s/rank-00000.bin", path_of(dir, step));
    assert_int_equal(truncate(file, 10), 0);
}

static void test_order(void **state)
{
    const char *dir = in_folder(state, "order");
    char name[4200];
    expect_list(dir, "");
    make(dir, 9900, 1);
    make(dir, 10000, 1);
    expect_list(dir, "10000 9900"); /* by number */
    make(dir, 400, 2);              /* a run that started anew */
    expect_list(dir, "400 10000 9900");
    assert_int_equal(found_step(dir), 400);
    (void)snprintf(name, sizeof name, "%s/step-77", dir); /* a Hugging Face folder */
    assert_ok(ech_make_folders(name));
    (void)snprintf(name, sizeof name, "%s/step-77/config.json", dir);
    assert_ok(ech_write_whole(name, "{}", 2));
    (void)snprintf(name, sizeof name, "%s/step-x", dir);
    assert_ok(ech_make_folders(name));
    (void)snprintf(name, sizeof name, "%s/step-88", dir); /* neither: spoken of first */
    assert_ok(ech_make_folders(name));
    expect_list(dir, "88 400 10000 9900");
    assert_int_equal(found_step(dir), 400);
}

static void test_generations(void **state)
{
    const char *dir = in_folder(state, "generations");
    int64_t g = 0;
    assert_ok(ech_ckpt_next_generation(dir, NULL, &g));
    assert_int_equal(g, 1);
    make(dir, 10, 1);
    make(dir, 20, 1);
    ech_ckpt *newest = find(dir);
    assert_ok(ech_ckpt_next_generation(dir, newest, &g));
    assert_int_equal(g, 1); /* goes on */
    assert_ok(ech_ckpt_next_generation(dir, NULL, &g));
    assert_int_equal(g, 2); /* anew */
    make(dir, 5, 2);
    assert_ok(ech_ckpt_next_generation(dir, newest, &g));
    assert_int_equal(g, 3); /* from one that is not the newest */
    ech_ckpt_close(&newest);
    newest = find(dir);
    assert_int_equal(ech_ckpt_manifest_of(newest)->run.step, 5);
    assert_ok(ech_ckpt_next_generation(dir, newest, &g));
    assert_int_equal(g, 2);
    assert_ok(ech_ckpt_next_generation(in_folder(state, "other"), newest, &g));
    assert_int_equal(g, 1); /* from another folder */
    ech_ckpt_close(&newest);
}

/* What a save may put its folder in place of: never a whole one of another run. */
static void test_free_places(void **state)
{
    const char *dir = in_folder(state, "free");
    const ckpt_save_spec other = {.model = &model,
                                  .layout = {1, 1, 1, false},
                                  .dtype = ECH_F32,
                                  .step = 5,
                                  .generation = 2,
                                  .n_classes = 1};
    ech_ckpt_saved saved;
    assert_ok(ech_ckpt_check_free(path_of(dir, 5), 1));
    make(dir, 5, 1);
    make(dir, 7, 2);
    assert_ok(ech_ckpt_check_free(path_of(dir, 5), 1));
    assert_fails(ech_ckpt_check_free(path_of(dir, 5), 2), ECH_E_IO, "of another run");
    assert_fails(ckpt_save(dir, &other, &saved), ECH_E_IO, "is not replaced");
    expect_list(dir, "7 5"); /* and no debris */
    assert_int_equal(folder_count(dir), 2);
    damage(dir, 5);
    assert_ok(ech_ckpt_check_free(path_of(dir, 5), 2));
    assert_ok(ckpt_save(dir, &other, &saved));
    assert_int_equal(found_step(dir), 7);
}

static void test_prune(void **state)
{
    const char *dir = in_folder(state, "prune");
    assert_ok(ech_ckpt_prune(dir, 1, 3));
    make(dir, 5000, 1); /* an earlier run's stays, whatever its number */
    for (int64_t step = 1; step <= 5; step++)
        make(dir, step, 2);
    assert_ok(ech_ckpt_prune(dir, 2, 0)); /* 0: all */
    expect_list(dir, "5 4 3 2 1 5000");
    damage(dir, 5);
    damage(dir, 3);
    assert_ok(ech_ckpt_prune(dir, 2, 2)); /* whole ones count: 4 and 2 */
    expect_list(dir, "5 4 3 2 5000");
    assert_ok(ech_ckpt_prune(dir, 2, 1));
    expect_list(dir, "5 4 5000");
    damage(dir, 4);
    assert_ok(ech_ckpt_prune(dir, 2, 1)); /* none is whole: none goes */
    expect_list(dir, "5 4 5000");
    assert_int_equal(found_step(dir), 5000);
}

static int stops_at_pieces(const char *op, const char *path, int64_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    return strcmp(op, "unlink") == 0 && strstr(path, "rank-") ? -EIO : 0;
}

/* Cut short while it removes one: what is left is no checkpoint, neither newest nor damaged. */
static void test_prune_cut_short(void **state)
{
    const char *dir = in_folder(state, "cut");
    int64_t n = 0;
    make(dir, 1, 1);
    make(dir, 2, 1);
    ech_io_set_hook(stops_at_pieces, NULL);
    assert_fails(ech_ckpt_prune(dir, 1, 1), ECH_E_IO, "cannot remove");
    ech_io_set_hook(NULL, NULL);
    expect_list(dir, "2");
    assert_int_equal(folder_count(dir), 2);
    assert_ok(ech_ckpt_sweep(dir, &n));
    assert_int_equal(n, 1);
    assert_int_equal(folder_count(dir), 1);
}

static void test_sweep(void **state)
{
    const char *dir = in_folder(state, "sweep");
    char tmp[4096];
    char old[4200];
    int64_t n = -1;
    assert_ok(ech_ckpt_sweep(dir, &n));
    assert_int_equal(n, 0);
    make(dir, 1, 1);
    assert_ok(ech_ckpt_begin(dir, 2, tmp, sizeof tmp)); /* and killed there */
    (void)snprintf(old, sizeof old, "%s/.other.tmp-abc", dir);
    assert_ok(ech_make_folders(old));
    (void)snprintf(old, sizeof old, "%s/.step-7.txt", dir);
    assert_ok(ech_write_whole(old, "mine", 4));
    assert_int_equal(folder_count(dir), 5);
    assert_ok(ech_ckpt_sweep(dir, &n));
    assert_int_equal(n, 2);
    assert_int_equal(folder_count(dir), 3);
    /* an exchange that was cut in the middle: the old one stands under a temporary name */
    (void)snprintf(old, sizeof old, "%s/.step-00000001.tmp-abcdef.old", dir);
    assert_int_equal(rename(path_of(dir, 1), old), 0);
    assert_int_equal(found_step(dir), -1);
    assert_ok(ech_ckpt_sweep(dir, NULL));
    assert_int_equal(found_step(dir), 1);
    assert_int_equal(folder_count(dir), 3);
}

/* A rank that wrote nothing, or twice the same, is found before anything is published. */
static void test_ranks_that_fail(void **state)
{
    const char *dir = in_folder(state, "ranks");
    char tmp[4096];
    ech_ckpt_saved saved;
    ech_ckpt_writer *w = NULL;
    ech_shard_plan plan;
    const ckpt_layout one = {1, 1, 1, false};
    const ech_dtype none = ECH_N_DTYPES;
    const ech_ckpt_head head = {.run = {.step = 1, .generation = 1},
                                .layout = {2, 1, 1, 1, 1, 2, false},
                                .model = &model.m,
                                .canon = &model.c,
                                .dtype = {ECH_F32, none, none, none}};
    ckpt_plan(&model, &one, &plan);
    const int64_t n = ech_shard_unit_of(&plan, 0)->part[ECH_PART_CUT].elems;
    const ech_ckpt_span span = {&plan, 0, 0, ECH_PART_CUT, 0, n};
    void *slab = ckpt_slab(&model, &plan, 0, 0, ECH_PART_CUT, ECH_CKPT_PARAMS, ECH_F32, 0);
    assert_ok(ech_ckpt_begin(dir, 1, tmp, sizeof tmp));
    assert_ok(ech_ckpt_writer_create(&model.m, &model.c, 0, &w));
    assert_ok(ech_ckpt_writer_add(w, ECH_CKPT_PARAMS, ECH_F32, &span, slab));
    assert_ok(ech_ckpt_writer_write(w, tmp));
    ech_ckpt_writer_destroy(&w);
    assert_fails(ech_ckpt_publish(dir, tmp, &head, &saved), ECH_E_CORRUPT,
                 "rank 1 has left no table of its pieces");
    assert_ok(ech_ckpt_writer_create(&model.m, &model.c, 1, &w));
    assert_ok(ech_ckpt_writer_write(w, tmp)); /* no pieces: no file */
    ech_ckpt_writer_destroy(&w);
    assert_fails(ech_ckpt_publish(dir, tmp, &head, &saved), ECH_E_CORRUPT,
                 "params of 'layers.0.attn_norm.weight': a piece is missing: 0 of 12");
    assert_ok(ech_ckpt_writer_create(&model.m, &model.c, 1, &w));
    assert_ok(ech_ckpt_writer_add(w, ECH_CKPT_PARAMS, ECH_F32, &span, slab));
    assert_ok(ech_ckpt_writer_write(w, tmp));
    assert_fails(ech_ckpt_publish(dir, tmp, &head, &saved), ECH_E_CORRUPT,
                 "rank 1, params of 'embed.token.weight': element 0 of the box is saved twice");
    ech_ckpt_writer_destroy(&w);
    ech_ckpt_abandon(tmp);
    assert_int_equal(folder_count(dir), 0);
    free(slab);
}

static int setup(void **state)
{
    ckpt_model_make(CKPT_LLAMA, &model);
    return ckpt_folder_setup(state);
}

static int teardown(void **state)
{
    ckpt_model_drop(&model);
    return folder_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),           cmocka_unit_test(test_generations),
        cmocka_unit_test(test_free_places),     cmocka_unit_test(test_prune),
        cmocka_unit_test(test_prune_cut_short), cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_ranks_that_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
