/* A manifest as text, and back.  The text is hostile: the form is checked here, the meaning by
 * ech_ckpt_manifest_complete. */
#include "storage/ckpt_manifest.h"

#include "base/checked.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/node.h"
#include "storage/json_cursor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first line: format, version, hash of the rest. */
#define LINE_A "{\"format\":\"echelon-checkpoint\",\"version\":"
#define LINE_B ",\"hash\":\""
#define LINE_C "\",\n"

enum {
    PEEK_BYTES = 4096,   /* the head and "run" are well within */
    EMBEDDED_DEPTH = 16, /* of model and config */
    HASH_DIGITS = 32
};

/* --- printing --- */

void ech_ckpt_piece_print(const ech_ckpt_piece *p, ech_text *out)
{
    const ech_ckpt_box *b = &p->range.box;
    ech_text_add(out, "[%d,%d,%d,%" PRId64 ",%" PRId64 ",%" PRId64 ",[", (int)p->cls,
                 (int)p->tensor, (int)p->rank, p->offset, p->range.first, p->range.n);
    for (int d = 0; d < b->rank; d++)
        ech_text_add(out, "%s%" PRId64 ",%" PRId64, d ? "," : "", b->begin[d], b->end[d]);
    ech_text_add(out, "],\"%s\"]", p->hash);
}

static void print_run(const ech_ckpt_position *r, ech_text *out)
{
    ech_text_add(out,
                 "\"run\":{\"step\":%" PRId64 ",\"generation\":%" PRId64 ",\"updates\":%" PRId64
                 ",\"samples\":%" PRId64 ",\"seed\":%" PRId64 ",\"lr\":",
                 r->step, r->generation, r->updates, r->samples, r->seed);
    ech_text_add_double(out, r->lr);
    ech_text_add(out, ",\"loss_scale\":");
    ech_text_add_double(out, r->loss_scale);
    ech_text_add(out, ",\"rotary\":\"%s\",\"saved\":", r->is_interleaved ? "interleaved" : "half");
    ech_text_add_json_string(out, r->saved, strlen(r->saved));
    ech_text_add(out, "},\n");
}

static void print_layout(const ech_ckpt_layout *l, ech_text *out)
{
    ech_text_add(out,
                 "\"layout\":{\"world\":%" PRId64 ",\"tp\":%" PRId64 ",\"cp\":%" PRId64
                 ",\"pp\":%" PRId64 ",\"shards\":%" PRId64 ",\"replicas\":%" PRId64
                 ",\"sequence_parallel\":%s},\n",
                 l->world, l->tp, l->cp, l->pp, l->shards, l->replicas,
                 l->is_sequence_parallel ? "true" : "false");
}

static void print_tensors(const ech_ckpt_manifest *m, ech_text *out)
{
    ech_text_add(out, "\"tensors\":[");
    for (int64_t i = 0; i < m->n_tensors; i++) {
        const ech_ckpt_tensor *t = &m->tensor[i];
        ech_text_add(out, "%s[", i ? ",\n" : "");
        ech_text_add_json_string(out, t->name, strlen(t->name));
        for (int d = 0; d < t->rank; d++)
            ech_text_add(out, "%s%" PRId64, d ? "," : ",[", t->dim[d]);
        ech_text_add(out, "]]");
    }
    ech_text_add(out, "],\n");
}

/* What two checkpoints of one model share: it pairs rotary dimensions alike and has the same
 * tensors. */
static ech_status fingerprint(const ech_ckpt_manifest *m, char out[HASH_DIGITS + 1])
{
    ech_text text = {0};
    ech_text_add(&text, "rotary %s\n", m->run.is_interleaved ? "interleaved" : "half");
    print_tensors(m, &text);
    const bool failed = text.failed;
    if (!failed)
        ech_hash128_hex(text.data, text.bytes, out);
    ech_text_fini(&text);
    ECH_CHECK(!failed, ECH_E_NOMEM, "no memory for the fingerprint");
    return ECH_OK;
}

static void print_classes(const ech_ckpt_manifest *m, ech_text *out)
{
    const char *comma = "";
    ech_text_add(out, "\"classes\":[");
    for (int c = 0; c < ECH_N_CKPT_CLASSES; c++) {
        if (m->dtype[c] == ECH_N_DTYPES)
            continue;
        ech_text_add(out, "%s[%d,\"%s\",\"%s\"]", comma, c, ech_ckpt_class_name((ech_ckpt_class)c),
                     ech_dtype_name(m->dtype[c]));
        comma = ",";
    }
    ech_text_add(out, "],\n\"files\":[");
    for (int64_t i = 0; i < m->n_files; i++)
        ech_text_add(out, "%s[%" PRId64 ",%" PRId64 "]", i ? "," : "", m->file[i].rank,
                     m->file[i].bytes);
    ech_text_add(out, "],\n");
}

/* What stands beside: told only where there is any. */
static void print_inputs(const ech_ckpt_manifest *m, ech_text *out)
{
    if (m->data)
        ech_text_add(out, "\"data\":%s,\n", m->data);
    for (int64_t i = 0; i < m->n_copies; i++) {
        ech_text_add(out, i ? ",[" : "\"copies\":[[");
        ech_text_add_json_string(out, m->copy[i].name, strlen(m->copy[i].name));
        ech_text_add(out, ",%" PRId64 ",\"%s\"]", m->copy[i].bytes, m->copy[i].hash);
    }
    if (m->n_copies)
        ech_text_add(out, "],\n");
}

static void print_rest(const ech_ckpt_manifest *m, ech_text *out)
{
    char hash[HASH_DIGITS + 1];
    print_run(&m->run, out);
    print_layout(&m->layout, out);
    ech_text_add(out, "\"model\":%s,\n\"config\":%s,\n", m->model, m->config);
    print_inputs(m, out);
    print_tensors(m, out);
    if (fingerprint(m, hash) < 0)
        out->failed = true;
    ech_text_add(out, "\"fingerprint\":\"%s\",\n", hash);
    print_classes(m, out);
    ech_text_add(out, "\"pieces\":[");
    for (int64_t i = 0; i < m->n_pieces; i++) {
        ech_text_add(out, "%s", i ? ",\n" : "");
        ech_ckpt_piece_print(&m->piece[i], out);
    }
    ech_text_add(out, "]}\n");
}

void ech_ckpt_manifest_print(const ech_ckpt_manifest *m, ech_text *out)
{
    ech_text rest = {0};
    char hash[HASH_DIGITS + 1];
    print_rest(m, &rest);
    out->failed = out->failed || rest.failed;
    if (!out->failed) {
        ech_hash128_hex(rest.data, rest.bytes, hash);
        ech_text_add(out, LINE_A "%d" LINE_B "%s" LINE_C, (int)ECH_CKPT_VERSION, hash);
        ech_text_add_bytes(out, rest.data, rest.bytes);
    }
    ech_text_fini(&rest);
}

/* --- parsing: values --- */

static ech_status take_key(ech_json *j, const char *wanted)
{
    char *key;
    char quoted[80];
    ECH_TRY(ech_json_key(j, &key));
    ECH_CHECK(!strcmp(key, wanted), ECH_E_PARSE, "key '%s', wanted '%s'",
              ech_json_quote(key, quoted, sizeof quoted), wanted);
    return ECH_OK;
}

static ech_status take_i32(ech_json *j, int32_t *out)
{
    int64_t v;
    ECH_TRY(ech_json_integer(j, &v));
    ECH_CHECK(v <= INT32_MAX, ECH_E_PARSE, "%" PRId64 " is beyond 31 bits", v);
    *out = (int32_t)v;
    return ECH_OK;
}

static ech_status take_comma_integer(ech_json *j, int64_t *out)
{
    ECH_TRY(ech_json_take(j, ','));
    return ech_json_integer(j, out);
}

static ech_status take_hash(ech_json *j, char out[HASH_DIGITS + 1])
{
    char *s;
    ECH_TRY(ech_json_string(j, &s));
    ECH_CHECK(strlen(s) == HASH_DIGITS && strspn(s, "0123456789abcdef") == HASH_DIGITS, ECH_E_PARSE,
              "a hash is 32 hexadecimal digits");
    memcpy(out, s, HASH_DIGITS + 1);
    return ECH_OK;
}

/* Where the object that starts at p ends, or end where it does not: strings are stepped over,
 * braces counted.  What is inside is checked when it is parsed. */
static const char *object_end(const char *p, const char *end)
{
    int64_t depth = 0;
    bool in_string = false;
    for (; p < end; p++) {
        if (in_string) {
            if (*p == '\\')
                p += p + 1 < end;
            else
                in_string = *p != '"';
            continue;
        }
        in_string = *p == '"';
        depth += (*p == '{') - (*p == '}');
        if (depth <= 0)
            return p < end ? p + 1 : end;
    }
    return end;
}

/* Take an object and keep a copy of its text: parsing changes strings in place. */
static ech_status take_object(ech_json *j, char **out)
{
    char *copy;
    ECH_CHECK(ech_json_peek(j) == '{', ECH_E_PARSE, "wanted an object");
    const size_t bytes = (size_t)(object_end(j->at, j->end) - j->at);
    ECH_TRY(ech_calloc(bytes + 1, 1, &copy));
    memcpy(copy, j->at, bytes);
    const char *start = j->at;
    ech_status st = ech_json_skip(j, EMBEDDED_DEPTH);
    if (st == ECH_OK && (size_t)(j->at - start) != bytes)
        st = ECH_RAISE(ECH_E_PARSE, "an object of unclear length");
    if (st == ECH_OK)
        *out = copy;
    else
        free(copy);
    return st;
}

/* --- parsing: "run" and "layout" --- */

static ech_status want(const ech_node *map, const char *key, ech_node_kind kind,
                       const ech_node **out)
{
    *out = ech_node_find(map, key);
    const bool is_number = *out && ((*out)->kind == ECH_NODE_INT || (*out)->kind == ECH_NODE_REAL);
    ECH_CHECK(*out && ((*out)->kind == kind || (kind == ECH_NODE_REAL && is_number)), ECH_E_PARSE,
              "'%s' is missing or of another type", key);
    return ECH_OK;
}

static ech_status want_integer(const ech_node *map, const char *key, int64_t least, int64_t *out)
{
    const ech_node *n;
    ECH_TRY(want(map, key, ECH_NODE_INT, &n));
    ECH_CHECK(n->integer >= least, ECH_E_PARSE, "'%s' is %" PRId64 ", wanted at least %" PRId64,
              key, n->integer, least);
    *out = n->integer;
    return ECH_OK;
}

static ech_status want_real(const ech_node *map, const char *key, double *out)
{
    const ech_node *n;
    ECH_TRY(want(map, key, ECH_NODE_REAL, &n));
    ECH_CHECK(isfinite(n->real) && n->real >= 0, ECH_E_PARSE, "'%s' is %g, which cannot be", key,
              n->real);
    *out = n->real;
    return ECH_OK;
}

static ech_status read_run(const ech_node *map, ech_ckpt_position *r)
{
    const ech_node *n;
    ECH_CHECK(map->kind == ECH_NODE_MAP && map->n == 9, ECH_E_PARSE, "'run' has other members");
    ECH_TRY(want_integer(map, "step", 0, &r->step));
    ECH_TRY(want_integer(map, "generation", 1, &r->generation));
    ECH_CHECK(r->generation <= ECH_CKPT_GENERATION_MAX, ECH_E_PARSE,
              "'generation' is %" PRId64 ", which cannot be", r->generation);
    ECH_TRY(want_integer(map, "updates", 0, &r->updates));
    ECH_TRY(want_integer(map, "samples", 0, &r->samples));
    ECH_TRY(want_integer(map, "seed", 0, &r->seed));
    ECH_TRY(want_real(map, "lr", &r->lr));
    ECH_TRY(want_real(map, "loss_scale", &r->loss_scale));
    ECH_TRY(want(map, "rotary", ECH_NODE_STRING, &n));
    r->is_interleaved = !strcmp(n->string, "interleaved");
    ECH_CHECK(r->is_interleaved || !strcmp(n->string, "half"), ECH_E_PARSE,
              "'rotary' is neither half nor interleaved");
    ECH_TRY(want(map, "saved", ECH_NODE_STRING, &n));
    ECH_CHECK(n->string_bytes < sizeof r->saved && strlen(n->string) == n->string_bytes &&
                  ech_json_is_printable(n->string),
              ECH_E_PARSE, "'saved' is no time");
    memcpy(r->saved, n->string, n->string_bytes + 1);
    return ECH_OK;
}

static ech_status read_layout(const ech_node *map, ech_ckpt_layout *l)
{
    const ech_node *n;
    ECH_CHECK(map->kind == ECH_NODE_MAP && map->n == 7, ECH_E_PARSE, "'layout' has other members");
    ECH_TRY(want_integer(map, "world", 1, &l->world));
    ECH_TRY(want_integer(map, "tp", 1, &l->tp));
    ECH_TRY(want_integer(map, "cp", 1, &l->cp));
    ECH_TRY(want_integer(map, "pp", 1, &l->pp));
    ECH_TRY(want_integer(map, "shards", 1, &l->shards));
    ECH_TRY(want_integer(map, "replicas", 1, &l->replicas));
    ECH_TRY(want(map, "sequence_parallel", ECH_NODE_BOOL, &n));
    l->is_sequence_parallel = n->boolean;
    return ECH_OK;
}

/* An embedded object as a tree; the caller destroys it. */
static ech_status take_tree(ech_json *j, const char *key, ech_node **out)
{
    char *text = NULL;
    ECH_TRY(take_key(j, key));
    ECH_TRY(take_object(j, &text));
    const ech_status st = ech_node_parse_json(text, strlen(text), key, out);
    free(text);
    return st;
}

static ech_status take_run(ech_json *j, ech_ckpt_position *out)
{
    ech_node *tree = NULL;
    ECH_TRY(take_tree(j, "run", &tree));
    const ech_status st = read_run(tree, out);
    ech_node_destroy(&tree);
    return st;
}

static ech_status take_layout(ech_json *j, ech_ckpt_layout *out)
{
    ech_node *tree = NULL;
    ECH_TRY(take_tree(j, "layout", &tree));
    const ech_status st = read_layout(tree, out);
    ech_node_destroy(&tree);
    return st;
}

/* --- parsing: lists --- */

static ech_status take_tensor(ech_json *j, ech_ckpt_tensor *t)
{
    char *name;
    int64_t n = 0;
    bool more;
    ECH_TRY(ech_json_take(j, '['));
    ECH_TRY(ech_json_string(j, &name));
    ECH_CHECK(strlen(name) <= ECH_CKPT_NAME_MAX, ECH_E_PARSE,
              "a tensor's name of more than %d bytes", (int)ECH_CKPT_NAME_MAX);
    memcpy(t->name, name, strlen(name) + 1);
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(ech_json_take(j, '['));
    for (;;) {
        ECH_TRY(ech_json_more(j, ']', &n, &more));
        if (!more)
            break;
        ECH_CHECK(n <= ECH_CKPT_RANK_MAX, ECH_E_PARSE, "tensor '%s' has too many dimensions",
                  t->name);
        ECH_TRY(ech_json_integer(j, &t->dim[n - 1]));
    }
    t->rank = (int)n;
    return ech_json_take(j, ']');
}

static ech_status take_tensors(ech_json *j, ech_ckpt_manifest *m)
{
    size_t capacity = 0;
    bool more;
    ECH_TRY(ech_json_take(j, '['));
    for (int64_t n = 0;;) {
        ECH_TRY(ech_json_more(j, ']', &n, &more));
        if (!more)
            return ECH_OK;
        ECH_CHECK(n <= ECH_CKPT_TENSORS_MAX, ECH_E_PARSE, "more than %d tensors",
                  (int)ECH_CKPT_TENSORS_MAX);
        ECH_TRY(ech_grow(&m->tensor, (size_t)n - 1, &capacity, sizeof *m->tensor));
        m->tensor[n - 1] = (ech_ckpt_tensor){.rank = 0};
        m->n_tensors = n;
        ECH_TRY(take_tensor(j, &m->tensor[n - 1]));
    }
}

static ech_status take_class(ech_json *j, ech_ckpt_manifest *m, int64_t least)
{
    int64_t c;
    char *name;
    char *type;
    ECH_TRY(ech_json_take(j, '['));
    ECH_TRY(ech_json_integer(j, &c));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(ech_json_string(j, &name));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(ech_json_string(j, &type));
    ECH_TRY(ech_json_take(j, ']'));
    ECH_CHECK(c >= least && c < ECH_N_CKPT_CLASSES &&
                  !strcmp(name, ech_ckpt_class_name((ech_ckpt_class)c)),
              ECH_E_PARSE, "class %" PRId64 " has another name, or stands twice", c);
    for (int t = ECH_F64; t <= ECH_F16; t++)
        if (!strcmp(type, ech_dtype_name((ech_dtype)t)))
            m->dtype[c] = (ech_dtype)t;
    ECH_CHECK(m->dtype[c] != ECH_N_DTYPES, ECH_E_PARSE, "class '%s' has a type that is none", name);
    return ECH_OK;
}

static ech_status take_classes(ech_json *j, ech_ckpt_manifest *m)
{
    bool more;
    int64_t least = 0;
    for (int c = 0; c < ECH_N_CKPT_CLASSES; c++)
        m->dtype[c] = ECH_N_DTYPES;
    ECH_TRY(take_key(j, "classes"));
    ECH_TRY(ech_json_take(j, '['));
    for (int64_t n = 0;;) {
        ECH_TRY(ech_json_more(j, ']', &n, &more));
        if (!more)
            return ECH_OK;
        ECH_TRY(take_class(j, m, least));
        while (least < ECH_N_CKPT_CLASSES && m->dtype[least] == ECH_N_DTYPES)
            least++;
        while (least < ECH_N_CKPT_CLASSES && m->dtype[least] != ECH_N_DTYPES)
            least++;
    }
}

static ech_status take_files(ech_json *j, ech_ckpt_manifest *m)
{
    size_t capacity = 0;
    bool more;
    ECH_TRY(take_key(j, "files"));
    ECH_TRY(ech_json_take(j, '['));
    for (int64_t n = 0;;) {
        ECH_TRY(ech_json_more(j, ']', &n, &more));
        if (!more)
            return ECH_OK;
        ECH_TRY(ech_grow(&m->file, (size_t)n - 1, &capacity, sizeof *m->file));
        m->n_files = n;
        ECH_TRY(ech_json_take(j, '['));
        ECH_TRY(ech_json_integer(j, &m->file[n - 1].rank));
        ECH_TRY(take_comma_integer(j, &m->file[n - 1].bytes));
        ECH_TRY(ech_json_take(j, ']'));
    }
}

static ech_status take_box(ech_json *j, ech_ckpt_box *b)
{
    int64_t n = 0;
    bool more;
    ECH_TRY(ech_json_take(j, '['));
    for (;;) {
        ECH_TRY(ech_json_more(j, ']', &n, &more));
        if (!more)
            break;
        ECH_CHECK(n <= ECH_CKPT_RANK_MAX, ECH_E_PARSE, "a box of too many dimensions");
        ECH_TRY(ech_json_integer(j, &b->begin[n - 1]));
        ECH_TRY(take_comma_integer(j, &b->end[n - 1]));
    }
    b->rank = (int)n;
    return ECH_OK;
}

static ech_status take_piece(ech_json *j, ech_ckpt_piece *p)
{
    ECH_TRY(ech_json_take(j, '['));
    ECH_TRY(take_i32(j, &p->cls));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_i32(j, &p->tensor));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_i32(j, &p->rank));
    ECH_TRY(take_comma_integer(j, &p->offset));
    ECH_TRY(take_comma_integer(j, &p->range.first));
    ECH_TRY(take_comma_integer(j, &p->range.n));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_box(j, &p->range.box));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_hash(j, p->hash));
    return ech_json_take(j, ']');
}

ech_status ech_ckpt_pieces_parse(ech_json *j, ech_ckpt_piece **piece, int64_t *n)
{
    size_t capacity = (size_t)*n;
    int64_t members = 0;
    bool more;
    ECH_TRY(ech_json_take(j, '['));
    for (;;) {
        ECH_TRY(ech_json_more(j, ']', &members, &more));
        if (!more)
            return ECH_OK;
        ECH_TRY(ech_grow(piece, (size_t)*n, &capacity, sizeof **piece));
        (*piece)[*n] = (ech_ckpt_piece){.cls = 0};
        ECH_TRY(take_piece(j, &(*piece)[*n]));
        ++*n;
    }
}

/* --- parsing: the whole --- */

static ech_status take_fingerprint(ech_json *j, ech_ckpt_manifest *m)
{
    ECH_TRY(take_key(j, "fingerprint"));
    return take_hash(j, m->fingerprint);
}

static ech_status take_embedded(ech_json *j, const char *key, char **out)
{
    ECH_TRY(take_key(j, key));
    return take_object(j, out);
}

static ech_status take_copy(ech_json *j, ech_ckpt_copy *c)
{
    char *name;
    ECH_TRY(ech_json_take(j, '['));
    ECH_TRY(ech_json_string(j, &name));
    ECH_CHECK(ech_path_is_plain(name), ECH_E_PARSE, "copies: a name that is no plain one");
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    ECH_TRY(take_comma_integer(j, &c->bytes));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_hash(j, c->hash));
    return ech_json_take(j, ']');
}

static ech_status take_copies(ech_json *j, ech_ckpt_manifest *m)
{
    size_t capacity = 0;
    bool more;
    ECH_TRY(ech_json_take(j, '['));
    for (int64_t n = 0;;) {
        ECH_TRY(ech_json_more(j, ']', &n, &more));
        if (!more)
            return ECH_OK;
        ECH_CHECK(n <= ECH_CKPT_COPIES_MAX, ECH_E_PARSE, "more than %d copies",
                  (int)ECH_CKPT_COPIES_MAX);
        ECH_TRY(ech_grow(&m->copy, (size_t)n - 1, &capacity, sizeof *m->copy));
        m->copy[n - 1] = (ech_ckpt_copy){.bytes = 0};
        m->n_copies = n;
        ECH_TRY(take_copy(j, &m->copy[n - 1]));
    }
}

/* "data" and "copies", each of which may be left out, and the key "tensors". */
static ech_status take_inputs(ech_json *j, ech_ckpt_manifest *m)
{
    char *key;
    char quoted[80];
    ECH_TRY(ech_json_key(j, &key));
    if (!strcmp(key, "data")) {
        ECH_TRY(take_object(j, &m->data));
        ECH_TRY(ech_json_take(j, ','));
        ECH_TRY(ech_json_key(j, &key));
    }
    if (!strcmp(key, "copies")) {
        ECH_TRY(take_copies(j, m));
        ECH_TRY(ech_json_take(j, ','));
        ECH_TRY(ech_json_key(j, &key));
    }
    ECH_CHECK(!strcmp(key, "tensors"), ECH_E_PARSE, "key '%s', wanted 'tensors'",
              ech_json_quote(key, quoted, sizeof quoted));
    return ECH_OK;
}

static ech_status parse(ech_json *j, ech_ckpt_manifest *m)
{
    ECH_TRY(take_run(j, &m->run));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_layout(j, &m->layout));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_embedded(j, "model", &m->model));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_embedded(j, "config", &m->config));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_inputs(j, m));
    ECH_TRY(take_tensors(j, m));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_fingerprint(j, m));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_classes(j, m));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_files(j, m));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(take_key(j, "pieces"));
    ECH_TRY(ech_ckpt_pieces_parse(j, &m->piece, &m->n_pieces));
    ECH_TRY(ech_json_take(j, '}'));
    ECH_CHECK(ech_json_peek(j) == '\0' && j->at == j->end, ECH_E_PARSE, "text after the end");
    return ECH_OK;
}

ech_status ech_ckpt_manifest_parse(char *text, size_t bytes, ech_ckpt_manifest *out)
{
    ech_ckpt_manifest m = {0};
    ech_json j = ech_json_start(text, bytes);
    ech_status st = parse(&j, &m);
    if (st == ECH_E_PARSE)
        st = ech_error_prefix(ECH_E_CORRUPT, "form: ");
    if (st == ECH_OK)
        st = ech_ckpt_manifest_complete(&m);
    if (st < 0) {
        ech_ckpt_manifest_fini(&m);
        return st;
    }
    *out = m;
    return ECH_OK;
}

/* --- files --- */

/* The first line: *rest is where the hashed text begins. */
static ech_status check_head(char *text, size_t bytes, const char **hash, char **rest)
{
    char *at = text + strlen(LINE_A);
    char *end = text + bytes;
    int64_t version = 0;
    ECH_CHECK(bytes > strlen(LINE_A) && !memcmp(text, LINE_A, strlen(LINE_A)), ECH_E_CORRUPT,
              "does not begin as a checkpoint's manifest does");
    for (int i = 0; i < 9 && at < end && *at >= '0' && *at <= '9'; i++)
        version = version * 10 + (*at++ - '0');
    ECH_CHECK(version <= ECH_CKPT_VERSION, ECH_E_UNSUPPORTED,
              "version %" PRId64 " of the format, this Echelon reads %d", version,
              (int)ECH_CKPT_VERSION);
    const size_t rest_of_line = strlen(LINE_B) + HASH_DIGITS + strlen(LINE_C);
    ECH_CHECK(version == ECH_CKPT_VERSION && (size_t)(end - at) > rest_of_line &&
                  !memcmp(at, LINE_B, strlen(LINE_B)) &&
                  !memcmp(at + strlen(LINE_B) + HASH_DIGITS, LINE_C, strlen(LINE_C)),
              ECH_E_CORRUPT, "its first line is damaged");
    *hash = at + strlen(LINE_B);
    *rest = at + rest_of_line;
    return ECH_OK;
}

static ech_status parse_whole(char *text, size_t bytes, ech_ckpt_manifest *out)
{
    const char *hash;
    char *rest;
    char got[HASH_DIGITS + 1];
    ECH_TRY(check_head(text, bytes, &hash, &rest));
    const size_t n = (size_t)(text + bytes - rest);
    ech_hash128_hex(rest, n, got);
    ECH_CHECK(!memcmp(hash, got, HASH_DIGITS), ECH_E_CORRUPT,
              "damaged: its hash is %s, it says %.*s", got, (int)HASH_DIGITS, hash);
    ECH_TRY(ech_ckpt_manifest_parse(rest, n, out));
    const ech_status st = fingerprint(out, got);
    if (st == ECH_OK && !strcmp(got, out->fingerprint))
        return ECH_OK;
    ech_ckpt_manifest_fini(out);
    return st < 0 ? st : ECH_RAISE(ECH_E_CORRUPT, "the fingerprint is not that of the tensors");
}

/* The first `most` bytes of the manifest, or all of it. */
static ech_status read_text(const char *folder, int64_t most, char **out, size_t *bytes)
{
    ech_file *f = NULL;
    char *text = NULL;
    ech_status st;
    ECH_TRY(ech_file_open_in(folder, ECH_CKPT_MANIFEST, &f));
    const int64_t n = ech_file_bytes(f) < most ? ech_file_bytes(f) : most;
    st = ech_calloc((size_t)n + 1, 1, &text);
    if (st == ECH_OK)
        st = ech_file_read_at(f, text, (size_t)n, 0);
    ech_file_close(&f);
    if (st < 0) {
        free(text);
        return st;
    }
    *out = text;
    *bytes = (size_t)n;
    return ECH_OK;
}

ech_status ech_ckpt_manifest_read(const char *folder, ech_ckpt_manifest *out)
{
    char *text = NULL;
    size_t bytes = 0;
    ECH_TRY(read_text(folder, ECH_CKPT_MANIFEST_BYTES, &text, &bytes));
    const ech_status st = parse_whole(text, bytes, out);
    free(text);
    return st < 0 ? ech_error_prefix(st, "%s/" ECH_CKPT_MANIFEST ": ", folder) : ECH_OK;
}

ech_status ech_ckpt_manifest_peek(const char *folder, ech_ckpt_position *out)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *hash;
    char *rest;
    ECH_TRY(read_text(folder, PEEK_BYTES, &text, &bytes));
    ech_status st = check_head(text, bytes, &hash, &rest);
    if (st == ECH_OK) {
        ech_json j = ech_json_start(rest, (size_t)(text + bytes - rest));
        st = take_run(&j, out);
    }
    free(text);
    if (st == ECH_E_PARSE)
        st = ECH_E_CORRUPT;
    return st < 0 ? ech_error_prefix(st, "%s/" ECH_CKPT_MANIFEST ": ", folder) : ECH_OK;
}
