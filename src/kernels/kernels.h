/** @file kernels/kernels.h
 *  Kernel sets: what runs an op.  The table starts from `ref` (plain C, fp32 and fp64, the oracle);
 *  other sets override kinds they are faster at.  Kernels trust their input (shapes were checked at
 *  compile time, token ids when the data was read), allocate nothing, never fail, and give the same
 *  bits for the same input whatever the number of threads.
 *
 *  Arguments of each kind, in order (shapes as in program/op.h; REAL is fp32 or fp64, one type in
 *  all REAL arguments of a call; `cell` is one 8-byte scalar; "acc" adds to what is there; "opt"
 *  may be absent, data NULL).  Attributes and reals in the order named.  s = attr seq, b = N / s.
 *
 *  zero               0 buf (W)
 *  copy               0 x  1 y
 *  scale              0 x (RW)                                     real: factor
 *  add                0 a  1 b  2 y                                y = a + b; y may be a or b
 *  embed              0 ids i32 [N]  1 table [V,H]  2 y [N,H]      attr: first row
 *                     y[n] = table[ids[n] - first], 0 where the table has no such row
 *  embed_backward     0 ids  1 dy [N,H]  2 dtable [V,H] acc         attr: first row
 *  positions          0 y [N,H] (RW)  1 table [S,H]  2 position cell i64 opt   attr: seq, token
 *                     y[n] += table[(position or 0) + (token + n) % seq]; token: the first of these
 *                     N in the micro-batch
 *  positions_backward 0 dy [N,H]  1 dtable [S,H] acc                attr: seq, token
 *  bias               0 y [N,H] (RW)  1 bias [H]                    y[n] += bias
 *  bias_backward      0 dy [N,H]  1 dbias [H] acc                   dbias += column sums
 *  layernorm          0 x [N,H]  1 gamma [H]  2 beta [H]  3 y  4 mean [N]  5 rstd [N]     real: eps
 *  layernorm_backward 0 x  1 gamma  2 mean  3 rstd  4 dy  5 dres [N,H] opt  6 dx  7 dgamma acc
 *                     8 dbeta acc                                  dx = dres + ...; dx may be dres
 *  rmsnorm            0 x [N,H]  1 gamma [H]  2 y  3 rstd [N]      real: eps
 *  rmsnorm_backward   0 x  1 gamma  2 rstd  3 dy  4 dres opt  5 dx  6 dgamma acc
 *  linear             0 x [N,I]  1 w [O,I]  2 bias [O] opt  3 y [N,O]     y = x w^T + bias
 *  linear_dgrad       0 dy [N,O]  1 w [O,I]  2 dx [N,I]            dx = dy w
 *  linear_wgrad       0 x [N,I]  1 dy [N,O]  2 dw [O,I] acc  3 dbias [O] acc opt   dw += dy^T x
 *  qk_norm            0 qkv [N,g,r+2,D]  1 gamma_q [D]  2 gamma_k [D]  3 y [N,g,r+2,D]
 *                     4 rstd [N,g,r+1]                             real: eps; v is copied
 *  qk_norm_backward   0 qkv  1 gamma_q  2 gamma_k  3 rstd  4 d [N,g,r+2,D] (RW: dy in, dqkv out)
 *                     5 dgamma_q acc  6 dgamma_k acc
 *  rope               0 qkv [N,g,r+2,D] (RW)  1 table fp64 [S,rot/2,2] (cos, sin)  2 position cell
 *                     opt; q and k rotated, v left; attr: seq, inverse (0/1: transposed rotation),
 *                     neighbours (0: element i pairs with i + rot/2; 1: 2i with 2i + 1),
 *                     rot = 2 * table dim 1 <= D
 *  attention          0 qkv [N,g,r+2,D]  1 out [N,g,r*D]  2 lse REAL [N,g,r]
 *                     attr: seq, window (0: none), purpose, first head, heads a of all ranks
 *                     real: scale, dropout p
 *                     causal; lse = log sum exp of the scaled scores of the row
 *                     dropout on the normalised scores: key purpose ECH_RNG_DROPOUT_ATTENTION,
 *                     element ((row * a + first + head) * s + i) * s + j with row the global
 *                     sequence row and head = group * r + query head among these
 *  attention_backward 0 qkv  1 out  2 lse  3 dout  4 dqkv [N,g,r+2,D]     attr, real as above
 *  attention_cached   0 qkv [n,g,r+2,D]  1 kcache [S,g,D] (RW)  2 vcache (RW)  3 position cell
 *                     4 out [n,g,r*D]; stores k, v at position.., query i sees 0..position+i
 *                     real: scale; attr: window
 *  swiglu             0 gate_up [N,2,F]  1 y [N,F]                 y = gate * sigmoid(gate) * up
 *  swiglu_backward    0 gate_up  1 dy  2 dgate_up
 *  gelu               0 x [N,F]  1 y [N,F]                         tanh form
 *  gelu_backward      0 x  1 dy  2 dx                              dx may be dy
 *  dropout            0 x [N,H]  1 residual [N,H] opt  2 y         real: p; attr: seq, purpose,
 *                     token
 *                     y = residual + keep * x / (1 - p); with k = token + n, element
 *                     (row(k) * s + k % s) * H + h, row(k) = global row of sequence k / s of the
 *                     micro-batch; y may be any input; its own backward (x = dy, no residual)
 *  xent_shard         0 logits [N,V]  1 labels i32 [N] (-1: masked)  2 parts f64 [1,2,N]
 *                     attr: vocab (ids beyond do not exist), first column: these are ids first ..
 *                     parts[0][0][n] = log sum exp of the row (-inf without a column)
 *                     parts[0][1][n] = logit of the label, 0 where it is not here or masked
 *  xent               0 parts f64 [t,2,N]  1 labels  2 lse [N]  3 loss cell f64 acc
 *                     lse = log sum exp over t of parts[t][0], in masked rows too; loss += sum over
 *                     rows with a label of lse, not yet rounded, - sum over t of parts[t][1]
 *  xent_backward      0 logits (RW: becomes dlogits)  1 labels  2 lse  3 seed cell f64
 *                     attr: vocab, first column
 *                     dlogits = (softmax - onehot) * seed; masked rows and columns beyond are 0
 *  count_tokens       0 labels i32 [M]  1 count cell i64           labels >= 0
 *  loss_seed          0 tokens cell i64  1 loss_scale cell f64  2 seed cell f64
 *  sum_cells          0 x f64 [m]  1 sum cell f64                  in order
 *  kv_fold            0 dw [g,r+2,E]  1 sum [g,2,E]               attr: first group, copies
 *                     key and value rows of group j added to sum[(first + j) / copies], the rest
 *                     of sum 0; in ascending j
 *  kv_spread          0 sum [g,2,E]  1 dw [g,r+2,E] (RW)           attr: first group, copies
 *                     key and value rows of group j = sum[(first + j) / copies]; others left
 *  sumsq              0 x [E]  1 sum i64 [ECH_SUMSQ_WORDS] acc  2 copies i64 [ECH_SUMSQ_WORDS] acc, opt
 *                     attr: first, then twice begin, end, period, tail
 *                     exact sum of squares (program/op.h); element i has index k = first + i; it
 *                     goes to `copies` where for one of the two begin <= k < end and
 *                     (k - begin) % period >= period - tail, else to `sum`.  Words are carried on
 *                     before return: 0 <= word < 2^32 but in the top one
 *  clip               0 i64 [ECH_SUMSQ_WORDS] sum  1 copies opt  2 whole opt  3 loss_scale
 *                     4 grad_sq cell f64  5 factor cell f64        attr: copies of each; real:
 *                     max_norm (0: off)
 *                     grad_sq = (sum + copies / attr + whole) rounded once, inf where the last word
 *                     of one counts anything; norm = sqrt(grad_sq) / loss_scale
 *                     factor = min(1, max_norm / (norm + 1e-6)) / loss_scale
 *  adamw              0 p [E] (RW)  1 g [E]  2 m (RW)  3 v (RW)  4 lr cell  5 clip cell
 *                     6 updates cell i64    attr: first, decayed; real: beta1, beta2, eps, decay
 *                     element i decays where first + i < decayed
 *                     g' = clip * g; t = updates + 1; p -= lr * (m^ / (sqrt(v^) + eps) + decay * p)
 *                     (decoupled decay, Loshchilov & Hutter 2019)
 *  sgd                0 p (RW)  1 g  2 lr cell  3 clip cell        attr, real: first, decayed; decay
 *  Communication kinds are run by comm/, not by kernels.  Of messages between two ranks:
 *  send_start         0 x                                          attr: peer
 *  recv_start         0 y (W)                                      attr: peer
 *                     peer: index, in the group of the op's axis, of the other end
 *  send_wait          0 x         x may be changed again
 *  recv_wait          0 y (W)     y is there; both: the buffer of their start */
#ifndef ECH_KERNELS_KERNELS_H
#define ECH_KERNELS_KERNELS_H

#include "program/op.h" /* ech_op_kind, limits */

/** A resolved operand: address, type and true extents. */
typedef struct ech_tensor {
    void *data; /**< borrowed; NULL: optional argument left out */
    ech_dtype dtype;
    int rank;
    int64_t dim[ECH_MAX_DIMS];
} ech_tensor;

/** Elements of a tensor: the product of its extents. */
static inline int64_t ech_tensor_elems(const ech_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

/** Where a call stands in the run: the key of its random numbers. */
typedef struct ech_rng_site {
    uint64_t seed;
    int64_t step, layer;
    int64_t row0; /**< global index (within the step's global batch) of the first sequence */
} ech_rng_site;

/** One call of a kernel. */
typedef struct ech_kernel_call {
    ech_op_kind kind;
    int n_args;
    ech_tensor arg[ECH_MAX_ARGS];
    int64_t attr[ECH_MAX_ATTRS];
    double real[ECH_MAX_REALS];
    void *work;        /**< borrowed scratch, 64-byte aligned, or NULL */
    size_t work_bytes; /**< of work: the op table's cap */
    ech_rng_site rng;
    int threads; /**< threads the kernel may use, >= 1 */
} ech_kernel_call;

typedef void (*ech_kernel)(const ech_kernel_call *call);

/** A set of kernels.  One static const object per back end. */
typedef struct ech_kernel_set {
    const char *name;
    int priority; /**< higher overrides */
    /** Can this machine run the set; writes the reason if not.  NULL: always. */
    bool (*is_usable)(char *why, size_t n);
    /** Does it take this kind with REAL arguments of this type.  NULL: every non-NULL kernel. */
    bool (*supports)(ech_op_kind kind, ech_dtype real);
    /** Once per process before the first call: start n >= 1 threads, bound to cpus [n] (borrowed;
     *  NULL: not bound).  A NULL start: nothing to do. */
    ech_status (*start)(const int *cpus, int n);
    void (*stop)(void);
    ech_kernel kernel[ECH_N_OPS];
} ech_kernel_set;

/** The reference set. */
const ech_kernel_set *ech_kernel_set_ref(void);

/** Symbol a kernel module exports: const ech_kernel_set *ech_kernel_module(void). */
#define ECH_KERNEL_MODULE_SYMBOL "ech_kernel_module"

/** One kernel per kind for a REAL type. */
typedef struct ech_kernel_table {
    ech_kernel kernel[ECH_N_OPS];
    const ech_kernel_set *from[ECH_N_OPS]; /**< which set each came from */
} ech_kernel_table;

/** Fill a table for REAL type `real` from ref and then from `fast` (may be NULL).
 *  @return ECH_OK | ECH_E_UNSUPPORTED if a kind has no kernel */
ECH_MUST_USE ech_status ech_kernel_table_make(const ech_kernel_set *fast, ech_dtype real,
                                              ech_kernel_table *out);

#endif
