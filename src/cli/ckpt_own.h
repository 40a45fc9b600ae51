/** @file cli/ckpt_own.h
 *  The parts of `echelon ckpt` that deal with Echelon's own checkpoints (storage/ckpt_manifest.h).
 *  Local. */
#ifndef ECH_CLI_CKPT_OWN_H
#define ECH_CLI_CKPT_OWN_H

#include "storage/ckpt_reader.h" /* ech_ckpt */

/** Does a path name a checkpoint, or a folder with any in it (step-N)?
 *  @param path  anything
 *  @param out   set on success
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_own_is(const char *path, bool *out);

/** Open the checkpoint, or the newest whole one of a folder; which one, and what was passed over, is
 *  said on stderr.
 *  @param path  by ech_ckpt_own_is
 *  @param out   owned by the caller, ech_ckpt_close
 *  @return as ech_ckpt_open | ECH_E_CORRUPT: the folder has no whole one */
ECH_MUST_USE ech_status ech_ckpt_own_open(const char *path, ech_ckpt **out);

/** `ckpt show` of such a path. */
ECH_MUST_USE ech_status ech_ckpt_own_show(const char *path, bool as_json);

/** `ckpt ls DIR [--json]`; argv[0] is "ls". */
ECH_MUST_USE ech_status ech_ckpt_own_ls(int argc, char **argv);

/** `ckpt verify PATH [--json]`; argv[0] is "verify". */
ECH_MUST_USE ech_status ech_ckpt_own_verify(int argc, char **argv);

#endif
