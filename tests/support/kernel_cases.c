#include "kernel_cases.h"

#include "base/dtype.h" /* loads and stores by type */
#include "base/rng.h"   /* values */

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the table: arguments and variants of each kind --- */

/* What an argument holds, and of which type it is. */
typedef enum holds {
    UNIT,     /* REAL in (-1, 1) */
    GAMMA,    /* REAL in (0.5, 1.5) */
    SQUARE,   /* REAL in (0, 1) */
    LOGITS,   /* REAL in (-4, 4), NaN where the id does not exist */
    PARTS,    /* double in (-1, 1); -inf of a share without a column */
    WIDE,     /* REAL of either sign, 2^-60 to 2^60 */
    CACHE,    /* REAL in (-1, 1), NaN from the first position to be written on */
    IDS,      /* int32 in [0, vocab) */
    LABELS,   /* int32 in [0, vocab), or -1 */
    ANGLES,   /* double (cos, sin) */
    CELL_F64, /* double in (0.5, 1.5) */
    CELL_I64, /* int64: sizes.position */
    EXACT     /* int64: words of an exact sum below 2^32 */
} holds;

/* Shapes are written by letter (see size_of); "" is a scalar cell. */
typedef struct arg_row {
    const char *shape;
    ech_access access;
    holds holds;
    bool is_packed;
} arg_row;

/* Switches of a variant. */
enum {
    WINDOW = 1,
    DROPOUT = 2,
    INVERSE = 4,
    PARTIAL = 8,   /* half of the head is rotated */
    POSITION = 16, /* the int64 cell is 4, not 0 */
    MASKED = 32,   /* all labels are -1 */
    OFF = 64,      /* dropout or clipping switched off by its real */
    LARGE = 128,   /* a maximal norm that is not reached */
    PAIRED = 256,  /* rotary pairs are neighbours */
    SHARE = 512,   /* of the vocabulary, the heads, a flat range: some in the midst */
    LAST = 1024,   /* the end of the vocabulary */
    BEYOND = 2048, /* behind it: no id is there; behind the decayed elements */
    TOKEN = 4096,  /* tokens do not begin with the micro-batch */
    MAX_VARIANTS = 6
};

typedef struct variant_row {
    const char *name; /* NULL: end of the list */
    unsigned absent;  /* bit mask of arguments left out */
    int alias, of;    /* argument `alias` lies on argument `of`; both 0: none */
    unsigned option;
} variant_row;

typedef struct kind_row {
    arg_row arg[ECH_MAX_ARGS];
    variant_row variant[MAX_VARIANTS];
} kind_row;

#define IN(shape, holds)                                                                           \
    {                                                                                              \
        shape, ECH_READ, holds, false                                                              \
    }
#define OUT(shape, holds)                                                                          \
    {                                                                                              \
        shape, ECH_WRITE, holds, false                                                             \
    }
#define INOUT(shape, holds)                                                                        \
    {                                                                                              \
        shape, ECH_READ_WRITE, holds, false                                                        \
    }
#define PARAM(shape, holds)                                                                        \
    {                                                                                              \
        shape, ECH_READ, holds, true                                                               \
    }
#define GRAD(shape, holds)                                                                         \
    {                                                                                              \
        shape, ECH_READ_WRITE, holds, true                                                         \
    }
#define PLAIN                                                                                      \
    {                                                                                              \
        {                                                                                          \
            .name = "plain"                                                                        \
        }                                                                                          \
    }

static const kind_row kind_rows[KERNEL_CASE_KINDS] = {
    [ECH_OP_ZERO] = {{OUT("nh", UNIT)}, PLAIN},
    [ECH_OP_COPY] = {{IN("nh", UNIT), OUT("nh", UNIT)}, PLAIN},
    [ECH_OP_SCALE] = {{INOUT("nh", UNIT)}, PLAIN},
    [ECH_OP_ADD] = {{IN("nh", UNIT), IN("nh", UNIT), OUT("nh", UNIT)},
                    {{.name = "apart"},
                     {.name = "y on a", .alias = 2, .of = 0},
                     {.name = "y on b", .alias = 2, .of = 1}}},
    [ECH_OP_EMBED] = {{IN("n", IDS), PARAM("Vh", UNIT), OUT("nh", UNIT)},
                      {{.name = "whole"}, {.name = "a share", .option = SHARE}}},
    [ECH_OP_EMBED_BACKWARD] = {{IN("n", IDS), IN("nh", UNIT), GRAD("Vh", UNIT)},
                               {{.name = "whole"},
                                {.name = "a share", .option = SHARE},
                                {.name = "no id here", .option = BEYOND}}},
    [ECH_OP_POSITIONS] = {{INOUT("nh", UNIT), PARAM("Sh", UNIT), IN("", CELL_I64)},
                          {{.name = "plain", .absent = 1 << 2},
                           {.name = "later tokens", .absent = 1 << 2, .option = TOKEN},
                           {.name = "from a cell", .option = POSITION | TOKEN}}},
    [ECH_OP_POSITIONS_BACKWARD] = {{IN("nh", UNIT), GRAD("Sh", UNIT)},
                                   {{.name = "plain"}, {.name = "later tokens", .option = TOKEN}}},
    [ECH_OP_BIAS] = {{INOUT("nh", UNIT), PARAM("h", UNIT)}, PLAIN},
    [ECH_OP_BIAS_BACKWARD] = {{IN("nh", UNIT), GRAD("h", UNIT)}, PLAIN},
    [ECH_OP_LAYERNORM] = {{IN("nh", UNIT), PARAM("h", GAMMA), PARAM("h", UNIT), OUT("nh", UNIT),
                           OUT("n", UNIT), OUT("n", UNIT)},
                          PLAIN},
    [ECH_OP_LAYERNORM_BACKWARD] = {{IN("nh", UNIT), PARAM("h", GAMMA), IN("n", UNIT), IN("n", UNIT),
                                    IN("nh", UNIT), IN("nh", UNIT), OUT("nh", UNIT),
                                    GRAD("h", UNIT), GRAD("h", UNIT)},
                                   {{.name = "dres"},
                                    {.name = "no dres", .absent = 1 << 5},
                                    {.name = "dx on dres", .alias = 6, .of = 5}}},
    [ECH_OP_RMSNORM] = {{IN("nh", UNIT), PARAM("h", GAMMA), OUT("nh", UNIT), OUT("n", UNIT)},
                        PLAIN},
    [ECH_OP_RMSNORM_BACKWARD] = {{IN("nh", UNIT), PARAM("h", GAMMA), IN("n", UNIT), IN("nh", UNIT),
                                  IN("nh", UNIT), OUT("nh", UNIT), GRAD("h", UNIT)},
                                 {{.name = "dres"},
                                  {.name = "no dres", .absent = 1 << 4},
                                  {.name = "dx on dres", .alias = 5, .of = 4}}},
    [ECH_OP_LINEAR] = {{IN("nh", UNIT), PARAM("fh", UNIT), PARAM("f", UNIT), OUT("nf", UNIT)},
                       {{.name = "bias"}, {.name = "no bias", .absent = 1 << 2}}},
    [ECH_OP_LINEAR_DGRAD] = {{IN("nf", UNIT), PARAM("fh", UNIT), OUT("nh", UNIT)}, PLAIN},
    [ECH_OP_LINEAR_WGRAD] = {{IN("nh", UNIT), IN("nf", UNIT), GRAD("fh", UNIT), GRAD("f", UNIT)},
                             {{.name = "dbias"}, {.name = "no dbias", .absent = 1 << 3}}},
    [ECH_OP_QK_NORM] = {{IN("ngqd", UNIT), PARAM("d", GAMMA), PARAM("d", GAMMA), OUT("ngqd", UNIT),
                         OUT("ngk", UNIT)},
                        PLAIN},
    [ECH_OP_QK_NORM_BACKWARD] = {{IN("ngqd", UNIT), PARAM("d", GAMMA), PARAM("d", GAMMA),
                                  IN("ngk", UNIT), INOUT("ngqd", UNIT), GRAD("d", UNIT),
                                  GRAD("d", UNIT)},
                                 PLAIN},
    [ECH_OP_ROPE] = {{INOUT("ngqd", UNIT), IN("Sz2", ANGLES), IN("", CELL_I64)},
                     {{.name = "forward", .absent = 1 << 2},
                      {.name = "inverse", .absent = 1 << 2, .option = INVERSE},
                      {.name = "partial", .absent = 1 << 2, .option = PARTIAL},
                      {.name = "neighbours", .absent = 1 << 2, .option = PAIRED},
                      {.name = "from a cell", .option = POSITION}}},
    [ECH_OP_ATTENTION] = {{IN("ngqd", UNIT), OUT("nga", UNIT), OUT("ngr", UNIT)},
                          {{.name = "plain"},
                           {.name = "window", .option = WINDOW},
                           {.name = "dropout", .option = DROPOUT},
                           {.name = "window, dropout, some heads",
                            .option = WINDOW | DROPOUT | SHARE}}},
    [ECH_OP_ATTENTION_BACKWARD] = {{IN("ngqd", UNIT), IN("nga", UNIT), IN("ngr", UNIT),
                                    IN("nga", UNIT), OUT("ngqd", UNIT)},
                                   {{.name = "plain"},
                                    {.name = "window", .option = WINDOW},
                                    {.name = "dropout", .option = DROPOUT},
                                    {.name = "window, dropout, some heads",
                                     .option = WINDOW | DROPOUT | SHARE}}},
    [ECH_OP_ATTENTION_CACHED] = {{IN("ngqd", UNIT), INOUT("Sgd", CACHE), INOUT("Sgd", CACHE),
                                  IN("", CELL_I64), OUT("nga", UNIT)},
                                 {{.name = "empty cache"},
                                  {.name = "later", .option = POSITION},
                                  {.name = "later, window", .option = POSITION | WINDOW}}},
    [ECH_OP_SWIGLU] = {{IN("n2f", UNIT), OUT("nf", UNIT)}, PLAIN},
    [ECH_OP_SWIGLU_BACKWARD] = {{IN("n2f", UNIT), IN("nf", UNIT), OUT("n2f", UNIT)}, PLAIN},
    [ECH_OP_GELU] = {{IN("nf", UNIT), OUT("nf", UNIT)}, PLAIN},
    [ECH_OP_GELU_BACKWARD] = {{IN("nf", UNIT), IN("nf", UNIT), OUT("nf", UNIT)},
                              {{.name = "apart"}, {.name = "dx on dy", .alias = 2, .of = 1}}},
    [ECH_OP_DROPOUT] = {{IN("nh", UNIT), IN("nh", UNIT), OUT("nh", UNIT)},
                        {{.name = "no residual", .absent = 1 << 1},
                         {.name = "residual"},
                         {.name = "y on x", .alias = 2, .of = 0},
                         {.name = "y on residual", .alias = 2, .of = 1},
                         {.name = "later tokens", .option = TOKEN},
                         {.name = "p = 0", .option = OFF}}},
    [ECH_OP_XENT_SHARD] = {{IN("nV", LOGITS), IN("n", LABELS), OUT("12n", PARTS)},
                           {{.name = "whole"},
                            {.name = "a share", .option = SHARE},
                            {.name = "the last share", .option = LAST},
                            {.name = "no column", .option = BEYOND},
                            {.name = "all masked", .option = MASKED}}},
    [ECH_OP_XENT] = {{IN("t2n", PARTS), IN("n", LABELS), OUT("n", UNIT), INOUT("", CELL_F64)},
                     {{.name = "one part"},
                      {.name = "three parts", .option = SHARE},
                      {.name = "one without a column", .option = SHARE | BEYOND},
                      {.name = "all masked", .option = MASKED}}},
    [ECH_OP_XENT_BACKWARD] = {{INOUT("nV", LOGITS), IN("n", LABELS), IN("n", UNIT),
                               IN("", CELL_F64)},
                              {{.name = "whole"},
                               {.name = "a share", .option = SHARE},
                               {.name = "the last share", .option = LAST},
                               {.name = "no column", .option = BEYOND},
                               {.name = "all masked", .option = MASKED}}},
    [ECH_OP_COUNT_TOKENS] = {{IN("n", LABELS), OUT("", CELL_I64)},
                             {{.name = "plain"}, {.name = "all masked", .option = MASKED}}},
    [ECH_OP_LOSS_SEED] = {{IN("", CELL_I64), IN("", CELL_F64), OUT("", CELL_F64)},
                          {{.name = "tokens", .option = POSITION}, {.name = "no token"}}},
    [ECH_OP_SUM_CELLS] = {{IN("m", CELL_F64), OUT("", CELL_F64)}, PLAIN},
    [ECH_OP_KV_FOLD] = {{PARAM("gqf", UNIT), OUT("g2f", UNIT)},
                        {{.name = "no copies"}, {.name = "copies", .option = SHARE}}},
    [ECH_OP_KV_SPREAD] = {{IN("g2f", UNIT), GRAD("gqf", UNIT)},
                          {{.name = "no copies"}, {.name = "copies", .option = SHARE}}},
    [ECH_OP_SUMSQ] = {{PARAM("e", WIDE), INOUT("b", EXACT), INOUT("b", EXACT)},
                      {{.name = "no copies", .absent = 1 << 2},
                       {.name = "copies", .option = SHARE},
                       {.name = "copies in two parts", .option = SHARE | TOKEN}}},
    [ECH_OP_CLIP] = {{IN("b", EXACT), IN("b", EXACT), IN("b", EXACT), IN("", CELL_F64),
                      OUT("", CELL_F64), OUT("", CELL_F64)},
                     {{.name = "clips"},
                      {.name = "does not clip", .option = LARGE},
                      {.name = "off", .option = OFF},
                      {.name = "one sum", .absent = 1 << 1 | 1 << 2}}},
    [ECH_OP_ADAMW] = {{GRAD("e", UNIT), PARAM("e", UNIT), GRAD("e", UNIT), GRAD("e", SQUARE),
                       IN("", CELL_F64), IN("", CELL_F64), IN("", CELL_I64)},
                      {{.name = "first update"},
                       {.name = "later update", .option = POSITION},
                       {.name = "the end of decay", .option = SHARE},
                       {.name = "no decay", .option = BEYOND}}},
    [ECH_OP_SGD] = {{GRAD("e", UNIT), PARAM("e", UNIT), IN("", CELL_F64), IN("", CELL_F64)},
                    {{.name = "decay"},
                     {.name = "the end of decay", .option = SHARE},
                     {.name = "no decay", .option = BEYOND}}},
};

#undef IN
#undef OUT
#undef INOUT
#undef PARAM
#undef GRAD
#undef PLAIN

int kernel_case_variants(ech_op_kind kind)
{
    int n = 0;
    while (n < MAX_VARIANTS && kind_rows[kind].variant[n].name)
        n++;
    return n;
}

/* --- shapes --- */

typedef struct sizes {
    int64_t batch, seq, hidden, groups, r, head_dim, ffn, vocab, padded;
    int64_t half;           /* rotated pairs */
    int64_t position;       /* value of the int64 cell */
    int64_t room;           /* positions of a table beyond those in use */
    int64_t first, columns; /* ids of a share of the vocabulary */
    bool is_empty_part;     /* the last part of the loss is of a share without a column */
} sizes;

/* Small and odd first; then across vector widths, blocks of 64 and the reference's tiles of 256; no
 * token at all in the fourth.  Normalised rows have at least 3 elements: the gradient of a shorter
 * one is zero but for rounding, and nothing relative can be said of it. */
static const int64_t size_rows[][9] = {
    /* batch, seq, hidden, groups, r, head_dim, ffn, vocab, padded */
    {2, 5, 7, 2, 3, 6, 5, 9, 11},        {1, 7, 5, 1, 1, 4, 3, 5, 8},
    {3, 1, 3, 3, 2, 8, 1, 2, 3},         {0, 4, 13, 2, 2, 4, 9, 17, 32},
    {1, 17, 33, 1, 4, 18, 67, 31, 33},   {2, 33, 65, 2, 1, 34, 130, 127, 128},
    {1, 70, 31, 1, 2, 66, 17, 257, 384}, {5, 3, 300, 1, 1, 262, 259, 513, 640},
};

static sizes listed_sizes(const int64_t row[9])
{
    return (sizes){.batch = row[0],
                   .seq = row[1],
                   .hidden = row[2],
                   .groups = row[3],
                   .r = row[4],
                   .head_dim = row[5],
                   .ffn = row[6],
                   .vocab = row[7],
                   .padded = row[8]};
}

/* Shapes of seeds beyond the rows. */
static sizes drawn_sizes(uint64_t seed)
{
    const ech_rng_key key = ech_rng_key_make(seed, ECH_RNG_TEST, 0, -1);
    int64_t u[9];
    for (int i = 0; i < 9; i++)
        u[i] = (int64_t)(ech_rng_u32(&key, (uint64_t)i) >> 8);
    const int64_t vocab = 2 + u[7] % 150;
    return (sizes){.batch = 1 + u[0] % 3,
                   .seq = 1 + u[1] % 24,
                   .hidden = 3 + u[2] % 90,
                   .groups = 1 + u[3] % 3,
                   .r = 1 + u[4] % 4,
                   .head_dim = 2 * (2 + u[5] % 20),
                   .ffn = 1 + u[6] % 90,
                   .vocab = vocab,
                   .padded = vocab + u[8] % 40};
}

/* Ids of a share: all, a third from the midst, the last third with what is padded, or none. */
static void set_share(sizes *z, unsigned option)
{
    z->columns = z->padded;
    z->is_empty_part = (option & BEYOND) != 0;
    if (option & SHARE)
        z->first = (z->vocab + 1) / 3;
    if (option & LAST)
        z->first = 2 * z->vocab / 3;
    if (option & BEYOND)
        z->first = z->vocab + 1;
    if (option & (SHARE | BEYOND))
        z->columns = z->vocab / 3 + 1;
    if (option & LAST)
        z->columns = z->padded - z->first;
}

static sizes sizes_of(ech_op_kind kind, unsigned option, uint64_t seed)
{
    const uint64_t n_rows = sizeof size_rows / sizeof size_rows[0];
    sizes z = seed < n_rows ? listed_sizes(size_rows[seed]) : drawn_sizes(seed);
    if (kind == ECH_OP_ATTENTION_CACHED) /* one sequence, or no new token */
        z.batch = z.batch > 0;
    z.half = option & PARTIAL ? z.head_dim / 4 : z.head_dim / 2;
    z.position = option & POSITION ? 4 : 0;
    z.room = (int64_t)(seed % 3);
    set_share(&z, option);
    return z;
}

static int64_t size_of(const sizes *z, char letter)
{
    switch (letter) {
    case 'n':
        return z->batch * z->seq;
    case 'h':
        return z->hidden;
    case 'f':
        return z->ffn;
    case 'g':
        return z->groups;
    case 'r':
        return z->r;
    case 'k': /* queries and key */
        return z->r + 1;
    case 'q': /* queries, key and value */
        return z->r + 2;
    case 'd':
        return z->head_dim;
    case 'a':
        return z->r * z->head_dim;
    case 'V':
        return z->columns;
    case 't': /* parts of the loss */
        return z->first > 0 ? 3 : 1;
    case 'b':
        return ECH_SUMSQ_WORDS;
    case '1':
        return 1;
    case 'S':
        return z->position + z->seq + z->room;
    case 'z':
        return z->half;
    case '2':
        return 2;
    case 'e':
        return z->batch * z->hidden * z->ffn;
    case 'm':
        return z->seq;
    default:
        fprintf(stderr, "kernel_cases: no size '%c'\n", letter);
        abort();
    }
}

/* --- building --- */

static ech_dtype dtype_of(holds what, ech_dtype real)
{
    switch (what) {
    case IDS:
    case LABELS:
        return ECH_I32;
    case PARTS:
    case ANGLES:
    case CELL_F64:
        return ECH_F64;
    case CELL_I64:
    case EXACT:
        return ECH_I64;
    case UNIT:
    case GAMMA:
    case SQUARE:
    case LOGITS:
    case WIDE:
    case CACHE:
        break;
    }
    return real;
}

int64_t kernel_case_arg_elems(const kernel_case *c, int arg)
{
    return ech_tensor_elems(&c->call.arg[arg]);
}

size_t kernel_case_arg_bytes(const kernel_case *c, int arg)
{
    return (size_t)ech_tensor_elems(&c->call.arg[arg]) * ech_dtype_bytes(c->call.arg[arg].dtype);
}

/* Exactly the bytes asked for, so that AddressSanitizer sees the end; never NULL. */
static void *aligned_bytes(size_t bytes, size_t align)
{
    void *p = NULL;
    if (posix_memalign(&p, align, bytes > 0 ? bytes : 1) != 0) {
        fprintf(stderr, "kernel_cases: out of memory\n");
        abort();
    }
    return p;
}

/* Value i in [-1, 1], exact in fp32. */
static double value(const ech_rng_key *key, int64_t i)
{
    return (double)(float)(2.0 * ech_rng_uniform(key, (uint64_t)i) - 1.0);
}

/* A whole number in [0, n) for u in [0, 1]. */
static double whole(double u, int64_t n)
{
    return fmin(floor(u * (double)n), (double)(n - 1));
}

/* Word i of an exact sum of the order of 2^30. */
static double word_of(double u, int64_t i)
{
    const int64_t one = -ECH_SUMSQ_EXPONENT / 32;
    return i > one || i == ECH_SUMSQ_LIMBS ? 0.0 : whole(0.5 * (u + 1.0), INT64_C(1) << 30);
}

/* Is element i of the parts [t, 2, N] the log-sum of the last one. */
static bool is_last_sum(int64_t i, const sizes *z)
{
    const int64_t n = z->batch * z->seq;
    return i / n == 2 * (size_of(z, 't') - 1);
}

static double element(holds what, double u, int64_t i, const sizes *z)
{
    switch (what) {
    case GAMMA:
    case CELL_F64:
        return (double)(float)(1.0 + 0.5 * u);
    case SQUARE:
        return (double)(float)(u * u);
    case LOGITS:
        return z->first + i % z->columns < z->vocab ? 4.0 * u : (double)NAN;
    case PARTS:
        return z->is_empty_part && is_last_sum(i, z) ? -(double)INFINITY : u;
    case WIDE:
        return ldexp(u, (int)(i * 37 % 121) - 60);
    case EXACT:
        return word_of(u, i);
    case CACHE:
        return i / (z->groups * z->head_dim) < z->position ? u : (double)NAN;
    case IDS:
        return whole(0.5 * (u + 1.0), z->vocab);
    case LABELS:
        return u < -0.4 ? -1.0 : whole((u + 0.4) / 1.4, z->vocab);
    case ANGLES:
        return i % 2 == 0 ? cos(0.7 * (double)(i / 2)) : sin(0.7 * (double)(i / 2));
    case CELL_I64:
        return (double)z->position;
    case UNIT:
        break;
    }
    return u;
}

static void fill(ech_tensor *t, holds what, const ech_rng_key *key, const sizes *z)
{
    const int64_t n = ech_tensor_elems(t);
    for (int64_t i = 0; i < n; i++)
        ech_dtype_store(t->dtype, t->data, (size_t)i, element(what, value(key, i), i, z));
}

static void add_arg(kernel_case *c, int i, ech_dtype real, const sizes *z)
{
    const arg_row *row = &kind_rows[c->call.kind].arg[i];
    ech_tensor *t = &c->call.arg[i];
    t->dtype = dtype_of(row->holds, real);
    t->rank = (int)strlen(row->shape);
    for (int d = 0; d < t->rank; d++)
        t->dim[d] = size_of(z, row->shape[d]);
    c->is_packed[i] = row->is_packed;
    c->owned[i] = aligned_bytes(kernel_case_arg_bytes(c, i), row->is_packed ? sizeof(double) : 64);
    t->data = c->owned[i];
    const ech_rng_key key = ech_rng_key_make(c->call.rng.seed, ECH_RNG_TEST, i, (int)c->call.kind);
    fill(t, row->holds, &key, z);
}

static void put_on(kernel_case *c, int alias, int of)
{
    free(c->owned[alias]);
    c->owned[alias] = NULL;
    c->alias[alias] = of;
    c->call.arg[alias].data = c->call.arg[of].data;
}

static void add_args(kernel_case *c, const variant_row *variant, ech_dtype real, const sizes *z)
{
    const kind_row *row = &kind_rows[c->call.kind];
    for (int i = 0; i < ECH_MAX_ARGS && row->arg[i].shape; i++) {
        c->call.n_args = i + 1;
        c->alias[i] = -1;
        c->access[i] = row->arg[i].access;
        if (!(variant->absent & (1u << i)))
            add_arg(c, i, real, z);
    }
    if (variant->alias > 0)
        put_on(c, variant->alias, variant->of);
}

static void set_attention_switches(ech_kernel_call *call, unsigned option, const sizes *z)
{
    const int window = call->kind == ECH_OP_ATTENTION_CACHED ? 0 : 1;
    call->real[0] = 1.0 / sqrt((double)z->head_dim);
    call->attr[0] = z->seq;
    call->attr[window] = option & WINDOW ? 3 : 0;
    if (call->kind == ECH_OP_ATTENTION_CACHED)
        return;
    call->attr[2] = ECH_RNG_DROPOUT_ATTENTION;
    call->attr[3] = option & SHARE ? 2 : 0;
    call->attr[4] = z->groups * z->r + (option & SHARE ? 5 : 0);
    call->real[1] = option & DROPOUT ? 0.3 : 0.0;
}

/* A flat range that starts at 3: decayed to its end, in part, or not at all. */
static void set_decay(ech_kernel_call *call, unsigned option, const sizes *z)
{
    const int64_t n = size_of(z, 'e');
    call->attr[0] = 3;
    call->attr[1] = option & SHARE ? 3 + n / 3 : option & BEYOND ? 2 : 3 + n;
}

/* A flat range that starts at 7: of each 13 the last 5 are copies, or of two parts. */
static void set_copies(ech_kernel_call *call, unsigned option, const sizes *z)
{
    const int64_t end = 7 + size_of(z, 'e') - 3;
    call->attr[0] = 7;
    if (option & SHARE)
        memcpy(call->attr + 1, (int64_t[]){10, end, 13, 5}, 4 * sizeof *call->attr);
    if (option & TOKEN) {
        call->attr[2] = end / 2;
        memcpy(call->attr + 5, (int64_t[]){end / 2, end, 4, 1}, 4 * sizeof *call->attr);
    }
}

/* Attributes and reals, in the order of kernels.h. */
static void set_switches(ech_kernel_call *call, unsigned option, const sizes *z)
{
    switch (call->kind) {
    case ECH_OP_SCALE:
        call->real[0] = -0.375;
        break;
    case ECH_OP_LAYERNORM:
    case ECH_OP_RMSNORM:
    case ECH_OP_QK_NORM:
        call->real[0] = 1e-5;
        break;
    case ECH_OP_EMBED:
    case ECH_OP_EMBED_BACKWARD:
        call->attr[0] = z->first;
        break;
    case ECH_OP_POSITIONS:
    case ECH_OP_POSITIONS_BACKWARD:
        call->attr[0] = z->seq;
        call->attr[1] = option & TOKEN ? z->seq + z->seq / 2 : 0;
        break;
    case ECH_OP_ROPE:
        call->attr[0] = z->seq;
        call->attr[1] = option & INVERSE ? 1 : 0;
        call->attr[2] = option & PAIRED ? 1 : 0;
        break;
    case ECH_OP_ATTENTION:
    case ECH_OP_ATTENTION_BACKWARD:
    case ECH_OP_ATTENTION_CACHED:
        set_attention_switches(call, option, z);
        break;
    case ECH_OP_DROPOUT:
        call->attr[0] = z->seq;
        call->attr[1] = ECH_RNG_DROPOUT_MLP;
        call->attr[2] = option & TOKEN ? z->seq / 2 + 1 : 0;
        call->real[0] = option & OFF ? 0.0 : 0.3;
        break;
    case ECH_OP_XENT_SHARD:
    case ECH_OP_XENT_BACKWARD:
        call->attr[0] = z->vocab;
        call->attr[1] = z->first;
        break;
    case ECH_OP_KV_FOLD:
    case ECH_OP_KV_SPREAD:
        call->attr[0] = option & SHARE ? z->groups : 0;
        call->attr[1] = option & SHARE ? 2 : 1;
        break;
    case ECH_OP_SUMSQ:
        set_copies(call, option, z);
        break;
    case ECH_OP_CLIP:
        call->attr[0] = 1;
        call->real[0] = option & OFF ? 0.0 : option & LARGE ? 1e9 : 0.25;
        break;
    case ECH_OP_ADAMW:
        set_decay(call, option, z);
        call->real[0] = 0.9;
        call->real[1] = 0.95;
        call->real[2] = 1e-8;
        call->real[3] = 0.1;
        break;
    case ECH_OP_SGD:
        set_decay(call, option, z);
        call->real[0] = 0.1;
        break;
    default:
        break;
    }
}

static void mask_all(ech_tensor *labels)
{
    const int64_t n = ech_tensor_elems(labels);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)labels->data)[i] = -1;
}

/* A forward kind whose arguments are those of the backward case by index, -1 for a result that
 * nobody keeps (given room as large as argument 0). */
typedef struct forward_row {
    ech_op_kind backward, forward;
    int n_args, from[6];
    double eps;
} forward_row;

static const forward_row forward_rows[] = {
    /* beta is of no account for what is saved: gamma stands in */
    {ECH_OP_LAYERNORM_BACKWARD, ECH_OP_LAYERNORM, 6, {0, 1, 1, -1, 2, 3}, 1e-5},
    {ECH_OP_RMSNORM_BACKWARD, ECH_OP_RMSNORM, 4, {0, 1, -1, 2}, 1e-5},
    {ECH_OP_QK_NORM_BACKWARD, ECH_OP_QK_NORM, 5, {0, 1, 2, -1, 3}, 1e-5},
    {ECH_OP_ATTENTION_BACKWARD, ECH_OP_ATTENTION, 3, {0, 1, 2}, 0.0},
};

static void run_forward(kernel_case *c, const forward_row *row)
{
    ech_kernel_call call = c->call;
    void *unused = aligned_bytes(kernel_case_arg_bytes(c, 0), 64);
    call.kind = row->forward;
    call.n_args = row->n_args;
    for (int i = 0; i < row->n_args; i++) {
        call.arg[i] = c->call.arg[row->from[i] >= 0 ? row->from[i] : 0];
        if (row->from[i] < 0)
            call.arg[i].data = unused;
    }
    if (row->eps > 0.0)
        call.real[0] = row->eps;
    ech_kernel_set_ref()->kernel[row->forward](&call);
    free(unused);
}

void kernel_case_loss(const ech_kernel_call *call)
{
    const ech_kernel_set *ref = ech_kernel_set_ref();
    const int64_t n = call->arg[1].dim[0];
    const int64_t n_parts = call->attr[1] > 0 ? 2 : 1;
    ech_kernel_call c = {.kind = ECH_OP_XENT_SHARD,
                         .n_args = 3,
                         .arg = {call->arg[0], call->arg[1], {NULL, ECH_F64, 3, {1, 2, n}}},
                         .attr = {call->attr[0], call->attr[1]},
                         .threads = 1};
    double *parts = aligned_bytes((size_t)(2 * n_parts * n) * sizeof *parts, 64);
    c.arg[2].data = parts;
    ref->kernel[ECH_OP_XENT_SHARD](&c);
    for (int64_t i = 2 * n; i < 2 * n_parts * n; i++)
        parts[i] = i < 3 * n ? KERNEL_CASE_OTHERS : 0.0;
    const ech_tensor all = {parts, ECH_F64, 3, {n_parts, 2, n}};
    c = (ech_kernel_call){.kind = ECH_OP_XENT,
                          .n_args = 4,
                          .arg = {all, call->arg[1], call->arg[2], call->arg[3]},
                          .threads = 1};
    ref->kernel[ECH_OP_XENT](&c);
    free(parts);
}

static void make_saved(kernel_case *c)
{
    if (c->call.kind == ECH_OP_XENT_BACKWARD) {
        double loss = 0.0;
        ech_kernel_call forward = c->call;
        forward.arg[3].data = &loss;
        kernel_case_loss(&forward);
    }
    for (size_t i = 0; i < sizeof forward_rows / sizeof forward_rows[0]; i++)
        if (forward_rows[i].backward == c->call.kind)
            run_forward(c, &forward_rows[i]);
}

ech_op kernel_case_op(const kernel_case *c)
{
    ech_op op;
    memset(&op, 0, sizeof op);
    op.kind = c->call.kind;
    op.n_args = c->call.n_args;
    for (int i = 0; i < c->call.n_args; i++) {
        const ech_tensor *t = &c->call.arg[i];
        ech_operand *a = &op.arg[i];
        a->region = t->data ? ECH_REGION_WORK : ECH_REGION_NONE;
        a->access = c->access[i];
        a->dtype = t->dtype;
        a->rank = t->rank;
        for (int d = 0; d < t->rank; d++)
            a->dim[d] = (ech_dim){t->dim[d], ECH_EXTENT_BOUND};
    }
    for (int i = 0; i < ECH_MAX_ATTRS; i++)
        op.attr[i] = ech_expr_const(c->call.attr[i]);
    memcpy(op.real, c->call.real, sizeof op.real);
    return op;
}

static void add_work(kernel_case *c)
{
    const ech_op op = kernel_case_op(c);
    const ech_op_row *row = ech_op_row_get(c->call.kind);
    c->call.work_bytes = row->work_bytes ? row->work_bytes(&op) : 0;
    if (c->call.work_bytes == 0)
        return;
    c->owned_work = aligned_bytes(c->call.work_bytes, 64);
    c->call.work = c->owned_work;
}

void kernel_case_make(kernel_case *c, ech_op_kind kind, int variant, ech_dtype real, uint64_t seed)
{
    const variant_row *row = &kind_rows[kind].variant[variant];
    const sizes z = sizes_of(kind, row->option, seed);
    memset(c, 0, sizeof *c);
    (void)snprintf(c->name, sizeof c->name, "%s %s seed %llu, %s", ech_op_name(kind),
                   ech_dtype_name(real), (unsigned long long)seed, row->name);
    c->call.kind = kind;
    c->call.threads = 1;
    c->call.rng = (ech_rng_site){.seed = seed, .step = 11, .layer = 2, .row0 = 5};
    set_switches(&c->call, row->option, &z);
    add_args(c, row, real, &z);
    if (row->option & MASKED)
        mask_all(&c->call.arg[kind == ECH_OP_COUNT_TOKENS ? 0 : 1]);
    make_saved(c);
    add_work(c);
}

void kernel_case_fini(kernel_case *c)
{
    for (int i = 0; i < ECH_MAX_ARGS; i++)
        free(c->owned[i]);
    free(c->owned_work);
    memset(c, 0, sizeof *c);
}

void kernel_case_run(kernel_case *c, const ech_kernel_set *set)
{
    set->kernel[c->call.kind](&c->call);
}

/* --- comparing --- */

static double root_mean_square(const ech_tensor *t)
{
    const int64_t n = ech_tensor_elems(t);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double x = ech_dtype_load(t->dtype, t->data, (size_t)i);
        sum += isfinite(x) ? x * x : 0.0;
    }
    return n > 0 ? sqrt(sum / (double)n) : 0.0;
}

static double element_error(double got, double want, double floor_size)
{
    if ((isnan(got) && isnan(want)) || got == want) /* infinities too */
        return 0.0;
    const double difference = fabs(got - want);
    const double size = fmax(fabs(want), floor_size);
    return size > 0.0 && isfinite(difference) ? difference / size : (double)INFINITY;
}

static double tensor_error(const ech_tensor *got, const ech_tensor *want)
{
    const int64_t n = ech_tensor_elems(want);
    const double rms = root_mean_square(want);
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double a = ech_dtype_load(got->dtype, got->data, (size_t)i);
        const double b = ech_dtype_load(want->dtype, want->data, (size_t)i);
        worst = fmax(worst, element_error(a, b, rms));
    }
    return want->dtype == ECH_I64 && worst > 0.0 ? (double)INFINITY : worst;
}

double kernel_case_error(const kernel_case *got, const kernel_case *want, int *arg)
{
    double worst = 0.0;
    *arg = -1;
    for (int i = 0; i < want->call.n_args; i++) {
        if (!want->call.arg[i].data || want->access[i] == ECH_READ)
            continue;
        const double error = tensor_error(&got->call.arg[i], &want->call.arg[i]);
        if (error > worst) {
            worst = error;
            *arg = i;
        }
    }
    return worst;
}

bool kernel_set_has(const ech_kernel_set *set, ech_op_kind kind, ech_dtype real)
{
    return set->kernel[kind] && (!set->supports || set->supports(kind, real));
}

static int compare_case(const ech_kernel_set *set, kernel_case *got, kernel_case *want,
                        double tolerance)
{
    int arg = -1;
    kernel_case_run(got, set);
    kernel_case_run(want, ech_kernel_set_ref());
    const double error = kernel_case_error(got, want, &arg);
    if (error <= tolerance)
        return 0;
    fprintf(stderr, "%s: argument %d of set '%s' differs from ref by %.3g, bound %.3g\n",
            want->name, arg, set->name, error, tolerance);
    return 1;
}

static int compare_kind(const ech_kernel_set *set, ech_op_kind kind, ech_dtype real,
                        double tolerance)
{
    int failures = 0;
    for (int variant = 0; variant < kernel_case_variants(kind); variant++) {
        for (uint64_t seed = 0; seed < KERNEL_CASE_SEEDS; seed++) {
            kernel_case got, want;
            kernel_case_make(&got, kind, variant, real, seed);
            kernel_case_make(&want, kind, variant, real, seed);
            failures += compare_case(set, &got, &want, tolerance);
            kernel_case_fini(&got);
            kernel_case_fini(&want);
        }
    }
    return failures;
}

int kernel_cases_compare(const ech_kernel_set *set, ech_dtype real, double tolerance)
{
    int failures = 0;
    for (int kind = 0; kind < KERNEL_CASE_KINDS; kind++)
        if (kernel_set_has(set, (ech_op_kind)kind, real))
            failures += compare_kind(set, (ech_op_kind)kind, real, tolerance);
    return failures;
}

/* --- modules --- */

bool kernel_module_open(kernel_module *m, const char *file, int threads)
{
    char path[4096], why[128] = "no kernel set";
    const char *build = getenv("ECH_BUILD");
    const ech_kernel_set *(*get)(void) = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", build ? build : ".", file);
    *m = (kernel_module){.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (m->handle)
        *(void **)&get = dlsym(m->handle, ECH_KERNEL_MODULE_SYMBOL);
    m->set = get ? get() : NULL;
    m->is_missing = !m->set;
    if (m->set && m->set->is_usable(why, sizeof why) && m->set->start(NULL, threads) == ECH_OK)
        return true;
    fprintf(stderr, "%s: %s\n", file, m->handle ? why : dlerror());
    return false;
}

void kernel_module_close(kernel_module *m)
{
    m->set->stop();
    (void)dlclose(m->handle);
}
