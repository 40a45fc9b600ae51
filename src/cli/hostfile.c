#include "cli/hostfile.h"

#include "base/checked.h"
#include "base/io.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 16 << 20, MAX_SLOTS = 1 << 20 };

/* A line in work. */
typedef struct reading {
    const char *path;
    int line;
    ech_findings *findings;
    ech_hostfile *hosts;
    size_t room; /* hosts */
} reading;

/* One line's words. */
typedef struct host_line {
    char name[ECH_HOST_BYTES];
    int slots, most; /* 0: not given */
} host_line;

static void refuse(const reading *r, const char *what, size_t bytes, const char *wanted)
{
    ech_findings_add(r->findings, "%s:%d: '%.*s' %s", r->path, r->line,
                     (int)(bytes < 80 ? bytes : 80), what, wanted);
}

static size_t blanks(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && isspace((unsigned char)at[n]))
        n++;
    return n;
}

/* Letters of a name or a number: up to a blank or '='. */
static size_t word(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && !isspace((unsigned char)at[n]) && at[n] != '=')
        n++;
    return n;
}

static bool read_count(const char *at, size_t bytes, int *out)
{
    long x = 0;
    for (size_t i = 0; i < bytes && x <= MAX_SLOTS; i++) {
        if (!isdigit((unsigned char)at[i]))
            return false;
        x = 10 * x + (at[i] - '0');
    }
    *out = (int)x;
    return bytes > 0 && x >= 1 && x <= MAX_SLOTS;
}

static bool is_key(const char *at, size_t bytes, const char *key)
{
    return strlen(key) == bytes && memcmp(at, key, bytes) == 0;
}

/* "slots=4", also with blanks around '='.  Returns where it ends; NULL: refused. */
static const char *read_setting(const reading *r, const char *at, const char *end, host_line *line)
{
    const size_t key = word(at, end);
    const char *sign = at + key + blanks(at + key, end);
    const bool is_most = is_key(at, key, "max_slots") || is_key(at, key, "max-slots");
    if (!is_most && !is_key(at, key, "slots")) {
        refuse(r, at, key ? key : 1, "is not known; wanted HOST slots=N [max_slots=M]");
        return NULL;
    }
    const char *value = sign < end && *sign == '=' ? sign + 1 + blanks(sign + 1, end) : end;
    const size_t bytes = word(value, end);
    if (!read_count(value, bytes, is_most ? &line->most : &line->slots)) {
        refuse(r, at, (size_t)(value + bytes - at),
               "has no count of slots; wanted slots=N, N in "
               "1..1048576");
        return NULL;
    }
    return value + bytes;
}

static bool is_printable(const char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] <= ' ' || at[i] > '~')
            return false;
    return true;
}

/* "HOST:N", which is MPICH's form; two colons and more are an address (IPv6). */
static bool refuse_colon(const reading *r, const char *at, size_t name)
{
    int slots = 0;
    const char *colon = memchr(at, ':', name);
    const char *count = colon ? colon + 1 : NULL;
    const size_t bytes = count ? (size_t)(at + name - count) : 0;
    if (!colon || memchr(count, ':', bytes))
        return false;
    const bool has_count = read_count(count, bytes, &slots);
    ech_findings_add(r->findings, "%s:%d: '%.*s' is no host's name; wanted %.*s slots=%.*s",
                     r->path, r->line, (int)(name < 80 ? name : 80), at,
                     (int)(colon - at < 80 ? colon - at : 80), at, has_count ? (int)bytes : 1,
                     has_count ? count : "N");
    return true;
}

static bool read_line(const reading *r, const char *at, const char *end, host_line *line)
{
    const size_t name = word(at, end);
    const char *after = at + name + blanks(at + name, end);
    if (name == 0 || (after < end && *after == '=')) {
        refuse(r, at, name ? name : 1, "stands where a host's name should; wanted HOST slots=N");
        return false;
    }
    if (refuse_colon(r, at, name))
        return false;
    if (!is_printable(at, name)) {
        ech_findings_add(r->findings,
                         "%s:%d: a host's name with bytes that none has; wanted HOST "
                         "slots=N",
                         r->path, r->line);
        return false;
    }
    if (name >= ECH_HOST_BYTES) {
        refuse(r, at, name, "is longer than a host's name can be, 63 bytes");
        return false;
    }
    memcpy(line->name, at, name);
    while (after < end) {
        after = read_setting(r, after, end, line);
        if (!after)
            return false;
        after += blanks(after, end);
    }
    line->slots = line->slots ? line->slots : 1;
    if (line->most && line->most < line->slots) {
        refuse(r, at, (size_t)(end - at), "has max_slots below slots");
        return false;
    }
    return true;
}

static ech_status add_host(reading *r, const host_line *line)
{
    ech_hostfile *h = r->hosts;
    int i = 0;
    while (i < h->n && strcmp(h->host[i].name, line->name) != 0)
        i++;
    const bool is_new = i == h->n;
    if (is_new) {
        ECH_ASSERT((size_t)i < r->room);
        memcpy(h->host[i].name, line->name, ECH_HOST_BYTES);
        h->n++;
    }
    h->host[i].slots += line->slots;
    /* one line without a limit and the host has none */
    h->most[i] = is_new ? line->most : h->most[i] && line->most ? h->most[i] + line->most : 0;
    h->slots += line->slots;
    ECH_CHECK(h->slots <= MAX_SLOTS, ECH_E_USAGE, "%s:%d: more than %d slots", r->path, r->line,
              MAX_SLOTS);
    return ECH_OK;
}

static ech_status read_text(reading *r, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        const char *comment = memchr(at, '#', (size_t)(stop - at));
        const char *last = comment ? comment : stop;
        host_line line = {0};
        r->line++;
        at += blanks(at, last);
        if (at < last && read_line(r, at, last, &line))
            ECH_TRY(add_host(r, &line));
        at = stop + 1;
    }
    if (r->hosts->n == 0 && r->findings->n == 0)
        ech_findings_add(r->findings, "%s: names no host; wanted lines such as 'node1 slots=4'",
                         r->path);
    return ech_findings_raise(r->findings, ECH_E_USAGE);
}

static size_t count_lines(const char *text, size_t bytes)
{
    size_t n = 1;
    for (size_t i = 0; i < bytes; i++)
        n += text[i] == '\n';
    return n;
}

ech_status ech_hostfile_parse(const char *text, size_t bytes, const char *name, ech_hostfile *out)
{
    ech_findings findings = {0};
    ech_hostfile hosts = {0};
    reading r = {.path = name, .findings = &findings, .hosts = &hosts};
    r.room = count_lines(text, bytes);
    ech_status st = ech_calloc(r.room, sizeof *hosts.host, &hosts.host);
    if (st >= 0)
        st = ech_calloc(r.room, sizeof *hosts.most, &hosts.most);
    if (st >= 0)
        st = read_text(&r, text, bytes);
    ech_findings_fini(&findings);
    if (st < 0) {
        ech_hostfile_fini(&hosts);
        return st;
    }
    *out = hosts;
    return ECH_OK;
}

ech_status ech_hostfile_read(const char *path, ech_hostfile *out)
{
    char *text = NULL;
    size_t bytes = 0;
    ECH_CHECK(ech_path_exists(path) && !ech_path_is_folder(path), ECH_E_USAGE,
              "--hostfile %s: there is no such file", path);
    ECH_TRY(ech_read_whole(path, MAX_FILE_BYTES, &text, &bytes));
    const ech_status st = ech_hostfile_parse(text, bytes, path, out);
    free(text);
    return st;
}

ech_status ech_hostfile_fill(ech_hostfile *hosts, int ranks)
{
    ech_node_fill(hosts->host, hosts->n, ranks);
    for (int i = 0; i < hosts->n; i++)
        ECH_CHECK(!hosts->most[i] || hosts->host[i].n <= hosts->most[i], ECH_E_USAGE,
                  "host %s takes %d ranks at most (max_slots), %d of %d would be there",
                  hosts->host[i].name, hosts->most[i], hosts->host[i].n, ranks);
    return ECH_OK;
}

void ech_hostfile_print(const ech_hostfile *hosts, bool is_open_mpi, ech_text *out)
{
    for (int i = 0; i < hosts->n; i++)
        if (hosts->host[i].n > 0)
            ech_text_add(out, "%s%s%d\n", hosts->host[i].name, is_open_mpi ? " slots=" : ":",
                         hosts->host[i].n);
}

void ech_hostfile_fini(ech_hostfile *hosts)
{
    free(hosts->host);
    free(hosts->most);
    *hosts = (ech_hostfile){0};
}
