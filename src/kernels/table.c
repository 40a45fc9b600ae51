/* One kernel per kind: ref first, then what a faster set overrides. */
#include "kernels/kernels.h"

#include <string.h>

static bool is_offered(const ech_kernel_set *set, ech_op_kind kind, ech_dtype real)
{
    return set->kernel[kind] && (!set->supports || set->supports(kind, real));
}

static void take_from(const ech_kernel_set *set, ech_dtype real, ech_kernel_table *table)
{
    for (int kind = 0; kind < ECH_N_OPS; kind++) {
        if (!is_offered(set, (ech_op_kind)kind, real))
            continue;
        table->kernel[kind] = set->kernel[kind];
        table->from[kind] = set;
    }
}

ech_status ech_kernel_table_make(const ech_kernel_set *fast, ech_dtype real, ech_kernel_table *out)
{
    ech_kernel_table table;
    memset(&table, 0, sizeof table);
    take_from(ech_kernel_set_ref(), real, &table);
    if (fast)
        take_from(fast, real, &table);
    for (int k = 0; k < ECH_N_OPS; k++) {
        const ech_op_kind kind = (ech_op_kind)k;
        ECH_CHECK(table.kernel[kind] || ech_op_is_comm(kind), ECH_E_UNSUPPORTED,
                  "op '%s' has no kernel for %s arguments (sets: ref%s%s)", ech_op_name(kind),
                  ech_dtype_name(real), fast ? ", " : "", fast ? fast->name : "");
    }
    *out = table;
    return ECH_OK;
}
