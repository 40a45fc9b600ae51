/** @file report/picture.h
 *  Time lines as a picture (SVG): a row a rank, a colour a kind of work, waits hatched, micro-batch
 *  numbers where there is room.  It needs no fonts or scripts, follows the reader's light or dark
 *  colours, and stays below ECH_PICTURE_BYTES: what is narrower than the drawing can show is
 *  drawn as part of its neighbour.  Local. */
#ifndef ECH_REPORT_PICTURE_H
#define ECH_REPORT_PICTURE_H

#include "price/timeline.h" /* ech_timeline */

/** Bounds. */
enum {
    ECH_PICTURE_BYTES = 200 * 1024,
    ECH_PICTURE_ROWS =
        32 /**< of a line; of more ranks those are drawn that stand first on every axis
                               but pp, and the picture says so */
};

/** Draw n time lines below each other, on one scale.
 *
 *  Neighbouring items of one chunk, micro-batch and kind are one <rect> of class f (forward), b
 *  (backward), i (gradients of inputs), w (of weights), r (recompute), u (update) or o (other), with
 *  a 2 behind it in odd chunks; a wait is one of class q.  The rows of a rank lie in a <g> whose id
 *  is "lineL-rankR", times from the left in equal steps.
 *  @param line  [n] borrowed
 *  @param name  [n] borrowed: "measured", "predicted"
 *  @param n     >= 1
 *  @param path  written whole, or what stood there stays
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_picture_write(const ech_timeline *const *line, const char *const *name,
                                          int n, const char *path);

#endif
