/* Pre-tokens by regular expression. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/split.h"

#include "base/checked.h"
#include "base/text.h"
#include "data/utf8.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

const char ech_split_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

enum { MAX_STEPS = 16, MATCH_LIMIT = 20000000 };

typedef struct step {
    pcre2_code *code; /* owned */
    bool has_jit;
    bool drops_gaps;
} step;

struct ech_splitter {
    step steps[MAX_STEPS];
    size_t n_steps;
    pcre2_match_data *match[MAX_STEPS]; /* owned */
    pcre2_match_context *limits;        /* owned */
};

/* --- compiling --- */

#define WHITE_SPACE "\\x09-\\x0d\\x20\\x{85}\\p{Z}"

/* \s and \S in Unicode's sense; \S inside a class has no such form and stays. */
static void rewrite_spaces(const char *p, ech_text *out)
{
    bool in_class = false;

    for (; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
            if (*p == 's')
                ech_text_add(out, in_class ? WHITE_SPACE : "[" WHITE_SPACE "]");
            else if (*p == 'S' && !in_class)
                ech_text_add(out, "[^" WHITE_SPACE "]");
            else
                ech_text_add(out, "\\%c", *p);
            continue;
        }
        in_class = in_class ? *p != ']' : *p == '[';
        ech_text_add_bytes(out, p, 1);
    }
}

static ech_status compile(const char *pattern, bool is_literal, pcre2_code **out)
{
    const uint32_t options =
        is_literal ? PCRE2_LITERAL | PCRE2_UTF : PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    int error = 0;
    PCRE2_SIZE at = 0;

    *out = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern), options, &error, &at, NULL);
    if (*out)
        return ECH_OK;
    PCRE2_UCHAR words[128] = "";
    (void)pcre2_get_error_message(error, words, sizeof words);
    return ECH_RAISE(ECH_E_DATA, "pattern '%.200s' is wrong at byte %zu: %s", pattern, at,
                     (const char *)words);
}

static ech_status add_step(ech_splitter *s, const ech_split_step *given)
{
    step *st = &s->steps[s->n_steps];
    ech_text pattern = {0};

    if (given->is_literal)
        ech_text_add(&pattern, "%s", given->pattern);
    else
        rewrite_spaces(given->pattern, &pattern);
    const ech_status compiled = pattern.failed
                                    ? ECH_RAISE(ECH_E_NOMEM, "no memory for a pattern")
                                    : compile(ech_text_get(&pattern), given->is_literal, &st->code);
    ech_text_fini(&pattern);
    ECH_TRY(compiled);
    st->drops_gaps = given->drops_gaps;
    /* Without a JIT the interpreter gives the same matches. */
    st->has_jit = pcre2_jit_compile(st->code, PCRE2_JIT_COMPLETE) == 0;
    s->match[s->n_steps] = pcre2_match_data_create(1, NULL);
    ECH_CHECK(s->match[s->n_steps++], ECH_E_NOMEM, "no memory for matches");
    return ECH_OK;
}

static ech_status add_steps(ech_splitter *s, const ech_split_step *steps, size_t n_steps)
{
    ECH_CHECK(n_steps <= MAX_STEPS, ECH_E_UNSUPPORTED, "%zu steps of splitting, %d at most",
              n_steps, MAX_STEPS);
    s->limits = pcre2_match_context_create(NULL);
    ECH_CHECK(s->limits, ECH_E_NOMEM, "no memory for matches");
    (void)pcre2_set_match_limit(s->limits, MATCH_LIMIT);
    for (size_t i = 0; i < n_steps; i++)
        ECH_TRY(add_step(s, &steps[i]));
    return ECH_OK;
}

ech_status ech_splitter_create(const ech_split_step *steps, size_t n_steps, ech_splitter **out)
{
    ech_splitter *s = NULL;

    ECH_TRY(ech_calloc(1, sizeof *s, &s));
    const ech_status st = add_steps(s, steps, n_steps);
    if (st < 0) {
        ech_splitter_destroy(&s);
        return st;
    }
    *out = s;
    return ECH_OK;
}

void ech_splitter_destroy(ech_splitter **s)
{
    if (!*s)
        return;
    for (size_t i = 0; i < MAX_STEPS; i++) {
        pcre2_code_free((*s)->steps[i].code);
        pcre2_match_data_free((*s)->match[i]);
    }
    pcre2_match_context_free((*s)->limits);
    free(*s);
    *s = NULL;
}

/* --- running --- */

/* Next match from `from` on.  @return 1 and its bounds, 0 none, < 0 a status */
static int next_match(ech_splitter *s, size_t i, const char *text, size_t bytes, size_t from,
                      size_t bounds[2])
{
    const step *st = &s->steps[i];
    const PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc;

    /* The text is known to be UTF-8. */
    if (st->has_jit)
        rc = pcre2_jit_match(st->code, subject, bytes, from, 0, s->match[i], s->limits);
    else
        rc =
            pcre2_match(st->code, subject, bytes, from, PCRE2_NO_UTF_CHECK, s->match[i], s->limits);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        PCRE2_UCHAR words[128] = "";
        (void)pcre2_get_error_message(rc, words, sizeof words);
        return ECH_RAISE(ECH_E_DATA, "splitting into pre-tokens failed at byte %zu of a text: %s",
                         from, (const char *)words);
    }
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(s->match[i]);
    bounds[0] = found[0];
    bounds[1] = found[1];
    return 1;
}

typedef struct sink {
    ech_split_piece piece;
    void *user;
} sink;

static ech_status run_steps(ech_splitter *s, size_t i, const char *text, size_t bytes,
                            const sink *to) /* NOLINT(misc-no-recursion): depth <= MAX_STEPS */
{
    size_t done = 0; /* text before it has been handed on */
    size_t from = 0;

    if (bytes == 0)
        return ECH_OK;
    if (i == s->n_steps)
        return to->piece(to->user, text, bytes);
    while (from < bytes) {
        size_t m[2] = {0, 0};
        const int found = next_match(s, i, text, bytes, from, m);
        if (found < 0)
            return (ech_status)found;
        if (!found)
            break;
        ECH_CHECK(m[0] >= from && m[1] >= m[0], ECH_E_DATA, "a pattern matches backwards");
        if (m[1] == m[0]) { /* an empty match cuts nothing */
            uint32_t code;
            from = m[0] < bytes ? m[0] + (size_t)ech_utf8_char(text + m[0], bytes - m[0], &code)
                                : bytes;
            continue;
        }
        if (m[0] > done && !s->steps[i].drops_gaps)
            ECH_TRY(run_steps(s, i + 1, text + done, m[0] - done, to));
        ECH_TRY(run_steps(s, i + 1, text + m[0], m[1] - m[0], to));
        done = from = m[1];
    }
    if (s->steps[i].drops_gaps)
        return ECH_OK;
    return run_steps(s, i + 1, text + done, bytes - done, to);
}

/* Bytes at the start of text that belong to no character. */
static size_t invalid_run(const char *text, size_t bytes)
{
    size_t n = 0;
    uint32_t code;

    while (n < bytes && ech_utf8_char(text + n, bytes - n, &code) == 0)
        n++;
    return n;
}

ech_status ech_splitter_run(ech_splitter *s, const char *text, size_t bytes, ech_split_piece piece,
                            void *user)
{
    const sink to = {.piece = piece, .user = user};

    while (bytes > 0) {
        const size_t good = ech_utf8_valid(text, bytes);
        ECH_TRY(run_steps(s, 0, text, good, &to));
        const size_t bad = invalid_run(text + good, bytes - good);
        if (bad > 0)
            ECH_TRY(piece(user, text + good, bad));
        text += good + bad;
        bytes -= good + bad;
    }
    return ECH_OK;
}
