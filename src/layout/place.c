#include "layout/place.h"

#include "base/checked.h"

#include <string.h>

ech_status ech_node_runs(const char (*host)[ECH_HOST_BYTES], int ranks, ech_node_run **out, int *n)
{
    ech_node_run *run;
    ECH_TRY(ech_calloc((size_t)ranks, sizeof *run, &run));
    *n = 0;
    for (int r = 0; r < ranks; r++) {
        if (*n == 0 || strcmp(run[*n - 1].name, host[r]) != 0) {
            run[*n].first = r;
            memcpy(run[(*n)++].name, host[r], ECH_HOST_BYTES);
        }
        run[*n - 1].n++;
    }
    *out = run;
    return ECH_OK;
}

/* Part of `ranks` that the first slots of all of them take. */
static int share(int64_t ranks, int64_t slots, int64_t all)
{
    return (int)(ranks * slots / all);
}

void ech_node_fill(ech_node_run *node, int n, int ranks)
{
    int64_t all = 0;
    int64_t before = 0;
    for (int i = 0; i < n; i++)
        all += node[i].slots;
    for (int i = 0; i < n; i++) {
        const int64_t after = before + node[i].slots;
        if (ranks <= all) {
            node[i].first = (int)(before < ranks ? before : ranks);
            node[i].n = (int)(after < ranks ? after : ranks) - node[i].first;
        } else {
            node[i].first = share(ranks, before, all);
            node[i].n = share(ranks, after, all) - node[i].first;
        }
        before = after;
    }
}

bool ech_node_is_scattered(const ech_node_run *node, int n)
{
    for (int i = 2; i < n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(node[i].name, node[k].name) == 0)
                return true;
    return false;
}

int ech_node_ranks(const ech_node_run *node, int n)
{
    int least = 0;
    int most = 0;
    for (int i = 0; i < n; i++) {
        least = node[i].n && (!least || node[i].n < least) ? node[i].n : least;
        most = node[i].n > most ? node[i].n : most;
    }
    if (!least || ech_node_is_scattered(node, n) || (least == 1 && most > 1))
        return 0;
    for (int i = 0; i < n; i++)
        if (node[i].n % least)
            return 0;
    return least;
}
