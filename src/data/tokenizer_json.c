/* HF tokenizer.json: what it asks for is done or refused by name. */
#include "base/checked.h"
#include "base/log.h"
#include "base/node.h"
#include "data/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 16 };

/* SentencePiece's marker, U+2581. */
static const char sp_marker[] = "\xE2\x96\x81";

/* What the parts of the file say, before a tokenizer is made of it. */
typedef struct plan {
    const char *name; /* of the file, borrowed */
    ech_split_step steps[MAX_STEPS];
    size_t n_steps;
    bool has_byte_level; /* pre-tokenizer or decoder */
    bool prefixes_space;
    bool normalizes_nfc;
    bool has_marker;
    ech_prepend prepend;
    bool prepends_always;
    bool cuts_each;
    bool strips_first;
    bool template_bos, template_eos;
    int32_t bos, eos;
} plan;

/* --- small readers --- */

static const char *get_string(const ech_node *map, const char *key)
{
    const ech_node *v = ech_node_find(map, key);
    return v && v->kind == ECH_NODE_STRING ? v->string : "";
}

static bool get_bool(const ech_node *map, const char *key, bool otherwise)
{
    const ech_node *v = ech_node_find(map, key);
    return v && v->kind == ECH_NODE_BOOL ? v->boolean : otherwise;
}

static bool is_type(const ech_node *map, const char *type)
{
    return strcmp(get_string(map, "type"), type) == 0;
}

static bool is_absent(const ech_node *v)
{
    return !v || v->kind == ECH_NODE_NULL;
}

static bool is_empty_string(const ech_node *v)
{
    return is_absent(v) || (v->kind == ECH_NODE_STRING && v->string_bytes == 0);
}

static ech_status refuse(const plan *p, const char *part, const ech_node *node)
{
    return ECH_RAISE(ECH_E_UNSUPPORTED, "%s: %s of type '%s' is not built", p->name, part,
                     node->kind == ECH_NODE_MAP ? get_string(node, "type")
                                                : ech_node_kind_name(node->kind));
}

typedef ech_status (*read_part)(plan *p, const ech_node *node);

/* A part, or a "Sequence" of parts under `key`. */
static ech_status read_parts(plan *p, const ech_node *node, const char *key, read_part one)
{
    if (is_absent(node))
        return ECH_OK;
    if (!is_type(node, "Sequence"))
        return one(p, node);
    const ech_node *list = ech_node_find(node, key);
    ECH_CHECK(list && list->kind == ECH_NODE_LIST, ECH_E_DATA, "%s: a Sequence without '%s'",
              p->name, key);
    for (const ech_node *v = list->child; v; v = v->next)
        ECH_TRY(one(p, v));
    return ECH_OK;
}

/* --- normalizer --- */

static ech_status read_normalizer(plan *p, const ech_node *node)
{
    if (is_type(node, "NFC")) {
        p->normalizes_nfc = true;
        return ECH_OK;
    }
    if (is_type(node, "Prepend")) {
        ECH_CHECK(strcmp(get_string(node, "prepend"), sp_marker) == 0, ECH_E_UNSUPPORTED,
                  "%s: normalizer Prepend of '%s' is not built, only of U+2581", p->name,
                  get_string(node, "prepend"));
        p->prepend = ECH_PREPEND_EACH;
        p->prepends_always = true;
        return ECH_OK;
    }
    if (is_type(node, "Replace")) {
        const char *from = get_string(ech_node_find(node, "pattern"), "String");
        ECH_CHECK(strcmp(from, " ") == 0 && strcmp(get_string(node, "content"), sp_marker) == 0,
                  ECH_E_UNSUPPORTED,
                  "%s: normalizer Replace of '%s' is not built, only of a space by U+2581", p->name,
                  from);
        p->has_marker = true;
        return ECH_OK;
    }
    return refuse(p, "normalizer", node);
}

/* --- pre-tokenizer --- */

static ech_status add_step(plan *p, const char *pattern, bool is_literal, bool drops_gaps)
{
    ECH_CHECK(p->n_steps < MAX_STEPS, ECH_E_UNSUPPORTED, "%s: more than %d steps of splitting",
              p->name, MAX_STEPS);
    p->steps[p->n_steps++] =
        (ech_split_step){.pattern = pattern, .is_literal = is_literal, .drops_gaps = drops_gaps};
    return ECH_OK;
}

static ech_status read_split(plan *p, const ech_node *node)
{
    const ech_node *pattern = ech_node_find(node, "pattern");
    const char *regex = get_string(pattern, "Regex");
    const char *literal = get_string(pattern, "String");
    const char *behavior = get_string(node, "behavior");
    const bool inverts = get_bool(node, "invert", false);
    const bool drops = strcmp(behavior, "Removed") == 0 && inverts;

    ECH_CHECK(*regex || *literal, ECH_E_DATA, "%s: a Split without pattern", p->name);
    ECH_CHECK(drops || (strcmp(behavior, "Isolated") == 0 && !inverts), ECH_E_UNSUPPORTED,
              "%s: Split with behavior '%s'%s is not built", p->name, behavior,
              inverts ? " inverted" : "");
    return add_step(p, *regex ? regex : literal, !*regex, drops);
}

static ech_status read_byte_level(plan *p, const ech_node *node)
{
    p->has_byte_level = true;
    p->prefixes_space = get_bool(node, "add_prefix_space", true);
    ECH_CHECK(!p->prefixes_space || p->n_steps == 0, ECH_E_UNSUPPORTED,
              "%s: ByteLevel with add_prefix_space after another split is not built", p->name);
    if (get_bool(node, "use_regex", true))
        return add_step(p, ech_split_gpt2, false, false);
    return ECH_OK;
}

static ech_status read_metaspace(plan *p, const ech_node *node)
{
    const char *scheme = get_string(node, "prepend_scheme");

    ECH_CHECK(strcmp(get_string(node, "replacement"), sp_marker) == 0, ECH_E_UNSUPPORTED,
              "%s: Metaspace with replacement '%s' is not built, only U+2581", p->name,
              get_string(node, "replacement"));
    p->has_marker = true;
    p->cuts_each = get_bool(node, "split", true);
    if (strcmp(scheme, "never") == 0)
        p->prepend = ECH_PREPEND_NEVER;
    else if (strcmp(scheme, "first") == 0)
        p->prepend = ECH_PREPEND_FIRST;
    else
        p->prepend =
            get_bool(node, "add_prefix_space", true) ? ECH_PREPEND_EACH : ECH_PREPEND_NEVER;
    return ECH_OK;
}

static ech_status read_pre_tokenizer(plan *p, const ech_node *node)
{
    ECH_CHECK(!p->has_byte_level, ECH_E_UNSUPPORTED,
              "%s: a pre-tokenizer after ByteLevel is not built", p->name);
    if (is_type(node, "ByteLevel"))
        return read_byte_level(p, node);
    if (is_type(node, "Split"))
        return read_split(p, node);
    if (is_type(node, "Metaspace"))
        return read_metaspace(p, node);
    if (is_type(node, "Digits"))
        return add_step(p, get_bool(node, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", false,
                        false);
    return refuse(p, "pre-tokenizer", node);
}

/* --- post-processor --- */

static ech_status special_id(const plan *p, const ech_node *post, const char *token, int32_t *out)
{
    const ech_node *entry = ech_node_find(ech_node_find(post, "special_tokens"), token);
    const ech_node *ids = ech_node_find(entry, "ids");

    ECH_CHECK(ids && ids->kind == ECH_NODE_LIST && ids->n == 1 &&
                  ids->child->kind == ECH_NODE_INT && ids->child->integer >= 0 &&
                  ids->child->integer < ECH_VOCAB_MAX,
              ECH_E_DATA, "%s: template token '%s' has no id", p->name, token);
    *out = (int32_t)ids->child->integer;
    return ECH_OK;
}

/* "single": [BOS] text [EOS]. */
static ech_status read_template(plan *p, const ech_node *node)
{
    const ech_node *single = ech_node_find(node, "single");
    bool seen_text = false;

    ECH_CHECK(single && single->kind == ECH_NODE_LIST, ECH_E_DATA,
              "%s: TemplateProcessing without 'single'", p->name);
    for (const ech_node *v = single->child; v; v = v->next) {
        const ech_node *special = ech_node_find(v, "SpecialToken");
        bool *has = seen_text ? &p->template_eos : &p->template_bos;
        if (!special) {
            ECH_CHECK(ech_node_find(v, "Sequence") && !seen_text, ECH_E_UNSUPPORTED,
                      "%s: a template that is not [BOS] text [EOS] is not built", p->name);
            seen_text = true;
            continue;
        }
        ECH_CHECK(!*has, ECH_E_UNSUPPORTED,
                  "%s: a template with two tokens on one side is not built", p->name);
        *has = true;
        ECH_TRY(special_id(p, node, get_string(special, "id"), seen_text ? &p->eos : &p->bos));
    }
    return ECH_OK;
}

static ech_status read_post_processor(plan *p, const ech_node *node)
{
    if (is_type(node, "ByteLevel")) /* offsets only: no ids change */
        return ECH_OK;
    if (is_type(node, "TemplateProcessing"))
        return read_template(p, node);
    return refuse(p, "post-processor", node);
}

/* --- decoder --- */

static ech_status read_decoder(plan *p, const ech_node *node)
{
    if (is_type(node, "ByteLevel")) {
        p->has_byte_level = true;
        return ECH_OK;
    }
    if (is_type(node, "Fuse") || is_type(node, "ByteFallback"))
        return ECH_OK; /* what decoding to bytes does anyway */
    if (is_type(node, "Metaspace")) {
        p->strips_first = strcmp(get_string(node, "prepend_scheme"), "never") != 0 &&
                          get_bool(node, "add_prefix_space", true);
        return ECH_OK;
    }
    if (is_type(node, "Replace") &&
        strcmp(get_string(ech_node_find(node, "pattern"), "String"), sp_marker) == 0 &&
        strcmp(get_string(node, "content"), " ") == 0)
        return ECH_OK;
    if (is_type(node, "Strip") && strcmp(get_string(node, "content"), " ") == 0) {
        const ech_node *start = ech_node_find(node, "start");
        const ech_node *stop = ech_node_find(node, "stop");
        ECH_CHECK(start && start->integer == 1 && (!stop || stop->integer == 0), ECH_E_UNSUPPORTED,
                  "%s: decoder Strip is built for one space at the start only", p->name);
        p->strips_first = true;
        return ECH_OK;
    }
    return refuse(p, "decoder", node);
}

static ech_status read_plan(plan *p, const ech_node *root)
{
    ECH_TRY(read_parts(p, ech_node_find(root, "normalizer"), "normalizers", read_normalizer));
    ECH_TRY(
        read_parts(p, ech_node_find(root, "pre_tokenizer"), "pretokenizers", read_pre_tokenizer));
    ECH_TRY(
        read_parts(p, ech_node_find(root, "post_processor"), "processors", read_post_processor));
    ECH_TRY(read_parts(p, ech_node_find(root, "decoder"), "decoders", read_decoder));
    ECH_CHECK(p->has_byte_level != p->has_marker, ECH_E_UNSUPPORTED,
              "%s: is neither byte-level nor of the U+2581 kind", p->name);
    ECH_CHECK(!p->has_byte_level || p->prepend == ECH_PREPEND_NEVER, ECH_E_UNSUPPORTED,
              "%s: byte level with a Prepend is not built", p->name);
    ECH_CHECK(!p->has_marker || (p->n_steps == 0 && !p->normalizes_nfc), ECH_E_UNSUPPORTED,
              "%s: U+2581 together with other splits or normalizers is not built", p->name);
    return ECH_OK;
}

/* --- model --- */

static ech_status check_model(const plan *p, const ech_node *model)
{
    const ech_node *dropout = ech_node_find(model, "dropout");

    ECH_CHECK(model && model->kind == ECH_NODE_MAP, ECH_E_DATA, "%s: there is no 'model'", p->name);
    ECH_CHECK(is_type(model, "BPE") || is_empty_string(ech_node_find(model, "type")),
              ECH_E_UNSUPPORTED, "%s: model type '%s' is not built, only BPE", p->name,
              get_string(model, "type"));
    ECH_CHECK(is_absent(dropout) || dropout->real == 0.0, ECH_E_UNSUPPORTED,
              "%s: BPE dropout is not built", p->name);
    ECH_CHECK(is_empty_string(ech_node_find(model, "continuing_subword_prefix")) &&
                  is_empty_string(ech_node_find(model, "end_of_word_suffix")),
              ECH_E_UNSUPPORTED, "%s: subword prefixes and word suffixes are not built", p->name);
    return ECH_OK;
}

static ech_status read_vocab(ech_tokenizer *t, const plan *p, const ech_node *model)
{
    const ech_node *vocab = ech_node_find(model, "vocab");

    ECH_CHECK(vocab && vocab->kind == ECH_NODE_MAP && vocab->n > 0, ECH_E_DATA,
              "%s: the model has no vocabulary", p->name);
    for (const ech_node *v = vocab->child; v; v = v->next) {
        ECH_CHECK(v->kind == ECH_NODE_INT, ECH_E_DATA, "%s: token '%s' has no whole number as id",
                  p->name, v->key);
        ECH_TRY(ech_vocab_add(&t->raw, v->integer, v->key, strlen(v->key)));
    }
    return ECH_OK;
}

typedef struct merge_parts {
    const char *left, *right;
    size_t left_bytes, right_bytes;
} merge_parts;

/* "a b" or ["a", "b"]. */
static bool split_merge(const ech_node *v, merge_parts *out)
{
    if (v->kind == ECH_NODE_STRING) {
        const char *space = strchr(v->string, ' ');
        if (!space || strchr(space + 1, ' '))
            return false;
        *out = (merge_parts){.left = v->string,
                             .right = space + 1,
                             .left_bytes = (size_t)(space - v->string),
                             .right_bytes = strlen(space + 1)};
        return out->left_bytes > 0 && out->right_bytes > 0;
    }
    if (v->kind != ECH_NODE_LIST || v->n != 2 || v->child->kind != ECH_NODE_STRING ||
        v->child->next->kind != ECH_NODE_STRING)
        return false;
    *out = (merge_parts){.left = v->child->string,
                         .right = v->child->next->string,
                         .left_bytes = v->child->string_bytes,
                         .right_bytes = v->child->next->string_bytes};
    return out->left_bytes > 0 && out->right_bytes > 0;
}

static ech_status add_merge(ech_tokenizer *t, const plan *p, const merge_parts *m, int32_t rank)
{
    ech_text both = {0};

    ech_text_add_bytes(&both, m->left, m->left_bytes);
    ech_text_add_bytes(&both, m->right, m->right_bytes);
    const int32_t left = ech_vocab_find(&t->raw, m->left, m->left_bytes);
    const int32_t right = ech_vocab_find(&t->raw, m->right, m->right_bytes);
    const int32_t id = ech_vocab_find(&t->raw, ech_text_get(&both), both.bytes);
    const bool failed = both.failed;
    ech_text_fini(&both);
    ECH_CHECK(!failed, ECH_E_NOMEM, "no memory for a merge");
    ECH_CHECK(left >= 0 && right >= 0 && id >= 0, ECH_E_DATA,
              "%s: merge %d of '%.*s' and '%.*s': %s is not in the vocabulary", p->name, rank,
              (int)m->left_bytes, m->left, (int)m->right_bytes, m->right,
              left < 0    ? "the first"
              : right < 0 ? "the second"
                          : "the result");
    return ech_merges_add(&t->merges, left, right, rank, id);
}

static ech_status read_merges(ech_tokenizer *t, const plan *p, const ech_node *model)
{
    const ech_node *merges = ech_node_find(model, "merges");
    int32_t rank = 0;

    ECH_CHECK(merges && merges->kind == ECH_NODE_LIST, ECH_E_DATA, "%s: the model has no merges",
              p->name);
    for (const ech_node *v = merges->child; v; v = v->next, rank++) {
        merge_parts m;
        ECH_CHECK(split_merge(v, &m), ECH_E_DATA, "%s: merge %d is no pair of tokens", p->name,
                  rank);
        ECH_TRY(add_merge(t, p, &m, rank));
    }
    return ECH_OK;
}

static ech_status read_unknown(ech_tokenizer *t, const plan *p, const ech_node *model)
{
    const ech_node *unk = ech_node_find(model, "unk_token");

    t->fuses_unk = get_bool(model, "fuse_unk", false);
    t->ignores_merges = get_bool(model, "ignore_merges", false);
    if (is_absent(unk))
        return ECH_OK;
    ECH_CHECK(unk->kind == ECH_NODE_STRING, ECH_E_DATA, "%s: 'unk_token' is no string", p->name);
    t->unk = ech_vocab_find(&t->raw, unk->string, unk->string_bytes);
    ECH_CHECK(t->unk >= 0, ECH_E_DATA, "%s: unk_token '%s' is not in the vocabulary", p->name,
              unk->string);
    return ECH_OK;
}

/* --- added tokens --- */

static ech_status read_added(ech_tokenizer *t, const plan *p, const ech_node *v)
{
    const ech_node *id = ech_node_find(v, "id");
    const ech_node *content = ech_node_find(v, "content");

    ECH_CHECK(id && id->kind == ECH_NODE_INT && id->integer >= 0 && id->integer < ECH_VOCAB_MAX &&
                  content && content->kind == ECH_NODE_STRING,
              ECH_E_DATA, "%s: an added token without id or content", p->name);
    ECH_CHECK(!get_bool(v, "single_word", false), ECH_E_UNSUPPORTED,
              "%s: added token '%s' is single_word, which is not built", p->name, content->string);
    const bool is_normalized = get_bool(v, "normalized", false);
    if (is_normalized && p->has_marker)
        ech_log(ECH_LOG_WARN, "%s: added token '%s' is matched as it stands, not normalised",
                p->name, content->string);
    const ech_added added = {.id = (int32_t)id->integer,
                             .content = (char *)(uintptr_t)content->string,
                             .bytes = content->string_bytes,
                             .is_special = get_bool(v, "special", false),
                             .eats_left = get_bool(v, "lstrip", false),
                             .eats_right = get_bool(v, "rstrip", false),
                             .is_late = is_normalized && !p->has_marker};
    return ech_tokenizer_add(t, &added);
}

static ech_status read_all_added(ech_tokenizer *t, const plan *p, const ech_node *root)
{
    const ech_node *list = ech_node_find(root, "added_tokens");

    if (is_absent(list))
        return ECH_OK;
    ECH_CHECK(list->kind == ECH_NODE_LIST, ECH_E_DATA, "%s: 'added_tokens' is no list", p->name);
    for (const ech_node *v = list->child; v; v = v->next)
        ECH_TRY(read_added(t, p, v));
    return ECH_OK;
}

/* Names in use for tokens that begin and end a text, where nothing else says which do. */
static int32_t find_first(const ech_tokenizer *t, const char *const *names)
{
    for (; *names; names++) {
        const int32_t id = ech_tokenizer_find(t, *names);
        if (id >= 0)
            return id;
    }
    return -1;
}

static void choose_ends(ech_tokenizer *t, const plan *p)
{
    static const char *const begins[] = {"<s>", "<|begin_of_text|>", "<bos>", NULL};
    static const char *const ends[] = {"<|endoftext|>", "</s>",       "<|end_of_text|>",
                                       "<eos>",         "<|im_end|>", NULL};

    t->bos = p->template_bos ? p->bos : find_first(t, begins);
    t->eos = p->template_eos ? p->eos : find_first(t, ends);
    t->document_flags =
        (p->template_bos ? ECH_ENCODE_BOS : 0u) | (t->eos >= 0 ? ECH_ENCODE_EOS : 0u);
}

/* --- together --- */

static ech_status apply_plan(ech_tokenizer *t, const plan *p)
{
    t->prefixes_space = p->prefixes_space;
    t->normalizes_nfc = p->normalizes_nfc;
    t->prepend = p->prepend;
    t->prepends_always = p->prepends_always;
    t->cuts_each = p->cuts_each;
    t->strips_first = p->strips_first;
    if (t->kind == ECH_TOKENIZER_BYTES)
        return ech_splitter_create(p->steps, p->n_steps, &t->splitter);
    t->replaces_space = true;
    t->marker_bytes = sizeof sp_marker - 1;
    memcpy(t->marker, sp_marker, t->marker_bytes);
    return ECH_OK;
}

static ech_status fill(ech_tokenizer *t, const plan *p, const ech_node *root)
{
    const ech_node *model = ech_node_find(root, "model");

    ECH_TRY(apply_plan(t, p));
    ECH_TRY(read_vocab(t, p, model));
    ECH_TRY(read_merges(t, p, model));
    ECH_TRY(read_unknown(t, p, model));
    ECH_TRY(read_all_added(t, p, root));
    choose_ends(t, p);
    ECH_CHECK(t->bos < t->raw.n && t->eos < t->raw.n, ECH_E_DATA,
              "%s: the template's tokens are not in the vocabulary", p->name);
    ECH_CHECK(t->kind != ECH_TOKENIZER_MARKER || !t->ignores_merges, ECH_E_UNSUPPORTED,
              "%s: ignore_merges with U+2581 is not built", p->name);
    return ech_tokenizer_seal(t);
}

static ech_status from_tree(const ech_node *root, const char *name, ech_tokenizer **out)
{
    plan p = {.name = name, .bos = -1, .eos = -1};
    ech_tokenizer *t = NULL;

    ECH_CHECK(root->kind == ECH_NODE_MAP, ECH_E_DATA, "%s: is no tokenizer.json", name);
    ECH_TRY(check_model(&p, ech_node_find(root, "model")));
    ECH_TRY(read_plan(&p, root));
    ECH_TRY(
        ech_tokenizer_create(p.has_byte_level ? ECH_TOKENIZER_BYTES : ECH_TOKENIZER_MARKER, &t));
    const ech_status st = fill(t, &p, root);
    if (st < 0) {
        ech_tokenizer_destroy(&t);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = t;
    return ECH_OK;
}

ech_status ech_tokenizer_from_json(const char *json, size_t bytes, const char *name,
                                   ech_tokenizer **out)
{
    ech_node *root = NULL;

    ECH_TRY(ech_node_parse_json(json, bytes, name, &root));
    const ech_status st = from_tree(root, name, out);
    ech_node_destroy(&root);
    return st;
}
