#include "coll_world.h"

#include "check.h"

#include "base/rng.h"

static void open_comms(coll_world *w)
{
    for (int r = 0; r < w->n; r++)
        assert_ok(ech_comm_create(w->t[r], &w->layout, COLL_WORLD_RUNS, &w->comm[r]));
}

static void open_transports(coll_world *w, const ech_layout *l)
{
    *w = (coll_world){.layout = *l, .n = l->world, .gate = {.is_open = true, .held_tag = -1}};
    assert_true(w->n <= COLL_WORLD_RANKS);
    assert_ok(ech_transport_inproc(w->n, w->t));
}

void coll_world_open(coll_world *w, const ech_layout *l)
{
    open_transports(w, l);
    open_comms(w);
}

void coll_world_open_lazy(coll_world *w, const ech_layout *l, uint64_t seed)
{
    open_transports(w, l);
    w->seed = seed;
    for (int r = 0; r < w->n; r++)
        w->t[r] = lazy_transport(w->t[r], &w->gate);
    open_comms(w);
}

void coll_world_close(coll_world *w)
{
    for (int r = 0; r < w->n; r++) {
        for (int i = 0; i < w->runs; i++)
            coll_run_fini(&w->run[r][i]);
        ech_comm_destroy(&w->comm[r]);
        assert_null(w->comm[r]);
        w->t[r]->destroy(w->t[r]);
    }
}

static uint32_t draw(coll_world *w)
{
    const ech_rng_key key = ech_rng_key_make(w->seed, ECH_RNG_TEST, 0, 99);
    return ech_rng_u32(&key, w->draws++);
}

void coll_world_add(coll_world *w, const coll_case *c)
{
    assert_true(w->runs < COLL_WORLD_RUNS);
    for (int r = 0; r < w->n; r++) {
        coll_case mine = *c;
        mine.size = ech_comm_group_size(w->comm[r], c->axis);
        mine.n = coll_case_fit(c->kind, mine.size, c->n);
        coll_run_init(&w->run[r][w->runs], &mine, ech_comm_group_index(w->comm[r], c->axis));
    }
    w->runs++;
}

bool coll_world_step(coll_world *w, int r)
{
    bool is_done = true;
    for (int i = 0; i < w->runs; i++) {
        coll_run *run = &w->run[r][i];
        if (run->is_done)
            continue;
        if (run->request < 0) {
            assert_ok(ech_coll_start(w->comm[r], &run->coll, &run->request));
            return false; /* another rank may come between two starts */
        }
        const ech_status st = ech_coll_test(w->comm[r], run->request);
        if (st < 0)
            fail_msg("rank %d: %s", r, ech_error_message());
        run->is_done = st == ECH_DONE;
        is_done = is_done && run->is_done;
    }
    return is_done;
}

int64_t coll_world_activity(const coll_world *w)
{
    int64_t sum = 0;
    for (int r = 0; r < w->n; r++)
        sum += ech_comm_activity(w->comm[r]);
    return sum;
}

static bool is_started(const coll_world *w)
{
    for (int r = 0; r < w->n; r++)
        for (int i = 0; i < w->runs; i++)
            if (w->run[r][i].request < 0)
                return false;
    return true;
}

bool coll_world_run(coll_world *w)
{
    for (;;) {
        const int64_t before = coll_world_activity(w);
        const bool was_started = is_started(w);
        bool is_done = true;
        for (int k = 0; k < 3 * w->n && w->seed; k++) {
            w->gate.is_open = draw(w) % 4 == 0;
            (void)coll_world_step(w, (int)(draw(w) % (uint32_t)w->n));
        }
        w->gate.is_open = true;
        for (int r = 0; r < w->n; r++)
            is_done = coll_world_step(w, r) && is_done;
        if (is_done)
            return true;
        if (was_started && coll_world_activity(w) == before)
            return false;
    }
}

void coll_world_run_without(coll_world *w, int late)
{
    for (int64_t before = -1; before != coll_world_activity(w);) {
        before = coll_world_activity(w);
        for (int again = 0; again < 2; again++)
            for (int r = 0; r < w->n; r++)
                if (r != late)
                    assert_false(coll_world_step(w, r));
    }
}

static void check_traffic(const coll_world *w, int r)
{
    int64_t wire[ECH_N_AXES] = {0}, payload[ECH_N_AXES] = {0};
    const ech_sent *sent = ech_comm_sent(w->comm[r]);
    for (int i = 0; i < w->runs; i++) {
        const coll_run *run = &w->run[r][i];
        wire[run->c.axis] += coll_case_wire(&run->c, run->member);
        payload[run->c.axis] += coll_case_payload(&run->c, run->member);
    }
    for (int a = 0; a < ECH_N_AXES; a++) {
        if (sent->wire_bytes[a] != wire[a] || sent->payload_bytes[a] != payload[a])
            fail_msg("rank %d over %s: sent %lld of payload %lld, must be %lld of %lld", r,
                     ech_axis_name((ech_axis)a), (long long)sent->wire_bytes[a],
                     (long long)sent->payload_bytes[a], (long long)wire[a], (long long)payload[a]);
        assert_int_equal(sent->messages[a] > 0, wire[a] > 0);
    }
}

void coll_world_check(const coll_world *w)
{
    for (int r = 0; r < w->n; r++) {
        for (int i = 0; i < w->runs; i++) {
            const coll_run *run = &w->run[r][i];
            assert_true(coll_run_is_right(run, &w->layout.tree[run->c.axis]));
        }
        check_traffic(w, r);
    }
}

void coll_world_run_one(const ech_layout *l, const coll_case *c, uint64_t seed)
{
    coll_world w;
    coll_world_open(&w, l);
    w.seed = seed;
    coll_world_add(&w, c);
    assert_true(coll_world_run(&w));
    coll_world_check(&w);
    coll_world_close(&w);
}
