/** @file program/op_signature.h
 *  Reads the signatures of the op table (program/op.h, ech_op_row).  Internal to program/. */
#ifndef ECH_PROGRAM_OP_SIGNATURE_H
#define ECH_PROGRAM_OP_SIGNATURE_H

#include "program/op.h" /* ech_op, ech_access */

/** One argument of a signature. */
typedef struct ech_sig_arg {
    char label[ECH_MAX_DIMS + 1]; /**< "" for a cell */
    int n_labels;
    bool is_any;  /**< "~": any shape; dimension d has the label '0' + d */
    bool is_cell; /**< "." */
    bool is_optional;
    bool is_linear; /**< "*" */
    bool is_added;  /**< "&" */
    bool is_sum;    /**< "+": accumulated into */
    ech_access access;
} ech_sig_arg;

/** All arguments of a kind. */
typedef struct ech_signature {
    int n;
    ech_sig_arg arg[ECH_MAX_ARGS];
} ech_signature;

/** Signature of a kind. */
ech_signature ech_signature_read(ech_op_kind kind);

/** Label of dimension d of an argument, 0 if it has none. */
char ech_sig_label(const ech_sig_arg *s, int d);

/** Dimension of an operand that carries a label, or -1. */
int ech_sig_dim(const ech_sig_arg *s, const ech_operand *a, char label);

/** May a label be summed away in this kind. */
bool ech_sig_is_summed(ech_op_kind kind, char label);

#endif
