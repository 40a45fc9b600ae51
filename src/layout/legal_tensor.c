/* Rules about tensor and sequence parallelism. */
#include "layout/legal_rules.h"

#include "base/checked.h"
#include "catalog/canon.h"

/* --- tensor parallelism --- */

static bool find_heads(const ech_legal_query *q, ech_text *words)
{
    if (!q->heads || q->heads % q->tp == 0)
        return false;
    ech_text_add(words, "%lld does not divide the model's %lld heads", (long long)q->tp,
                 (long long)q->heads);
    return true;
}

static void near_heads(const ech_legal_query *q, ech_near *out)
{
    *out = ech_near_divisors(ech_legal_tp_divides(q, 0), q->tp);
}

static bool find_kv_copies(const ech_legal_query *q, ech_text *words)
{
    const int copies = ech_legal_kv_copies(q);
    if (copies < 2)
        return false;
    ech_text_add(words,
                 "%lld key/value heads over tp %lld: each is held %d times, and its gradient is "
                 "summed over %d neighbouring ranks",
                 (long long)q->kv_heads, (long long)q->tp, copies, copies);
    return true;
}

/* No copies where the query heads of a rank are whole groups: tp divides the key/value heads. */
static void near_kv_copies(const ech_legal_query *q, ech_near *out)
{
    *out = ech_near_divisors(ech_legal_tp_divides(q, q->kv_heads), q->tp);
}

/* Rows that tp cuts of ceil(n / tp) add to n. */
static int64_t cut_padding(int64_t n, int64_t tp)
{
    return ech_ceil_div(n, tp) * tp - n;
}

static bool find_vocab_padding(const ech_legal_query *q, ech_text *words)
{
    if (!q->vocab)
        return false;
    const int64_t rows = ech_vocab_padded(q->vocab);
    if (rows % q->tp == 0)
        return false;
    ech_text_add(
        words,
        "%lld rows of the vocabulary (%lld, padded to a multiple of %d) over tp %lld: %lld "
        "a rank, %lld of all of them padding",
        (long long)rows, (long long)q->vocab, ECH_VOCAB_MULTIPLE, (long long)q->tp,
        (long long)ech_ceil_div(rows, q->tp), (long long)cut_padding(rows, q->tp));
    return true;
}

static void near_vocab_padding(const ech_legal_query *q, ech_near *out)
{
    *out = ech_near_divisors(ech_legal_tp_divides(q, ech_vocab_padded(q->vocab)), q->tp);
}

static bool find_ffn_padding(const ech_legal_query *q, ech_text *words)
{
    if (!q->ffn || q->ffn % q->tp == 0)
        return false;
    ech_text_add(words,
                 "%lld columns of the MLP over tp %lld: %lld a rank, %lld of all of them "
                 "padding",
                 (long long)q->ffn, (long long)q->tp, (long long)ech_ceil_div(q->ffn, q->tp),
                 (long long)cut_padding(q->ffn, q->tp));
    return true;
}

static void near_ffn_padding(const ech_legal_query *q, ech_near *out)
{
    *out = ech_near_divisors(ech_legal_tp_divides(q, q->ffn), q->tp);
}

static bool find_sequence_alone(const ech_legal_query *q, ech_text *words)
{
    if (!q->sequence_parallel || q->tp > 1)
        return false;
    ech_text_add(words, "tp is 1: every rank has its whole sequences");
    return true;
}

/* Sequences of a multiple of this have tokens for every tp rank alike. */
static int64_t sequence_step(const ech_legal_query *q)
{
    return q->tp / ech_gcd(q->tp, q->micro);
}

static bool find_sequence(const ech_legal_query *q, ech_text *words)
{
    if (!q->sequence_parallel || !q->micro || !q->seq || q->seq % sequence_step(q) == 0)
        return false;
    ech_text_add(words,
                 "sequence parallelism deals out micro %lld x seq %lld tokens to tp %lld ranks: "
                 "that does not divide (with this seq, micro a multiple of %lld would)",
                 (long long)q->micro, (long long)q->seq, (long long)q->tp,
                 (long long)(q->tp / ech_gcd(q->tp, q->seq)));
    return true;
}

static void near_sequence(const ech_legal_query *q, ech_near *out)
{
    *out = ech_near_multiples(sequence_step(q), q->seq);
    if (out->n == 2 && q->context && out->value[1] > q->context)
        out->n = 1;
}

static bool is_sequence_parallel(const ech_legal_query *q)
{
    return q->sequence_parallel && q->tp > 1;
}

static bool find_keep_alone(const ech_legal_query *q, ech_text *words)
{
    if (!q->keep_inputs || is_sequence_parallel(q))
        return false;
    ech_text_add(words, "inputs are gathered with sequence parallelism and tp > 1 only");
    return true;
}

static bool find_keep(const ech_legal_query *q, ech_text *words)
{
    if (!q->keep_inputs || !is_sequence_parallel(q))
        return false;
    ech_text_add(words,
                 "inputs of column-parallel matrices are stored %lld times as large, on "
                 "every rank",
                 (long long)q->tp);
    return true;
}

static void near_keep(const ech_legal_query *q, ech_near *out)
{
    (void)q;
    out->word = "regather";
}

/* --- the rows --- */

static const ech_legal_rule rules[] = {
    {"heads", "layout.tp", "tp does not divide the query heads", REFUSED,
     "a rank has whole query heads", find_heads, near_heads},
    {"key/value heads", "layout.tp", "tp does not divide the key/value heads", COST,
     "each is held by several neighbouring ranks, and its gradient is summed over exactly those",
     find_kv_copies, near_kv_copies},
    {"vocabulary", "layout.tp", "tp does not divide the padded vocabulary", COST,
     "slices are ceil(rows / tp) long, what is beyond the end is padding that no token reaches",
     find_vocab_padding, near_vocab_padding},
    {"ffn", "layout.tp", "tp does not divide the width of the MLP", COST,
     "slices are ceil(ffn / tp) wide, what is beyond the end is padding and stays zero",
     find_ffn_padding, near_ffn_padding},
    {"sequence parallelism alone", "layout.sequence_parallel", "sequence_parallel with tp 1", LEGAL,
     "there is nothing to share", find_sequence_alone, NULL},
    {"sequence parallelism", "batch.seq", "sequence_parallel and tp does not divide micro x seq",
     REFUSED, "every rank of a tp group has as many tokens", find_sequence, near_sequence},
    {"kept inputs alone", "layout.sequence_parallel_inputs",
     "keep without sequence parallelism or with tp 1", LEGAL, "no input is gathered",
     find_keep_alone, NULL},
    {"kept inputs", "layout.sequence_parallel_inputs", "keep with sequence parallelism", COST,
     "gathered inputs of column-parallel matrices stay until backward, tp times the bytes; "
     "regather "
     "sends them a second time instead",
     find_keep, near_keep},
};

const ech_legal_rule *ech_legal_tensor_rules(int *n)
{
    *n = sizeof rules / sizeof rules[0];
    return rules;
}
