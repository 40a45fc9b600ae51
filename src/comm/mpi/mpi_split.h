/** @file comm/mpi/mpi_split.h
 *  MPI counts are int: how a message of any size becomes calls.  Local, pure. */
#ifndef ECH_COMM_MPI_MPI_SPLIT_H
#define ECH_COMM_MPI_MPI_SPLIT_H

#include <stddef.h>

enum { ECH_MPI_BLOCK_BYTES = 1 << 20 };

/** Blocks of ECH_MPI_BLOCK_BYTES as one call and the bytes after them as another. */
typedef struct ech_mpi_split {
    size_t blocks; /**< 0: the message is one call of rest_bytes */
    size_t rest_bytes;
} ech_mpi_split;

/** Split a message.
 *  @param bytes  of the message
 *  @param limit  bytes that one call may have, INT_MAX for MPI_BYTE */
static inline ech_mpi_split ech_mpi_split_make(size_t bytes, size_t limit)
{
    if (bytes <= limit)
        return (ech_mpi_split){0, bytes};
    return (ech_mpi_split){bytes / ECH_MPI_BLOCK_BYTES, bytes % ECH_MPI_BLOCK_BYTES};
}

#endif
