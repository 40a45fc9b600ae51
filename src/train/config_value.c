#include "train/config_value.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 4096, MAX_CHOICES = 32, NAME_BYTES = 64, MAX_PATH_BYTES = 4096 };

/* Everything a reader of one value needs. */
typedef struct reading {
    const ech_option *row;
    const char *base_dir;
    ech_text *problem;
} reading;

static void *field_of(const ech_option *row, ech_config *cfg)
{
    return (char *)cfg + row->offset;
}

static const void *field_view(const ech_option *row, const ech_config *cfg)
{
    return (const char *)cfg + row->offset;
}

/* --- problems --- */

static void add_wanted(const reading *r)
{
    ech_text_add(r->problem, ", wanted ");
    ech_option_describe(r->row, r->problem);
}

static void refuse_kind(const reading *r, const ech_node *node)
{
    if (node->string && node->kind != ECH_NODE_MAP && node->kind != ECH_NODE_LIST)
        ech_text_add(r->problem, "'%.80s' is %s", node->string, ech_node_kind_name(node->kind));
    else
        ech_text_add(r->problem, "%s", ech_node_kind_name(node->kind));
    add_wanted(r);
    if (node->kind == ECH_NODE_REAL && fabs(node->real) < 1e15 && floor(node->real) == node->real &&
        r->row->type != ECH_OPTION_BOOL)
        ech_text_add(r->problem, " (%.0f)", node->real);
}

static bool is_word(const ech_node *node, const char *word)
{
    return node->kind == ECH_NODE_STRING && node->string_bytes == strlen(word) &&
           memcmp(node->string, word, node->string_bytes) == 0;
}

/* Text of a scalar that is used as a string: also what YAML reads as a number ("dir: 2024"). */
static const char *scalar_text(const ech_node *node)
{
    const bool is_scalar = node->kind == ECH_NODE_STRING || node->kind == ECH_NODE_INT ||
                           node->kind == ECH_NODE_REAL || node->kind == ECH_NODE_BOOL;
    const char *s = is_scalar ? node->string : NULL;
    return s && s[0] && strlen(s) == node->string_bytes ? s : NULL; /* a NUL would cut it */
}

/* --- numbers --- */

typedef struct range {
    double lo, hi;
    bool is_lo_open, is_hi_open;
} range;

/* ">=1", ">0", "0..1", "0..<1"; NULL: everything. */
static range range_parse(const char *allowed)
{
    range r = {-DBL_MAX, DBL_MAX, false, false};
    if (!allowed)
        return r;
    const char *dots = strstr(allowed, "..");
    if (dots) {
        r.is_hi_open = dots[2] == '<';
        r.lo = strtod(allowed, NULL);
        r.hi = strtod(dots + 2 + r.is_hi_open, NULL);
        return r;
    }
    ECH_ASSERT(allowed[0] == '>');
    r.is_lo_open = allowed[1] != '=';
    r.lo = strtod(allowed + 2 - r.is_lo_open, NULL);
    return r;
}

/* Is x legal; else says so, with the nearest legal number where there is one. */
static bool is_in_range(const reading *r, double x)
{
    const range legal = range_parse(r->row->allowed);
    const bool is_low = legal.is_lo_open ? x <= legal.lo : x < legal.lo;
    const bool is_high = legal.is_hi_open ? x >= legal.hi : x > legal.hi;
    if (!is_low && !is_high)
        return true;
    ech_text_add_double(r->problem, x);
    ech_text_add(r->problem, " is out of range");
    add_wanted(r);
    if ((is_low && !legal.is_lo_open) || (is_high && !legal.is_hi_open)) {
        ech_text_add(r->problem, "; nearest legal value ");
        ech_text_add_double(r->problem, is_low ? legal.lo : legal.hi);
    }
    return false;
}

static void read_int(const reading *r, const ech_node *node, int64_t *out)
{
    if (node->kind != ECH_NODE_INT)
        refuse_kind(r, node);
    else if (is_in_range(r, (double)node->integer))
        *out = node->integer;
}

static void read_real(const reading *r, const ech_node *node, double *out)
{
    if (node->kind != ECH_NODE_INT && node->kind != ECH_NODE_REAL)
        refuse_kind(r, node);
    else if (!isfinite(node->real))
        ech_text_add(r->problem, "'%.80s' is not finite", node->string ? node->string : "");
    else if (is_in_range(r, node->real))
        *out = node->real;
}

static void read_pair(const reading *r, const ech_node *node, double out[2])
{
    if (node->kind != ECH_NODE_LIST || node->n != 2) {
        refuse_kind(r, node);
        return;
    }
    double pair[2] = {out[0], out[1]};
    read_real(r, node->child, &pair[0]);
    if (!r->problem->bytes)
        read_real(r, node->child->next, &pair[1]);
    if (!r->problem->bytes)
        memcpy(out, pair, sizeof pair);
}

static void read_bytes(const reading *r, const ech_node *node, int64_t *out)
{
    int64_t bytes = 0;
    if (node->kind == ECH_NODE_INT)
        bytes = node->integer;
    else if (node->kind != ECH_NODE_STRING || ech_parse_bytes(node->string, &bytes) < 0) {
        refuse_kind(r, node);
        return;
    }
    if (is_in_range(r, (double)bytes))
        *out = bytes;
}

/* --- words --- */

const char *ech_choice_get(const char *allowed, size_t index, size_t *bytes)
{
    const char *at = allowed;
    for (size_t i = 0; i < index && at; i++) {
        at = strchr(at, '|');
        if (at)
            at++;
    }
    *bytes = at ? strcspn(at, "|") : 0;
    return at;
}

/* Place of a word among the choices, or -1. */
static int choice_index(const char *allowed, const char *word)
{
    size_t n = 0;
    for (size_t i = 0;; i++) {
        const char *choice = ech_choice_get(allowed, i, &n);
        if (!choice)
            return -1;
        if (strlen(word) == n && memcmp(choice, word, n) == 0)
            return (int)i;
    }
}

static void refuse_word(const reading *r, const char *word)
{
    char names[MAX_CHOICES][NAME_BYTES];
    const char *name[MAX_CHOICES];
    size_t n_names = 0;
    size_t n = 0;
    const char *choice = NULL;
    while (n_names < MAX_CHOICES && (choice = ech_choice_get(r->row->allowed, n_names, &n))) {
        n = n < NAME_BYTES ? n : NAME_BYTES - 1;
        memcpy(names[n_names], choice, n);
        names[n_names][n] = '\0';
        name[n_names] = names[n_names];
        n_names++;
    }
    ech_text_add(r->problem, "'%.80s' is not known", word);
    add_wanted(r);
    const char *near = ech_nearest_name(word, name, n_names);
    if (near)
        ech_text_add(r->problem, "; did you mean %s?", near);
}

static void read_choice(const reading *r, const ech_node *node, void *out)
{
    /* true and false are not among the choices of any row, so a word only can match */
    if (node->kind != ECH_NODE_STRING || !scalar_text(node)) {
        refuse_kind(r, node);
        return;
    }
    const int index = choice_index(r->row->allowed, node->string);
    if (index < 0)
        refuse_word(r, node->string);
    else
        memcpy(out, &index, sizeof index);
}

static bool is_positive_integer(const char *s)
{
    const size_t n = strspn(s, "0123456789");
    return n > 0 && n < 10 && s[n] == '\0' && s[strspn(s, "0")] != '\0';
}

/* Is every comma part of word one of the comma parts of set (n bytes). */
static bool is_subset(const char *word, const char *set, size_t n)
{
    for (const char *part = word; part; part = strchr(part, ',') ? strchr(part, ',') + 1 : NULL) {
        const size_t bytes = strcspn(part, ",");
        bool is_known = false;
        for (size_t at = 0; at < n; at += strcspn(set + at, ",|") + 1)
            is_known |= strcspn(set + at, ",|") == bytes && memcmp(set + at, part, bytes) == 0;
        if (!is_known || bytes == 0)
            return false;
    }
    return true;
}

static bool is_file_pattern(const char *pattern, size_t n)
{
    return n > 5 && memcmp(pattern, "FILE.", 5) == 0;
}

/* Does word match one pattern of n bytes: itself, "every:N", "nvme:DIR", "FILE.csv", "a,b,c". */
static bool is_match(const char *word, const char *pattern, size_t n)
{
    const char *colon = memchr(pattern, ':', n);
    if (memchr(pattern, ',', n))
        return is_subset(word, pattern, n);
    if (is_file_pattern(pattern, n))
        return strlen(word) > n - 4 && strcmp(word + strlen(word) - (n - 4), ".csv") == 0;
    if (!colon)
        return strlen(word) == n && memcmp(word, pattern, n) == 0;
    const size_t head = (size_t)(colon - pattern) + 1;
    if (strncmp(word, pattern, head) != 0)
        return false;
    return colon[1] == 'N' ? is_positive_integer(word + head) : word[head] != '\0';
}

static bool is_word_in(const char *patterns, const char *word)
{
    size_t n = 0;
    const char *pattern = NULL;
    for (size_t i = 0; (pattern = ech_choice_get(patterns, i, &n)); i++)
        if (is_match(word, pattern, n))
            return true;
    return false;
}

bool ech_value_is_file(const ech_option *row, const char *word)
{
    size_t n = 0;
    const char *pattern = NULL;
    for (size_t i = 0; row->allowed && (pattern = ech_choice_get(row->allowed, i, &n)); i++)
        if (is_file_pattern(pattern, n) && is_match(word, pattern, n))
            return true;
    return false;
}

/* --- owned values --- */

static ech_status copy_string(const char *s, char **out)
{
    char *copy = strdup(s);
    ECH_CHECK(copy, ECH_E_NOMEM, "%zu bytes for a configuration value", strlen(s));
    free(*out);
    *out = copy;
    return ECH_OK;
}

static ech_status read_path(const reading *r, const ech_node *node, char **out);

/* Words of a list joined with commas, or the word itself; a file's name as its path. */
static ech_status read_word(const reading *r, const ech_node *node, char **out)
{
    ech_text joined = {0};
    const bool is_list = node->kind == ECH_NODE_LIST && node->n > 0;
    for (const ech_node *at = is_list ? node->child : node; at; at = is_list ? at->next : NULL) {
        if (!scalar_text(at)) {
            refuse_kind(r, at);
            break;
        }
        ech_text_add(&joined, "%s%s", joined.bytes ? "," : "", scalar_text(at));
    }
    ech_status st = ECH_OK;
    if (!r->problem->bytes && r->row->allowed &&
        !is_word_in(r->row->allowed, ech_text_get(&joined)))
        refuse_word(r, ech_text_get(&joined));
    if (!r->problem->bytes)
        st = ech_value_is_file(r->row, ech_text_get(&joined))
                 ? read_path(r, node, out)
                 : copy_string(ech_text_get(&joined), out);
    ech_text_fini(&joined);
    return st;
}

/* A path as it is used: relative ones from base_dir. */
static ech_status read_path(const reading *r, const ech_node *node, char **out)
{
    char path[MAX_PATH_BYTES];
    const char *s = scalar_text(node);
    if (!s) {
        refuse_kind(r, node);
        return ECH_OK;
    }
    const bool is_bare = s[0] == '/' || !r->base_dir[0] || strcmp(r->base_dir, ".") == 0;
    const int n = snprintf(path, sizeof path, "%s%s%s", is_bare ? "" : r->base_dir,
                           is_bare || strcmp(r->base_dir, "/") == 0 ? "" : "/", s);
    if (n < 0 || (size_t)n >= sizeof path) {
        ech_text_add(r->problem, "the path is longer than %d bytes", MAX_PATH_BYTES - 1);
        return ECH_OK;
    }
    return copy_string(path, out);
}

static void strings_fini(ech_strings *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->item[i]);
    free(list->item);
    *list = (ech_strings){0};
}

static ech_status read_paths(const reading *r, const ech_node *node, ech_strings *out)
{
    ech_strings list = {0};
    const bool is_list = node->kind == ECH_NODE_LIST;
    const int64_t n = is_list ? node->n : 1;
    if (n > MAX_ITEMS) {
        ech_text_add(r->problem, "%lld paths, at most %d", (long long)n, MAX_ITEMS);
        return ECH_OK;
    }
    list.item = calloc((size_t)n + 1, sizeof *list.item);
    ECH_CHECK(list.item, ECH_E_NOMEM, "a list of %lld paths", (long long)n);
    ech_status st = ECH_OK;
    for (const ech_node *at = is_list ? node->child : node; at && st == ECH_OK;
         at = is_list ? at->next : NULL) {
        st = read_path(r, at, &list.item[list.n]);
        if (!list.item[list.n])
            break;
        list.n++;
    }
    if (st < 0 || r->problem->bytes) {
        strings_fini(&list);
        return st;
    }
    strings_fini(out);
    *out = list;
    return ECH_OK;
}

/* "2,2" into items; false where it is no such list. */
static bool parse_ints(const char *s, int64_t *item, int *n)
{
    for (*n = 0; *n < MAX_ITEMS; s++) {
        char *end = NULL;
        if (!isdigit((unsigned char)*s))
            return false;
        item[(*n)++] = strtoll(s, &end, 10);
        s = end;
        if (*s == '\0')
            return true;
        if (*s != ',')
            return false;
    }
    return false;
}

static void read_int_items(const reading *r, const ech_node *node, ech_ints *list)
{
    if (node->kind == ECH_NODE_STRING) {
        if (!parse_ints(node->string, list->item, &list->n))
            refuse_kind(r, node);
    } else if (node->kind == ECH_NODE_INT) {
        list->item[list->n++] = node->integer;
    } else if (node->kind == ECH_NODE_LIST && node->n > 0 && node->n <= MAX_ITEMS) {
        for (const ech_node *at = node->child; at && !r->problem->bytes; at = at->next)
            read_int(r, at, &list->item[list->n++]);
    } else {
        refuse_kind(r, node);
    }
    for (int i = 0; i < list->n && !r->problem->bytes; i++)
        (void)is_in_range(r, (double)list->item[i]);
}

static ech_status read_ints(const reading *r, const ech_node *node, ech_ints *out)
{
    ech_ints list = {calloc(MAX_ITEMS, sizeof(int64_t)), 0};
    ECH_CHECK(list.item, ECH_E_NOMEM, "a list of integers");
    if (!is_word(node, "auto"))
        read_int_items(r, node, &list);
    if (r->problem->bytes) {
        free(list.item);
        return ECH_OK;
    }
    free(out->item);
    *out = list;
    return ECH_OK;
}

/* --- front --- */

/* Is the value the word or the null that the row takes for "nothing chosen". */
static bool is_nothing(const ech_option *row, const ech_node *node)
{
    switch (row->type) {
    case ECH_OPTION_INT_AUTO:
    case ECH_OPTION_BYTES_AUTO:
    case ECH_OPTION_PATH_AUTO:
        return is_word(node, "auto");
    case ECH_OPTION_INT_NONE:
    case ECH_OPTION_PATH:
    case ECH_OPTION_PATHS:
        return is_word(node, "none") || node->kind == ECH_NODE_NULL;
    default:
        return false;
    }
}

static void set_nothing(const ech_option *row, ech_config *cfg)
{
    const int64_t nothing = ECH_AUTO;
    if (row->type == ECH_OPTION_INT_AUTO || row->type == ECH_OPTION_BYTES_AUTO ||
        row->type == ECH_OPTION_INT_NONE)
        memcpy(field_of(row, cfg), &nothing, sizeof nothing);
    else
        ech_value_free(row, cfg);
}

ech_status ech_value_read(const ech_option *row, const ech_node *node, const char *base_dir,
                          ech_config *cfg, ech_text *problem)
{
    const reading r = {row, base_dir, problem};
    void *field = field_of(row, cfg);
    if (is_nothing(row, node)) {
        set_nothing(row, cfg);
        return ECH_OK;
    }
    switch (row->type) {
    case ECH_OPTION_BOOL:
        if (node->kind == ECH_NODE_BOOL)
            *(bool *)field = node->boolean;
        else
            refuse_kind(&r, node);
        return ECH_OK;
    case ECH_OPTION_INT:
    case ECH_OPTION_INT_AUTO:
    case ECH_OPTION_INT_NONE:
        read_int(&r, node, field);
        return ECH_OK;
    case ECH_OPTION_REAL:
        read_real(&r, node, field);
        return ECH_OK;
    case ECH_OPTION_PAIR:
        read_pair(&r, node, field);
        return ECH_OK;
    case ECH_OPTION_BYTES:
    case ECH_OPTION_BYTES_AUTO:
        read_bytes(&r, node, field);
        return ECH_OK;
    case ECH_OPTION_CHOICE:
        read_choice(&r, node, field);
        return ECH_OK;
    case ECH_OPTION_WORD:
        return read_word(&r, node, field);
    case ECH_OPTION_INTS_AUTO:
        return read_ints(&r, node, field);
    case ECH_OPTION_PATH:
    case ECH_OPTION_PATH_AUTO:
        return read_path(&r, node, field);
    case ECH_OPTION_PATHS:
        return read_paths(&r, node, field);
    case ECH_OPTION_MODEL:
        break;
    }
    ECH_ASSERT(false && "a model key is read by the catalogue");
    return ECH_OK;
}

bool ech_value_is_built(const ech_option *row, const ech_config *cfg)
{
    const void *field = field_view(row, cfg);
    if (!row->built)
        return true;
    switch (row->type) {
    case ECH_OPTION_BOOL:
        return *(const bool *)field == (row->built[0] == 't');
    case ECH_OPTION_INT_AUTO:
    case ECH_OPTION_BYTES_AUTO:
        return *(const int64_t *)field == ECH_AUTO;
    case ECH_OPTION_INT:
    case ECH_OPTION_BYTES:
        return *(const int64_t *)field == strtoll(row->built, NULL, 10);
    case ECH_OPTION_REAL: {
        const double built = strtod(row->built, NULL);
        return memcmp(field, &built, sizeof built) == 0;
    }
    case ECH_OPTION_CHOICE: {
        size_t n = 0;
        char word[NAME_BYTES];
        const char *choice = ech_choice_get(row->allowed, *(const unsigned *)field, &n);
        (void)snprintf(word, sizeof word, "%.*s", (int)n, choice);
        return choice_index(row->built, word) >= 0;
    }
    case ECH_OPTION_WORD:
        return is_word_in(row->built, *(char *const *)field);
    case ECH_OPTION_INTS_AUTO:
        return ((const ech_ints *)field)->n == 0;
    default:
        ECH_ASSERT(false && "a row of this type says nothing about what is built");
        return true;
    }
}

void ech_value_free(const ech_option *row, ech_config *cfg)
{
    void *field = field_of(row, cfg);
    switch (row->type) {
    case ECH_OPTION_WORD:
    case ECH_OPTION_PATH:
    case ECH_OPTION_PATH_AUTO:
        free(*(char **)field);
        *(char **)field = NULL;
        break;
    case ECH_OPTION_PATHS:
        strings_fini(field);
        break;
    case ECH_OPTION_INTS_AUTO:
        free(((ech_ints *)field)->item);
        *(ech_ints *)field = (ech_ints){0};
        break;
    default:
        break;
    }
}
