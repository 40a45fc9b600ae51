#include "price/timeline.h"

#include <stdlib.h>

void ech_timeline_fini(ech_timeline *t)
{
    free(t->bar);
    *t = (ech_timeline){0};
}

const ech_program *ech_timeline_program(const ech_timeline *t, int rank)
{
    return t->program[t->class_of ? t->class_of[rank] : 0];
}
