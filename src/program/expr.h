/** @file program/expr.h
 *  Integer attributes as expressions over mesh coordinates ("V/t * tp", "cp_src <= cp"): with group
 *  tables and the scalar table the only places where ranks of one class differ.
 *  A value of a few postfix nodes; pure. */
#ifndef ECH_PROGRAM_EXPR_H
#define ECH_PROGRAM_EXPR_H

#include "layout/layout.h" /* ech_axis */

/** Nodes: constants, coordinates, and operations on the two values before. */
typedef enum ech_expr_op {
    ECH_EXPR_CONST, /**< value */
    ECH_EXPR_COORD, /**< coordinate along axis `value` */
    ECH_EXPR_MICRO, /**< micro-batch index of the invocation */
    ECH_EXPR_ADD,
    ECH_EXPR_MUL,
    ECH_EXPR_DIV, /**< floor for non-negative operands */
    ECH_EXPR_MOD,
    ECH_EXPR_MIN,
    ECH_EXPR_LE /**< 1 or 0 */
} ech_expr_op;

enum { ECH_EXPR_NODES = 7 /**< nodes of an expression, at most */ };

/** Postfix expression; zero nodes means 0. */
typedef struct ech_expr {
    int n;
    struct {
        ech_expr_op op;
        int64_t value;
    } node[ECH_EXPR_NODES];
} ech_expr;

/** The same value everywhere. */
ech_expr ech_expr_const(int64_t value);

/** The rank's coordinate along an axis. */
ech_expr ech_expr_coord(ech_axis axis);

/** The invocation's micro-batch. */
ech_expr ech_expr_micro(void);

/** a op b; asserts that the nodes suffice (expressions are written by generators, not users). */
ech_expr ech_expr_binary(ech_expr_op op, ech_expr a, ech_expr b);

/** Value for a rank's coordinates and an invocation's micro-batch. */
int64_t ech_expr_eval(const ech_expr *e, const int64_t coord[ECH_N_AXES], int64_t micro);

#endif
