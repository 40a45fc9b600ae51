/** @file support/ckpt_case.h
 *  Checkpoints of made-up state: element e of tensor i of a class has a value of its own, so that
 *  every element can be told wherever it comes to lie.  Where a layout puts it is taken from the
 *  runs of layout/shard.h, which the checkpoint's own translation does not use. */
#ifndef ECH_TESTS_CKPT_CASE_H
#define ECH_TESTS_CKPT_CASE_H

#include "storage/ckpt_publish.h"
#include "storage/ckpt_reader.h"
#include "storage/ckpt_writer.h"

/* A model and its canonical tensors. */
typedef struct ckpt_model {
    ech_model m;
    ech_canon c;
} ckpt_model;

/* Kinds: key/value heads shared at tp 3; at tp 2, with biases and norms of heads; GPT-2. */
enum { CKPT_LLAMA, CKPT_QWEN, CKPT_GPT2, N_CKPT_MODELS };

void ckpt_model_make(int kind, ckpt_model *out);
void ckpt_model_drop(ckpt_model *m);

/* folder_setup (support/folder.h) in memory where that can be had: thousands of fsyncs otherwise take
 * their time, and what they do to a disk is not what these tests look at. */
int ckpt_folder_setup(void **state);

/* A layout: world is tp * shards * replicas, tp innermost. */
typedef struct ckpt_layout {
    int tp, shards, replicas;
    bool is_sequence_parallel;
} ckpt_layout;

void ckpt_plan(const ckpt_model *m, const ckpt_layout *l, ech_shard_plan *out);

/* Value of element e of a canonical tensor; padding rows are zero.  `mark` tells saves apart. */
double ckpt_value(const ckpt_model *m, ech_ckpt_class cls, int tensor, int64_t e, int mark);

/* Rank's elements of a part of a unit, [part elems] of dtype; free().  NULL where it has none. */
void *ckpt_slab(const ckpt_model *m, const ech_shard_plan *plan, int tp_coord, int unit,
                ech_part part, ech_ckpt_class cls, ech_dtype dtype, int mark);

/* A save by all ranks of a layout, in this process. */
typedef struct ckpt_save_spec {
    const ckpt_model *model;
    ckpt_layout layout;
    ech_dtype dtype;
    int64_t step, generation;
    int n_classes; /* 1: params, 3: moments too */
    int mark;
    void (*spoil)(void *slab, int64_t bytes, int unit, ech_part part); /* NULL: none */
} ckpt_save_spec;

/* Save into dir; the first failure ends it and abandons the temporary folder. */
ech_status ckpt_save(const char *dir, const ckpt_save_spec *spec, ech_ckpt_saved *out);

/* Load every rank of a layout and compare every element; fails the test on a difference.  Returns
 * the bytes of saved elements that had to be read. */
int64_t ckpt_load_and_compare(ech_ckpt *c, const ckpt_save_spec *saved, const ckpt_layout *l,
                              ech_dtype dtype);

#endif
