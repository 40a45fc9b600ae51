/* RUN: np=1 timeout=600 tags=long */
/* As mutants, at every place of every fault; and what the proof refuses is run too where that is
 * safe, to tell how much of it would have shown. */
#include "judge.h"

int main(void)
{
    const judge_plan plan = {.every = 1, .only = -1, .thorough = true};
    return judge_all(&plan);
}
