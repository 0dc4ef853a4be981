/* The kernels of redist.learn: plain loops over the rows of one rank, called through ctypes.

   Built without contraction (-ffp-contract=off): a product is rounded before it is added, as NumPy and scikit-learn's
   metrics do; where products are fused, the code says so. What is added up is split first (see ExactGrid of redist.spmd):
   parts above `coarse` and parts above `fine` are added without any rounding. */
#ifndef REDIST_LEARN_H
#define REDIST_LEARN_H

#include <redist_spmd.h>
#include <stdint.h>

#define REDIST_LEARN_ABI 5

/* Where not every processor of a kind can fuse a product with an addition, both ways are built in. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_THIS_CPU __attribute__((target_clones("fma", "default")))
#else
#define FOR_THIS_CPU
#endif

/* The part of a value that lies on the grid of a constant 1.5 * 2^52 units. */
static inline double on_grid(double value, double grid) { return (value + grid) - grid; }

#endif
