/** @file support/kernel_cases.h
 *  Randomised calls of every compute kind, for comparing kernel sets and auditing what they touch.
 *
 *  A case is one call with its operands in memory of its own, made from (kind, variant, type,
 *  seed) alone: two cases of the same four hold the same bits.  A variant chooses optional
 *  arguments, allowed aliases and switches (window, dropout, masks); the seed chooses shapes (odd
 *  ones: no multiple of a vector, a block or each other; N = 0 too) and values.  Values are exact
 *  in fp32, so the fp32 and fp64 case of a seed have the same inputs.  What must not be read
 *  (padded logits, the unused end of a cache) is NaN; saved tensors of backward kinds are made by
 *  the reference forward; scratch has the op table's cap. */
#ifndef ECH_TESTS_KERNEL_CASES_H
#define ECH_TESTS_KERNEL_CASES_H

#include "kernels/kernels.h" /* ech_kernel_call, ech_kernel_set */

enum {
    KERNEL_CASE_KINDS = ECH_OP_ALL_REDUCE_START, /**< compute kinds are the first of the list */
    KERNEL_CASE_SEEDS = 12                       /**< seeds that make different shapes */
};

/** One call and what it may do to each argument. */
typedef struct kernel_case {
    char name[128]; /**< "layernorm_backward fp32 seed 3, dx on dres" */
    ech_kernel_call call;
    ech_access access[ECH_MAX_ARGS];
    int alias[ECH_MAX_ARGS];      /**< earlier argument on whose memory it lies, or -1 */
    bool is_packed[ECH_MAX_ARGS]; /**< parameter or gradient: aligned to its element only */
    void *owned[ECH_MAX_ARGS];    /**< owned; NULL for absent and aliased arguments */
    void *owned_work;             /**< owned */
} kernel_case;

/** Variants of a kind, >= 1. */
int kernel_case_variants(ech_op_kind kind);

/** Build a case; kernel_case_fini releases it. */
void kernel_case_make(kernel_case *c, ech_op_kind kind, int variant, ech_dtype real, uint64_t seed);

/** Release and zero. */
void kernel_case_fini(kernel_case *c);

/** Run it with the kernel of a set. */
void kernel_case_run(kernel_case *c, const ech_kernel_set *set);

/** Log-sum of the logits that a share of the vocabulary (attr first column > 0) does not hold. */
#define KERNEL_CASE_OTHERS 0.25

/** The loss by xent_shard and xent of the reference, from logits [N, V], labels, lse [N] (written)
 *  and the loss cell (added to): arguments and attributes as xent_backward's, but for the cell. */
void kernel_case_loss(const ech_kernel_call *call);

/** Elements and bytes of an argument. */
int64_t kernel_case_arg_elems(const kernel_case *c, int arg);
size_t kernel_case_arg_bytes(const kernel_case *c, int arg);

/** The case as an op, for the op table's checks and caps. */
ech_op kernel_case_op(const kernel_case *c);

/** Largest error of the written arguments of `got` against `want` (another case of the same kind,
 *  variant and seed; types may differ): |got - want| / max(|want|, root mean square of want), over
 *  all elements.  NaN and infinities match only themselves; integers must be equal.
 *  @param got   a case that was run
 *  @param want  the case to compare with
 *  @param arg   out: the argument where it is largest
 *  @return the error, infinite where a NaN or an integer differs */
double kernel_case_error(const kernel_case *got, const kernel_case *want, int *arg);

/** Does a set run the kind with REAL = real. */
bool kernel_set_has(const ech_kernel_set *set, ech_op_kind kind, ech_dtype real);

/** A kernel module of the build under test. */
typedef struct kernel_module {
    const ech_kernel_set *set; /**< borrowed from the module */
    void *handle;
    bool is_missing; /**< it could not be opened; otherwise this machine cannot run it */
} kernel_module;

/** Open a module that lies in ECH_BUILD and start its threads; says on stderr why not.
 *  @return true: kernel_module_close closes it */
bool kernel_module_open(kernel_module *m, const char *file, int threads);

/** Stop its threads, close it. */
void kernel_module_close(kernel_module *m);

/** Every kind that `set` has, all variants and seeds: its results against the reference's.
 *  Failures are written to stderr with case, argument and error.
 *  @param set        the set under test
 *  @param real       ECH_F32 or ECH_F64
 *  @param tolerance  bound on kernel_case_error
 *  @return failures */
int kernel_cases_compare(const ech_kernel_set *set, ech_dtype real, double tolerance);

#endif
