/* The kernels of redist.learn: plain loops over the rows of one rank, called through ctypes.

   Built without contraction (-ffp-contract=off): a product is rounded before it is added, as NumPy and scikit-learn's
   metrics do; where products are fused, the code says so. What is added up is split first (see exact_sums.py):
   parts above `coarse` and parts above `fine` are added without any rounding. */
#ifndef REDIST_LEARN_H
#define REDIST_LEARN_H

#include <stdint.h>

#define REDIST_LEARN_ABI 5

/* Where not every processor of a kind can fuse a product with an addition, both ways are built in. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_THIS_CPU __attribute__((target_clones("fma", "default")))
#else
#define FOR_THIS_CPU
#endif

/* Ranks of a node that meet at each step of a loop, as StepWords of meeting.py: `meet` is the function of meet.c, and
   answers 0 once all have come; `tiles` are what every rank lets the others read; `seq` is the number of the next
   meeting. */
struct redist_ranks {
    int (*meet)(uint64_t *const *control, int n, int me, uint64_t seq, uint64_t word,
                const uint64_t *words, int64_t wait_ns);
    uint64_t *const *control;
    double *const *tiles;
    int64_t n, me, wait_ns;
    uint64_t seq, word;
};

static inline int meet(const struct redist_ranks *r)
{
    return r->meet(r->control, (int)r->n, (int)r->me, r->seq, r->word, 0, r->wait_ns);
}

/* The part of a value that lies on the grid of a constant 1.5 * 2^52 units. */
static inline double on_grid(double value, double grid) { return (value + grid) - grid; }

#endif
