/* GPT-2's pair of files. */
#include "data/tokenizer_gpt2.h"

#include "base/io.h"
#include "base/node.h"
#include "data/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MERGES_BYTES = 1 << 28 };

static ech_status add_line(ech_tokenizer *t, const char *name, const char *line, size_t n,
                           int32_t *rank)
{
    const char *space = memchr(line, ' ', n);
    char both[2048];

    ECH_CHECK(space && space > line && space + 1 < line + n && n <= sizeof both, ECH_E_DATA,
              "%s: merge %d ('%.*s') is no pair of tokens", name, *rank, (int)(n < 64 ? n : 64),
              line);
    const size_t left_n = (size_t)(space - line);
    const size_t right_n = n - left_n - 1;
    memcpy(both, line, left_n);
    memcpy(both + left_n, space + 1, right_n);
    const int32_t left = ech_vocab_find(&t->raw, line, left_n);
    const int32_t right = ech_vocab_find(&t->raw, space + 1, right_n);
    const int32_t id = ech_vocab_find(&t->raw, both, left_n + right_n);
    ECH_CHECK(left >= 0 && right >= 0 && id >= 0, ECH_E_DATA,
              "%s: merge %d ('%.*s') speaks of a token that is not in the vocabulary", name, *rank,
              (int)(n < 64 ? n : 64), line);
    return ech_merges_add(&t->merges, left, right, (*rank)++, id);
}

static ech_status read_merges(ech_tokenizer *t, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    int32_t rank = 0;
    ech_status st = ECH_OK;

    ECH_TRY(ech_read_whole(path, MAX_MERGES_BYTES, &text, &bytes));
    for (size_t at = 0; at < bytes && st == ECH_OK;) {
        const char *line = text + at;
        const char *newline = memchr(line, '\n', bytes - at);
        size_t n = newline ? (size_t)(newline - line) : bytes - at;
        const bool is_comment = at == 0 && n >= 8 && memcmp(line, "#version", 8) == 0;
        at += n + 1;
        n -= n > 0 && line[n - 1] == '\r';
        if (n > 0 && !is_comment)
            st = add_line(t, path, line, n, &rank);
    }
    free(text);
    return st;
}

static ech_status read_vocab(ech_tokenizer *t, const char *path)
{
    ech_node *root = NULL;
    ech_status st = ECH_OK;

    ECH_TRY(ech_node_read_file(path, true, &root));
    if (root->kind != ECH_NODE_MAP)
        st = ECH_RAISE(ECH_E_DATA, "%s: is no map of tokens to ids", path);
    for (const ech_node *v = st == ECH_OK ? root->child : NULL; v && st == ECH_OK; v = v->next) {
        if (v->kind == ECH_NODE_INT)
            st = ech_vocab_add(&t->raw, v->integer, v->key, strlen(v->key));
        else
            st = ECH_RAISE(ECH_E_DATA, "%s: token '%s' has no whole number as id", path, v->key);
    }
    ech_node_destroy(&root);
    return st;
}

static ech_status add_end_of_text(ech_tokenizer *t)
{
    static char name[] = "<|endoftext|>";
    const int32_t id = ech_vocab_find(&t->raw, name, sizeof name - 1);

    if (id < 0)
        return ECH_OK;
    t->eos = id;
    t->document_flags = ECH_ENCODE_EOS;
    return ech_tokenizer_add(
        t, &(ech_added){.id = id, .content = name, .bytes = sizeof name - 1, .is_special = true});
}

static ech_status fill(ech_tokenizer *t, const char *vocab_path, const char *merges_path)
{
    const ech_split_step step = {.pattern = ech_split_gpt2};

    ECH_TRY(read_vocab(t, vocab_path));
    ECH_TRY(read_merges(t, merges_path));
    ECH_TRY(add_end_of_text(t));
    ECH_TRY(ech_splitter_create(&step, 1, &t->splitter));
    return ech_tokenizer_seal(t);
}

ech_status ech_tokenizer_open_gpt2(const char *vocab_path, const char *merges_path,
                                   ech_tokenizer **out)
{
    ech_tokenizer *t = NULL;

    ECH_TRY(ech_tokenizer_create(ECH_TOKENIZER_BYTES, &t));
    const ech_status st = fill(t, vocab_path, merges_path);
    if (st < 0) {
        ech_tokenizer_destroy(&t);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = t;
    return ECH_OK;
}
