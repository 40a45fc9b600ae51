/* RUN: np=1 timeout=20 tags=fast */
/* Boxes and ranges against marking every element. */
#include "check.h"

#include "storage/ckpt_box.h"

#include <stdlib.h>

enum { SIDE = 5, CELLS = SIDE * SIDE * SIDE * SIDE };

static uint64_t counter;

static int64_t draw(int64_t n)
{
    /* a small generator of the test's own */
    counter = counter * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((counter >> 33) % (uint64_t)n);
}

static ech_ckpt_box draw_box(int rank, const int64_t *dim)
{
    ech_ckpt_box b = {.rank = rank};
    for (int d = 0; d < rank; d++) {
        b.begin[d] = draw(dim[d]);
        b.end[d] = b.begin[d] + 1 + draw(dim[d] - b.begin[d]);
    }
    return b;
}

static ech_ckpt_range draw_range(int rank, const int64_t *dim)
{
    ech_ckpt_range r = {.box = draw_box(rank, dim)};
    const int64_t n = ech_ckpt_box_elems(&r.box);
    r.first = draw(n);
    r.n = 1 + draw(n - r.first);
    return r;
}

/* Number in the range's box of every element of the tensor, -1 outside the range. */
static void number_all(const ech_ckpt_range *r, const int64_t *dim, int64_t *out)
{
    int64_t at[4] = {0};
    int64_t in_box = 0;
    for (int64_t cell = 0; cell < CELLS; cell++)
        out[cell] = -1;
    for (int64_t i = 0;; i++) {
        bool inside = true;
        int d = r->box.rank - 1;
        for (int k = 0; k < r->box.rank; k++)
            inside = inside && at[k] >= r->box.begin[k] && at[k] < r->box.end[k];
        if (inside && in_box >= r->first && in_box < r->first + r->n)
            out[i] = in_box;
        in_box += inside;
        for (; d >= 0 && ++at[d] == dim[d]; d--)
            at[d] = 0;
        if (d < 0)
            return;
    }
}

static void test_overlap(void **state)
{
    static int64_t a_of[CELLS];
    static int64_t b_of[CELLS];
    (void)state;
    for (int trial = 0; trial < 20000; trial++) {
        const int rank = 1 + (int)draw(4);
        int64_t dim[4];
        for (int d = 0; d < 4; d++)
            dim[d] = 1 + draw(SIDE);
        const ech_ckpt_range a = draw_range(rank, dim);
        const ech_ckpt_range b = draw_range(rank, dim);
        ech_ckpt_overlap o;
        ech_ckpt_run run = {0, 0, 0};
        int64_t common = 0;
        number_all(&a, dim, a_of);
        number_all(&b, dim, b_of);
        ech_ckpt_overlap_start(&o, &a, &b);
        for (int64_t cell = 0, left = 0; cell < CELLS; cell++) {
            if (a_of[cell] < 0 || b_of[cell] < 0)
                continue;
            common++;
            if (left == 0) { /* runs come in the tensor's order and miss nothing */
                assert_true(ech_ckpt_overlap_next(&o, &run));
                left = run.n;
            }
            assert_int_equal(run.a, a_of[cell]);
            assert_int_equal(run.b, b_of[cell]);
            run.a++;
            run.b++;
            left--;
        }
        assert_false(ech_ckpt_overlap_next(&o, &run));
        assert_int_equal(ech_ckpt_overlap_count(&a, &b), common);
    }
}

/* A whole cut again and again along one dimension. */
static int64_t draw_partition(const ech_ckpt_box *whole, ech_ckpt_box *box)
{
    int64_t n = 1;
    box[0] = *whole;
    for (int cuts = (int)draw(12); cuts > 0; cuts--) {
        ech_ckpt_box *b = &box[draw(n)];
        const int d = (int)draw(whole->rank);
        if (b->end[d] - b->begin[d] < 2)
            continue;
        box[n] = *b;
        b->end[d] = box[n].begin[d] = b->begin[d] + 1 + draw(b->end[d] - b->begin[d] - 1);
        n++;
    }
    return n;
}

static bool covers_by_marks(const ech_ckpt_box *box, int64_t n, const ech_ckpt_box *whole)
{
    static int64_t of[CELLS];
    static int count[CELLS];
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; i++) {
        const ech_ckpt_range all = {box[i], 0, ech_ckpt_box_elems(&box[i])};
        number_all(&all, whole->end, of);
        for (int c = 0; c < CELLS; c++)
            count[c] += of[c] >= 0;
    }
    for (int64_t c = 0; c < ech_ckpt_box_elems(whole); c++)
        if (count[c] != 1)
            return false;
    return true;
}

static void test_cover(void **state)
{
    int bad = 0;
    (void)state;
    for (int trial = 0; trial < 4000; trial++) {
        const int64_t dim[4] = {1 + draw(SIDE), 1 + draw(SIDE), 1 + draw(SIDE), 1 + draw(SIDE)};
        const ech_ckpt_box whole = ech_ckpt_box_whole(1 + (int)draw(4), dim);
        ech_ckpt_box box[16];
        int64_t n = draw_partition(&whole, box);
        if (trial % 2) { /* spoil it: one box of its own */
            box[draw(n)] = draw_box(whole.rank, dim);
        }
        const bool wanted = covers_by_marks(box, n, &whole);
        bad += !wanted;
        assert_int_equal(ech_ckpt_boxes_cover(box, n, &whole), wanted);
    }
    assert_true(bad > 1000);
}

static void test_cover_by_hand(void **state)
{
    const int64_t dim[2] = {3, 3};
    const ech_ckpt_box whole = ech_ckpt_box_whole(2, dim);
    ech_ckpt_box pinwheel[5] = {{2, {0, 0}, {1, 2}},
                                {2, {0, 2}, {2, 3}},
                                {2, {2, 1}, {3, 3}},
                                {2, {1, 0}, {3, 1}},
                                {2, {1, 1}, {2, 2}}};
    ech_ckpt_box twice[2] = {whole, whole};
    (void)state;
    assert_false(ech_ckpt_boxes_cover(twice, 0, &whole));
    assert_true(ech_ckpt_boxes_cover(twice, 1, &whole));
    assert_false(ech_ckpt_boxes_cover(twice, 2, &whole));
    assert_false(ech_ckpt_boxes_cover(pinwheel, 5, &whole)); /* refused: it cannot be split */
}

/* A hostile list of boxes ends soon: a stair of half a million in one corner. */
static void test_cover_in_time(void **state)
{
    enum { N = 500000 };
    const int64_t dim[4] = {N + 1, N + 1, 1, 1};
    const ech_ckpt_box whole = ech_ckpt_box_whole(4, dim);
    ech_ckpt_box *box = malloc(N * sizeof *box);
    (void)state;
    assert_non_null(box);
    for (int64_t i = 0; i < N; i++)
        box[i] = i % 2 ? (ech_ckpt_box){4, {i, i, 0, 0}, {N + 1, i + 1, 1, 1}}
                       : (ech_ckpt_box){4, {i, i, 0, 0}, {i + 1, N + 1, 1, 1}};
    assert_false(ech_ckpt_boxes_cover(box, N, &whole));
    free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_cover),
        cmocka_unit_test(test_cover_by_hand),
        cmocka_unit_test(test_cover_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
