/* Exact sums over rows of how far each two columns are apart. */
#include "learn.h"

#include <math.h>

#define BLOCK 32 /* columns whose sums are held at a time */

/* `sums` (2 x d x d, above the diagonal): squares of differences, or their magnitudes if not `squared`. */
FOR_THIS_CPU void redist_pairs(const double *restrict rows, int64_t n, int64_t d, int64_t squared,
                               double coarse, double fine, double *restrict sums)
{
    for (int64_t a = 0; a < d; a += BLOCK)
        for (int64_t b = a; b < d; b += BLOCK) {
            const int64_t high = d - a < BLOCK ? d - a : BLOCK,
                          wide = d - b < BLOCK ? d - b : BLOCK;
            double large[BLOCK][BLOCK] = {{0}}, small[BLOCK][BLOCK] = {{0}};
            for (int64_t r = 0; r < n; r++) {
                const double *restrict left = rows + r * d + a, *restrict right = rows + r * d + b;
                for (int64_t i = 0; i < high; i++) {
                    const double here = left[i];
                    for (int64_t j = 0; j < wide; j++) {
                        const double apart = here - right[j];
                        const double value = squared ? apart * apart : fabs(apart);
                        const double part = on_grid(value, coarse);
                        large[i][j] += part;
                        small[i][j] += on_grid(value - part, fine);
                    }
                }
            }
            for (int64_t i = 0; i < high; i++)
                for (int64_t j = 0; j < wide; j++) {
                    sums[(a + i) * d + b + j] = large[i][j];
                    sums[d * d + (a + i) * d + b + j] = small[i][j];
                }
        }
}
