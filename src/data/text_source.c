/* Documents out of text files.
 *
 * A window over the bytes grows line by line; what is handed out leaves it at the next call. */
#include "data/text_source.h"

#include "base/checked.h"
#include "base/node.h"
#include "base/text.h"
#include "data/byte_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    READ_BYTES = 1 << 18,
    PIECE_BYTES = 1 << 20,   /* pieces of long documents are a little longer */
    MAX_LINE_BYTES = 1 << 26 /* of JSONL; plain text is cut there */
};

struct ech_text_source {
    ech_byte_stream *stream; /* owned */
    char *path;              /* owned */
    char *key;               /* owned */
    ech_text_split split;
    char *window; /* owned: bytes [begin, end) are not handed out, [begin, scan) are whole lines */
    size_t capacity, begin, scan, end;
    bool at_end;      /* the file has no more */
    bool in_document; /* pieces of the current document have been handed out */
    int64_t line;     /* number of the line that begins at scan */
    ech_node *tree;   /* owned: the JSON line that was handed out */
};

ech_text_options ech_text_options_default(void)
{
    return (ech_text_options){.split = ECH_SPLIT_AUTO, .key = "text"};
}

/* --- opening --- */

static bool name_has(const char *path, const char *ending)
{
    static const char *const packed[] = {"", ".gz", ".zst"};
    char whole[32];

    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        (void)snprintf(whole, sizeof whole, "%s%s", ending, packed[i]);
        if (ech_has_suffix(path, whole))
            return true;
    }
    return false;
}

static ech_text_split split_of(const char *path, ech_text_split asked)
{
    if (asked != ECH_SPLIT_AUTO)
        return asked;
    return name_has(path, ".jsonl") || name_has(path, ".ndjson") || name_has(path, ".json")
               ? ECH_SPLIT_JSONL
               : ECH_SPLIT_FILE;
}

ech_status ech_text_source_open(const char *path, const ech_text_options *opt,
                                ech_text_source **out)
{
    ech_text_source *s = NULL;
    ech_status st = ECH_OK;

    ECH_TRY(ech_calloc(1, sizeof *s, &s));
    s->split = split_of(path, opt->split);
    s->line = 1;
    s->path = strdup(path);
    s->key = strdup(opt->key);
    if (!s->path || !s->key)
        st = ECH_RAISE(ECH_E_NOMEM, "no memory for a path");
    else
        st = ech_byte_stream_open(path, &s->stream);
    if (st < 0) {
        ech_text_source_close(&s);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = s;
    return ECH_OK;
}

void ech_text_source_close(ech_text_source **s)
{
    if (!*s)
        return;
    ech_byte_stream_close(&(*s)->stream);
    ech_node_destroy(&(*s)->tree);
    free((*s)->path);
    free((*s)->key);
    free((*s)->window);
    free(*s);
    *s = NULL;
}

int64_t ech_text_source_read_bytes(const ech_text_source *s)
{
    return ech_byte_stream_at(s->stream);
}

int64_t ech_text_source_bytes(const ech_text_source *s)
{
    return ech_byte_stream_bytes(s->stream);
}

/* --- the window --- */

static ech_status make_room(ech_text_source *s)
{
    if (s->capacity - s->end >= READ_BYTES)
        return ECH_OK;
    if (s->begin > 0) {
        memmove(s->window, s->window + s->begin, s->end - s->begin);
        s->scan -= s->begin;
        s->end -= s->begin;
        s->begin = 0;
    }
    if (s->capacity - s->end >= READ_BYTES)
        return ECH_OK;
    const size_t want = 2 * s->capacity + READ_BYTES;
    char *grown = realloc(s->window, want);
    ECH_CHECK(grown, ECH_E_NOMEM, "no memory for %zu bytes of text", want);
    s->window = grown;
    s->capacity = want;
    return ECH_OK;
}

static ech_status read_more(ech_text_source *s)
{
    size_t got = 0;

    ECH_TRY(make_room(s));
    ECH_TRY(ech_byte_stream_read(s->stream, s->window + s->end, READ_BYTES, &got));
    s->end += got;
    s->at_end = got == 0;
    return ECH_OK;
}

/* Where the character that holds the byte at `at` begins. */
static size_t character_start(const ech_text_source *s, size_t at)
{
    for (int back = 0; back < 3 && at > s->scan && ((uint8_t)s->window[at] & 0xC0) == 0x80; back++)
        at--;
    return at;
}

/* End of the line at scan, its newline included; one byte after it is known where there is one. */
static ech_status find_line(ech_text_source *s, size_t *line_end)
{
    size_t from = s->scan - s->begin; /* places relative to begin: the window may move */

    for (;;) {
        const size_t left = s->end - s->begin - from;
        const char *newline = left > 0 ? memchr(s->window + s->begin + from, '\n', left) : NULL;
        const size_t after = newline ? (size_t)(newline - s->window) + 1 : s->end;
        if (s->at_end || (newline && after < s->end)) {
            *line_end = after;
            return ECH_OK;
        }
        if (!newline && s->end - s->scan >= MAX_LINE_BYTES) {
            *line_end = character_start(s, s->end - 1);
            return ECH_OK;
        }
        from = (newline ? after - 1 : s->end) - s->begin;
        ECH_TRY(read_more(s));
    }
}

static void hand_out(ech_text_source *s, size_t end, bool ends, ech_text_piece *out)
{
    *out = (ech_text_piece){.text = s->window + s->begin,
                            .bytes = end - s->begin,
                            .begins = !s->in_document,
                            .ends = ends};
    s->in_document = !ends;
}

/* --- plain text --- */

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r' && line[i] != '\n')
            return false;
    }
    return true;
}

/* Where a long document is cut: before the last white space after a letter.  All patterns in use
 * end a pre-token there whatever follows: no letter takes white space along, and what white space
 * does depends only on what comes after it.  Looks in the last line only.  @return a place in the
 * window, 0: there is none */
static size_t find_cut(const ech_text_source *s, size_t line)
{
    const size_t low = line > s->begin + PIECE_BYTES / 2 ? line : s->begin + PIECE_BYTES / 2;

    for (size_t i = s->scan - 1; i > low; i--) {
        const char c = (char)(s->window[i - 1] | 0x20);
        if (c >= 'a' && c <= 'z' && is_blank(s->window + i, 1))
            return i;
    }
    return 0;
}

/* What is in front of scan is a document, unless it is empty. */
static bool end_document(ech_text_source *s, size_t next, ech_text_piece *out)
{
    const size_t end = s->scan;
    const bool has_text = end > s->begin;

    if (has_text)
        hand_out(s, end, true, out);
    s->begin = s->scan = next;
    return has_text;
}

static ech_status next_plain(ech_text_source *s, ech_text_piece *out)
{
    for (;;) {
        size_t line_end = 0;
        ECH_TRY(find_line(s, &line_end));
        if (line_end == s->scan) /* the end of the file */
            return end_document(s, s->scan, out) ? ECH_OK : ECH_DONE;
        s->line++;
        if (s->split == ECH_SPLIT_BLANK_LINE && is_blank(s->window + s->scan, line_end - s->scan)) {
            if (end_document(s, line_end, out))
                return ECH_OK;
            continue;
        }
        const size_t line = s->scan;
        s->scan = line_end;
        const size_t bytes = s->scan - s->begin;
        size_t cut = bytes >= PIECE_BYTES ? find_cut(s, line) : 0;
        if (cut == 0 && bytes >= MAX_LINE_BYTES - 4 && s->scan < s->end)
            cut = s->scan;
        if (cut > 0) {
            hand_out(s, cut, false, out);
            s->begin = cut;
            return ECH_OK;
        }
    }
}

/* --- JSONL --- */

static ech_status take_text(ech_text_source *s, const char *line, size_t bytes, ech_text_piece *out)
{
    char name[4096];

    (void)snprintf(name, sizeof name, "%s:%lld", s->path, (long long)s->line);
    ECH_CHECK(bytes < MAX_LINE_BYTES - 4, ECH_E_DATA, "%s: the line is longer than %d bytes", name,
              MAX_LINE_BYTES);
    ech_node_destroy(&s->tree);
    ECH_TRY(ech_node_parse_json(line, bytes, name, &s->tree));
    const ech_node *text = ech_node_find(s->tree, s->key);
    ECH_CHECK(text && text->kind == ECH_NODE_STRING, ECH_E_DATA,
              "%s: there is no string under the key '%s'", name, s->key);
    *out = (ech_text_piece){
        .text = text->string, .bytes = text->string_bytes, .begins = true, .ends = true};
    return ECH_OK;
}

static ech_status next_json(ech_text_source *s, ech_text_piece *out)
{
    for (;;) {
        size_t line_end = 0;
        ECH_TRY(find_line(s, &line_end));
        if (line_end == s->scan)
            return ECH_DONE;
        const char *line = s->window + s->scan;
        const size_t bytes = line_end - s->scan;
        const bool skip = is_blank(line, bytes);
        if (!skip)
            ECH_TRY(take_text(s, line, bytes, out));
        s->begin = s->scan = line_end;
        s->line++;
        if (!skip && out->bytes > 0)
            return ECH_OK;
    }
}

ech_status ech_text_source_next(ech_text_source *s, ech_text_piece *out)
{
    return s->split == ECH_SPLIT_JSONL ? next_json(s, out) : next_plain(s, out);
}
