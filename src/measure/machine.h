/** @file measure/machine.h
 *  What this machine is, read from the system: for `doctor` and the run record.  Local. */
#ifndef ECH_MEASURE_MACHINE_H
#define ECH_MEASURE_MACHINE_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** Plain values; -1 where the system does not tell. */
typedef struct ech_machine {
    char host[128];
    char system[160]; /**< kernel name, release, architecture */
    char cpu[128];    /**< model name, "" where not told */
    int cores_online;
    int cores_usable;        /**< allowed to this process by affinity */
    double cores_quota;      /**< of its control group */
    int64_t memory_bytes;    /**< installed */
    int64_t available_bytes; /**< without swapping */
    int64_t limit_bytes;     /**< of its control group */
    int64_t locked_bytes;    /**< limit on locked memory */
    int64_t open_files;      /**< limit */
    int64_t shm_free_bytes;  /**< of /dev/shm */
    int64_t huge_pages;      /**< reserved ones */
    int64_t huge_page_bytes;
    char thp[32]; /**< transparent huge pages: "always", "madvise", "never" or "" */
    bool has_avx2, has_fma, has_avx512f, has_avx512_bf16, has_amx_bf16;
} ech_machine;

/** Read it.  What is not told stays -1, "" or false: nothing here can fail. */
void ech_machine_get(ech_machine *out);

#endif
