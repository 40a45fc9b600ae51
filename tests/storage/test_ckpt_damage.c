/* RUN: np=1 timeout=60 tags=fast */
/* Damaged, foreign and hostile checkpoints: refused, with tensor, rank and file in the message. */
#include "check.h"
#include "ckpt_case.h"
#include "folder.h"

#include "base/hash.h"
#include "base/io.h"
#include "storage/ckpt_folder.h"

#include <stdlib.h>
#include <unistd.h>

static ckpt_model model;

/* A checkpoint of 6 ranks at dir/step-N; its path in one of four buffers. */
static const char *make(const char *dir, int64_t step, int mark)
{
    static ech_ckpt_saved saved[4];
    static int turn;
    const ckpt_save_spec spec = {.model = &model,
                                 .layout = {3, 2, 1, false},
                                 .dtype = ECH_F32,
                                 .step = step,
                                 .generation = 1,
                                 .n_classes = 3,
                                 .mark = mark};
    ech_ckpt_saved *s = &saved[turn++ % 4];
    assert_ok(ckpt_save(dir, &spec, s));
    return s->path;
}

static const char *in_checkpoint(const char *path, const char *name)
{
    static char buf[4][4200];
    static int turn;
    char *out = buf[turn++ % 4];
    (void)snprintf(out, sizeof buf[0], "%s/%s", path, name);
    return out;
}

static char *slurp(const char *path, size_t *bytes)
{
    char *text = NULL;
    assert_ok(ech_read_whole(path, 1 << 28, &text, bytes));
    return text;
}

static void put(const char *path, const void *data, size_t bytes)
{
    assert_ok(ech_write_whole(path, data, bytes));
}

/* --- flipped bits --- */

static void test_every_byte_of_the_manifest(void **state)
{
    const char *path = make(in_folder(state, "manifest"), 1, 0);
    const char *file = in_checkpoint(path, "manifest.json");
    size_t bytes = 0;
    char *text = slurp(file, &bytes);
    for (size_t i = 0; i < bytes; i += i < 400 ? 1 : 37) {
        ech_ckpt *c = NULL;
        text[i] = (char)(text[i] ^ (1 << (i % 7)));
        FILE *f = fopen(file, "wb"); /* quicker than a synced file */
        assert_int_equal(fwrite(text, 1, bytes, f), bytes);
        assert_int_equal(fclose(f), 0);
        const ech_status st = ech_ckpt_open(path, &c);
        assert_null(c);
        assert_true(st == ECH_E_CORRUPT || st == ECH_E_UNSUPPORTED);
        assert_non_null(strstr(ech_error_message(), "manifest.json"));
        text[i] = (char)(text[i] ^ (1 << (i % 7)));
    }
    free(text);
}

/* The last fault told. */
typedef struct seen {
    int n;
    int64_t rank, offset;
    char tensor[128], file[64], what[1024];
    ech_ckpt_class cls;
} seen;

static void see(const ech_ckpt_fault *f, void *user)
{
    seen *s = user;
    s->n++;
    s->rank = f->rank;
    s->offset = f->offset;
    s->cls = f->cls;
    (void)snprintf(s->tensor, sizeof s->tensor, "%s", f->tensor ? f->tensor : "");
    (void)snprintf(s->file, sizeof s->file, "%s", f->file);
    (void)snprintf(s->what, sizeof s->what, "%s", f->what);
}

/* The piece of a rank that holds a byte of its file. */
static const ech_ckpt_piece *piece_at(const ech_ckpt_manifest *m, int rank, int64_t byte)
{
    for (int64_t i = 0; i < m->n_pieces; i++) {
        const ech_ckpt_piece *p = &m->piece[i];
        if (p->rank == rank && byte >= p->offset && byte < p->offset + 4 * p->range.n)
            return p;
    }
    fail_msg("no piece of rank %d holds byte %lld", rank, (long long)byte);
    return NULL;
}

static void flip(const char *file, int64_t byte)
{
    char c;
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)byte, SEEK_SET), 0);
    assert_int_equal(fread(&c, 1, 1, f), 1);
    c = (char)(c ^ (1 << (byte % 8)));
    assert_int_equal(fseek(f, (long)byte, SEEK_SET), 0);
    assert_int_equal(fwrite(&c, 1, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static void test_every_region_of_a_file(void **state)
{
    const char *path = make(in_folder(state, "bits"), 1, 0);
    const char *file = in_checkpoint(path, "rank-00004.bin");
    ech_ckpt *c = NULL;
    assert_ok(ech_ckpt_open(path, &c));
    const ech_ckpt_manifest *m = ech_ckpt_manifest_of(c);
    assert_int_equal(m->n_files, 6);
    int64_t last = m->file[4].bytes - 1;
    for (int64_t byte = 0; byte <= last;
         byte = byte + 101 < last || byte == last ? byte + 101 : last) {
        seen s = {.n = 0};
        char words[300];
        const ech_ckpt_piece *p = piece_at(m, 4, byte);
        flip(file, byte);
        (void)snprintf(words, sizeof words, "%s of '%s', rank 4: %s: damaged",
                       ech_ckpt_class_name((ech_ckpt_class)p->cls), m->tensor[p->tensor].name,
                       file);
        assert_fails(ech_ckpt_verify(c, see, &s), ECH_E_CORRUPT, words);
        assert_int_equal(s.n, 1);
        assert_int_equal(s.rank, 4);
        assert_int_equal(s.offset, p->offset);
        assert_int_equal(s.cls, p->cls);
        assert_string_equal(s.tensor, m->tensor[p->tensor].name);
        assert_string_equal(s.file, "rank-00004.bin");
        flip(file, byte);
    }
    assert_ok(ech_ckpt_verify(c, NULL, NULL));
    ech_ckpt_close(&c);
}

/* A piece that is read whole is checked without verify. */
static void test_flip_found_at_load(void **state)
{
    const char *path = make(in_folder(state, "load"), 1, 0);
    float *table = calloc((size_t)(133 * 12), sizeof *table);
    ech_ckpt *c = NULL;
    assert_ok(ech_ckpt_open(path, &c));
    const ech_ckpt_manifest *m = ech_ckpt_manifest_of(c);
    flip(in_checkpoint(path, "rank-00000.bin"), m->piece[0].offset + 5);
    assert_int_equal(m->piece[0].rank, 0);
    assert_fails(ech_ckpt_read_tensor(c, ECH_CKPT_PARAMS, 0, ECH_F32, table), ECH_E_CORRUPT,
                 "params of 'embed.token.weight', rank 0: ");
    ech_ckpt_close(&c);
    free(table);
}

/* --- files cut, gone, swapped --- */

static void expect_files_bad(const char *path, ech_status status, const char *words)
{
    ech_ckpt *c = NULL;
    assert_ok(ech_ckpt_open(path, &c));
    assert_fails(ech_ckpt_check_files(c), status, words);
    assert_fails(ech_ckpt_verify(c, NULL, NULL), ECH_E_CORRUPT, words);
    ech_ckpt_close(&c);
}

static void test_cut_and_gone(void **state)
{
    const char *path = make(in_folder(state, "cut"), 1, 0);
    const char *file = in_checkpoint(path, "rank-00002.bin");
    size_t bytes = 0;
    char *data = slurp(file, &bytes);
    put(file, data, bytes - 1);
    expect_files_bad(path, ECH_E_CORRUPT, "the file of rank 2 has");
    put(file, data, 0);
    expect_files_bad(path, ECH_E_CORRUPT, "the file of rank 2 has 0 bytes");
    data[bytes] = 'x'; /* in place of the terminator */
    put(file, data, bytes + 1);
    expect_files_bad(path, ECH_E_CORRUPT, "the file of rank 2 has");
    assert_int_equal(unlink(file), 0);
    expect_files_bad(path, ECH_E_CORRUPT, "the file of rank 2 is missing, with '");
    put(in_folder(state, "away"), data, bytes);
    assert_int_equal(symlink(in_folder(state, "away"), file), 0);
    expect_files_bad(path, ECH_E_ILLEGAL, "is a symbolic link");
    assert_int_equal(unlink(file), 0);
    put(file, data, bytes);
    put(in_checkpoint(path, "rank-00099.bin"), "stray", 5); /* ignored */
    put(in_checkpoint(path, "notes"), "mine", 4);
    ech_ckpt *c = NULL;
    assert_ok(ech_ckpt_open(path, &c));
    assert_ok(ech_ckpt_check_files(c));
    assert_ok(ech_ckpt_verify(c, NULL, NULL));
    ech_ckpt_close(&c);
    free(data);
}

static void test_swapped(void **state)
{
    const char *dir = in_folder(state, "swap");
    const char *path = make(dir, 1, 0);
    const char *other = make(dir, 2, 1);
    size_t bytes[3];
    char *a = slurp(in_checkpoint(path, "rank-00004.bin"), &bytes[0]);
    char *b = slurp(in_checkpoint(path, "rank-00005.bin"), &bytes[1]);
    char *old = slurp(in_checkpoint(other, "rank-00004.bin"), &bytes[2]);
    ech_ckpt *c = NULL;
    assert_int_equal(bytes[0], bytes[2]); /* the same rank of another step */
    put(in_checkpoint(path, "rank-00004.bin"), old, bytes[2]);
    assert_ok(ech_ckpt_open(path, &c));
    assert_ok(ech_ckpt_check_files(c)); /* sizes do not tell */
    assert_fails(ech_ckpt_verify(c, NULL, NULL), ECH_E_CORRUPT, "rank 4: ");
    for (int64_t share = 0; share < 3; share++) /* 4 mod 3 is 1 */
        if (share == 1)
            assert_fails(ech_ckpt_verify_share(c, share, 3), ECH_E_CORRUPT, "rank 4: ");
        else
            assert_ok(ech_ckpt_verify_share(c, share, 3));
    ech_ckpt_close(&c);
    put(in_checkpoint(path, "rank-00004.bin"), b, bytes[1]);
    put(in_checkpoint(path, "rank-00005.bin"), a, bytes[0]);
    assert_ok(ech_ckpt_open(path, &c));
    assert_fails(ech_ckpt_verify(c, NULL, NULL), ECH_E_CORRUPT, "rank 4");
    ech_ckpt_close(&c);
    free(a);
    free(b);
    free(old);
}

/* --- other models --- */

static void expect_foreign(const char *path, const ckpt_model *m, const char *words)
{
    ech_ckpt *c = NULL;
    assert_ok(ech_ckpt_open(path, &c));
    assert_fails(ech_ckpt_check_model(c, &m->m, &m->c), ECH_E_CONFIG, words);
    ech_ckpt_close(&c);
}

static void expect_foreign_after(const char *path, ech_model m, const char *words)
{
    ckpt_model other = {.m = m};
    assert_ok(ech_canon_create(&m, &other.c));
    expect_foreign(path, &other, words);
    ckpt_model_drop(&other);
}

static void test_other_models(void **state)
{
    const char *path = make(in_folder(state, "foreign"), 1, 0);
    ech_model m = model.m;
    m.ffn = 16;
    expect_foreign_after(path, m,
                         "its 'layers.0.mlp.gate_up.weight' is [2, 14, 12], this one's "
                         "[2, 16, 12]");
    m = model.m;
    m.vocab = 134; /* the same padded table */
    expect_foreign_after(path, m, "its 'embed.token.weight' is [133, 12], this one's [134, 12]");
    m = model.m;
    m.layers = 3;
    expect_foreign_after(path, m,
                         "it has 'final_norm.weight' where this one has "
                         "'layers.2.attn_norm.weight'");
    m = model.m;
    m.tie_embeddings = true;
    expect_foreign_after(path, m, "it has 'head.weight', which this one has not");
    m = model.m;
    m.rope.interleaved = false;
    expect_foreign_after(path, m, "its rotary pairs are interleaved, this one's half-split");
    m = model.m;
    m.norm_eps = 1e-3; /* no shape depends on it */
    expect_foreign_after(path, m, "its model.norm_eps is 1e-05, this one's 0.001");
    m = model.m;
    m.rope.theta = 2e4;
    expect_foreign_after(path, m, "its model.rope.theta is ");
    m = model.m;
    m.rope.kind = ECH_ROPE_LINEAR;
    m.rope.factor = 2;
    expect_foreign_after(path, m, "its model.rope.kind is another one");
    m = model.m;
    m.dropout = 0.5; /* of training, not of the model */
    m.context *= 2;
    ech_text changes = {0};
    ech_ckpt *c = NULL;
    assert_ok(ech_ckpt_open(path, &c));
    assert_ok(ech_ckpt_check_model(c, &m, &model.c));
    ech_ckpt_model_changes(c, &m, &changes);
    assert_string_equal(ech_text_get(&changes), "model.context, model.dropout");
    ech_text_fini(&changes);
    ech_ckpt_close(&c);
}

/* --- hostile manifests: the hash is right, the contents are not --- */

/* Replace the first `from` in the manifest by `to`, hash it anew and open it. */
static ech_status open_edited(const char *path, const char *from, const char *to)
{
    const char *file = in_checkpoint(path, "manifest.json");
    size_t bytes = 0;
    char *text = slurp(file, &bytes);
    char *at = strstr(text, from);
    ech_text edited = {0};
    ech_ckpt *c = NULL;
    char hash[33];
    if (!at)
        fail_msg("the manifest has no %s:\n%s", from, text);
    ech_text_add_bytes(&edited, text, (size_t)(at - text));
    ech_text_add(&edited, "%s%s", to, at + strlen(from));
    char *rest = strchr(edited.data, '\n') + 1;
    ech_hash128_hex(rest, edited.bytes - (size_t)(rest - edited.data), hash);
    memcpy(strstr(edited.data, "\"hash\":\"") + 8, hash, 32);
    put(file, edited.data, edited.bytes);
    const ech_status st = ech_ckpt_open(path, &c);
    ech_ckpt_close(&c);
    put(file, text, bytes);
    free(text);
    ech_text_fini(&edited);
    return st;
}

static void test_hostile_manifests(void **state)
{
    static const struct {
        const char *from, *to, *words;
        ech_status status;
    } rows[] = {
        {"\"version\":1", "\"version\":2", "version 2 of the format", ECH_E_UNSUPPORTED},
        {"\"version\":1", "\"version\":0", "first line is damaged", ECH_E_CORRUPT},
        {"\"version\":1", "\"version\":-1", "first line is damaged", ECH_E_CORRUPT},
        {"\"step\":1,", "\"step\":1,\"step\":2,", "step", ECH_E_CORRUPT},
        {"\"step\":1,", "\"step\":-1,", "'step' is -1", ECH_E_CORRUPT},
        {"\"step\":1,", "\"step\":1e3,", "'step' is missing or of another type", ECH_E_CORRUPT},
        {"\"step\":1,", "\"stop\":1,", "'step' is missing", ECH_E_CORRUPT},
        {"\"step\":1,", "\"step\":1,\"more\":2,", "'run' has other members", ECH_E_CORRUPT},
        {"\"lr\":0.0003", "\"lr\":-1", "'lr' is -1", ECH_E_CORRUPT},
        {"\"rotary\":\"interleaved\"", "\"rotary\":\"spiral\"", "'rotary'", ECH_E_CORRUPT},
        {"\"rotary\":\"interleaved\"", "\"rotary\":\"half\"", "fingerprint", ECH_E_CORRUPT},
        {"\"world\":6", "\"world\":0", "'world' is 0", ECH_E_CORRUPT},
        {"\"config\":", "\"confit\":", "wanted 'config'", ECH_E_CORRUPT},
        {"\"config\":{", "\"config\":[[[[[[[[[[[[[[[[[[[[[[[[{", "wanted an object", ECH_E_CORRUPT},
        {"\"config\":{", "\"config\":{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[", "nested too deep",
         ECH_E_CORRUPT},
        {"\"embed.token.weight\",[133,12]", "\"embed.token.weight\",[133,13]",
         "a piece is missing: 1596 of 1729 elements", ECH_E_CORRUPT},
        {"\"embed.token.weight\",", "\"embed.taken.weight\",", "fingerprint", ECH_E_CORRUPT},
        {"[\"embed.token", "[\"\\u0000mbed.token", "NUL", ECH_E_CORRUPT},
        {"[133,12]", "[133,12,1,1,1]", "too many dimensions", ECH_E_CORRUPT},
        {"[133,12]", "[9223372036854775808]", "beyond 2^63", ECH_E_CORRUPT},
        {"\"classes\":[[0,", "\"classes\":[[1,", "another name", ECH_E_CORRUPT},
        {"[1,\"moment_m\",\"fp32\"]", "[0,\"params\",\"fp32\"]", "stands twice", ECH_E_CORRUPT},
        {"[1,\"moment_m\",\"fp32\"]", "[1,\"moment_m\",\"int8\"]", "a type that is none",
         ECH_E_CORRUPT},
        {"[1,\"moment_m\",\"fp32\"],", "", "class 1 is none", ECH_E_CORRUPT},
        {"\"files\":[[0,", "\"files\":[[1,", "rank 1 is there twice", ECH_E_CORRUPT},
        {"\"files\":[[0,", "\"files\":[[7,", "rank 0, ", ECH_E_CORRUPT},
        {"\"files\":[[0,", "\"files\":[[99999999,", "rank 99999999", ECH_E_CORRUPT},
        {"\"files\":[[0,", "\"files\":[[0,1", "rank 0: a file of", ECH_E_CORRUPT},
        {"\"pieces\":[[0,0,0,", "\"pieces\":[[4,0,0,", "class 4 is none", ECH_E_CORRUPT},
        {"\"pieces\":[[0,0,0,", "\"pieces\":[[0,900,0,", "tensor 900", ECH_E_CORRUPT},
        {"\"pieces\":[[0,0,0,", "\"pieces\":[[0,0,4294967296,", "beyond 31 bits", ECH_E_CORRUPT},
        {"\"pieces\":[[0,0,0,0,0,", "\"pieces\":[[0,0,0,4,0,", "stands at byte 4", ECH_E_CORRUPT},
        {"\"pieces\":[[0,0,0,0,0,", "\"pieces\":[[0,0,0,0,1,", "a piece is missing", ECH_E_CORRUPT},
        {"\"pieces\":[[0,0,0,0,0,516,", "\"pieces\":[[0,0,0,0,0,517,", "saved twice",
         ECH_E_CORRUPT},
        {"\"pieces\":[[0,0,0,0,0,516,", "\"pieces\":[[0,0,0,0,0,515,",
         "a piece is missing, elements 515 .. 515", ECH_E_CORRUPT},
        {"\"pieces\":[[0,0,0,0,0,516,", "\"pieces\":[[0,0,0,0,0,0,", "0 + 0 of a box",
         ECH_E_CORRUPT},
        {"\"pieces\":[[0,0,0,0,0,516,", "\"pieces\":[[0,0,0,0,0,9223372036854775807,",
         "of a box that has 1032", ECH_E_CORRUPT},
        {",[0,86,0,12]", ",[0,87,0,12]", "a piece is missing", ECH_E_CORRUPT},
        {",[0,86,0,12]", ",[0,986,0,12]", "leaves dimension 0 of 133", ECH_E_CORRUPT},
        {",[0,86,0,12]", ",[6,6,0,12]", "leaves dimension 0 of 133", ECH_E_CORRUPT},
        {",[0,86,0,12]", ",[0,86]", "a box of 1 dimensions in a tensor of 2", ECH_E_CORRUPT},
        {",[0,86,0,12]", ",[0,86,0]", "expected", ECH_E_CORRUPT},
        {"\"pieces\":[",
         "\"pieces\":[[0,0,0,0,0,1,[0,1,0,1],\"00000000000000000000000000000000\"],", "saved twice",
         ECH_E_CORRUPT},
        {"\"pieces\":[", "\"pieces\":[7,", "expected '['", ECH_E_CORRUPT},
        {"]}\n", "]}x", "text after the end", ECH_E_CORRUPT},
    };
    const char *path = make(in_folder(state, "hostile"), 1, 0);
    ech_ckpt *c = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ech_status st = open_edited(path, rows[i].from, rows[i].to);
        if (st != rows[i].status || !strstr(ech_error_message(), rows[i].words))
            fail_msg("%s -> %s: got %s: %s; wanted '%s'", rows[i].from, rows[i].to,
                     ech_status_name(st), ech_error_message(), rows[i].words);
    }
    assert_ok(ech_ckpt_open(path, &c)); /* the editing itself does no harm */
    ech_ckpt_close(&c);
    assert_int_equal(open_edited(path, "\"step\":1,", "\"step\":1 ,"), ECH_OK);
}

/* A model that is not the one of the tensors. */
static void test_hostile_model(void **state)
{
    const char *path = make(in_folder(state, "model"), 1, 0);
    const char *file = in_checkpoint(path, "manifest.json");
    size_t bytes = 0;
    char *text = slurp(file, &bytes);
    ech_model m;
    ech_canon canon;
    ech_ckpt *c = NULL;
    char hash[33];
    char *rest = strchr(text, '\n') + 1;
    char *at = strstr(text, "\"vocab_size\": 133");
    assert_non_null(at);
    at[strlen("\"vocab_size\": 13")] = '4';
    ech_hash128_hex(rest, bytes - (size_t)(rest - text), hash);
    memcpy(strstr(text, "\"hash\":\"") + 8, hash, 32);
    put(file, text, bytes);
    assert_ok(ech_ckpt_open(path, &c));
    assert_fails(ech_ckpt_model(c, &m, &canon), ECH_E_CORRUPT,
                 "the manifest's model is not that of its tensors");
    ech_ckpt_close(&c);
    free(text);
}

/* --- falling back --- */

static void expect_found(const char *dir, bool verifies, int64_t step, const char *words)
{
    const ech_ckpt_query q = {.model = &model.m, .canon = &model.c, .verifies = verifies};
    ech_text passed_over = {0};
    ech_ckpt *c = NULL;
    assert_ok(ech_ckpt_find(dir, &q, &passed_over, &c));
    assert_int_equal(c ? ech_ckpt_manifest_of(c)->run.step : -1, step);
    if (!strstr(ech_text_get(&passed_over), words))
        fail_msg("'%s' does not say '%s'", ech_text_get(&passed_over), words);
    ech_text_fini(&passed_over);
    ech_ckpt_close(&c);
}

static void test_fall_back(void **state)
{
    const char *dir = in_folder(state, "back");
    expect_found(dir, true, -1, "");
    const char *one = make(dir, 1, 0);
    const char *two = make(dir, 2, 0);
    const char *three = make(dir, 3, 0);
    expect_found(dir, true, 3, "");
    flip(in_checkpoint(three, "rank-00001.bin"), 17);
    expect_found(dir, false, 3, ""); /* sizes are right */
    expect_found(dir, true, 2, "rank 1: ");
    assert_int_equal(truncate(in_checkpoint(three, "rank-00001.bin"), 3), 0);
    expect_found(dir, false, 2, "the file of rank 1 has 3 bytes");
    flip(in_checkpoint(two, "manifest.json"), 300);
    expect_found(dir, false, 1, "step-00000002/manifest.json: damaged");
    assert_int_equal(unlink(in_checkpoint(one, "manifest.json")), 0);
    expect_found(dir, false, -1, "step-00000001: holds no manifest.json");
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
        cmocka_unit_test(test_every_byte_of_the_manifest),
        cmocka_unit_test(test_every_region_of_a_file),
        cmocka_unit_test(test_flip_found_at_load),
        cmocka_unit_test(test_cut_and_gone),
        cmocka_unit_test(test_swapped),
        cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_hostile_manifests),
        cmocka_unit_test(test_hostile_model),
        cmocka_unit_test(test_fall_back),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
