/** @file program/program_names.h
 *  Names in a program's document that have no function of their own.  Internal to program/:
 *  program_write.c and program_read.c. */
#ifndef ECH_PROGRAM_PROGRAM_NAMES_H
#define ECH_PROGRAM_PROGRAM_NAMES_H

/** What the document says that it is. */
#define ECH_PROGRAM_FORMAT "echelon program 1"

enum {
    ECH_N_ROLES = 8,       /**< ech_role */
    ECH_N_PLACE_KINDS = 6, /**< ech_place_kind */
    ECH_N_INDEX_MAPS = 7,  /**< ech_index_map */
    ECH_N_EXPR_OPS = 9     /**< ech_expr_op */
};

extern const char *const ech_role_names[ECH_N_ROLES];
extern const char *const ech_place_kind_names[ECH_N_PLACE_KINDS];
extern const char *const ech_index_map_names[ECH_N_INDEX_MAPS];
extern const char *const ech_expr_op_names[ECH_N_EXPR_OPS];

#endif
