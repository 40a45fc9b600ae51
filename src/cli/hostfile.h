/** @file cli/hostfile.h
 *  Hosts for the ranks of a run, in the form of Open MPI's hostfile:
 *
 *      # a comment
 *      node1 slots=4
 *      node2 slots=4 max_slots=8
 *
 *  A line without slots is one slot; a host named again adds its slots.  Ranks fill hosts in the
 *  order of the file.  Local. */
#ifndef ECH_CLI_HOSTFILE_H
#define ECH_CLI_HOSTFILE_H

#include "base/text.h"    /* ech_text */
#include "layout/place.h" /* ech_node_run */

/** A read file.  Zero-initialise; release with ech_hostfile_fini. */
typedef struct ech_hostfile {
    ech_node_run *host; /**< owned [n] */
    int *most;          /**< owned [n]: ranks at most (max_slots); 0: no limit */
    int n;
    int64_t slots; /**< of all */
} ech_hostfile;

/** Read a file.
 *  @param path  its name
 *  @param out   set on success only
 *  @return ECH_OK
 *        | ECH_E_USAGE  no such file, or with all findings: FILE:LINE, what is there, what is right
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_hostfile_read(const char *path, ech_hostfile *out);

/** The same out of a text.
 *  @param text   borrowed [bytes]
 *  @param bytes  of it
 *  @param name   of the file, for findings
 *  @param out    set on success only
 *  @return ECH_OK | ECH_E_USAGE with all findings | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_hostfile_parse(const char *text, size_t bytes, const char *name,
                                           ech_hostfile *out);

/** Give ranks to hosts: host[i].first and .n.
 *  @param ranks  at least 1
 *  @return ECH_OK | ECH_E_USAGE (more on a host than its max_slots) */
ECH_MUST_USE ech_status ech_hostfile_fill(ech_hostfile *hosts, int ranks);

/** Append the hosts that hold ranks, a line each, with exactly their ranks as slots: whoever starts
 *  them has no choice left.
 *  @param hosts        borrowed, filled
 *  @param is_open_mpi  "HOST slots=N", else "HOST:N" (MPICH)
 *  @param out          in/out */
void ech_hostfile_print(const ech_hostfile *hosts, bool is_open_mpi, ech_text *out);

/** Release and zero. */
void ech_hostfile_fini(ech_hostfile *hosts);

#endif
