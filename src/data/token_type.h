/** @file data/token_type.h
 *  Element types and forms of token files.  Local, pure. */
#ifndef ECH_DATA_TOKEN_TYPE_H
#define ECH_DATA_TOKEN_TYPE_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** Element types in files: enumerator, bytes, name in configs, Megatron's code. */
#define ECH_TOKEN_TYPE_LIST(X)                                                                     \
    X(ECH_TOKEN_U8, 1, "uint8", 1)                                                                 \
    X(ECH_TOKEN_I8, 1, "int8", 2)                                                                  \
    X(ECH_TOKEN_I16, 2, "int16", 3)                                                                \
    X(ECH_TOKEN_I32, 4, "int32", 4)                                                                \
    X(ECH_TOKEN_I64, 8, "int64", 5)                                                                \
    X(ECH_TOKEN_U16, 2, "uint16", 8)                                                               \
    X(ECH_TOKEN_U32, 4, "uint32", 0)

typedef enum ech_token_type {
    ECH_TOKEN_AUTO, /**< what the file says; uint16 for bare files */
#define ECH_TOKEN_TYPE_ENUM(name, bytes, text, code) name,
    ECH_TOKEN_TYPE_LIST(ECH_TOKEN_TYPE_ENUM)
#undef ECH_TOKEN_TYPE_ENUM
} ech_token_type;

/** Bytes of one element (0 for AUTO). */
int64_t ech_token_type_bytes(ech_token_type t);

/** Name as in configs: "uint16" ("auto" for AUTO). */
const char *ech_token_type_name(ech_token_type t);

/** Type by its name in configs.
 *  @return ECH_OK | ECH_E_CONFIG (the message lists the names) */
ECH_MUST_USE ech_status ech_token_type_parse(const char *name, ech_token_type *out);

/** Form of a file. */
typedef enum ech_token_form {
    ECH_TOKENS_MEGATRON,
    ECH_TOKENS_LLMC,
    ECH_TOKENS_BARE
} ech_token_form;

#endif
