/* RUN: np=1 timeout=120 tags=fast */
/* One fault at a time, in programs of one and many ranks: each is found by the proof or by the fp64
 * run against one rank; none may survive.  Half the places of each fault, in every layout;
 * mutants_all tries all of them. */
#include "judge.h"
#include "sanitized.h"

#include <stdio.h>
#include <stdlib.h>

/* Of so many places of a fault one is tried; ECH_MUTANTS_EVERY says another number,
 * ECH_MUTANTS_CASE one layout alone, ECH_MUTANTS prints each verdict. */
enum { EVERY = IS_SANITIZED ? 8 : 2 };

int main(void)
{
    const char *every = getenv("ECH_MUTANTS_EVERY");
    const char *only = getenv("ECH_MUTANTS_CASE");
    const judge_plan plan = {.every = every ? atoi(every) : EVERY, .only = only ? atoi(only) : -1};
    return judge_all(&plan);
}
