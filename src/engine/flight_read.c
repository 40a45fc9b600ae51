/* Reading flight recorder files: mapped ones of this process, and those of a folder. */
#include "base/checked.h"
#include "base/io.h"
#include "base/text.h"
#include "engine/flight_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a record --- */

static uint64_t get(const ech_flight_record *r, int word)
{
    return atomic_load_explicit(&r->word[word], memory_order_acquire);
}

static int low_of(uint64_t w)
{
    return (int)(int32_t)(uint32_t)w;
}

static int high_of(uint64_t w)
{
    return (int)(int32_t)(uint32_t)(w >> 32);
}

static double real_of(uint64_t w)
{
    double x;
    memcpy(&x, &w, sizeof x);
    return isfinite(x) ? x : 0.0;
}

/* Words of one place; false: its rank writes all the while, or was stopped at it.  An op of an item is
 * stored behind the item's version: an OP read between two equal versions is one of that item's. */
static bool copy_words(const ech_flight_record *r, uint64_t out[ECH_FLIGHT_WORDS])
{
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        for (int w = 0; w < ECH_FLIGHT_WORDS; w++)
            out[w] = get(r, w);
        if (out[0] % 2 == 0 && get(r, 0) == out[0])
            return true;
    }
    return false;
}

/* Text of a file, for people: nothing in it but one line of printable characters. */
static void copy_text(char *to, size_t n, const char *from, size_t bytes)
{
    size_t i = 0;
    for (; i + 1 < n && i < bytes; i++) {
        const char c = *(const volatile char *)&from[i]; /* once: a mapped one may change */
        if (c == '\0')
            break;
        to[i] = c < ' ' || c > '~' ? '?' : c;
    }
    to[i] = '\0';
}

static int bits(uint64_t word, int shift, int n)
{
    return (int)(word >> shift & ((UINT64_C(1) << n) - 1));
}

static void unpack(const uint64_t w[ECH_FLIGHT_WORDS], ech_flight_place *at)
{
    const uint64_t op = w[ECH_FLIGHT_AT_OP];
    char name[ECH_FLIGHT_NAME_BYTES];
    const int kind = bits(op, 48, 8);
    const int axis = bits(op, 56, 4);
    const int state = bits(op, 60, 4);
    const int segment = bits(w[ECH_FLIGHT_AT_PASSES], 40, 8);
    at->item = low_of(op);
    at->op = bits(op, 32, 16);
    at->kind = (ech_op_kind)(kind < ECH_N_OPS ? kind : 0);
    at->axis = axis < ECH_N_AXES ? (ech_axis)axis : ECH_AXIS_WORLD;
    at->state = state <= ECH_FLIGHT_OUTSIDE ? (ech_flight_state)state : ECH_FLIGHT_OUTSIDE;
    at->program = bits(w[ECH_FLIGHT_AT_PASSES], 32, 8);
    at->segment = segment < ECH_N_SEGMENTS ? (ech_segment)segment : ECH_SEGMENT_ACCUMULATE;
    at->layer = low_of(w[ECH_FLIGHT_AT_LAYER]);
    at->micro = high_of(w[ECH_FLIGHT_AT_LAYER]);
    at->passes = (uint32_t)w[ECH_FLIGHT_AT_PASSES];
    at->ops = (int64_t)w[ECH_FLIGHT_AT_OPS];
    at->step = (int64_t)w[ECH_FLIGHT_AT_STEP];
    at->since_s = real_of(w[ECH_FLIGHT_AT_SINCE]);
    memcpy(name, &w[ECH_FLIGHT_AT_NAME], sizeof name);
    copy_text(at->name, sizeof at->name, name, sizeof name);
}

static ech_status decode_rank(const ech_flight_header *h, const ech_flight_record *r, int world,
                              ech_flight_rank *out)
{
    uint64_t w[ECH_FLIGHT_WORDS];
    *out = (ech_flight_rank){.is_torn = !copy_words(r, w)};
    ECH_CHECK(w[ECH_FLIGHT_AT_RANK] < (uint64_t)world, ECH_E_CORRUPT,
              "flight recorder: a record of rank %llu in a run of %d",
              (unsigned long long)w[ECH_FLIGHT_AT_RANK], world);
    unpack(w, &out->at);
    out->rank = (int)w[ECH_FLIGHT_AT_RANK];
    out->process = (ech_process){(int64_t)w[ECH_FLIGHT_AT_PID], (int64_t)w[ECH_FLIGHT_AT_START]};
    if (out->process.pid < 0 || out->process.pid > INT32_MAX)
        out->process = (ech_process){0};
    out->exit_code = w[ECH_FLIGHT_AT_EXIT] ? (int)((w[ECH_FLIGHT_AT_EXIT] - 1) & 0xff) : -1;
    out->moved_s = fmax(real_of(w[ECH_FLIGHT_AT_MOVED]), out->at.since_s);
    const unsigned kind = (unsigned)bits(w[ECH_FLIGHT_AT_OP], 48, 8);
    if (kind < h->n_kinds && kind < ECH_FLIGHT_KINDS)
        copy_text(out->op_name, sizeof out->op_name, h->kind[kind], sizeof h->kind[kind]);
    if (out->at.program < ECH_FLIGHT_PROGRAMS)
        copy_text(out->program_name, sizeof out->program_name, h->program[out->at.program],
                  sizeof h->program[0]);
    return ECH_OK;
}

/* --- a file --- */

ech_status ech_flight_decode(const ech_flight_header *h, const ech_flight_record *record,
                             ech_flight_size size, ech_flight_view *out)
{
    ech_flight_view v = {.world = size.world,
                         .watchdog_s = h->watchdog_s,
                         .supervisor = {h->supervisor_pid, h->supervisor_start},
                         .run = h->run,
                         .n_hosts = 1,
                         .n_ranks = size.n};
    v.watchdog_s = isfinite(v.watchdog_s) ? v.watchdog_s : 0.0;
    ech_status st = ech_calloc(1, sizeof *v.host, &v.host);
    if (st >= 0)
        st = ech_calloc((size_t)size.n, sizeof *v.rank, &v.rank);
    for (int i = 0; i < size.n && st >= 0; i++) {
        st = decode_rank(h, &record[i], size.world, &v.rank[i]);
        if (st >= 0 && i > 0 && v.rank[i].rank <= v.rank[i - 1].rank)
            st = ECH_RAISE(ECH_E_CORRUPT, "flight recorder: rank %d after rank %d", v.rank[i].rank,
                           v.rank[i - 1].rank);
    }
    if (st < 0) {
        ech_flight_view_fini(&v);
        return st;
    }
    copy_text(v.host[0], sizeof v.host[0], h->host, sizeof h->host);
    *out = v;
    return ECH_OK;
}

ech_status ech_flight_check_header(const ech_flight_header *h, const char *path, int64_t bytes)
{
    ECH_CHECK(memcmp(h->magic, ECH_FLIGHT_MAGIC, sizeof h->magic) == 0, ECH_E_CORRUPT,
              "%s: is no flight recorder file of this version", path);
    ECH_CHECK(h->header_bytes == sizeof *h && h->record_bytes == sizeof(ech_flight_record) &&
                  h->n >= 1 && h->n <= ECH_FLIGHT_MOST && h->world >= h->n &&
                  h->world <= ECH_MAX_WORLD &&
                  bytes == (int64_t)(sizeof *h + h->n * sizeof(ech_flight_record)),
              ECH_E_CORRUPT, "%s: %u records of %u bytes, %u ranks in %lld bytes", path, h->n,
              h->record_bytes, h->world, (long long)bytes);
    return ECH_OK;
}

/* Read until two readings agree, so that what was read while it was written does not count: a file
 * that is read and not mapped cannot be cut off under the reader. */
static ech_status read_steadily(const ech_file *f, void *buf, void *again, size_t bytes)
{
    enum { TRIES = 5 }; /* records of ranks that run change; each has its own version */
    ECH_TRY(ech_file_read_at(f, buf, bytes, 0));
    for (int i = 0; i < TRIES; i++) {
        ECH_TRY(ech_file_read_at(f, again, bytes, 0));
        if (memcmp(buf, again, bytes) == 0)
            return ECH_OK;
        memcpy(buf, again, bytes);
    }
    return ECH_OK;
}

static ech_status load(const ech_file *f, ech_flight_view *out)
{
    enum { LARGEST = sizeof(ech_flight_header) + ECH_FLIGHT_MOST * sizeof(ech_flight_record) };
    const int64_t bytes = ech_file_bytes(f);
    unsigned char *buf = NULL;
    ECH_CHECK(bytes >= (int64_t)sizeof(ech_flight_header) && bytes <= LARGEST, ECH_E_CORRUPT,
              "%s: %lld bytes are no flight recorder file", ech_file_path(f), (long long)bytes);
    /* aligned as records are; both parts are multiples of that */
    const size_t room = ech_align_up((size_t)bytes, 64);
    buf = aligned_alloc(64, 2 * room);
    ECH_CHECK(buf, ECH_E_NOMEM, "%s: no memory to read it", ech_file_path(f));
    ech_flight_header *h = (ech_flight_header *)(void *)buf;
    ech_status st = read_steadily(f, buf, buf + room, (size_t)bytes);
    if (st >= 0)
        st = ech_flight_check_header(h, ech_file_path(f), bytes);
    if (st >= 0)
        st = ech_flight_decode(h, (ech_flight_record *)(void *)(h + 1),
                               (ech_flight_size){(int)h->n, (int)h->world}, out);
    free(buf);
    return st;
}

/* --- a folder --- */

static int by_rank(const void *a, const void *b)
{
    const int x = ((const ech_flight_rank *)a)->rank;
    const int y = ((const ech_flight_rank *)b)->rank;
    return (x > y) - (x < y);
}

/* Ranks of another host of the same run. */
static ech_status join(ech_flight_view *all, const ech_flight_view *one)
{
    const int n = all->n_ranks + one->n_ranks;
    ech_flight_rank *rank = realloc(all->rank, (size_t)n * sizeof *rank);
    all->rank = rank ? rank : all->rank;
    char(*host)[64] = realloc(all->host, ((size_t)all->n_hosts + 1) * sizeof *host);
    all->host = host ? host : all->host;
    ECH_CHECK(rank && host, ECH_E_NOMEM, "no memory for %d ranks", n);
    memcpy(host[all->n_hosts], one->host[0], sizeof *host);
    for (int i = 0; i < one->n_ranks; i++) {
        rank[all->n_ranks + i] = one->rank[i];
        rank[all->n_ranks + i].host = all->n_hosts;
    }
    all->n_hosts++;
    all->n_ranks = n;
    qsort(rank, (size_t)n, sizeof *rank, by_rank);
    for (int i = 1; i < n; i++)
        ECH_CHECK(rank[i].rank > rank[i - 1].rank, ECH_E_CORRUPT,
                  "flight recorder: rank %d is recorded on two hosts", rank[i].rank);
    return ECH_OK;
}

/* A file of an older run is passed over, one of a newer takes the place of what was read. */
static ech_status take(ech_flight_view *all, ech_flight_view *one)
{
    ech_status st = ECH_OK;
    if (all->n_hosts && one->run == all->run && one->world == all->world)
        st = join(all, one);
    else if (!all->n_hosts || one->run > all->run) {
        const ech_flight_view old = *all;
        *all = *one;
        *one = old;
    }
    ech_flight_view_fini(one);
    return st;
}

static ech_status read_one(const char *dir, const char *name, ech_flight_view *all)
{
    ech_file *f;
    ech_flight_view one = {0};
    ECH_TRY(ech_file_open_in(dir, name, &f));
    ech_status st = load(f, &one);
    ech_file_close(&f);
    return st < 0 ? st : take(all, &one);
}

static bool is_of_host(const char *name)
{
    return strncmp(name, ECH_FLIGHT_PREFIX, strlen(ECH_FLIGHT_PREFIX)) == 0 &&
           !ech_has_suffix(name, ".tmp");
}

ech_status ech_flight_read(const char *dir, ech_flight_view *out)
{
    char **names = NULL;
    size_t n = 0;
    ech_flight_view v = {0};
    ECH_TRY(ech_list_folder(dir, &names, &n));
    ech_status st = ECH_OK;
    for (size_t i = 0; i < n && st >= 0; i++)
        if (is_of_host(names[i]))
            st = read_one(dir, names[i], &v);
    ech_names_destroy(&names, n);
    if (st >= 0 && !v.n_hosts)
        st = ECH_RAISE(ECH_E_DATA, "%s: no run has recorded itself here (%sHOST)", dir,
                       ECH_FLIGHT_PREFIX);
    if (st < 0) {
        ech_flight_view_fini(&v);
        return st;
    }
    *out = v;
    return ECH_OK;
}

void ech_flight_view_fini(ech_flight_view *v)
{
    free(v->host);
    free(v->rank);
    *v = (ech_flight_view){0};
}

const char *ech_flight_describe(const ech_flight_rank *r, char *buf, size_t n)
{
    const ech_flight_place *at = &r->at;
    char layer[24] = "";
    char micro[32] = "";
    if (at->state == ECH_FLIGHT_OUTSIDE) {
        (void)snprintf(buf, n, "%s", at->name);
        return buf;
    }
    if (at->layer >= 0)
        (void)snprintf(layer, sizeof layer, ", layer %d", at->layer);
    if (at->micro >= 0)
        (void)snprintf(micro, sizeof micro, ", micro-batch %d", at->micro);
    const ech_op_row *row = ech_op_row_get(at->kind);
    const bool talks = row->is_start || row->is_wait;
    (void)snprintf(buf, n, "%s%sitem %d (%s%s%s), op %s%s%s", r->program_name,
                   r->program_name[0] ? ", " : "", at->item, at->name, layer, micro, r->op_name,
                   talks ? " over " : "", talks ? ech_axis_name(at->axis) : "");
    return buf;
}
