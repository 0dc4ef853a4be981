/* Prim's algorithm on the rows of one rank that are not in the tree yet. */
#include "learn.h"

#include <math.h>

#define PART 256 /* points whose distances are worked out at a time */

enum { REACH, NUMBER, NEAREST, CORE, POINT }; /* how a point is told */

/* Let the tree grow by points, each the nearest of those outside after the one before, `steps` in all, and write the
   one that is nearest then: the first grows from `added`, the next from what was written. Points outside: `columns`
   (d x room, of which the first state[0] are in use) and of each how far it is from the tree, the point of the tree that
   is nearest, its core distance and its number. state[1] is the place of the point that was written last: it leaves if
   the tree grows by it, and the last takes its place. Of several nearest points it is the one with the lowest number.
   Distances are those of scikit-learn's DistanceMetric, bit for bit: squares added dim by dim, then the root. */
void redist_prim_step(double *restrict columns, double *restrict reach, int64_t *restrict nearest,
                      double *restrict core, int64_t *restrict number, int64_t room, int64_t d,
                      int64_t *restrict state, const double *added, double *offers, double alpha,
                      int64_t steps)
{
    const double square = alpha * alpha * (1 + 1e-12); /* more than rounding can take away */
    for (int64_t step = 0; step < steps; step++, added = offers, offers += d + POINT) {
        const int64_t tree_number = (int64_t)added[NUMBER], at = state[1];
        if (at >= 0 && number[at] == tree_number) {
            const int64_t last = --state[0];
            for (int64_t j = 0; j < d; j++)
                columns[j * room + at] = columns[j * room + last];
            reach[at] = reach[last];
            nearest[at] = nearest[last];
            core[at] = core[last];
            number[at] = number[last];
        }
        const int64_t m = state[0];
        const double tree_core = added[CORE];
        int64_t best = -1;
        double least = INFINITY;
        for (int64_t lo = 0; lo < m; lo += PART) {
            const int64_t n = m - lo < PART ? m - lo : PART;
            double far[PART];
            for (int64_t i = 0; i < n; i++)
                far[i] = 0;
            for (int64_t j = 0; j < d; j++) {
                const double *restrict column = columns + j * room + lo;
                const double value = added[POINT + j];
                for (int64_t i = 0; i < n; i++)
                    far[i] += (value - column[i]) * (value - column[i]);
            }
            for (int64_t i = 0; i < n; i++) {
                const double so_far = reach[lo + i];
                if (far[i] > so_far * so_far * square)
                    continue; /* no root is needed to see that it is farther */
                double way = sqrt(far[i]) / alpha;
                way = way > core[lo + i] ? way : core[lo + i];
                way = way > tree_core ? way : tree_core;
                if (way < so_far) {
                    reach[lo + i] = way;
                    nearest[lo + i] = tree_number;
                }
            }
            for (int64_t i = 0; i < n; i++)
                if (reach[lo + i] < least ||
                    (best >= 0 && reach[lo + i] == least && number[lo + i] < number[best])) {
                    least = reach[lo + i];
                    best = lo + i;
                }
        }
        state[1] = best;
        offers[REACH] = offers[NUMBER] = INFINITY;
        if (best < 0)
            continue;
        offers[REACH] = reach[best];
        offers[NUMBER] = (double)number[best];
        offers[NEAREST] = (double)nearest[best];
        offers[CORE] = core[best];
        for (int64_t j = 0; j < d; j++)
            offers[POINT + j] = columns[j * room + best];
    }
}
