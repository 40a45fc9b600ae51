/** @file kernels/cpu/simd/tile.h
 *  Small products for attention, straight from where the operands lie: rows of A are broadcast,
 *  rows of B are vectors, so neither is packed. */
#ifndef ECH_KERNELS_CPU_SIMD_TILE_H
#define ECH_KERNELS_CPU_SIMD_TILE_H

#include "kernels/cpu/simd/vec.h"

#include <stdbool.h>

/** C [m, n] = or += A [m, k] B [k, n]; element (i, p) of A at a[i * a_row + p * a_col]. */
typedef struct tile_product {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row;
    bool is_added;
} tile_product;

#ifdef __AVX512F__
enum { TILE_VECS = 4 }; /* 6 x 4 accumulators of 32 registers */
#else
enum { TILE_VECS = 2 }; /* 6 x 2 of 16 */
#endif
enum { TILE_ROWS = 6 };

/** Rows [i, i + rows) and vectors vecs from column j on; the last vector has the lanes of `last`.
 */
VEC_INLINE void tile_patch(const tile_product *t, int64_t i, int64_t j, int rows, int vecs, vm last)
{
    vf acc[TILE_ROWS][TILE_VECS];
    const int64_t k = t->k, a_row = t->a_row, a_col = t->a_col, b_row = t->b_row;
    const float *a = t->a + i * a_row;
    const float *b = t->b + j;
    for (int q = 0; q < rows; q++)
        for (int v = 0; v < vecs; v++)
            acc[q][v] = vf_zero();
    for (int64_t p = 0; p < k; p++, a += a_col, b += b_row) {
        vf row[TILE_VECS];
        for (int v = 0; v < vecs; v++)
            row[v] = v == vecs - 1 ? vf_load_m(b + v * VL, last) : vf_load(b + v * VL);
        for (int q = 0; q < rows; q++) {
            const vf x = vf_set1(a[q * a_row]);
            for (int v = 0; v < vecs; v++)
                acc[q][v] = vf_fma(x, row[v], acc[q][v]);
        }
    }
    const int64_t c_row = t->c_row;
    float *c = t->c + i * c_row + j;
    if (t->is_added)
        for (int q = 0; q < rows; q++)
            for (int v = 0; v < vecs; v++)
                acc[q][v] = acc[q][v] +
                            vf_load_m(c + q * c_row + v * VL, v == vecs - 1 ? last : vm_first(VL));
    for (int q = 0; q < rows; q++)
        for (int v = 0; v < vecs; v++)
            vf_store_m(c + q * c_row + v * VL, acc[q][v], v == vecs - 1 ? last : vm_first(VL));
}

/** All rows for `vecs` vectors of columns. */
VEC_INLINE void tile_columns(const tile_product *t, int64_t j, int vecs, vm last)
{
    int64_t i = 0;
    for (; i + TILE_ROWS <= t->m; i += TILE_ROWS)
        tile_patch(t, i, j, TILE_ROWS, vecs, last);
    if (t->m - i >= 4) {
        tile_patch(t, i, j, 4, vecs, last);
        i += 4;
    }
    for (; i < t->m; i++)
        tile_patch(t, i, j, 1, vecs, last);
}

/** Run it. */
static void tile_multiply(const tile_product *t)
{
    for (int64_t j = 0; j < t->n; j += TILE_VECS * VL) {
        const int64_t left = t->n - j;
        const int64_t vecs = left >= TILE_VECS * VL ? TILE_VECS : (left + VL - 1) / VL;
        const int64_t lanes = left - (vecs - 1) * VL;
        const vm last = vm_first(lanes < VL ? (int)lanes : VL);
        if (vecs == 1)
            tile_columns(t, j, 1, last);
        else if (vecs == 2)
            tile_columns(t, j, 2, last);
#ifdef __AVX512F__
        else if (vecs == 3)
            tile_columns(t, j, 3, last);
        else
            tile_columns(t, j, 4, last);
#endif
    }
}

#endif
