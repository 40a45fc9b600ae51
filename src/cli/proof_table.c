#include "cli/proof_table.h"

#include <stdio.h>

void ech_cli_print_proof(const ech_program *p, const ech_prove_report *report)
{
    static const char *const verdicts[] = {"holds", "FAULT", "left out"};
    (void)printf("proof of '%s' in %.3f s; %d of %d rank%s followed, the others are like them:\n",
                 p->name, report->seconds, report->followed, report->world,
                 report->world == 1 ? "" : "s");
    for (int part = 0; part < ECH_N_PROOF_PARTS; part++) {
        const ech_proof_row *row = &report->row[part];
        (void)printf("  %-10s %-8s %10lld looked at %7.3f s  %s\n",
                     ech_proof_name((ech_proof_part)part), verdicts[row->verdict],
                     (long long)row->looked, row->seconds, ech_proof_claim((ech_proof_part)part));
        if (row->text[0])
            (void)printf("    %s\n", row->text);
    }
}

void ech_cli_jout_proof(ech_jout *j, const ech_program *p, const ech_prove_report *report)
{
    for (int part = 0; part < ECH_N_PROOF_PARTS; part++) {
        const ech_proof_row *row = &report->row[part];
        ech_jout_open(j, NULL, '{');
        ech_jout_string(j, "program", p->name);
        ech_jout_string(j, "part", ech_proof_name((ech_proof_part)part));
        if (row->verdict == ECH_PROOF_LEFT_OUT)
            ech_jout_null(j, "ok");
        else
            ech_jout_bool(j, "ok", row->verdict == ECH_PROOF_HOLDS);
        ech_jout_string(j, "text",
                        row->text[0] ? row->text : ech_proof_claim((ech_proof_part)part));
        ech_jout_int(j, "looked", row->looked);
        ech_jout_real(j, "seconds", row->seconds);
        ech_jout_close(j);
    }
}
