/** @file report/picture_cells.h
 *  What a row of a picture shows: bars of a rank, joined to cells.  Inside report only. */
#ifndef ECH_REPORT_PICTURE_CELLS_H
#define ECH_REPORT_PICTURE_CELLS_H

#include "price/timeline.h" /* ech_timeline */

/** Kinds of cells: their class in the picture, their name in its legend. */
#define ECH_PAINT_LIST(X)                                                                          \
    X(ECH_PAINT_FORWARD, "f", "forward")                                                           \
    X(ECH_PAINT_BACKWARD, "b", "backward")                                                         \
    X(ECH_PAINT_INPUT, "i", "input gradients")                                                     \
    X(ECH_PAINT_WEIGHT, "w", "weight gradients")                                                   \
    X(ECH_PAINT_RECOMPUTE, "r", "recompute")                                                       \
    X(ECH_PAINT_UPDATE, "u", "update")                                                             \
    X(ECH_PAINT_OTHER, "o", "other")                                                               \
    X(ECH_PAINT_WAIT, "q", "waits")

typedef enum ech_paint {
#define ECH_PAINT_ENUM(name, letter, text) name,
    ECH_PAINT_LIST(ECH_PAINT_ENUM)
#undef ECH_PAINT_ENUM
        ECH_N_PAINTS
} ech_paint;

/** A cell. */
typedef struct ech_cell_box {
    ech_paint paint;
    int chunk, micro; /**< -1: none */
    double begin_s, end_s;
} ech_cell_box;

/** Cells of a row, waits behind all others.  Zero-initialise; free(cell). */
typedef struct ech_cell_row {
    ech_cell_box *cell; /**< owned */
    size_t n, capacity;
} ech_cell_row;

/** Join a rank's bars.  Bars of one kind, chunk and micro-batch that follow each other with less than
 *  least_s between are one cell; of what lies within least_s the longer one is shown, over both; a
 *  shorter wait is not.
 *  @param l        borrowed
 *  @param rank     whose
 *  @param least_s  > 0
 *  @param out      in/out: its memory is used again
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_picture_cells(const ech_timeline *l, int rank, double least_s,
                                          ech_cell_row *out);

/** Is a rank drawn: of more than ECH_PICTURE_ROWS those that stand first on every axis but pp. */
bool ech_picture_is_drawn(const ech_timeline *l, int rank);

/** The distance of ticks: the smallest of 1, 2, 5 times a power of ten that leaves at most ten.
 *  @param span      > 0
 *  @param decimals  out: its own */
double ech_picture_tick(double span, int *decimals);

#endif
