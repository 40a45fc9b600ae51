#include "program/expr.h"

ech_expr ech_expr_const(int64_t value)
{
    ech_expr e = {.n = 1};
    e.node[0].op = ECH_EXPR_CONST;
    e.node[0].value = value;
    return e;
}

ech_expr ech_expr_coord(ech_axis axis)
{
    ech_expr e = {.n = 1};
    e.node[0].op = ECH_EXPR_COORD;
    e.node[0].value = (int64_t)axis;
    return e;
}

ech_expr ech_expr_micro(void)
{
    ech_expr e = {.n = 1};
    e.node[0].op = ECH_EXPR_MICRO;
    return e;
}

ech_expr ech_expr_binary(ech_expr_op op, ech_expr a, ech_expr b)
{
    ech_expr e = a;
    ECH_ASSERT(op >= ECH_EXPR_ADD && a.n > 0 && b.n > 0);
    ECH_ASSERT(a.n + b.n + 1 <= ECH_EXPR_NODES);
    for (int i = 0; i < b.n; i++)
        e.node[e.n++] = b.node[i];
    e.node[e.n].op = op;
    e.node[e.n].value = 0;
    e.n++;
    return e;
}

static int64_t apply(ech_expr_op op, int64_t a, int64_t b)
{
    switch (op) {
    case ECH_EXPR_ADD:
        return a + b;
    case ECH_EXPR_MUL:
        return a * b;
    case ECH_EXPR_DIV:
        return b ? a / b : 0;
    case ECH_EXPR_MOD:
        return b ? a % b : 0;
    case ECH_EXPR_MIN:
        return a < b ? a : b;
    case ECH_EXPR_LE:
        return a <= b;
    case ECH_EXPR_CONST:
    case ECH_EXPR_COORD:
    case ECH_EXPR_MICRO:
        break;
    }
    ECH_ASSERT(op >= ECH_EXPR_ADD); /* leaves are not applied */
    return 0;
}

int64_t ech_expr_eval(const ech_expr *e, const int64_t coord[ECH_N_AXES], int64_t micro)
{
    int64_t stack[ECH_EXPR_NODES] = {0};
    int top = 0;
    for (int i = 0; i < e->n; i++) {
        const ech_expr_op op = e->node[i].op;
        if (op == ECH_EXPR_CONST) {
            stack[top++] = e->node[i].value;
        } else if (op == ECH_EXPR_COORD) {
            stack[top++] = coord[e->node[i].value];
        } else if (op == ECH_EXPR_MICRO) {
            stack[top++] = micro;
        } else {
            ECH_ASSERT(top >= 2);
            top--;
            stack[top - 1] = apply(op, stack[top - 1], stack[top]);
        }
    }
    ECH_ASSERT(top <= 1);
    return top ? stack[0] : 0;
}
