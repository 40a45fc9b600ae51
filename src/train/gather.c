#include "train/gather.h"
#include "base/clock.h"

ech_status ech_gather_pass(const ech_session *s, ech_comm *comm, const ech_coll *coll)
{
    int request;
    int turns = 0;
    int64_t seen = -1;
    double since = 0.0;
    const int before_me = s->local[0].rank ? s->local[0].transport->size : 1;
    const double patience = s->config.watchdog_s * before_me;
    ECH_TRY(ech_coll_start(comm, coll, &request));
    for (;;) {
        const ech_status st = ech_coll_test(comm, request);
        if (st != ECH_BLOCKED)
            return st == ECH_DONE ? ECH_OK : st;
        const bool moved = ech_comm_activity(comm) != seen;
        seen = ech_comm_activity(comm);
        since = moved ? ech_clock_s() : since;
        turns = moved ? 0 : turns + 1;
        ECH_CHECK(patience <= 0.0 || ech_clock_s() < since + patience, ECH_E_TIMEOUT,
                  "no state from another rank for %.0f s", patience);
        ech_clock_backoff(turns);
    }
}
