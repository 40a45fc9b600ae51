/* Exact sums of squares (op.h, ECH_SUMSQ_*) at the speed of memory.
 *
 * A square of a float is a double of 48 bits.  A block of elements is summed in a few bins: doubles
 * a = 1.5 2^52 u + (what was added), u the bin's unit.  As long as a stays below 2^53 u, a + s is a
 * plus s rounded to a multiple of u, the difference of the two a's is that multiple exactly, and
 * what is left of s, at most u / 2, goes to the next bin (Rump, Ogita & Oishi 2008, "Accurate
 * floating-point summation"; Demmel & Nguyen 2015, "Parallel reproducible summation").  The first
 * unit follows from the block's largest element, the number of bins from its smallest: the last bin
 * leaves nothing.  So every addition is exact, and a sum depends on neither blocks nor lanes nor
 * threads.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"
#include "kernels/cpu/team.h"
#include "kernels/sumsq.h"

#include <string.h>

enum {
    BLOCK = 2048, /* elements; the next block is fetched under it */
    TASK = 32 * BLOCK,
    BIN_BITS = 43, /* from one unit to the next */
    BINS_MAX = 13, /* squares of floats lie between 2^-298 and 2^256 */
    LANE_BITS = 8  /* a lane of a bin gets at most 2^8 elements of a block, or what they left */
};
_Static_assert(BLOCK / VL <= 1 << LANE_BITS, "elements of a lane");
_Static_assert(LANE_BITS + BIN_BITS <= 51, "a bin stays within its power of two");
_Static_assert(BINS_MAX *BIN_BITS > 256 + 298, "bins reach from the largest to the smallest bit");

/* Two sums of a member: that of elements held once, and of copies. */
typedef int64_t number[ECH_SUMSQ_WORDS];

static number *numbers_of(int member)
{
    return (number *)(void *)ech_team_scratch(member);
}

/* Exponents of the largest and the smallest element of a block that is not 0, as stored in a float;
 * subnormal ones count as 1, whose unit they have. */
typedef struct spread {
    int largest, smallest;
    bool is_zero, is_finite;
} spread;

static spread spread_of(const float *x, int64_t n)
{
    const vi magnitude = vi_set1(0x7fffffff), one = vi_set1(1);
    vi high = vi_set1(0),
       low = vi_set1(0xffffffff); /* low: of magnitudes less 1, so that 0 is last */
#define STEP(i, lanes)                                                                             \
    do {                                                                                           \
        const vi m = vi_and(vi_of(vf_load_n(x + (i), lanes)), magnitude);                          \
        high = vi_max(high, m);                                                                    \
        low = vi_min(low, vi_sub(m, one));                                                         \
    } while (0)
    VEC_FOR(n, STEP);
#undef STEP
    uint32_t lane_high[VL], lane_low[VL], max = 0, min = 0xffffffff;
    vi_store(lane_high, high);
    vi_store(lane_low, low);
    for (int i = 0; i < VL; i++) {
        max = lane_high[i] > max ? lane_high[i] : max;
        min = lane_low[i] < min ? lane_low[i] : min;
    }
    const int largest = (int)(max >> 23), smallest = (int)((min + 1) >> 23);
    return (spread){.largest = largest > 1 ? largest : 1,
                    .smallest = smallest > 1 ? smallest : 1,
                    .is_zero = max == 0,
                    .is_finite = largest < 255};
}

/* Exponent of the unit of bin j: squares are below 2^top, top = 2 largest - 252. */
static int unit_of(const spread *s, int j)
{
    return 2 * s->largest - 252 + 1 - BIN_BITS * (j + 1);
}

/* Bins until the unit is not above the last bit of the smallest square, 2 smallest - 300. */
static int bins_of(const spread *s)
{
    const int bits = 2 * (s->largest - s->smallest) + 48;
    return (bits + BIN_BITS) / BIN_BITS;
}

/* 1.5 2^52 u */
static double empty_bin(int unit)
{
    const uint64_t bits = (uint64_t)(1023 + 52 + unit) << 52 | UINT64_C(1) << 51;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Squares of VD elements into n bins.  A difference is written as a product with `one`, which the
 * compiler does not know, where the units of multiply-adds are idle and those of sums are not. */
VEC_INLINE void deposit(vd x, vd one, vd *bin, int n)
{
    const vd first = vd_fma(x, x, bin[0]);
    vd left = vd_fms(x, x, first - bin[0]);
    bin[0] = first;
    for (int j = 1; j + 1 < n; j++) {
        const vd sum = bin[j] + left;
        left = vd_fms(left, one, sum - bin[j]);
        bin[j] = sum;
    }
    bin[n - 1] = bin[n - 1] + left;
}

VEC_INLINE void deposit_vector(const float *x, vd one, vd (*bin)[BINS_MAX], int n)
{
    deposit(vd_load_floats(x), one, bin[0], n);
    deposit(vd_load_floats(x + VD), one, bin[1], n);
}

/* What the lanes of a bin hold beyond `empty`, in its units: doubles of one power of two differ in
 * their last 52 bits. */
VEC_INLINE int64_t units_in(vd a, vd b, vd empty)
{
    const vi none = vi_of_doubles(empty);
    int64_t lane[VD], sum = 0;
    vi_store64(lane, vi_add64(vi_sub64(vi_of_doubles(a), none), vi_sub64(vi_of_doubles(b), none)));
    for (int i = 0; i < VD; i++)
        sum += lane[i];
    return sum;
}

/* word += squares of a block, in n bins. */
VEC_INLINE void add_in_bins(const float *x, int64_t count, const spread *s, int n, int64_t *word)
{
    vd bin[2][BINS_MAX];
    for (int j = 0; j < n; j++)
        bin[0][j] = bin[1][j] = vd_set1(empty_bin(unit_of(s, j)));
    vd one = vd_set1(1.0);
    __asm__("" : "+x"(one));
    int64_t i = 0;
    for (; i + VL <= count; i += VL) {
        vec_fetch(x + i + BLOCK);
        deposit_vector(x + i, one, bin, n);
    }
    if (i < count) {
        float rest[VL] = {0};
        memcpy(rest, x + i, (size_t)(count - i) * sizeof *x);
        deposit_vector(rest, one, bin, n);
    }
    for (int j = 0; j < n; j++)
        ech_sumsq_add(word, units_in(bin[0][j], bin[1][j], vd_set1(empty_bin(unit_of(s, j)))),
                      unit_of(s, j));
}

static void add_block(const float *x, int64_t n, int64_t *word)
{
    const spread s = spread_of(x, n);
    if (s.is_zero)
        return;
    if (!s.is_finite) {
        for (int64_t i = 0; i < n; i++)
            ech_sumsq_add_square(word, (double)x[i]);
        return;
    }
    switch (bins_of(&s)) { /* with more bins than it takes the sum is the same */
    case 2:
        add_in_bins(x, n, &s, 2, word);
        break;
    case 3:
        add_in_bins(x, n, &s, 3, word);
        break;
    case 4:
        add_in_bins(x, n, &s, 4, word);
        break;
    case 5:
    case 6:
        add_in_bins(x, n, &s, 6, word);
        break;
    default:
        add_in_bins(x, n, &s, BINS_MAX, word);
        break;
    }
}

static void sumsq_task(const void *ctx, int64_t task, int member)
{
    const ech_kernel_call *call = ctx;
    const float *x = ech_cpu_in(call, 0);
    const int64_t end = ech_cpu_min(ech_cpu_elems(&call->arg[0]), (task + 1) * TASK);
    number *sums = numbers_of(member);
    for (int64_t i = task * TASK; i < end;) {
        const ech_sumsq_run run = ech_sumsq_run_at(call, i, end);
        for (int64_t k = 0; k < run.n; k += BLOCK)
            add_block(x + i + k, ech_cpu_min(BLOCK, run.n - k), sums[run.is_copy]);
        i += run.n;
    }
    ech_sumsq_carry(sums[0]);
    ech_sumsq_carry(sums[1]);
}
_Static_assert(TASK *BINS_MAX < ECH_SUMSQ_ADDS, "adds of a task, should every element be a run");

/* word += the members' sums */
static void join(int64_t *word, int members, int which)
{
    for (int m = 0; m < members; m++)
        for (int k = 0; k < ECH_SUMSQ_WORDS; k++)
            word[k] += numbers_of(m)[which][k];
    ech_sumsq_carry(word);
}

/* sum += x[i]^2 or copies += x[i]^2 */
void ECH_CPU(sumsq)(const ech_kernel_call *call)
{
    const int members = ech_team_size(call->threads);
    for (int m = 0; m < members; m++)
        memset(numbers_of(m), 0, 2 * sizeof(number));
    ech_team_run(call->threads, ech_cpu_ceil_div(ech_cpu_elems(&call->arg[0]), TASK), sumsq_task,
                 call);
    join(call->arg[1].data, members, 0);
    if (call->arg[2].data)
        join(call->arg[2].data, members, 1);
}
