/* RUN: np=1 timeout=60 tags=fast */
/* Five tiny models against PyTorch and Transformers (README.md): logits, loss, every gradient,
 * weights after ten steps.  Reference kernels in fp32 and fp64, the cpu set in fp32; the batch as
 * one micro-batch and as three.  Every figure is printed. */
#include "check.h"
#include "tiny.h"

#include "base/node.h"
#include "engine/module.h"
#include "storage/safetensors.h"
#include "train/generate.h"
#include "train/session.h"
#include "train/weights.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 3, SEQ = 13, STEPS = 10 };

static const char *const folders[] = {"gpt2", "llama", "llama3rope", "qwen2", "qwen3"};
enum { N_FOLDERS = sizeof folders / sizeof folders[0] };

/* How it is computed. */
typedef struct setting {
    ech_dtype real;
    const ech_kernel_set *kernels; /* NULL: reference */
    int micro_batches;
} setting;

/* A fixture, opened for one setting. */
typedef struct fixture {
    const char *name;
    setting how;
    ech_weights weights;
    ech_st *golden;
    int32_t tokens[ROWS * SEQ], labels[ROWS * SEQ];
    int64_t n_labels;
    double limit;    /* of an error */
    double all_norm; /* |all gradients| */
    ech_transport *alone;
} fixture;

static const ech_kernel_set *cpu; /* NULL: not to be had */

/* --- fixtures --- */

static const char *path_of(const char *folder, const char *file)
{
    static char path[2][1024];
    static int turn;
    const char *source = getenv("ECH_SOURCE");
    turn = !turn;
    (void)snprintf(path[turn], sizeof path[turn], "%s/tests/golden/%s/%s", source ? source : ".",
                   folder, file);
    return path[turn];
}

static void read_rows(const ech_node *root, const char *key, int32_t *out)
{
    const ech_node *rows = ech_node_find(root, key);
    assert_non_null(rows);
    assert_int_equal(rows->n, ROWS);
    for (const ech_node *row = rows->child; row; row = row->next) {
        assert_int_equal(row->n, SEQ);
        for (const ech_node *x = row->child; x; x = x->next)
            *out++ = (int32_t)x->integer;
    }
}

static double golden_scalar(const fixture *f, const char *name, int64_t i)
{
    double x;
    const ech_st_tensor *t = ech_st_find(f->golden, name);
    assert_non_null(t);
    assert_ok(ech_st_read(f->golden, t, i, 1, ECH_F64, &x));
    return x;
}

/* Golden tensor `prefix``name` of n elements in fp64; owned by the caller. */
static double *golden_tensor(const fixture *f, const char *prefix, const char *name, int64_t n)
{
    char whole[160];
    double *x = malloc((size_t)n * sizeof *x);
    (void)snprintf(whole, sizeof whole, "%s%s", prefix, name);
    const ech_st_tensor *t = ech_st_find(f->golden, whole);
    assert_non_null(x);
    if (!t)
        fail_msg("%s has no %s", f->name, whole);
    assert_int_equal(t->elems, n);
    assert_ok(ech_st_read(f->golden, t, 0, n, ECH_F64, x));
    return x;
}

static double norm_of(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Norm over all golden tensors of a prefix; there must be one for every HF tensor. */
static double golden_norm(const fixture *f, const char *prefix)
{
    double sum = 0.0;
    size_t found = 0;
    for (int64_t i = 0; i < ech_st_count(f->golden); i++) {
        const ech_st_tensor *t = ech_st_at(f->golden, i);
        if (strncmp(t->name, prefix, strlen(prefix)) != 0)
            continue;
        double *x = golden_tensor(f, "", t->name, t->elems);
        sum += pow(norm_of(x, t->elems), 2.0);
        found++;
        free(x);
    }
    assert_int_equal(found, f->weights.folder.map.n_tensors);
    return sqrt(sum);
}

static void fixture_open(fixture *f, const char *name, setting how)
{
    ech_node *batch = NULL;
    const char *golden = how.real == ECH_F64 ? "golden_f64.safetensors" : "golden_f32.safetensors";
    *f = (fixture){.name = name, .how = how, .limit = how.real == ECH_F64 ? 1e-10 : 1e-5};
    assert_ok(ech_weights_open(path_of(name, ""), &f->weights));
    assert_ok(ech_st_open(path_of(name, golden), 0, &f->golden));
    assert_ok(ech_node_read_file(path_of(name, "batch.json"), true, &batch));
    read_rows(batch, "input_ids", f->tokens);
    read_rows(batch, "labels", f->labels);
    f->n_labels = ech_node_find(batch, "num_labels")->integer;
    ech_node_destroy(&batch);
    f->all_norm = golden_norm(f, "grad.");
    assert_ok(ech_transport_self(&f->alone));
}

static void fixture_close(fixture *f)
{
    f->alone->destroy(f->alone);
    ech_weights_close(&f->weights);
    ech_st_close(&f->golden);
}

/* A session with the fixture's weights and batch. */
static ech_session *start(const fixture *f, ech_update_rule rule)
{
    ech_session *s = NULL;
    const bool is_adamw = rule == ECH_UPDATE_ADAMW;
    const ech_block_spec block = {.layout = ech_layout_data_parallel(1),
                                  .real = f->how.real,
                                  .rows = ROWS / f->how.micro_batches,
                                  .seq = SEQ,
                                  .optim = rule,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = is_adamw ? 0.1 : 0.0,
                                  .clip = is_adamw ? 1.0 : 0.0};
    const ech_session_config c = {
        .model = &f->weights.folder.model,
        .compile = {.block = block, .micro_batches = f->how.micro_batches, .bucket_bytes = 1 << 20},
        .kernels = f->how.kernels,
        .threads = f->how.kernels ? 2 : 1,
        .poison = true};
    assert_ok(ech_session_create(&c, &f->alone, 1, &s));
    const ech_held held = ech_session_held(s, 0);
    assert_ok(ech_weights_load(&f->weights, &held, 1, NULL));
    memcpy(ech_session_tokens(s, 0), f->tokens, sizeof f->tokens);
    memcpy(ech_session_labels(s, 0), f->labels, sizeof f->labels);
    return s;
}

/* --- comparing --- */

/* The largest error so far and where it is. */
typedef struct worst {
    double error;
    char where[128];
} worst;

static void note(worst *w, double error, const char *where)
{
    if (error <= w->error || isnan(w->error)) /* a NaN is the worst of all, and stays */
        return;
    w->error = error;
    (void)snprintf(w->where, sizeof w->where, "%s", where);
}

static void expect(const fixture *f, const char *what, const worst *w, double limit)
{
    (void)printf("%-10s %s %-3s m=%d  %-14s %.1e  %s\n", f->name, ech_dtype_name(f->how.real),
                 f->how.kernels ? "cpu" : "ref", f->how.micro_batches, what, w->error, w->where);
    if (!(w->error <= limit))
        fail_msg("%s %s: %s is off by %.3e, allowed %.0e", f->name, what, w->where, w->error,
                 limit);
}

/* |got - want| / max(|want|, floor) over elements [first, first + n). */
static double relative(const double *got, const double *want, int64_t first, int64_t n,
                       double floor)
{
    double sum = 0.0;
    for (int64_t i = first; i < first + n; i++)
        sum += pow(got[i] - want[i], 2.0);
    return sqrt(sum) / fmax(norm_of(want + first, n), floor);
}

/* GPT-2's key bias, the middle third of c_attn.bias, has a gradient of exactly zero: what AdamW
 * makes of the noise is compared absolutely, with the bound of the rest (README.md). */
static double key_bias_error(const double *got, const double *want, int64_t n, double floor)
{
    double error =
        fmax(relative(got, want, 0, n / 3, floor), relative(got, want, 2 * n / 3, n / 3, floor));
    for (int64_t i = n / 3; i < 2 * n / 3; i++)
        error = fmax(error, fabs(got[i] - want[i]));
    return error;
}

static bool is_key_bias(const char *prefix, const char *name)
{
    return strcmp(prefix, "adamw10.") == 0 && strstr(name, "c_attn.bias");
}

/* Every HF tensor, in HF's row order, of canonical values against the golden ones. */
static worst compare_tensors(const fixture *f, const char *prefix, void *flat, double floor)
{
    worst w = {0};
    void **param = NULL;
    const ech_hf_folder *folder = &f->weights.folder;
    assert_ok(ech_hf_flat_params(&folder->canon, f->how.real, flat, &param));
    const ech_hf_values values = {f->how.real, param};
    for (size_t t = 0; t < folder->map.n_tensors; t++) {
        const ech_hf_tensor *hf = &folder->map.tensor[t];
        double *want = golden_tensor(f, prefix, hf->name, hf->elems);
        double *got = calloc((size_t)hf->elems, sizeof *got);
        void *raw = calloc((size_t)hf->elems, ech_dtype_bytes(f->how.real));
        ech_hf_gather(&folder->map, t, 0, hf->elems, &values, raw);
        for (int64_t i = 0; i < hf->elems; i++)
            got[i] = ech_dtype_load(f->how.real, raw, (size_t)i);
        note(&w,
             is_key_bias(prefix, hf->name) ? key_bias_error(got, want, hf->elems, floor)
                                           : relative(got, want, 0, hf->elems, floor),
             hf->name);
        free(raw);
        free(got);
        free(want);
    }
    free(param);
    return w;
}

/* --- the checks --- */

/* Whole sequences at once through the program of generation. */
static void check_logits(const fixture *f)
{
    enum { N = ROWS * SEQ };
    ech_generator *g = NULL;
    const ech_model *m = &f->weights.folder.model;
    const ech_generator_config c = {.model = m,
                                    .canon = &f->weights.folder.canon,
                                    .real = f->how.real,
                                    .context = SEQ,
                                    .chunk = SEQ,
                                    .kernels = f->how.kernels,
                                    .threads = f->how.kernels ? 2 : 1,
                                    .poison = true};
    double *want = golden_tensor(f, "", "logits", N * m->vocab);
    double *got = calloc((size_t)(N * m->vocab), sizeof *got);
    assert_ok(ech_generator_create(&c, &g));
    const ech_held held = ech_generator_held(g);
    assert_ok(ech_weights_load(&f->weights, &held, 1, NULL));
    for (int row = 0; row < ROWS; row++) {
        ech_generator_rewind(g, 0);
        assert_ok(ech_generator_feed(g, f->tokens + row * SEQ, SEQ));
        for (int t = 0; t < SEQ; t++)
            for (int64_t v = 0; v < m->vocab; v++)
                got[(row * SEQ + t) * m->vocab + v] =
                    ech_dtype_load(f->how.real, ech_generator_logits(g, t), (size_t)v);
    }
    worst w = {0};
    note(&w, relative(got, want, 0, N * m->vocab, 0.0), "all");
    expect(f, "logits", &w, f->limit);
    ech_generator_destroy(&g);
    free(want);
    free(got);
}

static void note_ratio(worst *w, double got, double want, const char *where, int step)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%s, step %d", where, step);
    note(w, fabs(got / want - 1.0), text);
}

static void check_gradients(const fixture *f)
{
    ech_step_result r;
    worst scalars = {0};
    ech_session *s = start(f, ECH_UPDATE_SGD);
    const ech_step_request request = {.loss_scale = 1.0, .commit = ECH_COMMIT_NEVER};
    assert_ok(ech_session_step(s, &request, &r));
    assert_int_equal(r.tokens, f->n_labels);
    note_ratio(&scalars, r.loss, golden_scalar(f, "loss", 0), "loss", 0);
    note_ratio(&scalars, r.grad_norm, f->all_norm, "norm", 0);
    expect(f, "loss and norm", &scalars, f->limit);
    const worst w = compare_tensors(f, "grad.", tiny_grads(s, 0), 1e-6 * f->all_norm);
    expect(f, "gradients", &w, f->limit);
    ech_session_destroy(&s);
}

static void check_steps(const fixture *f, ech_update_rule rule)
{
    const bool is_adamw = rule == ECH_UPDATE_ADAMW;
    const char *prefix = is_adamw ? "adamw10." : "sgd10.";
    const double limit = is_adamw ? 1e-9 : 1e-5;
    worst series = {0};
    ech_session *s = start(f, rule);
    for (int i = 0; i < STEPS; i++) {
        ech_step_result r;
        const ech_step_request request = {
            .step = i, .updates = i, .lr = is_adamw ? 1e-2 : 0.05, .loss_scale = 1.0};
        assert_ok(ech_session_step(s, &request, &r));
        assert_true(r.is_updated);
        note_ratio(&series, r.loss, golden_scalar(f, is_adamw ? "adamw_losses" : "sgd_losses", i),
                   "loss", i);
        if (is_adamw)
            note_ratio(&series, r.grad_norm, golden_scalar(f, "adamw_norms", i), "norm", i);
    }
    expect(f, is_adamw ? "adamw series" : "sgd series", &series, limit);
    const worst w = compare_tensors(f, prefix, tiny_params(s, 0), 1e-6 * golden_norm(f, prefix));
    expect(f, is_adamw ? "adamw weights" : "sgd weights", &w, limit);
    ech_session_destroy(&s);
}

static void check_setting(setting how)
{
    for (int k = 0; k < N_FOLDERS; k++) {
        fixture f;
        fixture_open(&f, folders[k], how);
        check_logits(&f);
        check_gradients(&f);
        if (k < 2) /* gpt2 and llama hold optimizer steps */
            check_steps(&f, how.real == ECH_F64 ? ECH_UPDATE_ADAMW : ECH_UPDATE_SGD);
        fixture_close(&f);
    }
}

static void test_ref_fp64(void **state)
{
    (void)state;
    check_setting((setting){ECH_F64, NULL, 1});
    check_setting((setting){ECH_F64, NULL, 3});
}

static void test_ref_fp32(void **state)
{
    (void)state;
    check_setting((setting){ECH_F32, NULL, 1});
    check_setting((setting){ECH_F32, NULL, 3});
}

static void test_cpu_fp32(void **state)
{
    (void)state;
    if (!cpu)
        skip();
    check_setting((setting){ECH_F32, cpu, 1});
    check_setting((setting){ECH_F32, cpu, 3});
}

/* The comparison finds what it is there to find: one element of one gradient off by 1e-4. */
static void test_comparison_can_fail(void **state)
{
    fixture f;
    ech_step_result r;
    (void)state;
    fixture_open(&f, "llama", (setting){ECH_F64, NULL, 1});
    ech_session *s = start(&f, ECH_UPDATE_SGD);
    const ech_step_request request = {.loss_scale = 1.0, .commit = ECH_COMMIT_NEVER};
    assert_ok(ech_session_step(s, &request, &r));
    const ech_param *p = ech_canon_find(&f.weights.folder.canon, ECH_PARAM_K_NORM, 0);
    assert_null(p); /* llama has none */
    p = ech_canon_find(&f.weights.folder.canon, ECH_PARAM_QKV, 1);
    double *grads = tiny_grads(s, 0);
    grads[p->offset + p->dim[2] * p->dim[3]] += 1e-4 * f.all_norm; /* second head's first row */
    const worst w = compare_tensors(&f, "grad.", grads, 1e-6 * f.all_norm);
    assert_string_equal(w.where, "model.layers.1.self_attn.q_proj.weight");
    assert_true(w.error > 1e-4);
    ech_session_destroy(&s);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref_fp64),
        cmocka_unit_test(test_ref_fp32),
        cmocka_unit_test(test_cpu_fp32),
        cmocka_unit_test(test_comparison_can_fail),
    };
    if (ech_module_kernels("cpu", &cpu) < 0)
        (void)fprintf(stderr, "the cpu part is left out: %s\n", ech_error_message());
    else if (cpu->start && cpu->start(NULL, 2) < 0)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (cpu && cpu->stop)
        cpu->stop();
    return failed;
}
