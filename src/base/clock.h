/** @file base/clock.h
 *  Time.  Local. */
#ifndef ECH_BASE_CLOCK_H
#define ECH_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/** Monotonic seconds. */
double ech_clock_s(void);

/** Whose clock it is: processes with the same number, not 0, read the same ech_clock_s (one boot of
 *  one machine, one time namespace).  0: not known. */
uint64_t ech_clock_identity(void);

/** CPU seconds of this process. */
double ech_clock_cpu_s(void);

/** Wait politely: the n-th call in a row yields, later ones sleep up to 200 microseconds. */
void ech_clock_backoff(int n);

/** Current UTC time as "2026-01-31T12:00:00Z" into buf (>= 21 bytes). */
void ech_clock_utc(char *buf, size_t n);

#endif
