/* RUN: np=1 timeout=20 tags=fast */
/* Learning-rate schedules at their corners, against values worked out by hand. */
#include "train/lr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int failures;

static void expect(const char *what, const ech_lr *lr, int64_t step, double want)
{
    const double got = ech_lr_at(lr, step);
    if (fabs(got - want) <= 1e-15 * fabs(want) + 1e-18)
        return;
    (void)fprintf(stderr, "%s, step %lld: got %.17g, wanted %.17g\n", what, (long long)step, got,
                  want);
    failures++;
}

static void test_warmup(void)
{
    for (int s = 0; s < 4; s++) {
        const ech_lr lr = {(ech_lr_schedule)s, 1e-3, 1e-4, 10, 20, 110};
        expect("warm-up, first step", &lr, 1, 1e-4);
        expect("warm-up, half", &lr, 5, 5e-4);
        expect("warm-up, its end is the peak", &lr, 10, 1e-3);
        expect("a step before the first", &lr, 0, 1e-4);
        expect("a negative step", &lr, -7, 1e-4);
    }
}

static void test_constant(void)
{
    const ech_lr lr = {ECH_LR_CONSTANT, 3e-4, 0, 0, 0, 100};
    expect("constant", &lr, 1, 3e-4);
    expect("constant", &lr, 100, 3e-4);
    expect("constant beyond the horizon", &lr, 100000, 3e-4);
}

static void test_linear(void)
{
    const ech_lr lr = {ECH_LR_LINEAR, 1.0, 0.2, 10, 0, 110};
    expect("linear, one step after the peak", &lr, 11, 0.2 + 0.8 * 0.99);
    expect("linear, half", &lr, 60, 0.6);
    expect("linear, end", &lr, 110, 0.2);
    expect("linear, beyond", &lr, 111, 0.2);
    const ech_lr bare = {ECH_LR_LINEAR, 1.0, 0, 0, 0, 4};
    expect("linear without warm-up", &bare, 1, 0.75);
    expect("linear without warm-up", &bare, 4, 0);
}

static void test_cosine(void)
{
    const ech_lr lr = {ECH_LR_COSINE, 1.0, 0.1, 10, 0, 110};
    expect("cosine, quarter", &lr, 35, 0.1 + 0.45 * (1 + sqrt(0.5)));
    expect("cosine, half", &lr, 60, 0.55);
    expect("cosine, end", &lr, 110, 0.1);
    expect("cosine, beyond", &lr, 5000, 0.1);
}

static void test_wsd(void)
{
    const ech_lr lr = {ECH_LR_WSD, 1.0, 0.0, 10, 20, 100};
    expect("wsd, stable", &lr, 11, 1.0);
    expect("wsd, last stable step", &lr, 80, 1.0);
    expect("wsd, first step of the fall", &lr, 81, 0.95);
    expect("wsd, half of the fall", &lr, 90, 0.5);
    expect("wsd, end", &lr, 100, 0.0);
    const ech_lr none = {ECH_LR_WSD, 1.0, 0.0, 0, 0, 100};
    expect("wsd without a fall", &none, 100, 1.0);
}

static void test_degenerate(void)
{
    const ech_lr all_warmup = {ECH_LR_COSINE, 1.0, 0.5, 4, 0, 4};
    expect("nothing after warm-up", &all_warmup, 4, 1.0);
    expect("beyond a run that is all warm-up", &all_warmup, 5, 0.5);
}

int main(void)
{
    test_warmup();
    test_constant();
    test_linear();
    test_cosine();
    test_wsd();
    test_degenerate();
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
