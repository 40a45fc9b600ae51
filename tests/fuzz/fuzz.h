/** @file fuzz/fuzz.h
 *  The entry point that libFuzzer calls, and asserts that count in every build. */
#ifndef ECH_TESTS_FUZZ_H
#define ECH_TESTS_FUZZ_H

#include "base/status.h" /* ech_status */

#include <stddef.h>
#include <stdint.h>

/** One input: must return 0, whatever the bytes are. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
