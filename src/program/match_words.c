/* What match has to tell, in words: who, where, and who waits for whom. */
#include "program/match_private.h"

#include <stdio.h>

const char *match_ordinal(int64_t k, char *buf, size_t n)
{
    static const char *const words[] = {"first", "second",  "third",  "fourth", "fifth",
                                        "sixth", "seventh", "eighth", "ninth",  "tenth"};
    if (k < 10)
        (void)snprintf(buf, n, "%s", words[k]);
    else
        (void)snprintf(buf, n, "%lldth", (long long)k + 1);
    return buf;
}

const char *match_who(const sim *s, int node, char *buf, size_t n)
{
    char one[128];
    if (s->nodes.world == 1 && s->mesh.world > 1)
        (void)snprintf(buf, n, "every rank");
    else
        (void)snprintf(buf, n, "%s%s", s->nodes.world < s->mesh.world ? "every rank like " : "",
                       ech_mesh_describe(&s->mesh, s->node[node].rank, one, sizeof one));
    return buf;
}

const char *match_where(const sim *s, int node, int at, char *buf, size_t n)
{
    char item[128];
    const int klass = s->node[node].klass;
    const ech_op *op = match_op_at(s, klass, at);
    (void)snprintf(buf, n, "%s, op %s over %s",
                   ech_item_describe(s->spec->program[klass], s->klass[klass].event[at].item, item,
                                     sizeof item),
                   ech_op_name(op->kind), ech_axis_name(op->axis));
    return buf;
}

const char *match_what(const ech_op *op, char *buf, size_t n)
{
    const ech_operand *a = &op->arg[0];
    size_t at = (size_t)snprintf(buf, n, "%s of ", ech_op_name(op->kind));
    for (int d = 0; d < a->rank && at < n; d++)
        at += (size_t)snprintf(buf + at, n - at, "%s%lld", d ? " x " : "",
                               (long long)a->dim[d].bound);
    if (at < n)
        (void)snprintf(buf + at, n - at, " %s", ech_dtype_name(a->dtype));
    return buf;
}

ech_status match_fault(const sim *s, int node, int at, const char *why)
{
    char rank[160];
    char place[256];
    return ECH_RAISE(ECH_E_PROOF, "%s, %s: %s", match_who(s, node, rank, sizeof rank),
                     match_where(s, node, at, place, sizeof place), why);
}

/* --- who waits for whom --- */

static bool is_finished(const sim *s, int node)
{
    return s->node[node].at >= s->klass[s->node[node].klass].n;
}

/* The node that a blocked one waits for: the first member that has not started its collective, or
 * the other end. */
static int missing(const sim *s, int node)
{
    const open_message *o = match_open_of(s, node, s->node[node].at);
    const ech_op *op = match_op_at(s, s->node[node].klass, o->event);
    if (o->channel != NONE) {
        const int group = s->nodes.degree[op->axis];
        const int from = o->channel / group;
        return op->kind == ECH_OP_RECV_START
                   ? from
                   : ech_mesh_member(&s->nodes, from, op->axis, o->channel % group);
    }
    for (int i = 0; i < s->nodes.degree[op->axis]; i++) {
        const int m = ech_mesh_member(&s->nodes, node, op->axis, i);
        if (s->node[m].started[op->axis] <= o->k)
            return m;
    }
    return NONE;
}

static ech_status report(const sim *s, int node, int other)
{
    char ranks[2][160];
    char places[2][256];
    char nth[24];
    char lacks[96];
    const open_message *o = match_open_of(s, node, s->node[node].at);
    const ech_op *op = match_op_at(s, s->node[node].klass, o->event);
    const char *axis = ech_axis_name(op->axis);
    const char *verb = op->kind == ECH_OP_SEND_START   ? "receives"
                       : op->kind == ECH_OP_RECV_START ? "sends"
                                                       : "starts";
    const char *noun = o->channel == NONE ? "collective" : "message";
    (void)snprintf(lacks, sizeof lacks, "never %s a %s %s over %s%s", verb,
                   match_ordinal(o->k, nth, sizeof nth), noun, axis,
                   o->channel == NONE ? "" : " with it");
    if (!is_finished(s, other))
        (void)match_where(s, other, s->node[other].at, places[1], sizeof places[1]);
    return ECH_RAISE(
        ECH_E_PROOF, "%s%s waits in %s: %s %s; it %s%s",
        s->how == ECH_MATCH_SERIAL ? "with the communication of a rank one after the other, " : "",
        match_who(s, node, ranks[0], sizeof ranks[0]),
        match_where(s, node, s->node[node].at, places[0], sizeof places[0]),
        match_who(s, other, ranks[1], sizeof ranks[1]), lacks,
        is_finished(s, other) ? "has come to its end" : "stands in ",
        is_finished(s, other) ? "" : places[1]);
}

/* Of all that wait, one who waits for a rank that has ended tells most: there the start is
 * missing. */
ech_status match_check_finished(const sim *s)
{
    int blocked = NONE;
    for (int i = 0; i < s->nodes.world; i++) {
        if (is_finished(s, i))
            continue;
        if (is_finished(s, missing(s, i)))
            return report(s, i, missing(s, i));
        blocked = blocked == NONE ? i : blocked;
    }
    return blocked == NONE ? ECH_OK : report(s, blocked, missing(s, blocked));
}
