/** @file engine/module.h
 *  Transports and kernel sets that are opened when a run needs them, found beside libechelon, so
 *  that echelon itself links neither MPI nor a GEMM library.  Local; modules stay open. */
#ifndef ECH_ENGINE_MODULE_H
#define ECH_ENGINE_MODULE_H

#include "comm/comm.h"       /* ech_transport */
#include "kernels/kernels.h" /* ech_kernel_set */

/** Path of module `name` ("mpi", "cpu") into buf.  @return ECH_OK | ECH_E_ENV */
ECH_MUST_USE ech_status ech_module_path(const char *name, char *buf, size_t n);

/** Open libechelon_<name>.so and create its transport (for mpi: MPI_Init; *collective*).
 *  @return ECH_OK | ECH_E_ENV (no such module in this build, or it does not load: the reason) */
ECH_MUST_USE ech_status ech_module_transport(const char *name, ech_transport **out);

/** Open a kernel set.  @return ECH_OK | ECH_E_ENV (absent, or not usable on this machine: why) */
ECH_MUST_USE ech_status ech_module_kernels(const char *name, const ech_kernel_set **out);

#endif
