#include "cli/explain.h"

void ech_derivation_members(const ech_derivation *d, ech_jout *j)
{
    ech_jout_open(j, "derivation", '[');
    for (int i = 0; i < d->n; i++) {
        const ech_derived *line = &d->line[i];
        ech_jout_open(j, NULL, '{');
        ech_jout_string(j, "section", line->section >= 0 ? d->section[line->section] : NULL);
        ech_jout_string(j, "what", line->what);
        ech_jout_string(j, "formula", line->formula);
        ech_jout_real(j, "value", line->value);
        ech_jout_string(j, "unit", line->unit);
        ech_jout_string(j, "source", line->source);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}
