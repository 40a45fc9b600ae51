/** @file support/sanitized.h
 *  Sanitizers make a run three to fifteen times slower and look for other faults than the values do:
 *  under them the longest tests take a share of their cases. */
#ifndef ECH_TEST_SANITIZED_H
#define ECH_TEST_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif
#else
enum { IS_SANITIZED = 0 };
#endif

#endif
