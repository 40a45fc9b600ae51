/** @file support/fixture.h
 *  Files of the tests' own, under tests/, and of the shared folder. */
#ifndef ECH_TESTS_FIXTURE_H
#define ECH_TESTS_FIXTURE_H

/** Path of a file under the source folder (from ECH_SOURCE); static, good for four more calls. */
const char *fixture_path(const char *name);

/** Path of a file under the shared folder (from ECH_SHARED); exits with 77 where there is none. */
const char *shared_path(const char *name);

#endif
