/* RUN: np=1 timeout=120 tags=fast */
/* Backward split into input and weight blocks against the whole backward: every gradient and DIN
 * the same bits, block by block and in whole steps that the proof accepts. */
#include "engine/virtual.h"
#include "hand.h"
#include "mutants.h"
#include "split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MICROS = 2 };

static int failures;
static int compared;

typedef struct split_row {
    int heads, kv_heads, tp;
    ech_shard_policy policy;
} split_row;

static const split_row rows[] = {
    {0, 0, 1, {0}},
    {4, 2, 2, {.is_sequence_parallel = false}},
    {4, 2, 2, {.is_sequence_parallel = true}},
    {4, 2, 2, {.is_sequence_parallel = true, .keeps_inputs = true}},
    {4, 1, 2, {.is_sequence_parallel = false}}, /* one key/value head on two ranks */
    {4, 1, 2, {.is_sequence_parallel = true}},
    {12, 3, 4, {.is_sequence_parallel = true, .keeps_inputs = true}}, /* heads straddle groups */
};

static tiny_spec spec_of(tiny_kind kind, const split_row *row, double dropout)
{
    tiny_spec s = tiny_spec_default();
    s.kind = kind;
    s.dropout = dropout;
    s.heads = row->heads;
    s.kv_heads = kind == TINY_GPT2 ? row->heads : row->kv_heads;
    s.tp = row->tp;
    s.policy = row->policy;
    s.rows = 2;
    s.seq = 6;
    s.accumulation = MICROS;
    s.poison = true;
    return s;
}

static void fail(const tiny_spec *s, const char *what, const char *why)
{
    (void)fprintf(stderr, "model %d, heads %d/%d, tp %d%s%s, dropout %g: %s: %s\n", (int)s->kind,
                  s->heads, s->kv_heads, s->tp, s->policy.is_sequence_parallel ? " sp" : "",
                  s->policy.keeps_inputs ? " kept" : "", s->dropout, what, why);
    failures++;
}

/* --- block by block --- */

/* A block's forward and backward of two micro-batches on state slots that stay to be looked at. */
typedef struct piece {
    ech_program p;
    int slot[ECH_N_REGIONS][MICROS];
    hand_run run;
} piece;

static bool is_of_micro(int region)
{
    switch (region) {
    case ECH_REGION_IN:
    case ECH_REGION_OUT:
    case ECH_REGION_DIN:
    case ECH_REGION_DOUT:
    case ECH_REGION_DATA:
    case ECH_REGION_SAVED_FB:
    case ECH_REGION_SAVED_FW:
    case ECH_REGION_SAVED_BW:
        return true;
    default:
        return false;
    }
}

static void add_slots(piece *k)
{
    for (int r = ECH_REGION_NONE + 1; r < ECH_N_REGIONS; r++) {
        size_t bytes = r == ECH_REGION_SCALARS ? 8 * (size_t)ECH_N_CELLS : 0;
        for (int b = 0; b < k->p.n_blocks; b++)
            bytes = k->p.block[b].region_bytes[r] > bytes ? k->p.block[b].region_bytes[r] : bytes;
        for (int m = 0; m < MICROS; m++) {
            k->slot[r][m] = m && !is_of_micro(r) ? k->slot[r][0] : -1;
            if (bytes && k->slot[r][m] < 0)
                k->slot[r][m] = hand_slot(&k->p, ech_region_name((ech_region)r), true,
                                          (int64_t)(bytes + 7) / 8, ech_placement_invariant());
        }
    }
    k->p.scalars = k->slot[ECH_REGION_SCALARS][0];
}

static void add_item(piece *k, int block, int micro)
{
    ech_item it = ech_item_make(block, ECH_SEGMENT_ACCUMULATE);
    it.micro = micro;
    for (int o = 0; o < k->p.block[block].n_ops; o++)
        if (ech_op_is_comm(k->p.block[block].op[o].kind))
            it.request = 0;
    for (int r = 0; r < ECH_N_REGIONS; r++)
        if (k->p.block[block].region_bytes[r])
            it.bind[r] = (ech_view){k->slot[r][micro], 0};
    tiny_ok(ech_program_add_item(&k->p, &it), "item");
}

static void make_piece(const split_case *c, int which, bool is_split, piece *k)
{
    static const ech_role roles[] = {ECH_ROLE_FORWARD, ECH_ROLE_BACKWARD_INPUT,
                                     ECH_ROLE_BACKWARD_WEIGHT};
    int id[3] = {-1, -1, -1};
    ech_program_init(&k->p, "piece", &c->block.layout);
    k->p.micro_batches = MICROS;
    k->p.rows_per_micro = c->block.rows;
    for (int i = 0; i < (is_split && which ? 3 : 2); i++) {
        ech_block b =
            split_block(c, which, is_split || !i ? roles[i] : ECH_ROLE_BACKWARD, is_split);
        tiny_ok(ech_program_add_block(&k->p, &b, &id[i]), "block");
    }
    add_slots(k);
    for (int i = 0; i < 3; i++) /* each of both micro-batches, weights last */
        for (int m = 0; m < MICROS && id[i] >= 0; m++)
            add_item(k, id[i], m);
    tiny_ok(ech_program_place(&k->p, NULL), "place");
    hand_start(&k->p, true, &k->run);
}

static double noise(uint64_t *at)
{
    *at = *at * 6364136223846793005U + 1442695040888963407U;
    return (double)(*at >> 40) / (double)(1 << 23) - 1.0;
}

static uint64_t seed_of(int region, int micro, int rank)
{
    return (uint64_t)(region * 64 + micro * 8 + rank + 1);
}

/* What blocks read is numbers, the same for whole and split; saved sets and work are NaN until they
 * are written. */
static void fill_slot(const split_case *c, int region, int micro, int rank, size_t bytes, void *to)
{
    double *x = to;
    int32_t *ids = to;
    uint64_t at = seed_of(region, micro, rank);
    const bool is_made = region == ECH_REGION_WORK || region == ECH_REGION_DIN ||
                         (region >= ECH_REGION_SAVED_FB && region <= ECH_REGION_SAVED_BW);
    const bool is_zero = region == ECH_REGION_OUT || region == ECH_REGION_SCALARS;
    for (size_t i = 0; i < bytes / 8; i++)
        x[i] = is_made ? (double)NAN : is_zero ? 0.0 : noise(&at);
    for (size_t i = 0; i < bytes / 4 && region == ECH_REGION_DATA; i++)
        ids[i] = (int32_t)(i * 7 + (size_t)micro) % 37;
    if (region == ECH_REGION_CONST)
        ech_rope_table_fill(&c->model, c->block.seq, to);
    if (region == ECH_REGION_SCALARS)
        x[ECH_CELL_LOSS_SEED] = 0.125;
}

static void run_piece(const split_case *c, piece *k)
{
    for (int n = 0; n < k->run.n; n++)
        for (int r = 0; r < ECH_N_REGIONS; r++)
            for (int m = 0; m < MICROS; m++)
                if (r != ECH_REGION_NONE && k->slot[r][m] >= 0)
                    fill_slot(c, r, m, n, k->p.slot[k->slot[r][m]].bytes,
                              ech_engine_state(k->run.engine[n], k->slot[r][m]));
    tiny_ok(ech_virtual_run(k->run.engine, k->run.n, 0, ECH_SEGMENT_ACCUMULATE), "run");
}

/* Bytes of one region and micro-batch on every rank: the same numbers, and on some rank not those
 * that were there before (of a vocabulary's rows a rank may have none that is used). */
static void compare_region(const tiny_spec *spec, const piece *whole, const piece *split,
                           const char *name, ech_region region, int micro)
{
    const int a = whole->slot[region][micro];
    const int b = split->slot[region][micro];
    size_t changed = 0;
    if (a < 0 && b < 0)
        return;
    compared++;
    if (a < 0 || b < 0 || whole->p.slot[a].bytes != split->p.slot[b].bytes) {
        fail(spec, name, "another size");
        return;
    }
    const size_t n = whole->p.slot[a].bytes / 8;
    for (int k = 0; k < whole->run.n; k++) {
        const double *x = ech_engine_state(whole->run.engine[k], a);
        const double *y = ech_engine_state(split->run.engine[k], b);
        uint64_t at = seed_of((int)region, micro, k);
        if (memcmp(x, y, 8 * n) != 0)
            fail(spec, name, ech_region_name(region));
        for (size_t i = 0; i < n; i++) {
            changed += y[i] != noise(&at);
            if (isnan(y[i]))
                fail(spec, name, "no number");
        }
    }
    if (!changed)
        fail(spec, name, "nothing was made");
}

static void compare_pieces(const tiny_spec *spec, const piece *whole, const piece *split,
                           const char *name)
{
    static const ech_region made[] = {ECH_REGION_OUT,        ECH_REGION_DIN,
                                      ECH_REGION_GRAD,       ECH_REGION_GRAD_SUMMED,
                                      ECH_REGION_GRAD_WHOLE, ECH_REGION_TIED_GRAD};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        for (int m = 0; m < MICROS; m++)
            compare_region(spec, whole, split, name, made[i], m);
}

static void stop_piece(piece *k)
{
    hand_stop(&k->run);
    ech_program_fini(&k->p);
}

static void check_pieces(const tiny_spec *spec)
{
    static const char *const names[] = {"embedding", "attention", "mlp", "head"};
    static piece whole;
    static piece split;
    split_case c;
    split_case_init(spec, &c);
    for (int i = 0; i < SPLIT_PIECES; i++) {
        make_piece(&c, i, false, &whole);
        make_piece(&c, i, true, &split);
        run_piece(&c, &whole);
        run_piece(&c, &split);
        compare_pieces(spec, &whole, &split, names[i]);
        stop_piece(&whole);
        stop_piece(&split);
    }
    split_case_fini(&c);
}

/* --- whole steps --- */

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    memcpy(to, from, bytes);
    return to;
}

/* Memory as executed is that predicted. */
static void check_memory(const tiny_spec *spec, const tiny_run *run)
{
    ech_memory predicted;
    ech_engine_memory seen;
    tiny_ok(ech_program_memory(&run->session->train.klass[0].program, ECH_SPACE_DEVICE, &predicted),
            "memory");
    for (int r = 0; r < run->world; r++) {
        ech_engine_memory_get(run->session->local[r].engine, ECH_SPACE_DEVICE, &seen);
        if (seen.total != predicted.total || seen.arena != predicted.arena)
            fail(spec, "memory", "not as predicted");
    }
}

/* One step with the backward split, from the same weights as one with it whole. */
static void check_step(const tiny_spec *spec, const split_case *c, split_when when,
                       const void *grads, double loss)
{
    static const char *const names[] = {"at once", "later", "last"};
    tiny_run run;
    ech_program p;
    int by;
    tiny_start(spec, &run);
    split_program(c, &run.session->train.klass[0].program, when, &p);
    if (mutant_prove(&p, &c->plan, &by) < 0)
        fail(spec, names[when], ech_error_message());
    tiny_replace(&run, &p);
    tiny_feed(&run, 0, NULL, NULL);
    const ech_step_result r = tiny_step(&run, 0, 0.05);
    const void *now = tiny_all(run.session, ECH_HELD_GRADS);
    const size_t bytes = (size_t)c->canon.elems * sizeof(double);
    /* A tied table has two uses: another order of the two is another order of its sum. */
    const bool is_exact = !c->model.tie_embeddings || when == SPLIT_AT_ONCE;
    compared++;
    if (is_exact ? memcmp(grads, now, bytes) != 0
                 : !(tiny_difference(run.session, now, grads) <= 1e-14))
        fail(spec, names[when], "another gradient");
    if (r.loss != loss)
        fail(spec, names[when], "another loss");
    check_memory(spec, &run);
    tiny_stop(&run);
}

static void check_steps(const tiny_spec *spec)
{
    tiny_run run;
    split_case c;
    split_case_init(spec, &c);
    tiny_start(spec, &run);
    tiny_feed(&run, 0, NULL, NULL);
    const ech_step_result r = tiny_step(&run, 0, 0.05);
    void *grads =
        copy_of(tiny_all(run.session, ECH_HELD_GRADS), (size_t)c.canon.elems * sizeof(double));
    tiny_stop(&run);
    for (int when = SPLIT_AT_ONCE; when <= SPLIT_LAST; when++)
        check_step(spec, &c, (split_when)when, grads, r.loss);
    free(grads);
    split_case_fini(&c);
}

int main(void)
{
    for (int kind = 0; kind < N_TINY; kind++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            for (int d = 0; d < 2; d++) {
                tiny_spec s = spec_of((tiny_kind)kind, &rows[i], d ? 0.2 : 0.0);
                check_pieces(&s);
                s.schedule = d ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
                check_steps(&s);
            }
    (void)fprintf(stderr, "%d comparisons, %d failures\n", compared, failures);
    return failures != 0;
}
