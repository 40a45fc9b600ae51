/** @file support/hf.h
 *  HF folders made for tests. */
#ifndef ECH_TESTS_HF_H
#define ECH_TESTS_HF_H

/** Make an fp32 HF folder at dir of the weights at path (train/weights.h); fails the test. */
void hf_make(const char *path, const char *dir);

#endif
