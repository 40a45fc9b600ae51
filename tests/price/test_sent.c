/* RUN: np=1 timeout=20 tags=fast */
/* Bytes that a rank sends in a step, against closed forms written here once more (facts: what moves).
 * Letters as there: u = s b h, P parameters of the rank, N ranks that share, q and w bytes of a gradient
 * on the wire and of a weight. */
#include "check.h"
#include "price/step.h"

static const double S = 2048, H = 1024, A = 16, G = 4, F = 2816, V = 32000, D = 64;
static const int LAYERS = 8;

static ech_model llama(void)
{
    ech_model m = ech_model_default(ECH_ARCH_LLAMA);
    m.layers = LAYERS;
    m.hidden = (int64_t)H;
    m.heads = (int64_t)A;
    m.kv_heads = (int64_t)G;
    m.head_dim = (int64_t)D;
    m.ffn = (int64_t)F;
    m.vocab = (int64_t)V;
    m.context = (int64_t)S;
    return m;
}

/* Parameters: layers of q, k, v, o, gate, up, down and two norms; two tables and a norm. */
static double params(void)
{
    return LAYERS * (H * D * (2 * A + 2 * G) + 3 * H * F + 2 * H) + 2 * V * H + H;
}

typedef struct fixture {
    ech_model model;
    ech_cluster cluster;
    ech_job job;
} fixture;

static void start(fixture *f, int64_t gpus, int64_t batch)
{
    f->model = llama();
    assert_ok(ech_cluster_load("h100-sxm-80", &f->cluster));
    f->job = ech_job_default(ECH_SYSTEM_FSDP2); /* no padding of the vocabulary */
    f->job.model = &f->model;
    f->job.cluster = &f->cluster;
    f->job.gpus = gpus;
    f->job.seq = (int64_t)S;
    f->job.global_batch = batch;
    f->job.wire_bytes = 4;
}

static ech_pricer *pricer; /* of all jobs, one after another */

static double sent(const fixture *f, const ech_point *p, ech_axis axis)
{
    ech_step_price s;
    if (pricer == NULL)
        assert_ok(ech_pricer_create(&f->job, NULL, &pricer));
    ech_pricer_rebind(pricer, &f->job, NULL);
    ech_pricer_step(pricer, p, NULL, &s);
    return s.sent_bytes[axis];
}

static void equal(const char *what, double got, double wanted)
{
    if (!(got <= wanted * (1 + 1e-9) && got >= wanted * (1 - 1e-9)))
        fail_msg("%s: got %.6g, wanted %.6g", what, got, wanted);
}

static void gradients(void **state)
{
    (void)state;
    fixture f;
    const double n = 8, q = 4, w = 2, p = params(), share = (n - 1) / n;
    start(&f, 8, 32);
    ech_point at = ech_point_default();
    at.dp = 8;
    equal("stage 0", sent(&f, &at, ECH_AXIS_DP), 2 * q * p * share);
    at.zero_stage = 1;
    equal("stage 1", sent(&f, &at, ECH_AXIS_DP), (q + w) * p * share);
    at.zero_stage = 2;
    at.reduce_each = true;
    equal("stage 2, each of 4 micro-batches", sent(&f, &at, ECH_AXIS_DP), (4 * q + w) * p * share);
    at.zero_stage = 3;
    equal("stage 3", sent(&f, &at, ECH_AXIS_DP), 4 * (2 * w + q) * p * share);
    at.reshard_after_forward = false;
    equal("stage 3, kept", sent(&f, &at, ECH_AXIS_DP), 4 * (w + q) * p * share);
    at.reduce_each = false;
    equal("stage 3, kept, reduced once", sent(&f, &at, ECH_AXIS_DP), (4 * w + q) * p * share);
    at.zero_group = 2;
    equal("groups of 2", sent(&f, &at, ECH_AXIS_DP), (4 * w + q) * p / 2);
    equal("groups of 2, replicas", sent(&f, &at, ECH_AXIS_HSDP), 2 * q * p / 2 * 3 / 4);
}

static void tensor_parallel(void **state)
{
    (void)state;
    fixture f;
    const double t = 4, b = 2, u = S * b * H, one = u * (t - 1) / t;
    start(&f, 4, 6);
    ech_point at = ech_point_default();
    at.tp = 4;
    at.micro = 2;
    equal("all-reduces", sent(&f, &at, ECH_AXIS_TP), 3 * LAYERS * 16 * one);
    at.recompute = ECH_RECOMPUTE_FULL;
    equal("all-reduces, recomputed", sent(&f, &at, ECH_AXIS_TP), 3 * LAYERS * 24 * one);
    at.recompute = 0;
    at.sequence_parallel = true;
    equal("gathers and scatters", sent(&f, &at, ECH_AXIS_TP), 3 * LAYERS * (16 + 4) * one);
}

static void pipelines(void **state)
{
    (void)state;
    fixture f;
    const double u = S * H;
    start(&f, 4, 8);
    ech_point at = ech_point_default();
    at.pp = 4;
    at.split = ECH_SPLIT_EVEN;
    equal("a middle stage", sent(&f, &at, ECH_AXIS_PP), 8 * (2 * u + 2 * u));
    at.schedule = ECH_SCHEDULE_INTERLEAVED;
    at.vpp = 2;
    equal("of two chunks", sent(&f, &at, ECH_AXIS_PP), 8 * 2 * (2 * u + 2 * u));
    at.pp = 2; /* 2 p v - 2 = 6 messages, half each */
    at.dp = 2;
    equal("two ranks of two chunks", sent(&f, &at, ECH_AXIS_PP), 4 * 3 * 2 * u);
}

static void context_parallel(void **state)
{
    (void)state;
    fixture f;
    const double c = 4, piece = S / c;
    start(&f, 4, 3);
    ech_point at = ech_point_default();
    at.cp = 4;
    at.cp_kind = ECH_CP_RING;
    const double kv = 4 * piece * G * D;
    equal("ring", sent(&f, &at, ECH_AXIS_CP),
          3 * LAYERS * ((c - 1) * kv + (c - 1) * kv + c * 2 * kv));
    at.cp_kind = ECH_CP_ULYSSES;
    const double all = 2 * piece * (2 * A * D + 2 * G * D) * (c - 1) / c;
    equal("all-to-all", sent(&f, &at, ECH_AXIS_CP), 3 * LAYERS * 2 * all);
}

static void experts(void **state)
{
    (void)state;
    fixture f;
    start(&f, 8, 16);
    f.model.moe.experts = 8;
    f.model.moe.topk = 2;
    f.model.moe.expert_ffn = (int64_t)F;
    f.model.moe.sparse_step = 1;
    ech_point at = ech_point_default();
    at.dp = 8;
    at.ep = 4;
    at.zero_stage = 1;
    const double e = 4, rows = 2 * 2 * S * H * (e - 1) / e;
    equal("dispatch and combine", sent(&f, &at, ECH_AXIS_EP), 2 * LAYERS * 4 * rows);
    /* Two ranks of each expert: e * edp = dp. */
    const double p = LAYERS * 8 / e * 3 * H * F;
    equal("experts' gradients", sent(&f, &at, ECH_AXIS_EDP), (4 + 2) * p / 2);
}

/* Layers of experts under tensor parallelism: two gathers and two scatters of attention backward and
 * forward, one gather again for weights; experts that are cut add a gather and a scatter of the rows that
 * came to them, whole ones nothing. */
static void experts_and_tensor_parallel(void **state)
{
    (void)state;
    fixture f;
    start(&f, 8, 16);
    f.model.moe.experts = 8;
    f.model.moe.topk = 2;
    f.model.moe.expert_ffn = (int64_t)F;
    f.model.moe.sparse_step = 1;
    ech_point at = ech_point_default();
    at.tp = 2;
    at.dp = 4;
    at.ep = 4;
    at.sequence_parallel = true;
    const double u = 2 * S * H, half = 1.0 / 2, attention = 5 * u * half, micros = 16.0 / 4;
    equal("whole experts", sent(&f, &at, ECH_AXIS_TP), micros * LAYERS * attention);
    at.etp = 2;
    const double rows = 2 * S / 2 * 2 * H * 2; /* own tokens x top 2, of both ranks, bytes */
    equal("cut experts", sent(&f, &at, ECH_AXIS_TP),
          micros * LAYERS * (attention + 2 * 2 * rows * half));
}

/* State of experts shared in groups: 8 replicas of an expert, a quarter of them in a group. */
static void experts_in_groups(void **state)
{
    (void)state;
    fixture f;
    start(&f, 16, 16);
    f.model.moe.experts = 8;
    f.model.moe.topk = 2;
    f.model.moe.expert_ffn = (int64_t)F;
    f.model.moe.sparse_step = 1;
    ech_point at = ech_point_default();
    at.dp = 16;
    at.ep = 2;
    at.zero_stage = 1;
    at.zero_group = 4;
    const double p = LAYERS * 8 / 2.0 * 3 * H * F; /* of experts on a rank */
    equal("groups of 2 ranks", sent(&f, &at, ECH_AXIS_EDP), (4 + 2) * p * 1 / 2);
    const double dense = LAYERS * (H * D * (2 * A + 2 * G) + 8 * H + 2 * H) + 2 * V * H + H;
    equal("their replicas", sent(&f, &at, ECH_AXIS_HSDP),
          2 * 4 * p / 2 * 3 / 4 + 2 * 4 * dense / 4 * 3 / 4);
}

static void tied_tables(void **state)
{
    (void)state;
    fixture f;
    start(&f, 4, 4);
    f.model.tie_embeddings = true;
    ech_point at = ech_point_default();
    at.pp = 2;
    at.tp = 2;
    at.split = ECH_SPLIT_EVEN;
    equal("tied", sent(&f, &at, ECH_AXIS_TIED), 4 * V * H / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients),         cmocka_unit_test(tensor_parallel),
        cmocka_unit_test(pipelines),         cmocka_unit_test(context_parallel),
        cmocka_unit_test(experts),           cmocka_unit_test(experts_and_tensor_parallel),
        cmocka_unit_test(experts_in_groups), cmocka_unit_test(tied_tables)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ech_pricer_destroy(&pricer);
    return failed;
}
