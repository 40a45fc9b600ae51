#include "engine/flight.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/io_shared.h"
#include "engine/flight_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ech_flight {
    ech_shared *shared;   /* owned */
    ech_flight_size size; /* of the spec: what the page says may change */
};

/* --- a rank's own record ---
 * One writer a record.  Words are stored with release, so that who reads one of a new place sees
 * that the version has moved on before. */

static uint64_t get(const ech_flight_record *r, int word)
{
    return atomic_load_explicit(&r->word[word], memory_order_acquire);
}

static void put(ech_flight_record *r, int word, uint64_t value)
{
    atomic_store_explicit(&r->word[word], value, memory_order_release);
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t pair(int low, int high)
{
    return (uint64_t)(uint32_t)low | (uint64_t)(uint32_t)high << 32;
}

/* All that an op changes, in one word. */
static uint64_t pack_op(const ech_flight_place *at)
{
    return (uint64_t)(uint32_t)at->item | (uint64_t)(uint16_t)at->op << 32 |
           (uint64_t)(uint8_t)at->kind << 48 | (uint64_t)((unsigned)at->axis & 15u) << 56 |
           (uint64_t)at->state << 60;
}

static uint64_t begin_writing(ech_flight_record *r)
{
    const uint64_t version = get(r, ECH_FLIGHT_AT_VERSION);
    put(r, ECH_FLIGHT_AT_VERSION, version + 1);
    return version;
}

static void end_writing(ech_flight_record *r, uint64_t version)
{
    put(r, ECH_FLIGHT_AT_VERSION, version + 2);
}

/* All of it: what is behind the name's end says nothing. */
static void put_name(ech_flight_record *r, const char name[ECH_FLIGHT_NAME_BYTES])
{
    for (int i = 0; i < ECH_FLIGHT_NAME_BYTES / 8; i++) {
        uint64_t word;
        memcpy(&word, name + 8 * i, sizeof word);
        put(r, ECH_FLIGHT_AT_NAME + i, word);
    }
}

void ech_flight_post(ech_flight_record *r, const ech_flight_place *at,
                     const char name[ECH_FLIGHT_NAME_BYTES])
{
    if (!r)
        return;
    const uint64_t version = begin_writing(r);
    put(r, ECH_FLIGHT_AT_SINCE, bits_of(at->since_s));
    put(r, ECH_FLIGHT_AT_OP, pack_op(at));
    put(r, ECH_FLIGHT_AT_OPS, (uint64_t)at->ops);
    put(r, ECH_FLIGHT_AT_STEP, (uint64_t)at->step);
    put(r, ECH_FLIGHT_AT_LAYER, pair(at->layer, at->micro));
    put(r, ECH_FLIGHT_AT_PASSES,
        (uint64_t)at->passes | (uint64_t)(uint8_t)at->program << 32 | (uint64_t)at->segment << 40);
    put_name(r, name);
    end_writing(r, version);
}

/* Two stores and no version: the word says which item it is of. */
void ech_flight_post_op(ech_flight_record *r, const ech_flight_place *at)
{
    put(r, ECH_FLIGHT_AT_SINCE, bits_of(at->since_s));
    put(r, ECH_FLIGHT_AT_OP, pack_op(at));
}

void ech_flight_post_moved(ech_flight_record *r, double now_s)
{
    if (r)
        put(r, ECH_FLIGHT_AT_MOVED, bits_of(now_s));
}

void ech_flight_post_outside(ech_flight_record *r, const char *words, int64_t step)
{
    char name[ECH_FLIGHT_NAME_BYTES] = "";
    if (!r)
        return;
    memcpy(name, words, strnlen(words, sizeof name - 1));
    const uint64_t version = begin_writing(r);
    const uint64_t op = get(r, ECH_FLIGHT_AT_OP) & ~((uint64_t)15 << 60);
    put(r, ECH_FLIGHT_AT_SINCE, bits_of(ech_clock_s()));
    put(r, ECH_FLIGHT_AT_OP, op | (uint64_t)ECH_FLIGHT_OUTSIDE << 60);
    put(r, ECH_FLIGHT_AT_STEP, (uint64_t)step);
    put_name(r, name);
    end_writing(r, version);
}

void ech_flight_post_end(ech_flight_record *r, int exit_code)
{
    if (r)
        put(r, ECH_FLIGHT_AT_EXIT, (uint64_t)(uint8_t)exit_code + 1);
}

/* --- the file --- */

/* A host's name as part of a file's. */
ech_status ech_flight_path(const char *dir, const char *host, char *buf, size_t n)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%s%.63s", ECH_FLIGHT_PREFIX, host);
    for (char *at = name; *at; at++)
        if (*at == '/' || (unsigned char)*at <= ' ' || *at == '\x7f')
            *at = '_';
    return ech_path_join(dir, name, buf, n);
}

static void fill_header(const ech_flight_spec *spec, ech_flight_header *h)
{
    memcpy(h->magic, ECH_FLIGHT_MAGIC, sizeof h->magic);
    h->header_bytes = sizeof *h;
    h->record_bytes = sizeof(ech_flight_record);
    h->n = (uint32_t)spec->n;
    h->world = (uint32_t)spec->world;
    h->run = spec->run;
    h->watchdog_s = spec->watchdog_s;
    h->supervisor_pid = spec->supervisor.pid;
    h->supervisor_start = spec->supervisor.start;
    h->n_kinds = ECH_N_OPS;
    (void)snprintf(h->host, sizeof h->host, "%.63s", spec->host);
    for (int i = 0; i < ECH_FLIGHT_PROGRAMS; i++)
        (void)snprintf(h->program[i], sizeof h->program[i], "%s",
                       spec->program[i] ? spec->program[i] : "");
    for (int k = 0; k < ECH_N_OPS; k++)
        (void)snprintf(h->kind[k], sizeof h->kind[k], "%s", ech_op_name((ech_op_kind)k));
}

static size_t file_bytes(int n)
{
    return sizeof(ech_flight_header) + (size_t)n * sizeof(ech_flight_record);
}

ech_status ech_flight_create(const ech_flight_spec *spec)
{
    char path[4096];
    ech_flight_header *h;
    ECH_ASSERT(spec->n >= 1 && spec->n <= ECH_FLIGHT_MOST);
    ECH_TRY(ech_flight_path(spec->dir, spec->host, path, sizeof path));
    ECH_TRY(ech_calloc(file_bytes(spec->n), 1, &h));
    fill_header(spec, h);
    uint64_t *word = (uint64_t *)(h + 1);
    for (int i = 0; i < spec->n; i++, word += ECH_FLIGHT_WORDS) {
        word[ECH_FLIGHT_AT_RANK] = (uint64_t)spec->rank[i];
        word[ECH_FLIGHT_AT_LAYER] = UINT64_MAX; /* none */
        word[ECH_FLIGHT_AT_OP] = (uint64_t)ECH_FLIGHT_OUTSIDE << 60;
    }
    const ech_status st = ech_shared_create(path, h, file_bytes(spec->n));
    free(h);
    return st;
}

static ech_flight_header *header_of(const ech_flight *f)
{
    return ech_shared_data(f->shared);
}

static ech_flight_record *record_of(const ech_flight *f, int i)
{
    return (ech_flight_record *)(header_of(f) + 1) + i;
}

/* Is the page what the spec made. */
static ech_status check_page(const ech_flight *f, const ech_flight_spec *spec, const char *path)
{
    const ech_flight_header *h = header_of(f);
    ECH_TRY(ech_flight_check_header(h, path, (int64_t)file_bytes(spec->n)));
    ECH_CHECK(h->run == spec->run, ECH_E_CORRUPT, "%s: is of another run", path);
    ECH_CHECK(h->n == (uint32_t)spec->n && h->world == (uint32_t)spec->world, ECH_E_CORRUPT,
              "%s: %u of %u ranks, wanted %d of %d", path, h->n, h->world, spec->n, spec->world);
    return ECH_OK;
}

ech_status ech_flight_open(const ech_flight_spec *spec, ech_flight **out)
{
    char path[4096];
    ech_flight *f;
    ECH_TRY(ech_flight_path(spec->dir, spec->host, path, sizeof path));
    ECH_TRY(ech_calloc(1, sizeof *f, &f));
    f->size = (ech_flight_size){spec->n, spec->world};
    ech_status st = ech_shared_open(path, file_bytes(spec->n), &f->shared);
    if (st >= 0)
        st = check_page(f, spec, path);
    if (st < 0) {
        ech_flight_close(&f);
        return st;
    }
    *out = f;
    return ECH_OK;
}

ech_flight_record *ech_flight_take(ech_flight *f, int rank)
{
    for (int i = 0; f && i < f->size.n; i++) {
        ech_flight_record *r = record_of(f, i);
        if (get(r, ECH_FLIGHT_AT_RANK) != (uint64_t)rank)
            continue;
        const ech_process self = ech_process_self();
        ech_flight_post_outside(r, "starting", 0);
        put(r, ECH_FLIGHT_AT_START, (uint64_t)self.start);
        put(r, ECH_FLIGHT_AT_PID, (uint64_t)self.pid); /* last: with it the record counts */
        return r;
    }
    return NULL;
}

bool ech_flight_claim(ech_flight *f, int rank)
{
    uint64_t nobody = 0;
    const uint64_t me = (uint64_t)rank + 1;
    return atomic_compare_exchange_strong(&header_of(f)->teller, &nobody, me) || nobody == me;
}

bool ech_flight_is_told_by_other(const ech_flight *f, int rank)
{
    const uint64_t teller = f ? atomic_load(&header_of(f)->teller) : 0;
    return teller != 0 && teller != (uint64_t)rank + 1;
}

void ech_flight_close(ech_flight **flight)
{
    ech_flight *f = *flight;
    *flight = NULL;
    if (!f)
        return;
    ech_shared_close(&f->shared);
    free(f);
}

ech_status ech_flight_look(const ech_flight *f, ech_flight_view *out)
{
    return ech_flight_decode(header_of(f), record_of(f, 0), f->size, out);
}
