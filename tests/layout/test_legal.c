/* RUN: np=1 timeout=20 tags=fast */
/* The legality table: each rule by example, nearest values by substitution, verdicts by counting. */
#include "check.h"

#include "layout/legal.h"

#include <string.h>

static const ech_legal_finding *find(const ech_legal_report *r, const char *rule)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->item[i].rule, rule) == 0)
            return &r->item[i];
    return NULL;
}

/* A model and a run of it that no rule has anything to say of. */
static ech_legal_query plain(void)
{
    ech_legal_query q = ech_legal_query_default();
    q.heads = 12;
    q.kv_heads = 12;
    q.ffn = 96;
    q.vocab = 1001;
    q.layers = 2;
    q.context = 64;
    q.micro = 2;
    q.seq = 64;
    q.recompute = q.offload_optimizer = q.offload_params = q.offload_activations = "none";
    q.compute = "fp64";
    q.order = "tp-cp-ep-dp-pp";
    return q;
}

static ech_legal_query with(int64_t tp, int64_t dp)
{
    ech_legal_query q = plain();
    q.tp = tp;
    q.dp = dp;
    q.ranks = tp * dp;
    q.global = q.micro * dp;
    return q;
}

static ech_legal_query zero(int64_t dp, int64_t stage, int64_t group, int64_t accumulation)
{
    ech_legal_query q = with(1, dp);
    q.zero_stage = stage;
    q.zero_group = group;
    q.global *= accumulation;
    return q;
}

static void expect_none(const ech_legal_query *q)
{
    ech_legal_report r;
    ech_legal_check(q, &r);
    if (r.n)
        print_error("%s: %s\n", r.item[0].rule, r.item[0].message);
    assert_int_equal(r.n, 0);
}

/* The field a key stands for; NULL: it is no number. */
static int64_t *field_of(ech_legal_query *q, const char *key)
{
    const struct {
        const char *key;
        int64_t *field;
    } rows[] = {{"layout.tp", &q->tp},
                {"layout.pp", &q->pp},
                {"layout.cp", &q->cp},
                {"layout.ep", &q->ep},
                {"layout.etp", &q->etp},
                {"layout.dp", &q->dp},
                {"layout.zero.group", &q->zero_group},
                {"layout.zero.stage", &q->zero_stage},
                {"layout.zero.prefetch", &q->prefetch},
                {"layout.virtual_stages", &q->virtual_stages},
                {"layout.schedule_group", &q->schedule_group},
                {"batch.global", &q->global},
                {"batch.seq", &q->seq}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].key, key) == 0)
            return rows[i].field;
    return NULL;
}

/* With a nearest value in its place, the rule has nothing more to say. */
static void check_nearest(const ech_legal_query *q, const ech_legal_finding *f)
{
    for (int i = 0; i < f->near.n; i++) {
        ech_legal_query changed = *q;
        ech_legal_report r;
        int64_t *field = field_of(&changed, f->key);
        if (!field)
            return;
        *field = f->near.value[i];
        ech_legal_check(&changed, &r);
        if (find(&r, f->rule))
            print_error("%s: nearest %lld is not legal: %s\n", f->rule, (long long)f->near.value[i],
                        find(&r, f->rule)->message);
        assert_null(find(&r, f->rule));
    }
}

static const ech_legal_finding *expect(const ech_legal_query *q, ech_legal_report *r,
                                       const char *rule, ech_verdict verdict, const char *words)
{
    ech_legal_check(q, r);
    const ech_legal_finding *f = find(r, rule);
    if (!f)
        print_error("'%s' finds nothing\n", rule);
    assert_non_null(f);
    assert_int_equal(f->verdict, verdict);
    if (!strstr(f->message, words))
        print_error("wanted '%s' in '%s'\n", words, f->message);
    assert_non_null(strstr(f->message, words));
    check_nearest(q, f);
    return f;
}

static void expect_near(const ech_legal_finding *f, int n, int64_t a, int64_t b)
{
    assert_int_equal(f->near.n, n);
    if (n > 0)
        assert_int_equal(f->near.value[0], a);
    if (n > 1)
        assert_int_equal(f->near.value[1], b);
}

static void test_nothing_to_say(void **state)
{
    (void)state;
    ech_legal_query q = ech_legal_query_default();
    expect_none(&q);
    q = plain();
    expect_none(&q);
    for (int64_t tp = 1; tp <= 4; tp *= 2)
        for (int64_t dp = 1; dp <= 5; dp++) {
            q = with(tp, dp);
            expect_none(&q);
        }
    q = zero(12, 3, 4, 1);
    expect_none(&q);
    q = with(4, 2);
    q.sequence_parallel = true;
    expect_none(&q);
}

static void test_mesh(void **state)
{
    ech_legal_report r;
    (void)state;
    ech_legal_query q = with(2, 3);
    q.ranks = 8;
    expect_near(expect(&q, &r, "world", ECH_VERDICT_REFUSED, "legal dp for 8 ranks: 4"), 1, 4, 0);
    q.ranks = 9;
    /* 12 heads, 9 ranks: tp 1 or 3 */
    expect_near(
        expect(&q, &r, "replica", ECH_VERDICT_REFUSED, "tp 2 x cp 1 x pp 1 x dp 3 = 6 ranks"), 2, 1,
        3);
    assert_null(find(&r, "world"));
    q = with(1, 1 << 20);
    q.tp = 1000000;
    (void)expect(&q, &r, "ranks", ECH_VERDICT_REFUSED, "more than 16777216 ranks");
    q = with(2, 3);
    q.ep = 4;
    expect_near(expect(&q, &r, "experts", ECH_VERDICT_REFUSED, "ep 4 x etp 1"), 2, 3, 6);
    static const char *const bad[] = {"tp",
                                      "",
                                      "tp-cp-ep-dp",
                                      "tp-cp-ep-dp-dp",
                                      "tp-cp-ep-dp-pp-tp",
                                      "tp-cp-ep-dp-xx",
                                      "tp-cp-ep-dp-pp-",
                                      "-tp-cp-ep-dp-pp",
                                      "tp--cp-ep-dp-pp",
                                      "tp-cp-ep-dp-hsdp",
                                      "tp cp ep dp pp"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        q = with(2, 3);
        q.order = bad[i];
        assert_string_equal(expect(&q, &r, "order", ECH_VERDICT_REFUSED, "no order")->near.word,
                            "tp-cp-ep-dp-pp");
    }
    q.order = "pp-dp-ep-cp-tp";
    expect_none(&q);
    static const int64_t tree[] = {2, 2};
    q.tree = tree;
    q.n_tree = 2;
    q.dp = 6;
    q.ranks = 12;
    (void)expect(&q, &r, "tree", ECH_VERDICT_REFUSED, "legal: auto or [2, 3]");
}

/* The cases of fewer key/value heads than tp. */
static void test_heads(void **state)
{
    ech_legal_report r;
    (void)state;
    ech_legal_query q = with(4, 1);
    q.heads = 8;
    q.kv_heads = 2;
    const ech_legal_finding *f =
        expect(&q, &r, "key/value heads", ECH_VERDICT_COST, "each is held 2 times");
    expect_near(f, 1, 2, 0);
    assert_int_equal(ech_legal_count(&r, ECH_VERDICT_REFUSED), 0);
    q.heads = 40;
    q.kv_heads = 10; /* a rank's ten query heads are two and a half groups of four */
    (void)expect(&q, &r, "key/value heads", ECH_VERDICT_COST, "10 key/value heads over tp 4");
    assert_int_equal(ech_legal_count(&r, ECH_VERDICT_REFUSED), 0);
    q = with(8, 1);
    q.ranks = 0;
    expect_near(expect(&q, &r, "heads", ECH_VERDICT_REFUSED, "8 does not divide the model's 12"), 2,
                6, 12);
    q.ranks = 8; /* which 6 and 12 do not divide */
    expect_near(expect(&q, &r, "heads", ECH_VERDICT_REFUSED, "8"), 1, 4, 0);
}

/* Is a key/value head read by query heads of several ranks: counted head by head. */
static bool shares_heads(int64_t heads, int64_t kv_heads, int64_t tp)
{
    for (int64_t h = 1; h < heads; h++)
        if (h * kv_heads / heads == (h - 1) * kv_heads / heads &&
            h * tp / heads != (h - 1) * tp / heads)
            return true;
    return false;
}

static void test_heads_by_counting(void **state)
{
    int n = 0;
    (void)state;
    for (int64_t heads = 1; heads <= 48; heads++)
        for (int64_t kv = 1; kv <= heads; kv++)
            for (int64_t tp = 1; tp <= heads; tp++) {
                ech_legal_report r;
                ech_legal_query q = with(tp, 1);
                q.heads = heads;
                q.kv_heads = kv;
                if (heads % kv)
                    continue;
                ech_legal_check(&q, &r);
                assert_int_equal(find(&r, "heads") != NULL, heads % tp != 0);
                if (heads % tp == 0)
                    assert_int_equal(find(&r, "key/value heads") != NULL,
                                     shares_heads(heads, kv, tp));
                n++;
            }
    assert_int_equal(n > 3000, true);
}

static void test_padding(void **state)
{
    ech_legal_report r;
    (void)state;
    for (int64_t tp = 1; tp <= 4; tp *= 2) { /* 1001 is held as 1024 rows */
        const ech_legal_query q = with(tp, 1);
        expect_none(&q);
    }
    ech_legal_query q = with(3, 1);
    q.ranks = 0;
    expect_near(expect(&q, &r, "vocabulary", ECH_VERDICT_COST, "342 a rank, 2 of all"), 2, 2, 4);
    q.ffn = 100;
    expect_near(expect(&q, &r, "ffn", ECH_VERDICT_COST, "34 a rank, 2 of all"), 2, 2, 4);
    assert_int_equal(ech_legal_count(&r, ECH_VERDICT_REFUSED), 0);
}

static void test_sequence_parallelism(void **state)
{
    ech_legal_report r;
    (void)state;
    ech_legal_query q = with(1, 2);
    q.sequence_parallel = q.keep_inputs = true;
    (void)expect(&q, &r, "sequence parallelism alone", ECH_VERDICT_LEGAL, "tp is 1");
    (void)expect(&q, &r, "kept inputs alone", ECH_VERDICT_LEGAL, "tp > 1 only");
    q = with(4, 1);
    q.sequence_parallel = q.keep_inputs = true;
    (void)expect(&q, &r, "kept inputs", ECH_VERDICT_COST, "4 times as large");
    q.seq = 63;
    expect_near(expect(&q, &r, "sequence parallelism", ECH_VERDICT_REFUSED, "micro 2 x seq 63"), 2,
                62, 64);
    q.context = 63;
    expect_near(expect(&q, &r, "sequence parallelism", ECH_VERDICT_REFUSED, "multiple of 4"), 1, 62,
                0);
    for (q.micro = 1; q.micro <= 6; q.micro++)
        for (q.seq = 1; q.seq <= 12; q.seq++) {
            ech_legal_check(&q, &r);
            assert_int_equal(find(&r, "sequence parallelism") != NULL, q.micro * q.seq % q.tp != 0);
        }
}

static void test_zero(void **state)
{
    ech_legal_report r;
    (void)state;
    ech_legal_query q = zero(12, 1, 5, 1);
    expect_near(expect(&q, &r, "shard group", ECH_VERDICT_REFUSED, "5 does not divide the 12"), 2,
                4, 6);
    q = zero(4, 0, 2, 1);
    expect_near(
        expect(&q, &r, "shard group of nothing", ECH_VERDICT_REFUSED, "stage 0 shards nothing"), 2,
        0, 4);
    q = zero(4, 0, 4, 1);
    expect_none(&q);
    q = zero(4, 2, 1, 1);
    (void)expect(&q, &r, "nothing to shard", ECH_VERDICT_LEGAL, "nothing is sharded");
    q = zero(12, 2, 3, 1);
    expect_near(expect(&q, &r, "tree of replicas", ECH_VERDICT_COST, "not claimed"), 1, 2, 0);
    static const int64_t tree[] = {3, 2, 2};
    q.tree = tree;
    q.n_tree = 3;
    expect_none(&q);
    q = zero(4, 3, 0, 5);
    (void)expect(&q, &r, "gathers", ECH_VERDICT_COST, "each of 5 micro-batches");
    q.prefetch = 4;
    expect_near(expect(&q, &r, "far prefetch", ECH_VERDICT_REFUSED, "the model has 4"), 1, 3, 0);
    q.prefetch = 0;
    (void)expect(&q, &r, "no prefetch", ECH_VERDICT_COST, "no gather is hidden");
    q.reshard_after_forward = false;
    (void)expect(&q, &r, "no reshard", ECH_VERDICT_COST, "stay from forward");
    q.zero_stage = 2;
    (void)expect(&q, &r, "prefetch alone", ECH_VERDICT_LEGAL, "stage 2");
    (void)expect(&q, &r, "reshard alone", ECH_VERDICT_LEGAL, "stage 2");
}

static void test_reduce(void **state)
{
    ech_legal_report r;
    (void)state;
    for (int64_t stage = 0; stage <= 3; stage++)
        for (int64_t m = 1; m <= 2; m++)
            for (int each = 0; each < 2; each++) {
                ech_legal_query q = zero(4, stage, 0, m);
                q.reduce_each = each;
                ech_legal_check(&q, &r);
                assert_int_equal(find(&r, "each without shards") != NULL, each && stage < 2);
                assert_int_equal(find(&r, "reduce each") != NULL, each && stage >= 2 && m > 1);
                assert_int_equal(find(&r, "reduce last") != NULL, !each && stage >= 2 && m > 1);
                assert_int_equal(find(&r, "gathers") != NULL, stage == 3 && m > 1);
            }
}

static void test_reduce_each_of_shared_heads(void **state)
{
    ech_legal_report r;
    (void)state;
    ech_legal_query q = with(4, 2);
    q.heads = 8;
    q.kv_heads = 2; /* each on two ranks of the four */
    q.zero_stage = 2;
    q.reduce_each = true;
    q.global *= 3;
    (void)expect(&q, &r, "reduce each", ECH_VERDICT_COST,
                 "3 times a step, once a micro-batch; so are, over tp, those of key/value heads "
                 "that 2 ranks hold each");
    q.kv_heads = 4;
    const ech_legal_finding *f = expect(&q, &r, "reduce each", ECH_VERDICT_COST, "3 times a step");
    assert_null(strstr(f->message, "key/value"));
}

/* In a group of one rank nothing is sharded, so nothing of it costs: told once, without effect. */
static void test_group_of_one(void **state)
{
    static const struct {
        int64_t dp, group;
    } one[] = {{1, 0}, {1, 1}, {4, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
        for (int64_t stage = 2; stage <= 3; stage++)
            for (int each = 0; each < 2; each++) {
                ech_legal_report r;
                ech_legal_query q = zero(one[i].dp, stage, one[i].group, 4);
                q.reduce_each = each;
                q.prefetch = stage == 3 ? 0 : 1;
                q.reshard_after_forward = stage < 3;
                ech_legal_check(&q, &r);
                assert_int_equal(r.n, 1);
                assert_string_equal(r.item[0].rule, "nothing to shard");
                q.dp *= 2; /* two ranks are a group: the costs are there again */
                q.ranks *= 2;
                q.global *= 2;
                q.zero_group = 2;
                ech_legal_check(&q, &r);
                assert_non_null(find(&r, each ? "reduce each" : "reduce last"));
                assert_int_equal(find(&r, "gathers") != NULL, stage == 3);
                assert_int_equal(find(&r, "no reshard") != NULL, stage == 3);
                assert_int_equal(find(&r, "no prefetch") != NULL, stage == 3);
            }
}

static void test_unbuilt(void **state)
{
    (void)state;
    ech_legal_query q = plain();
    ech_legal_report r;
    q.cp = q.ep = q.etp = 2;
    q.recompute = "full";
    q.offload_optimizer = "host";
    q.offload_params = "nvme:/x";
    q.offload_activations = "host";
    q.compute = "bf16";
    ech_legal_check(&q, &r);
    int n = 0;
    for (int i = 0; i < r.n; i++)
        if (r.item[i].is_unbuilt) {
            assert_int_equal(r.item[i].verdict, ECH_VERDICT_REFUSED);
            assert_non_null(strstr(r.item[i].message, "not built yet"));
            assert_true(r.item[i].near.n || r.item[i].near.word);
            n++;
        }
    assert_int_equal(n, 8);
}

/* --- pipelines --- */

/* m micro-batches on pp ranks, of as many layers as any of these tests has stages. */
static ech_legal_query pipeline(const char *schedule, int64_t pp, int64_t chunks, int64_t m)
{
    ech_legal_query q = with(1, 1);
    q.layers = 24;
    q.pp = q.ranks = pp;
    q.schedule = schedule;
    q.virtual_stages = chunks;
    q.global = q.micro * m;
    return q;
}

static void test_pipelines_that_are_legal(void **state)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1", "zb-v"};
    static const int64_t layers[] = {5, 0, 7, 12};
    (void)state;
    for (int64_t pp = 2; pp <= 4; pp++)
        for (int64_t m = pp; m <= 3 * pp; m++)
            for (size_t s = 0; s < 4; s++) {
                ech_legal_query q = pipeline(schedules[s], pp, 1, m);
                assert_int_equal(ech_legal_stages(&q), s == 3 ? 2 * pp : pp);
                expect_none(&q);
                q.tp = 2; /* beside every other axis that is built */
                q.dp = 2;
                q.ranks *= 4;
                q.global *= 2;
                q.zero_stage = 1;
                expect_none(&q);
            }
    ech_legal_query q = pipeline("zb-v", 2, 2, 4);
    q.stage_layers = layers; /* one has none */
    q.n_stage_layers = 4;
    expect_none(&q);
}

static void test_layers_and_stages(void **state)
{
    static const int64_t list[] = {5, 5, 1};
    ech_legal_report r;
    (void)state;
    ech_legal_query q = pipeline("1f1b", 4, 1, 4);
    q.layers = 3;
    q.ranks = 0;
    expect_near(
        expect(&q, &r, "layers", ECH_VERDICT_REFUSED, "pp 4 for a model of 3 layers: balanced"), 1,
        3, 0);
    q.ranks = 4; /* which 3 does not divide */
    expect_near(expect(&q, &r, "layers", ECH_VERDICT_REFUSED, "pp 4"), 1, 2, 0);
    q = pipeline("zb-v", 4, 1, 4);
    q.layers = 7;
    q.ranks = 0;
    expect_near(expect(&q, &r, "layers", ECH_VERDICT_REFUSED, "= 8 stages for a model of 7"), 1, 3,
                0);
    q = pipeline("interleaved", 4, 3, 4);
    q.layers = 11;
    expect_near(expect(&q, &r, "layers of chunks", ECH_VERDICT_REFUSED, "pp 4 x 3 virtual stages"),
                1, 2, 0);
    assert_null(find(&r, "layers"));
    q.stage_layers = list;
    q.n_stage_layers = 3;
    const ech_legal_finding *f =
        expect(&q, &r, "stage list", ECH_VERDICT_REFUSED,
               "3 stages are listed, pp 4 x 3 a rank under interleaved makes 12");
    assert_null(strstr(f->message, "they have")); /* 11 layers they are */
    assert_string_equal(f->near.word, "auto");
    assert_null(find(&r, "layers of chunks"));
    q.layers = 12;
    (void)expect(&q, &r, "stage list", ECH_VERDICT_REFUSED,
                 "makes 12; they have 11 layers, the model has 12");
    q = pipeline("1f1b", 3, 1, 3);
    q.stage_layers = list;
    q.n_stage_layers = 3;
    f = expect(&q, &r, "stage list", ECH_VERDICT_REFUSED, "they have 11 layers, the model has 24");
    assert_null(strstr(f->message, "listed"));
}

static void test_virtual_stages(void **state)
{
    static const char *const one[] = {"1f1b", "gpipe", "zb-h1"};
    ech_legal_report r;
    (void)state;
    for (int i = 0; i < 3; i++) {
        ech_legal_query q = pipeline(one[i], 2, 3, 4);
        expect_near(expect(&q, &r, "virtual stages", ECH_VERDICT_REFUSED,
                           "one chunk a rank; layout.schedule interleaved has as many"),
                    1, 1, 0);
        assert_null(strstr(find(&r, "virtual stages")->message, "zb-v has two"));
        q.virtual_stages = 2;
        (void)expect(&q, &r, "virtual stages", ECH_VERDICT_REFUSED, "zb-v has two");
        q.pp = q.ranks = 1;
        (void)expect(&q, &r, "virtual stages alone", ECH_VERDICT_LEGAL, "pp is 1");
        assert_null(find(&r, "virtual stages"));
    }
    ech_legal_query q = pipeline("zb-v", 2, 3, 4);
    expect_near(expect(&q, &r, "virtual stages", ECH_VERDICT_REFUSED, "two chunks a rank"), 1, 2,
                0);
    q = pipeline("zb-h1", 1, 1, 4);
    (void)expect(&q, &r, "schedule alone", ECH_VERDICT_LEGAL, "as under 1f1b");
    q = pipeline("gpipe", 1, 1, 4); /* all forward first: that is no 1f1b */
    expect_none(&q);
    q = pipeline("interleaved", 2, 1, 3);
    (void)expect(&q, &r, "interleaved alone", ECH_VERDICT_LEGAL, "is 1f1b");
    assert_int_equal(r.n, 1); /* and so takes any number of micro-batches */
}

/* Can m be dealt out in groups of g, the last of them with at least pp: by taking groups away. */
static bool fills_groups(int64_t m, int64_t g, int64_t pp)
{
    while (m > g)
        m -= g;
    return m == g || m >= pp;
}

static void test_interleaving(void **state)
{
    ech_legal_report r;
    int refused = 0;
    (void)state;
    for (int64_t pp = 2; pp <= 4; pp++)
        for (int64_t g = 0; g <= 2 * pp + 1; g++)
            for (int64_t m = 1; m <= 4 * pp; m++) {
                ech_legal_query q = pipeline("interleaved", pp, 2, m);
                q.schedule_group = g;
                ech_legal_check(&q, &r);
                const bool is_small = g && g < pp;
                assert_int_equal(find(&r, "group") != NULL, is_small);
                if (is_small)
                    continue;
                const int64_t group = g ? g : pp;
                const ech_legal_finding *f = find(&r, "interleaving");
                assert_int_equal(f != NULL, !fills_groups(m, group, pp));
                if (!f)
                    continue;
                refused++;
                check_nearest(&q, f);
                for (int64_t k = f->near.value[0] / q.micro + 1;
                     f->near.n == 2 && k < f->near.value[1] / q.micro; k++)
                    assert_false(fills_groups(k, group, pp)); /* none is nearer */
                assert_true(f->near.n == 2 || f->near.value[0] == q.micro * pp);
            }
    assert_true(refused > 30);
    ech_legal_query q = pipeline("interleaved", 4, 2, 6);
    q.dp = 3;
    q.ranks *= 3;
    q.global *= 3;
    expect_near(expect(&q, &r, "interleaving", ECH_VERDICT_REFUSED,
                       "6 micro-batches a step (global 36 / micro 2 / dp 3) are interleaved in "
                       "groups of 4: nearest legal 4 and 8"),
                2, 24, 48);
    q.schedule_group = 3;
    expect_near(expect(&q, &r, "group", ECH_VERDICT_REFUSED, "fewer than pp 4"), 1, 4, 0);
    q.schedule = "1f1b";
    q.virtual_stages = 1;
    (void)expect(&q, &r, "group alone", ECH_VERDICT_LEGAL, "only interleaved");
}

static void test_few_micro_batches(void **state)
{
    ech_legal_report r;
    (void)state;
    ech_legal_query q = pipeline("gpipe", 4, 1, 1);
    expect_near(expect(&q, &r, "few micro-batches", ECH_VERDICT_COST,
                       "1 micro-batch a step for pp 4: 75.0 % of"),
                1, 8, 0);
    q = pipeline("zb-h1", 3, 1, 2);
    (void)expect(&q, &r, "few micro-batches", ECH_VERDICT_COST,
                 "2 micro-batches a step for pp 3: under 1f1b 50.0 %");
    q = pipeline("1f1b", 3, 1, 3);
    expect_none(&q);
}

static void test_schedule_files(void **state)
{
    ech_legal_report r;
    (void)state;
    ech_legal_query q = pipeline("dir/s.csv", 2, 1, 4);
    q.is_schedule_file = true;
    q.file_ranks = 2;
    q.file_stages = 6;
    q.file_micros = 4;
    expect_none(&q);
    assert_int_equal(ech_legal_stages(&q), 6);
    q.global = 6;
    expect_near(expect(&q, &r, "micro-batches of a schedule", ECH_VERDICT_REFUSED,
                       "3 micro-batches a step (global 6 / micro 2 / dp 1), but dir/s.csv has 4"),
                1, 8, 0);
    q = pipeline("dir/s.csv", 3, 2, 4);
    q.is_schedule_file = true;
    q.file_ranks = 2;
    q.file_stages = 6;
    q.file_micros = 4;
    expect_near(expect(&q, &r, "ranks of a schedule", ECH_VERDICT_REFUSED,
                       "3, but dir/s.csv has a line for 2 pipeline ranks"),
                1, 2, 0);
    (void)expect(&q, &r, "virtual stages alone", ECH_VERDICT_LEGAL, "stages are as dir/s.csv");
    q.layers = 5;
    (void)expect(&q, &r, "layers", ECH_VERDICT_REFUSED,
                 "the 6 stages of dir/s.csv for a model of 5");
    q.file_ranks = q.file_stages = q.file_micros = 0; /* it could not be read */
    ech_legal_check(&q, &r);
    assert_int_equal(ech_legal_count(&r, ECH_VERDICT_REFUSED), 0);
}

static void test_sharded_stages(void **state)
{
    static const struct {
        int64_t stage;
        bool each, reshard;
        const char *words;
    } rows[] = {
        {2, false, true, "of each unit 1 reduction of gradients a step"},
        {2, true, true, "of each unit 8 reductions of gradients a step"},
        {3, false, true, "1 reduction of gradients and 16 gathers of parameters a step"},
        {3, true, false, "8 reductions of gradients and at most 8 gathers of parameters a step"},
    };
    ech_legal_report r;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ech_legal_query q = pipeline("1f1b", 4, 1, 8);
        q.dp = 2;
        q.ranks *= 2;
        q.global *= 2;
        q.zero_stage = rows[i].stage;
        q.reduce_each = rows[i].each;
        q.reshard_after_forward = rows[i].reshard;
        (void)expect(&q, &r, "sharded stages", ECH_VERDICT_COST, rows[i].words);
        assert_int_equal(ech_legal_count(&r, ECH_VERDICT_REFUSED), 0);
        q.zero_group = 1;
        ech_legal_check(&q, &r);
        assert_null(find(&r, "sharded stages"));
    }
}

/* --- nodes --- */

static void test_nodes(void **state)
{
    static const ech_node_run even[] = {{"a", 0, 4, 4}, {"b", 4, 4, 4}};
    static const ech_node_run apart[] = {{"a", 0, 1, 0}, {"b", 1, 3, 0}};
    static const ech_node_run twice[] = {{"a", 0, 4, 0}, {"b", 4, 8, 0}};
    static const ech_node_run odd[] = {{"a", 0, 4, 0}, {"b", 4, 6, 0}};
    static const ech_node_run mixed[] = {{"a", 0, 1, 0}, {"b", 1, 1, 0}, {"a", 2, 1, 0}};
    static const ech_node_run filled[] = {{"a", 0, 2, 2}, {"b", 2, 1, 2}};
    ech_legal_report r;
    (void)state;
    assert_int_equal(ech_node_ranks(even, 2), 4);
    assert_int_equal(ech_node_ranks(apart, 2), 0);
    assert_int_equal(ech_node_ranks(twice, 2), 4);
    assert_int_equal(ech_node_ranks(odd, 2), 0);
    assert_int_equal(ech_node_ranks(mixed, 3), 0);
    assert_int_equal(ech_node_ranks(even, 1), 4);
    assert_int_equal(ech_node_ranks(NULL, 0), 0);
    ech_legal_query q = with(1, 4);
    q.node = apart;
    q.n_nodes = 2;
    (void)expect(&q, &r, "unequal nodes", ECH_VERDICT_REFUSED,
                 "\n    rank 0 -> a\n    ranks 1-3 -> b");
    q = with(1, 3);
    q.node = filled;
    q.n_nodes = 2;
    expect_near(expect(&q, &r, "unequal nodes", ECH_VERDICT_REFUSED, "rank 2 -> b (2 slots)"), 2, 2,
                4);
    q.node = mixed;
    q.n_nodes = 3;
    (void)expect(&q, &r, "scattered", ECH_VERDICT_REFUSED, "rank 2 -> a");
    q = with(1, 8);
    q.node = even;
    q.n_nodes = 2;
    expect_none(&q);
    q.ranks = 9;
    expect_near(expect(&q, &r, "slots", ECH_VERDICT_REFUSED, "9 ranks for 8 slots"), 1, 8, 0);
    q.may_oversubscribe = true;
    ech_legal_check(&q, &r);
    assert_null(find(&r, "slots"));
    q.node_cores = 2;
    (void)expect(&q, &r, "shared processors", ECH_VERDICT_COST, "4 ranks of a node share 2");
}

/* Do two members of a tp group lie on different nodes: counted rank by rank. */
static bool tp_crosses(const ech_legal_query *q, int node_ranks)
{
    const int64_t stride = strncmp(q->order, "tp", 2) == 0 ? 1 : q->dp;
    for (int64_t r = 0; r < q->ranks; r++) {
        const int64_t first = r - r / stride % q->tp * stride;
        if (first / node_ranks != r / node_ranks)
            return true;
    }
    return false;
}

static void test_groups_on_nodes(void **state)
{
    static const char *const orders[] = {"tp-cp-ep-dp-pp", "dp-cp-ep-tp-pp"};
    int crossing = 0;
    (void)state;
    for (int o = 0; o < 2; o++)
        for (int64_t tp = 1; tp <= 12; tp++)
            for (int64_t dp = 1; dp <= 8; dp++)
                for (int nodes = 2; nodes <= 4; nodes++) {
                    ech_legal_report r;
                    ech_node_run node[4];
                    ech_legal_query q = with(tp, dp);
                    if (12 % tp || q.ranks % nodes)
                        continue;
                    const int each = (int)q.ranks / nodes;
                    for (int i = 0; i < nodes; i++)
                        node[i] = (ech_node_run){{(char)('a' + i)}, i * each, each, 0};
                    q.order = orders[o];
                    q.node = node;
                    q.n_nodes = nodes;
                    ech_legal_check(&q, &r);
                    const ech_legal_finding *f = find(&r, "tp over nodes");
                    assert_int_equal(f != NULL, tp_crosses(&q, each));
                    if (f)
                        assert_int_equal(f->verdict, ECH_VERDICT_COST);
                    crossing += f != NULL;
                }
    assert_true(crossing > 20);
}

static void test_gathers_over_nodes(void **state)
{
    static const ech_node_run node[] = {{"a", 0, 4, 0}, {"b", 4, 4, 0}};
    ech_legal_report r;
    (void)state;
    ech_legal_query q = zero(8, 3, 0, 1);
    q.node = node;
    q.n_nodes = 2;
    expect_near(
        expect(&q, &r, "gathers over nodes", ECH_VERDICT_COST, "over 8 ranks on nodes of 4"), 1, 4,
        0);
    q.zero_group = 4;
    expect_none(&q);
    q.zero_group = 0;
    q.zero_stage = 2;
    expect_none(&q);
}

/* --- nearest values, and the page --- */

static void test_near(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 60; n++)
        for (int64_t x = 1; x <= 70; x++) {
            int64_t below = 1;
            int64_t above = n;
            for (int64_t d = 1; d <= n; d++)
                if (n % d == 0 && d <= x)
                    below = d;
            for (int64_t d = n; d >= 1; d--)
                if (n % d == 0 && d >= x)
                    above = d;
            ech_near near = ech_near_divisors(n, x);
            assert_int_equal(near.value[0], below);
            assert_int_equal(near.value[near.n - 1], above);
            near = ech_near_multiples(n, x);
            assert_int_equal(near.value[0], x < n ? n : x / n * n);
            assert_int_equal(near.value[near.n - 1], (x + n - 1) / n * n);
        }
}

/* Random questions: what is named as nearest is legal, and every finding has words. */
static void test_random_nearest(void **state)
{
    static const int64_t tree[] = {2, 3};
    static const int64_t stages[] = {3, 1, 2, 0, 5, 1};
    static const char *const schedules[] = {"1f1b",  "gpipe", "interleaved",
                                            "zb-h1", "zb-v",  "f.csv"};
    (void)state;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        uint64_t s = seed * 2 + 1;
        ech_legal_report r;
        ech_legal_query q = plain();
#define PICK(lo, hi)                                                                               \
    ((s = s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407)),                      \
     (int64_t)((lo) + (int64_t)((s >> 33) % (uint64_t)((hi) - (lo) + 1))))
        q.kv_heads = PICK(1, 6);
        q.heads = q.kv_heads * PICK(1, 8);
        q.ffn = PICK(1, 300);
        q.vocab = PICK(1, 3000);
        q.tp = PICK(1, 12);
        q.dp = PICK(0, 12);
        q.ranks = PICK(0, 1) ? PICK(1, 48) : 0;
        q.sequence_parallel = PICK(0, 1);
        q.keep_inputs = PICK(0, 1);
        q.zero_stage = PICK(0, 3);
        q.zero_group = PICK(0, 12);
        q.prefetch = PICK(0, 5);
        q.reduce_each = PICK(0, 1);
        q.reshard_after_forward = PICK(0, 1);
        q.micro = PICK(1, 6);
        q.global = PICK(0, 60);
        q.seq = PICK(1, 64);
        q.n_tree = PICK(0, 3) ? 0 : 2;
        q.tree = tree;
        q.layers = PICK(1, 24);
        q.pp = PICK(0, 1) ? PICK(1, 6) : 1;
        q.virtual_stages = PICK(1, 4);
        q.schedule = schedules[PICK(0, 5)];
        q.is_schedule_file = strchr(q.schedule, '.') != NULL;
        q.file_ranks = PICK(0, 6);
        q.file_stages = q.file_ranks * PICK(1, 3);
        q.file_micros = q.file_ranks ? PICK(1, 8) : 0;
        q.schedule_group = PICK(0, 1) ? PICK(1, 9) : 0;
        q.stage_layers = stages;
        q.n_stage_layers = PICK(0, 2) ? 0 : (int)PICK(1, 6);
        ech_legal_check(&q, &r);
        for (int i = 0; i < r.n; i++) {
            assert_true(r.item[i].message[0] != '\0');
            assert_null(strstr(r.item[i].message, "(null)"));
            check_nearest(&q, &r.item[i]);
        }
    }
#undef PICK
}

static void test_print(void **state)
{
    ech_text t = {0};
    (void)state;
    ech_legal_finding f = {.message = "a", .near = {.n = 1, .value = {4}}};
    ech_legal_print(&f, &t);
    f.near = (ech_near){.n = 2, .value = {4, 8}};
    ech_legal_print(&f, &t);
    f.near = (ech_near){.word = "last"};
    ech_legal_print(&f, &t);
    f.near = (ech_near){0};
    ech_legal_print(&f, &t);
    assert_string_equal(ech_text_get(&t), "a; nearest legal value 4a; nearest legal values 4 and 8"
                                          "a; legal: lasta");
    ech_text_fini(&t);
    (void)strcpy(f.message, "a\nb");
    f.near = (ech_near){.n = 1, .value = {4}};
    ech_legal_print(&f, &t);
    assert_string_equal(ech_text_get(&t), "a\nb\n    nearest legal value 4");
    ech_text_fini(&t);
    ech_legal_markdown(&t);
    int rows = 0;
    for (const char *at = ech_text_get(&t); (at = strstr(at, "\n| ")); at++)
        rows++;
    assert_true(rows > 30 && rows - 1 <= ECH_LEGAL_MAX); /* the head is one of them */
    ech_text_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_to_say),
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_heads_by_counting),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_sequence_parallelism),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_reduce_each_of_shared_heads),
        cmocka_unit_test(test_group_of_one),
        cmocka_unit_test(test_unbuilt),
        cmocka_unit_test(test_pipelines_that_are_legal),
        cmocka_unit_test(test_layers_and_stages),
        cmocka_unit_test(test_virtual_stages),
        cmocka_unit_test(test_interleaving),
        cmocka_unit_test(test_few_micro_batches),
        cmocka_unit_test(test_schedule_files),
        cmocka_unit_test(test_sharded_stages),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_groups_on_nodes),
        cmocka_unit_test(test_gathers_over_nodes),
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_random_nearest),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
