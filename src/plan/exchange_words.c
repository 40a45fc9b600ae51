#include "plan/exchange_words.h"

#include "base/checked.h"
#include "base/node.h"

#include <stdlib.h>
#include <string.h>

/* --- words --- */

/* Where a split stands; each word it makes is written at `to`, terminated. */
typedef struct splitter {
    ech_words *w;
    const char *at, *end;
    char *to;
    const char *name;
    bool is_inner; /* of quoted options */
} splitter;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* What parts words as blanks do. */
static bool is_separator(char c)
{
    return is_blank(c) || c == ';' || c == '|' || c == '&';
}

/* Does a parenthesis at s->at enclose a list of words, ARGS=(--a 1), and is no part of one, as in
 * ([0]*3+[1]*4).
 * @param open  in/out: parentheses of the word that are open */
static bool is_list_mark(const splitter *s, const char *word, int *open)
{
    if (*s->at == '(') {
        const bool is_list = s->to > word
                                 ? s->to[-1] == '='
                                 : s->at + 1 == s->end || is_blank(s->at[1]) || s->at[1] == '-';
        *open += !is_list;
        return is_list;
    }
    if (*s->at != ')')
        return false;
    if (*open == 0)
        return true;
    --*open;
    return false;
}

static ech_status add_word(splitter *s, char *word)
{
    ECH_CHECK(s->w->n < ECH_WORDS_MAX, ECH_E_PARSE, "%s: more than %d words", s->name,
              ECH_WORDS_MAX);
    s->w->word[s->w->n++] = word;
    return ECH_OK;
}

/* Of "--x=8" the name and the value apart. */
static ech_status keep_word(splitter *s, char *word)
{
    char *equals = ech_word_is_option(word) ? strchr(word, '=') : NULL;
    ECH_TRY(add_word(s, word));
    if (equals) {
        *equals = '\0';
        ECH_TRY(add_word(s, equals + 1));
    }
    return ECH_OK;
}

/* Quoted characters up to the closing quote.  @return was there one */
static bool take_quoted(splitter *s)
{
    const char quote = *s->at++;
    while (s->at < s->end && *s->at != quote) {
        if (*s->at == '\\' && quote == '"' && s->at + 1 < s->end) {
            s->at++;
            if (*s->at == '\n') { /* a continued line */
                s->at++;
                *s->to++ = ' ';
                continue;
            }
        }
        *s->to++ = *s->at++;
    }
    if (s->at == s->end)
        return false;
    s->at++;
    return true;
}

/* Does a word hold options: ARGS="--a 1 --b 2". */
static bool holds_options(const char *word)
{
    const char *dash = strstr(word, "--");
    return dash && strpbrk(word, " \t\n") && !ech_word_is_option(word) &&
           (dash == word || is_blank(dash[-1]) || dash[-1] == '=');
}

static ech_status split(splitter *s);

/* The options in a word, as words of their own; they are written over it, as they are no longer. */
static ech_status split_inner(splitter *s, char *word)
{
    const char *dash = strstr(word, "--");
    char *inner;
    const size_t bytes = strlen(dash);
    ECH_TRY(ech_calloc(bytes + 1, 1, &inner));
    memcpy(inner, dash, bytes);
    splitter part = {s->w, inner, inner + bytes, word, s->name, true};
    const ech_status st = split(&part);
    free(inner);
    return st;
}

static ech_status take_word(splitter *s)
{
    char *word = s->to;
    int open = 0;
    while (s->at < s->end && !is_separator(*s->at)) {
        if (is_list_mark(s, word, &open)) {
            s->at++;
            break;
        }
        if (*s->at == '\'' || *s->at == '"') {
            ECH_CHECK(take_quoted(s), ECH_E_PARSE, "%s: quotes that are not closed", s->name);
        } else if (*s->at == '\\' && s->at + 1 < s->end) {
            const char next = s->at[1];
            s->at += next == '\r' && s->at + 2 < s->end && s->at[2] == '\n' ? 3 : 2;
            if (next == '\n' || next == '\r')
                break; /* a continued line parts words, as everyone writes it */
            *s->to++ = next;
        } else {
            *s->to++ = *s->at++;
        }
    }
    *s->to++ = '\0';
    if (word[0] == '\0')
        return ECH_OK;
    if (!s->is_inner && (word[0] == '-' ? strpbrk(word, " \t\n") != NULL && strstr(word + 1, " --")
                                        : holds_options(word)))
        return split_inner(s, word);
    return keep_word(s, word);
}

static ech_status split(splitter *s)
{
    while (s->at < s->end) {
        if (is_separator(*s->at)) {
            s->at++;
        } else if (*s->at == '#') {
            while (s->at < s->end && *s->at != '\n')
                s->at++;
        } else {
            ECH_TRY(take_word(s));
        }
    }
    return ECH_OK;
}

ech_status ech_words_read(const char *text, size_t bytes, const char *name, ech_findings *errors,
                          ech_words *out)
{
    ech_words w = {.name = name, .errors = errors};
    ech_status st;
    ECH_CHECK(bytes <= ECH_WORDS_BYTES, ECH_E_PARSE, "%s: %zu bytes, wanted at most %d", name,
              bytes, ECH_WORDS_BYTES);
    ECH_CHECK(!memchr(text, '\0', bytes), ECH_E_PARSE, "%s: a byte NUL: not a text", name);
    ECH_TRY_GOTO(st, ech_calloc(2 * bytes + 2, 1, &w.room), fail);
    ECH_TRY_GOTO(st, ech_calloc(ECH_WORDS_MAX, sizeof *w.word, &w.word), fail);
    splitter s = {&w, text, text + bytes, w.room, name, false};
    ECH_TRY_GOTO(st, split(&s), fail);
    *out = w;
    return ECH_OK;
fail:
    ech_words_fini(&w);
    return st;
}

void ech_words_fini(ech_words *w)
{
    free(w->word);
    free(w->room);
    *w = (ech_words){0};
}

/* --- options --- */

bool ech_word_is_option(const char *word)
{
    return word[0] == '-' && word[1] == '-' && word[2] != '\0';
}

int ech_words_find(const ech_words *w, const char *option)
{
    for (int i = w->n - 1; i >= 0; i--)
        if (strcmp(w->word[i], option) == 0)
            return i;
    return -1;
}

bool ech_words_has(const ech_words *w, const char *option)
{
    return ech_words_find(w, option) >= 0;
}

int ech_words_values(const ech_words *w, const char *option, const char *const **values)
{
    const int at = ech_words_find(w, option);
    int n = 0;
    if (at < 0)
        return 0;
    while (at + 1 + n < w->n && !ech_word_is_option(w->word[at + 1 + n]))
        n++;
    *values = (const char *const *)(w->word + at + 1);
    return n;
}

/* "$NAME" or "${NAME}" where the text has "NAME=value" before; else the word itself. */
static const char *variable_of(const ech_words *w, const char *word)
{
    if (word[0] != '$')
        return word;
    const char *name = word + 1 + (word[1] == '{');
    const size_t n = strcspn(name, "}:");
    for (int i = w->n - 1; i >= 0; i--)
        if (strncmp(w->word[i], name, n) == 0 && w->word[i][n] == '=' && w->word[i][n + 1] != '\0')
            return w->word[i] + n + 1;
    return word;
}

const char *ech_words_string(const ech_words *w, const char *option)
{
    const char *const *values;
    if (!ech_words_has(w, option))
        return NULL;
    if (ech_words_values(w, option, &values) == 0) {
        ech_findings_add(w->errors, "%s: %s has no value", w->name, option);
        return NULL;
    }
    return variable_of(w, values[0]);
}

bool ech_words_int(const ech_words *w, const char *option, int64_t min, int64_t max, int64_t *out)
{
    const char *word = ech_words_string(w, option);
    char *end;
    if (!word)
        return false;
    const long long x = strtoll(word, &end, 10);
    if (end == word || *end != '\0' || x < min || x > max) {
        ech_findings_add(w->errors, "%s: %s is '%.40s', wanted a whole number of %lld .. %lld%s",
                         w->name, option, word, (long long)min, (long long)max,
                         word[0] == '$' ? ": the variable is not set in this text" : "");
        return false;
    }
    *out = x;
    return true;
}

/* By the reader of scalars, which no locale changes. */
bool ech_words_real(const ech_words *w, const char *option, double *out)
{
    const char *word = ech_words_string(w, option);
    ech_node *node = NULL;
    if (!word)
        return false;
    const bool is_good = ech_node_parse_yaml(word, strlen(word), w->name, &node) == ECH_OK &&
                         (node->kind == ECH_NODE_INT || node->kind == ECH_NODE_REAL);
    if (is_good)
        *out = node->real;
    else
        ech_findings_add(w->errors, "%s: %s is '%.40s', wanted a number", w->name, option, word);
    ech_node_destroy(&node);
    return is_good;
}
