#include "program/op_signature.h"

#include <string.h>

static const char *read_marks(const char *p, ech_sig_arg *s)
{
    s->access = ECH_READ;
    for (;; p++) {
        if (*p == '?') {
            s->is_optional = true;
        } else if (*p == '>') {
            s->access = ECH_WRITE;
        } else if (*p == '+' || *p == '=') {
            s->access = ECH_READ_WRITE;
            s->is_sum = *p == '+';
        } else if (*p == '*') {
            s->is_linear = true;
        } else if (*p == '&') {
            s->is_added = true;
        } else {
            return p;
        }
    }
}

ech_signature ech_signature_read(ech_op_kind kind)
{
    ech_signature sig = {0};
    const char *p = ech_op_row_get(kind)->signature;
    ECH_ASSERT(p);
    while (*p) {
        ech_sig_arg *s = &sig.arg[sig.n++];
        ECH_ASSERT(sig.n <= ECH_MAX_ARGS);
        p = read_marks(p, s);
        for (; *p && *p != ','; p++) {
            if (*p == '~')
                s->is_any = true;
            else if (*p == '.')
                s->is_cell = true;
            else
                s->label[s->n_labels++] = *p;
        }
        if (*p == ',')
            p++;
    }
    return sig;
}

char ech_sig_label(const ech_sig_arg *s, int d)
{
    if (s->is_any)
        return (char)('0' + d);
    return d < s->n_labels ? s->label[d] : '\0';
}

int ech_sig_dim(const ech_sig_arg *s, const ech_operand *a, char label)
{
    for (int d = 0; d < a->rank; d++)
        if (ech_sig_label(s, d) == label)
            return d;
    return -1;
}

bool ech_sig_is_summed(ech_op_kind kind, char label)
{
    const char *summed = ech_op_row_get(kind)->summed;
    if (label >= '0' && label <= '9')
        return strchr(summed, '~') != NULL;
    return strchr(summed, label) != NULL;
}
