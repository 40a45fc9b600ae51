#include "engine/arena.h"
#include "base/checked.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A pattern that differs from word to word and is neither zero, NaN nor a small number. */
static uint32_t canary(size_t word)
{
    return ((uint32_t)word * 2654435761u) ^ 0x5eca11edu;
}

static void fill(unsigned char *at, size_t bytes, size_t first_word)
{
    for (size_t i = 0; i < bytes / 4; i++) {
        const uint32_t c = canary(first_word + i);
        memcpy(at + 4 * i, &c, sizeof c);
    }
}

/* mapping: guard page | slack of canaries | arena | guard page.  The slack is at least one page. */
ech_status ech_arena_init(ech_arena *a, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inner = ech_align_up(bytes, page) + page;
    *a = (ech_arena){0};
    ECH_CHECK(bytes % 64 == 0, ECH_E_ILLEGAL, "an arena of %zu bytes is not a multiple of 64",
              bytes);
    unsigned char *map =
        mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ECH_CHECK(map != MAP_FAILED, ECH_E_NOMEM, "cannot map %zu bytes: %s", inner + 2 * page,
              strerror(errno));
    if (mprotect(map + page, inner, PROT_READ | PROT_WRITE) != 0) {
        (void)munmap(map, inner + 2 * page);
        return ECH_RAISE(ECH_E_NOMEM, "cannot reserve %zu bytes: %s", inner, strerror(errno));
    }
    (void)madvise(map + page, inner, MADV_HUGEPAGE);
    *a = (ech_arena){map + page + inner - bytes, bytes, map, inner + 2 * page};
    fill(map + page, inner, 0);
    return ECH_OK;
}

static size_t slack_bytes(const ech_arena *a)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size_t)(a->base - (unsigned char *)a->map) - page;
}

void ech_arena_fini(ech_arena *a)
{
    if (a->map)
        (void)munmap(a->map, a->map_bytes);
    *a = (ech_arena){0};
}

size_t ech_arena_touched(const ech_arena *a, size_t begin, size_t end)
{
    size_t touched = 0;
    const size_t first = slack_bytes(a) / 4;
    for (size_t at = begin; at + 4 <= end; at += 4) {
        uint32_t word;
        memcpy(&word, a->base + at, sizeof word);
        touched += word != canary(first + at / 4) ? 4 : 0;
    }
    return touched;
}

ech_status ech_arena_check(const ech_arena *a)
{
    const size_t slack = a->map ? slack_bytes(a) : 0;
    for (size_t i = slack / 4; i-- > 0;) {
        uint32_t word;
        memcpy(&word, a->base - slack + 4 * i, sizeof word);
        ECH_CHECK(word == canary(i), ECH_E_CORRUPT, "something wrote %zu bytes below an arena",
                  slack - 4 * i);
    }
    return ECH_OK;
}
