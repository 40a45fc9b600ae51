#include "measure/bench_op.h"
#include "base/checked.h"
#include "program/op_signature.h"

#include <string.h>

enum { ALIGN = 64, PATTERN_REALS = 4096 };

/* --- the op --- */

static ech_dtype dtype_of(ech_op_kind kind, int arg, ech_dtype real)
{
    const char *types = ech_op_row_get(kind)->types;
    switch (types ? types[arg] : 'r') {
    case 'i':
        return ECH_I32;
    case 'l':
        return ECH_I64;
    case 'd':
        return ECH_F64;
    default:
        return real;
    }
}

static ech_operand operand(const ech_sig_arg *sig, const ech_bench_sizes *sizes, ech_dtype dtype)
{
    ech_operand a = {.region = ECH_REGION_WORK, .access = sig->access, .dtype = dtype};
    a.rank = sig->is_cell ? 0 : sig->is_any ? 1 : sig->n_labels;
    for (int d = 0; d < a.rank; d++) {
        const int64_t n = sig->is_any ? sizes->flat : sizes->of[(unsigned char)sig->label[d]];
        ECH_ASSERT(n > 0);
        a.dim[d] = (ech_dim){n, ECH_EXTENT_BOUND};
    }
    return a;
}

/* In the order of kernels/kernels.h. */
static void set_attributes(ech_op *op, const ech_bench_sizes *s)
{
    int64_t attr[ECH_MAX_ATTRS] = {0};
    switch (op->kind) {
    case ECH_OP_POSITIONS:
    case ECH_OP_POSITIONS_BACKWARD:
    case ECH_OP_ROPE:
    case ECH_OP_DROPOUT:
        attr[0] = s->seq;
        break;
    case ECH_OP_ATTENTION:
    case ECH_OP_ATTENTION_BACKWARD:
        attr[0] = s->seq;
        attr[4] = s->of['g'];
        break;
    case ECH_OP_XENT_SHARD:
    case ECH_OP_XENT_BACKWARD:
        attr[0] = s->of['v'];
        break;
    case ECH_OP_KV_FOLD:
    case ECH_OP_KV_SPREAD:
        attr[1] = 1;
        break;
    case ECH_OP_SUMSQ:
        attr[3] = attr[7] = 1; /* periods; nothing stands in copies */
        break;
    case ECH_OP_CLIP:
        attr[0] = 1;
        break;
    case ECH_OP_ADAMW:
    case ECH_OP_SGD:
        attr[1] = s->flat;
        break;
    default:
        break;
    }
    for (int i = 0; i < ECH_MAX_ATTRS; i++)
        op->attr[i] = ech_expr_const(attr[i]);
}

static void set_reals(ech_op *op)
{
    static const double adamw[ECH_MAX_REALS] = {0.9, 0.95, 1e-8, 0.1};
    if (op->kind == ECH_OP_ADAMW)
        memcpy(op->real, adamw, sizeof adamw);
    else if (op->kind == ECH_OP_ATTENTION || op->kind == ECH_OP_ATTENTION_BACKWARD)
        op->real[0] = 0.125; /* scale; no dropout */
    else if (op->kind == ECH_OP_DROPOUT || op->kind == ECH_OP_SGD)
        op->real[0] = 0.1;
    else if (op->kind == ECH_OP_SCALE || op->kind == ECH_OP_CLIP)
        op->real[0] = 1.0;
    else
        op->real[0] = 1e-5; /* eps of norms */
}

ech_op ech_bench_op(ech_op_kind kind, const ech_bench_sizes *sizes, ech_dtype real)
{
    const ech_signature sig = ech_signature_read(kind);
    const ech_op_row *row = ech_op_row_get(kind);
    ech_op op = {.kind = kind, .n_args = sig.n};
    for (int i = 0; i < sig.n; i++)
        op.arg[i] = operand(&sig.arg[i], sizes, dtype_of(kind, i, real));
    set_attributes(&op, sizes);
    set_reals(&op);
    op.work_bytes = row->work_bytes ? row->work_bytes(&op) : 0;
    return op;
}

size_t ech_bench_op_bytes(const ech_op *op)
{
    size_t bytes = ech_align_up(op->work_bytes, ALIGN);
    for (int i = 0; i < op->n_args; i++)
        bytes += ech_align_up(ech_operand_bytes(&op->arg[i]), ALIGN);
    return bytes;
}

/* --- its call --- */

static double value_at(uint32_t i)
{
    const uint32_t word = (i * 2654435761u) ^ (i >> 7);
    return ((double)(word >> 8) + 1.0) * 0x1p-24 - 0.5;
}

/* One pattern again and again: as quick as memory. */
static void fill_reals(const ech_operand *a, void *at, bool is_positive)
{
    double pattern[PATTERN_REALS];
    const size_t width = ech_dtype_bytes(a->dtype);
    const size_t bytes = ech_operand_bytes(a);
    for (uint32_t i = 0; i < PATTERN_REALS; i++) {
        const double x = value_at(i);
        ech_dtype_store(a->dtype, pattern, i, is_positive ? x * x : x);
    }
    for (size_t done = 0; done < bytes; done += PATTERN_REALS * width) {
        const size_t left = bytes - done;
        memcpy((unsigned char *)at + done, pattern,
               left < PATTERN_REALS * width ? left : PATTERN_REALS * width);
    }
}

/* Rows of a table in no order, and labels of a vocabulary. */
static void fill_ids(const ech_op *op, const ech_operand *a, int32_t *at)
{
    const int64_t bound = op->kind == ECH_OP_EMBED            ? op->arg[1].dim[0].bound
                          : op->kind == ECH_OP_EMBED_BACKWARD ? op->arg[2].dim[0].bound
                          : op->kind == ECH_OP_XENT_SHARD || op->kind == ECH_OP_XENT_BACKWARD
                              ? op->arg[0].dim[1].bound
                              : 100;
    for (int64_t i = 0; i < ech_operand_elems(a); i++)
        at[i] = (int32_t)(((uint64_t)i * 2654435761u) % (uint64_t)bound);
}

static void fill(const ech_op *op, int arg, void *at)
{
    const ech_operand *a = &op->arg[arg];
    if (a->dtype == ECH_I32) {
        fill_ids(op, a, at);
    } else if (a->dtype == ECH_I64) {
        for (int64_t i = 0; i < ech_operand_elems(a); i++)
            ((int64_t *)at)[i] = a->rank == 0 ? 1000 : 0;
    } else if (a->rank == 0) {
        ech_dtype_store(a->dtype, at, 0, 1e-6); /* learning rate, seed, factor */
    } else {
        fill_reals(a, at, op->kind == ECH_OP_ADAMW && arg == 3);
    }
}

/* Where an op may miss that argument in training, the reference says NULL: a position is given in
 * generation only. */
static bool is_left_out(const ech_op *op, int arg)
{
    return (op->kind == ECH_OP_POSITIONS || op->kind == ECH_OP_ROPE) && arg == 2;
}

void ech_bench_fill(const ech_op *op, void *memory)
{
    unsigned char *at = memory;
    for (int i = 0; i < op->n_args; i++) {
        fill(op, i, at);
        at += ech_align_up(ech_operand_bytes(&op->arg[i]), ALIGN);
    }
}

void ech_bench_call(const ech_op *op, void *memory, int threads, ech_kernel_call *out)
{
    unsigned char *at = memory;
    *out = (ech_kernel_call){
        .kind = op->kind, .n_args = op->n_args, .work_bytes = op->work_bytes, .threads = threads};
    for (int i = 0; i < op->n_args; i++) {
        const ech_operand *a = &op->arg[i];
        ech_tensor *t = &out->arg[i];
        *t = (ech_tensor){.dtype = a->dtype, .rank = a->rank};
        for (int d = 0; d < a->rank; d++)
            t->dim[d] = a->dim[d].bound;
        if (!is_left_out(op, i))
            t->data = at;
        at += ech_align_up(ech_operand_bytes(a), ALIGN);
    }
    for (int i = 0; i < ECH_MAX_ATTRS; i++)
        out->attr[i] = op->attr[i].node[0].value;
    memcpy(out->real, op->real, sizeof out->real);
    out->work = op->work_bytes ? at : NULL;
}

/* --- sizes of kinds that move bytes --- */

static bool is_flat(ech_op_kind kind)
{
    return ech_op_row_get(kind)->signature[0] != '\0' &&
           strchr(ech_op_row_get(kind)->signature, '~') != NULL;
}

static bool is_by_bytes(ech_op_kind kind)
{
    return !ech_op_is_comm(kind) && kind != ECH_OP_LINEAR && kind != ECH_OP_LINEAR_DGRAD &&
           kind != ECH_OP_LINEAR_WGRAD && kind != ECH_OP_ATTENTION &&
           kind != ECH_OP_ATTENTION_BACKWARD && kind != ECH_OP_ATTENTION_CACHED;
}

/* Nothing of them grows with the model. */
static bool is_of_one_size(ech_op_kind kind)
{
    return kind == ECH_OP_CLIP || kind == ECH_OP_LOSS_SEED;
}

bool ech_bench_sizes_of(ech_op_kind kind, int number, ech_bench_sizes *out)
{
    /* rows of 512 reals: 16 KiB to 2 MiB an operand in fp32 */
    static const int64_t rows[] = {8, 64, 256, 1024};
    if (!is_by_bytes(kind) || number < 0 ||
        number >= (is_of_one_size(kind) ? 1 : (int)(sizeof rows / sizeof rows[0])))
        return false;
    const int64_t n = rows[number];
    const bool is_vocabulary = kind == ECH_OP_XENT_SHARD || kind == ECH_OP_XENT_BACKWARD;
    const bool is_table = kind == ECH_OP_EMBED || kind == ECH_OP_EMBED_BACKWARD;
    *out = (ech_bench_sizes){.flat = n * 512, .seq = n < 128 ? n : 128};
    out->of['n'] = is_vocabulary && n > 16 ? n / 4 : n;
    out->of['h'] = out->of['f'] = 512;
    out->of['v'] = is_vocabulary ? 2048 : is_table ? 4096 : 512;
    out->of['p'] = out->of['t'] = out->seq;
    out->of['x'] = 2;
    out->of['w'] = 1;
    out->of['m'] = kind == ECH_OP_SUM_CELLS ? n : 2;
    out->of['g'] = 4; /* groups of r = 2 heads of 64 */
    out->of['q'] = 4;
    out->of['k'] = 3;
    out->of['d'] = 64;
    out->of['e'] = kind == ECH_OP_KV_FOLD || kind == ECH_OP_KV_SPREAD ? n * 64 : 128;
    out->of['r'] = 2;
    out->of['b'] = ECH_SUMSQ_WORDS;
    if (kind == ECH_OP_ROPE)
        out->of['f'] = 32;
    if (!is_flat(kind))
        out->flat = 0;
    return true;
}
