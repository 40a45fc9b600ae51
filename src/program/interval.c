#include "program/interval.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 128 }; /* segments; a full chunk is halved */

/* The segment at *at, behind a chunk's last the next chunk's first; NULL behind the last of all. */
static ech_bytes_segment *look(const ech_interval_map *m, ech_interval_at *at)
{
    if (at->chunk + 1 < m->n_chunks && at->at == m->chunk[at->chunk].n)
        *at = (ech_interval_at){at->chunk + 1, 0};
    if (at->chunk >= m->n_chunks || at->at == m->chunk[at->chunk].n)
        return NULL;
    return &m->chunk[at->chunk].seg[at->at];
}

/* First segment that ends after `byte`. */
static ech_interval_at lower(const ech_interval_map *m, size_t byte)
{
    ech_interval_at at = {0, 0};
    int hi = m->n_chunks - 1;
    while (at.chunk < hi) {
        const int mid = at.chunk + (hi - at.chunk) / 2;
        const ech_interval_chunk *c = &m->chunk[mid];
        if (c->seg[c->n - 1].end <= byte)
            at.chunk = mid + 1;
        else
            hi = mid;
    }
    hi = m->n_chunks ? m->chunk[at.chunk].n : 0;
    while (at.at < hi) {
        const int mid = at.at + (hi - at.at) / 2;
        if (m->chunk[at.chunk].seg[mid].end <= byte)
            at.at = mid + 1;
        else
            hi = mid;
    }
    return at;
}

static ech_status add_chunk(ech_interval_map *m, int at)
{
    ECH_TRY(ech_grow(&m->chunk, (size_t)m->n_chunks, &m->capacity, sizeof *m->chunk));
    memmove(m->chunk + at + 1, m->chunk + at, (size_t)(m->n_chunks - at) * sizeof *m->chunk);
    m->chunk[at] = (ech_interval_chunk){0};
    m->n_chunks++;
    return ECH_OK;
}

/* The upper half of a full chunk becomes a chunk of its own. */
static ech_status halve(ech_interval_map *m, ech_interval_at *at)
{
    const int half = CHUNK / 2;
    ECH_TRY(add_chunk(m, at->chunk + 1));
    ech_interval_chunk *low = &m->chunk[at->chunk];
    ech_interval_chunk *high = low + 1;
    ECH_TRY(ech_calloc(low->capacity, sizeof *high->seg, &high->seg));
    high->capacity = low->capacity;
    high->n = low->n - half;
    memcpy(high->seg, low->seg + half, (size_t)high->n * sizeof *high->seg);
    low->n = half;
    if (at->at > half)
        *at = (ech_interval_at){at->chunk + 1, at->at - half};
    return ECH_OK;
}

/* Puts s before the segment at *at, which is s then. */
static ech_status insert(ech_interval_map *m, ech_interval_at *at, ech_bytes_segment s)
{
    if (!m->n_chunks)
        ECH_TRY(add_chunk(m, 0));
    if (m->chunk[at->chunk].n == CHUNK)
        ECH_TRY(halve(m, at));
    ech_interval_chunk *c = &m->chunk[at->chunk];
    ECH_TRY(ech_grow(&c->seg, (size_t)c->n, &c->capacity, sizeof *c->seg));
    memmove(c->seg + at->at + 1, c->seg + at->at, (size_t)(c->n - at->at) * sizeof *c->seg);
    c->seg[at->at] = s;
    c->n++;
    return ECH_OK;
}

/* Makes `byte`, which lies inside the segment at *at, a border; *at moves to the right part. */
static ech_status cut(ech_interval_map *m, ech_interval_at *at, size_t byte)
{
    ech_bytes_segment *left = look(m, at);
    ech_bytes_segment right = *left;
    right.begin = byte;
    left->end = byte;
    at->at++;
    return insert(m, at, right);
}

ech_status ech_interval_cover(ech_interval_map *m, size_t begin, size_t end, const int fresh[3],
                              ech_interval_at *first, int *n)
{
    const ech_bytes_segment *s;
    ech_interval_at at = lower(m, begin);
    *first = at;
    *n = 0;
    if (begin >= end)
        return ECH_OK;
    if ((s = look(m, &at)) != NULL && s->begin < begin)
        ECH_TRY(cut(m, &at, begin));
    *first = at;
    const int n_chunks = m->n_chunks;
    for (size_t to = begin; to < end; at.at++, ++*n) {
        const size_t from = to;
        s = look(m, &at);
        if (!s || s->begin > from) {
            to = s && s->begin < end ? s->begin : end;
            ECH_TRY(insert(m, &at, (ech_bytes_segment){from, to, {fresh[0], fresh[1], fresh[2]}}));
        } else if (s->end > end) {
            to = end;
            ECH_TRY(cut(m, &at, end));
        } else {
            to = s->end;
        }
    }
    if (m->n_chunks != n_chunks)
        *first = lower(m, begin);
    return ECH_OK;
}

ech_bytes_segment *ech_interval_next(const ech_interval_map *m, ech_interval_at *at)
{
    ech_bytes_segment *s = look(m, at);
    if (s)
        at->at++;
    return s;
}

ech_status ech_interval_copy(const ech_interval_map *m, ech_interval_map *to)
{
    for (int i = 0; i < m->n_chunks; i++) {
        const ech_interval_chunk *from = &m->chunk[i];
        ECH_TRY(add_chunk(to, i));
        ech_interval_chunk *c = &to->chunk[i];
        ECH_TRY(ech_calloc((size_t)from->n, sizeof *c->seg, &c->seg));
        c->capacity = (size_t)from->n;
        c->n = from->n;
        memcpy(c->seg, from->seg, (size_t)from->n * sizeof *c->seg);
    }
    return ECH_OK;
}

void ech_interval_fini(ech_interval_map *m)
{
    for (int i = 0; i < m->n_chunks; i++)
        free(m->chunk[i].seg);
    free(m->chunk);
    *m = (ech_interval_map){0};
}
