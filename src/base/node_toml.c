/* TOML v1.0.0 (toml.io/en/v1.0.0) into node trees, by recursive descent.  Debian has no C library for
 * it.  Dates and times are kept as strings; infinities and NaN are refused as in YAML. */
#include "base/node.h"
#include "base/node_build.h"
#include "base/node_scalar.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum {
    TABLE_KEYS = 4096, /* members of one table: looking for a key twice stays cheap */
    KEY_PARTS = 16,    /* of a dotted key */
    NUMBER_BYTES = 128 /* of a number or date as written */
};

/* What a table is while it is built; kept in node->integer and cleared at the end. */
enum {
    TABLE_IMPLIED,  /* named by a longer header alone: its own header may follow */
    TABLE_DEFINED,  /* by a header */
    TABLE_DOTTED,   /* by dotted keys: only such keys may add to it */
    TABLE_CLOSED,   /* inline: nothing may */
    LIST_OF_TABLES, /* by [[headers]] */
    LIST_CLOSED     /* an array */
};

typedef struct toml {
    const char *at, *end;
    const char *line_start;
    const char *name;
    int line;
    int depth; /* of lists and tables in each other, the root counted */
    int64_t values;
    ech_node_tree *tree;
    ech_text word; /* of the string being read */
} toml;

/* A key and its parts, borrowed from the tree. */
typedef struct toml_key {
    const char *part[KEY_PARTS];
    int n;
    int line, column;
} toml_key;

static int column_of(const toml *t)
{
    return (int)(t->at - t->line_start) + 1;
}

#define FAIL(t, ...)                                                                               \
    ech_error_prefix(ECH_RAISE(ECH_E_PARSE, __VA_ARGS__), "%s:%d:%d: ", (t)->name, (t)->line,      \
                     column_of(t))

static bool is_at(const toml *t, const char *words)
{
    const size_t n = strlen(words);
    return (size_t)(t->end - t->at) >= n && memcmp(t->at, words, n) == 0;
}

static char peek(const toml *t)
{
    return t->at < t->end ? *t->at : '\0';
}

static void skip_blanks(toml *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t'))
        t->at++;
}

static void next_line(toml *t)
{
    t->line++;
    t->line_start = t->at;
}

/* Is a byte one that stands for itself in text: all but control characters other than the tab. */
static bool is_plain_byte(char c)
{
    return ((unsigned char)c >= 0x20 && c != 0x7f) || c == '\t';
}

/* A comment up to the end of its line. */
static ech_status skip_comment(toml *t)
{
    if (peek(t) != '#' || t->at == t->end)
        return ECH_OK;
    for (; t->at < t->end && *t->at != '\n' && !is_at(t, "\r\n"); t->at++)
        if (!is_plain_byte(*t->at))
            return FAIL(t, "a control character (0x%02x) in a comment", (unsigned)*t->at & 0xff);
    return ECH_OK;
}

/* A line's end, taken.  @return was there one */
static bool take_newline(toml *t)
{
    if (!is_at(t, "\n") && !is_at(t, "\r\n"))
        return false;
    t->at += *t->at == '\r' ? 2 : 1;
    next_line(t);
    return true;
}

/* Blanks, comments and line ends between values. */
static ech_status skip_between(toml *t)
{
    do {
        skip_blanks(t);
        ECH_TRY(skip_comment(t));
    } while (take_newline(t));
    return ECH_OK;
}

/* --- strings --- */

static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    const char low = (char)(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static void add_utf8(ech_text *out, uint32_t x)
{
    unsigned char b[4];
    size_t n = 1;
    if (x < 0x80) {
        b[0] = (unsigned char)x;
    } else if (x < 0x800) {
        b[0] = (unsigned char)(0xc0 | x >> 6);
        b[1] = (unsigned char)(0x80 | (x & 0x3f));
        n = 2;
    } else if (x < 0x10000) {
        b[0] = (unsigned char)(0xe0 | x >> 12);
        b[1] = (unsigned char)(0x80 | (x >> 6 & 0x3f));
        b[2] = (unsigned char)(0x80 | (x & 0x3f));
        n = 3;
    } else {
        b[0] = (unsigned char)(0xf0 | x >> 18);
        b[1] = (unsigned char)(0x80 | (x >> 12 & 0x3f));
        b[2] = (unsigned char)(0x80 | (x >> 6 & 0x3f));
        b[3] = (unsigned char)(0x80 | (x & 0x3f));
        n = 4;
    }
    ech_text_add_bytes(out, b, n);
}

/* \uXXXX or \UXXXXXXXX; t stands behind the letter. */
static ech_status take_code_point(toml *t, int digits)
{
    uint32_t x = 0;
    for (int i = 0; i < digits; i++) {
        const int d = t->at < t->end ? hex_of(*t->at) : -1;
        if (d < 0)
            return FAIL(t, "an escape needs %d hexadecimal digits", digits);
        x = x << 4 | (uint32_t)d;
        t->at++;
    }
    if (x > 0x10ffff || (x >= 0xd800 && x < 0xe000))
        return FAIL(t, "U+%X is no character", (unsigned)x);
    add_utf8(&t->word, x);
    return ECH_OK;
}

/* A backslash at the end of a line of a """ string: it and the blanks after it vanish. */
static bool take_line_join(toml *t)
{
    const toml before = *t;
    skip_blanks(t);
    if (!take_newline(t)) {
        *t = before;
        return false;
    }
    do
        skip_blanks(t);
    while (take_newline(t));
    return true;
}

/* t stands behind the backslash. */
static ech_status take_escape(toml *t, bool is_long)
{
    static const char letters[] = "btnfr\"\\";
    static const char meant[] = "\b\t\n\f\r\"\\";
    if (is_long && take_line_join(t))
        return ECH_OK;
    const char c = peek(t);
    const char *found = c ? strchr(letters, c) : NULL;
    if (c != 'u' && c != 'U' && !found)
        return FAIL(t, "there is no such escape: \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX "
                       "\\UXXXXXXXX are");
    t->at++;
    if (found) {
        ech_text_add_bytes(&t->word, &meant[found - letters], 1);
        return ECH_OK;
    }
    return take_code_point(t, c == 'u' ? 4 : 8);
}

/* One piece of a string: an escape, a line's end or a character.  *is_over: the quotes that end it. */
static ech_status take_piece(toml *t, const char *quotes, bool *is_over)
{
    const bool is_long = quotes[1] != '\0';
    if (t->at == t->end)
        return FAIL(t, "a string is not closed: %s is missing", quotes);
    if (is_at(t, quotes)) {
        /* Up to two quotes may stand before the closing three. */
        *is_over = !(is_long && t->end - t->at > 3 && t->at[3] == quotes[0]);
        if (*is_over) {
            t->at += strlen(quotes);
            return ECH_OK;
        }
    }
    if (quotes[0] == '"' && *t->at == '\\') {
        t->at++;
        return take_escape(t, is_long);
    }
    if (is_long && take_newline(t)) {
        ech_text_add_bytes(&t->word, "\n", 1);
        return ECH_OK;
    }
    const size_t step = ech_utf8_step(t->at, (size_t)(t->end - t->at));
    if (step == 0)
        return FAIL(t, "bytes that are no UTF-8");
    if (!is_plain_byte(*t->at))
        return FAIL(t, "%s",
                    *t->at == '\n' || *t->at == '\r'
                        ? "a string ends with its line: close it, or use three quotes"
                        : "a control character in a string: write it as \\u00XX");
    ech_text_add_bytes(&t->word, t->at, step);
    t->at += step;
    return ECH_OK;
}

/* A string with its quotes, into t->word. */
static ech_status take_string(toml *t, bool may_be_long)
{
    static const char *const all[] = {"\"\"\"", "'''", "\"", "'"};
    const char *quotes = NULL;
    for (int i = may_be_long ? 0 : 2; i < 4 && !quotes; i++)
        if (is_at(t, all[i]))
            quotes = all[i];
    bool is_over = false;
    t->word.bytes = 0;
    t->at += strlen(quotes);
    if (quotes[1])
        (void)take_newline(t); /* one right behind the quotes does not count */
    while (!is_over)
        ECH_TRY(take_piece(t, quotes, &is_over));
    ECH_CHECK(!t->word.failed, ECH_E_NOMEM, "%s: no memory to parse it", t->name);
    return ECH_OK;
}

static ech_status keep_word(toml *t, const char **out)
{
    return ech_node_tree_add_string(t->tree, ech_text_get(&t->word), t->word.bytes, out);
}

/* --- numbers, dates --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Does s look like a date or a time: 1979-05-27, 07:32:00. */
static bool looks_dated(const char *s)
{
    const bool has_year = strspn(s, "0123456789") == 4 && s[4] == '-' && is_digit(s[5]);
    const bool has_hour = strspn(s, "0123456789") == 2 && s[2] == ':' && is_digit(s[3]);
    return (has_year || has_hour) && s[strspn(s, "0123456789-:.TtZz+ ")] == '\0';
}

/* Take the underscores out.  @return does each stand between digits */
static bool drop_underscores(char *s)
{
    char *to = s;
    for (const char *p = s; *p; p++) {
        if (*p != '_') {
            *to++ = *p;
            continue;
        }
        if (p == s || hex_of(p[-1]) < 0 || hex_of(p[1]) < 0)
            return false;
    }
    *to = '\0';
    return true;
}

/* "0b101" as decimal digits in place; false where it is none or leaves 63 bits. */
static bool read_binary(char *s, size_t n)
{
    uint64_t x = 0;
    const size_t digits = strspn(s + 2, "01");
    if (digits == 0 || s[2 + digits] != '\0' || digits > 63)
        return false;
    for (size_t i = 0; i < digits; i++)
        x = x << 1 | (uint64_t)(s[2 + i] - '0');
    (void)snprintf(s, n, "%lld", (long long)x);
    return true;
}

/* Are digits of a decimal number as TOML wants them: no zero in front, digits around the point. */
static bool is_decimal(const char *s)
{
    const char *p = s + (*s == '-' || *s == '+');
    const size_t whole = strspn(p, "0123456789");
    if (whole == 0 || (whole > 1 && *p == '0'))
        return false;
    p += whole;
    return *p != '.' || is_digit(p[1]);
}

static ech_status type_number(toml *t, char *word, size_t room, ech_node *node)
{
    const bool is_based = word[0] == '0' && (word[1] == 'x' || word[1] == 'o' || word[1] == 'b');
    bool is_good = drop_underscores(word) && (is_based || is_decimal(word));
    if (is_good && is_based && word[1] == 'b')
        is_good = read_binary(word, room);
    if (is_good) {
        ECH_TRY(ech_node_tree_add_string(t->tree, word, strlen(word), &node->string));
        node->string_bytes = strlen(word);
        node->kind = ECH_NODE_STRING;
        const ech_status st = ech_node_type_scalar(node);
        if (st < 0)
            return ech_error_prefix(st, "%s:%d:%d: ", t->name, node->line, node->column);
        is_good = node->kind == ECH_NODE_INT || node->kind == ECH_NODE_REAL;
    }
    return is_good ? ECH_OK : FAIL(t, "'%s' is no value: put quotes around a string", word);
}

/* A word without quotes: true, a number, a date. */
static ech_status take_bare(toml *t, ech_node *node)
{
    char word[NUMBER_BYTES];
    const char *from = t->at;
    while (t->at < t->end && is_plain_byte(*t->at) && !strchr(" \t,]}#", *t->at))
        t->at++;
    if (t->end - t->at > 2 && *t->at == ' ' && t->at - from == 10 && is_digit(t->at[1]) &&
        from[4] == '-') /* "1979-05-27 07:32:00": one blank may part date and time */
        while (++t->at < t->end && is_plain_byte(*t->at) && !strchr(" \t,]}#", *t->at))
            continue;
    const size_t n = (size_t)(t->at - from);
    t->at = from;
    if (n == 0)
        return FAIL(t, "a value is missing");
    if (n >= sizeof word)
        return FAIL(t, "a value of %zu characters without quotes", n);
    memcpy(word, from, n);
    word[n] = '\0';
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        node->kind = ECH_NODE_BOOL;
        node->boolean = word[0] == 't';
    } else if (looks_dated(word)) {
        node->kind = ECH_NODE_STRING;
        node->string_bytes = n;
        ECH_TRY(ech_node_tree_add_string(t->tree, word, n, &node->string));
    } else {
        ECH_TRY(type_number(t, word, sizeof word, node));
    }
    t->at = from + n;
    return ECH_OK;
}

/* --- keys --- */

static bool is_key_byte(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

static ech_status take_key_part(toml *t, const char **out)
{
    if (peek(t) == '"' || peek(t) == '\'') {
        ECH_TRY(take_string(t, false));
        if (memchr(ech_text_get(&t->word), '\0', t->word.bytes))
            return FAIL(t, "a key must not hold the character NUL");
        return keep_word(t, out);
    }
    const char *from = t->at;
    while (t->at < t->end && is_key_byte(*t->at))
        t->at++;
    if (t->at == from)
        return FAIL(t, "a key is missing");
    return ech_node_tree_add_string(t->tree, from, (size_t)(t->at - from), out);
}

/* a.b."c d", up to what follows it. */
static ech_status take_key(toml *t, toml_key *key)
{
    *key = (toml_key){.line = t->line, .column = column_of(t)};
    for (;;) {
        if (key->n == KEY_PARTS)
            return FAIL(t, "a key of more than %d parts", KEY_PARTS);
        ECH_TRY(take_key_part(t, &key->part[key->n++]));
        skip_blanks(t);
        if (peek(t) != '.')
            return ECH_OK;
        t->at++;
        skip_blanks(t);
    }
}

/* --- tables --- */

static ech_status new_value(toml *t, ech_node **out)
{
    if (++t->values > ECH_NODE_MAX_NODES)
        return FAIL(t, "more than %d values", ECH_NODE_MAX_NODES);
    return ech_node_tree_add(t->tree, out);
}

/* Member of a table; NULL where there is none, and *tail is where it would be hung. */
static ech_node *find_member(ech_node *table, const char *key, ech_node ***tail)
{
    ech_node **p = &table->child;
    for (; *p; p = &(*p)->next)
        if (strcmp((*p)->key, key) == 0)
            return *p;
    *tail = p;
    return NULL;
}

/* A new member of a table. */
static ech_status add_member(toml *t, ech_node *table, const toml_key *key, int part,
                             ech_node **out)
{
    ech_node **tail = NULL;
    if (find_member(table, key->part[part], &tail))
        return FAIL(t, "key '%.200s' is given twice", key->part[part]);
    if (table->n == TABLE_KEYS)
        return FAIL(t, "more than %d keys in one table", TABLE_KEYS);
    ECH_TRY(new_value(t, out));
    *tail = *out;
    table->n++;
    (*out)->key = key->part[part];
    (*out)->line = key->line;
    (*out)->column = key->column;
    return ECH_OK;
}

/* The table that a part names, made where it is not there.  Of a list of tables, its last. */
static ech_status step_into(toml *t, ech_node *table, const toml_key *key, int part, int made,
                            ech_node **out)
{
    ech_node **tail = NULL;
    ech_node *member = find_member(table, key->part[part], &tail);
    if (!member) {
        ECH_TRY(add_member(t, table, key, part, &member));
        member->kind = ECH_NODE_MAP;
        member->integer = made;
    } else if (member->kind == ECH_NODE_LIST && member->integer == LIST_OF_TABLES &&
               made != TABLE_DOTTED) {
        ech_node *last = member->child;
        while (last->next)
            last = last->next;
        member = last;
    } else if (member->kind != ECH_NODE_MAP || member->integer == TABLE_CLOSED ||
               (made == TABLE_DOTTED && member->integer != TABLE_DOTTED)) {
        return FAIL(t, "'%.200s' is defined already (line %d): nothing can be added to it",
                    key->part[part], member->line);
    }
    *out = member;
    return ECH_OK;
}

static ech_status take_value(toml *t, ech_node *node);

/* key = value, into a table. */
static ech_status take_pair(toml *t, ech_node *table)
{
    toml_key key;
    ech_node *node;
    ECH_TRY(take_key(t, &key));
    t->depth += key.n - 1;
    if (t->depth > ECH_NODE_MAX_DEPTH)
        return FAIL(t, "lists and tables nested deeper than %d", ECH_NODE_MAX_DEPTH);
    for (int i = 0; i + 1 < key.n; i++)
        ECH_TRY(step_into(t, table, &key, i, TABLE_DOTTED, &table));
    ECH_TRY(add_member(t, table, &key, key.n - 1, &node));
    if (peek(t) != '=')
        return FAIL(t, "'=' is missing behind key '%.200s'", key.part[key.n - 1]);
    t->at++;
    skip_blanks(t);
    ECH_TRY(take_value(t, node));
    t->depth -= key.n - 1;
    return ECH_OK;
}

/* One more table of a [[list]]. */
static ech_status add_to_list(toml *t, ech_node *parent, const toml_key *key, ech_node **out)
{
    ech_node **tail = NULL;
    ech_node *list = find_member(parent, key->part[key->n - 1], &tail);
    if (!list) {
        ECH_TRY(add_member(t, parent, key, key->n - 1, &list));
        list->kind = ECH_NODE_LIST;
        list->integer = LIST_OF_TABLES;
    } else if (list->kind != ECH_NODE_LIST || list->integer != LIST_OF_TABLES) {
        return FAIL(t, "'%.200s' is defined already (line %d), and is no list of tables", list->key,
                    list->line);
    }
    if (list->n == TABLE_KEYS)
        return FAIL(t, "more than %d tables in one list", TABLE_KEYS);
    for (tail = &list->child; *tail; tail = &(*tail)->next)
        continue;
    ECH_TRY(new_value(t, tail));
    **tail = (ech_node){
        .kind = ECH_NODE_MAP, .line = key->line, .column = key->column, .integer = TABLE_DEFINED};
    list->n++;
    *out = *tail;
    return ECH_OK;
}

/* [a.b] or [[a.b]]: the table that the following keys go to. */
static ech_status take_header(toml *t, ech_node **table)
{
    const bool is_list = is_at(t, "[[");
    toml_key key;
    t->at += is_list ? 2 : 1;
    skip_blanks(t);
    ECH_TRY(take_key(t, &key));
    if (!is_at(t, is_list ? "]]" : "]"))
        return FAIL(t, "'%s' is missing behind the name of a table", is_list ? "]]" : "]");
    t->depth = 1 + 2 * key.n; /* each part a table, in a list at worst */
    *table = ech_node_tree_root(t->tree);
    for (int i = 0; i + 1 < key.n; i++)
        ECH_TRY(step_into(t, *table, &key, i, TABLE_IMPLIED, table));
    if (is_list) {
        ECH_TRY(add_to_list(t, *table, &key, table));
    } else {
        ech_node **tail = NULL;
        const ech_node *old = find_member(*table, key.part[key.n - 1], &tail);
        if (old && !(old->kind == ECH_NODE_MAP && old->integer == TABLE_IMPLIED))
            return FAIL(t, "table '%.200s' is defined already (line %d)", old->key, old->line);
        ECH_TRY(step_into(t, *table, &key, key.n - 1, TABLE_DEFINED, table));
        (*table)->integer = TABLE_DEFINED;
    }
    t->at += is_list ? 2 : 1;
    return ECH_OK;
}

/* --- arrays, inline tables --- */

static ech_status take_array(toml *t, ech_node *node)
{
    ech_node **tail = &node->child;
    node->kind = ECH_NODE_LIST;
    node->integer = LIST_CLOSED;
    t->at++;
    for (;;) {
        ECH_TRY(skip_between(t));
        if (peek(t) == ']')
            break;
        ECH_TRY(new_value(t, tail));
        node->n++;
        (*tail)->line = t->line;
        (*tail)->column = column_of(t);
        ECH_TRY(take_value(t, *tail));
        tail = &(*tail)->next;
        ECH_TRY(skip_between(t));
        if (peek(t) != ',' && peek(t) != ']')
            return FAIL(t, "an array goes on with ',' or ends with ']'");
        t->at += *t->at == ',';
    }
    t->at++;
    return ECH_OK;
}

/* Dotted keys made these tables: nothing may be added behind the brace. */
static void close_tables(ech_node *node)
{
    for (ech_node *child = node->child; child; child = child->next)
        if (child->kind == ECH_NODE_MAP)
            close_tables(child);
    node->integer = TABLE_CLOSED;
}

static ech_status take_inline_table(toml *t, ech_node *node)
{
    node->kind = ECH_NODE_MAP;
    node->integer = TABLE_DOTTED;
    t->at++;
    skip_blanks(t);
    while (peek(t) != '}' || node->n > 0) {
        ECH_TRY(take_pair(t, node));
        skip_blanks(t);
        if (peek(t) == '}')
            break;
        if (peek(t) != ',')
            return FAIL(t, "an inline table goes on with ',' or ends with '}', in its line");
        t->at++;
        skip_blanks(t);
    }
    t->at++;
    close_tables(node);
    return ECH_OK;
}

/* Recursion is as deep as lists and tables in each other, which are bounded here. */
static ech_status take_value(toml *t, ech_node *node)
{
    const char c = peek(t);
    if (c == '"' || c == '\'') {
        ECH_TRY(take_string(t, true));
        node->kind = ECH_NODE_STRING;
        node->string_bytes = t->word.bytes;
        return keep_word(t, &node->string);
    }
    if (c != '[' && c != '{')
        return take_bare(t, node);
    if (t->depth >= ECH_NODE_MAX_DEPTH)
        return FAIL(t, "lists and tables nested deeper than %d", ECH_NODE_MAX_DEPTH);
    t->depth++;
    ECH_TRY(c == '[' ? take_array(t, node) : take_inline_table(t, node));
    t->depth--;
    return ECH_OK;
}

/* --- the document --- */

static ech_status take_document(toml *t)
{
    ech_node *table = ech_node_tree_root(t->tree);
    table->kind = ECH_NODE_MAP;
    table->integer = TABLE_DEFINED;
    t->depth = 1;
    for (;;) {
        ECH_TRY(skip_between(t));
        if (t->at == t->end)
            return ECH_OK;
        if (*t->at == '[')
            ECH_TRY(take_header(t, &table));
        else
            ECH_TRY(take_pair(t, table));
        skip_blanks(t);
        ECH_TRY(skip_comment(t));
        if (t->at < t->end && !take_newline(t))
            return FAIL(t, "a line has one key or table: what is behind it?");
    }
}

/* The marks that building needed. */
static void clear_marks(ech_node *node)
{
    node->integer = 0;
    for (ech_node *child = node->child; child; child = child->next)
        if (child->kind == ECH_NODE_MAP || child->kind == ECH_NODE_LIST)
            clear_marks(child);
}

ech_status ech_node_parse_toml(const char *text, size_t bytes, const char *name, ech_node **out)
{
    const size_t bom = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    toml t = {
        .at = text + bom, .end = text + bytes, .line_start = text + bom, .name = name, .line = 1};
    *out = NULL;
    ECH_TRY(ech_node_tree_create(&t.tree));
    const ech_status st = take_document(&t);
    ech_text_fini(&t.word);
    if (st < 0) {
        ech_node_tree_destroy(&t.tree);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    clear_marks(ech_node_tree_root(t.tree));
    *out = ech_node_tree_root(t.tree);
    return ECH_OK;
}
