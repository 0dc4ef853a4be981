/* Exact sums over rows of how far each two columns are apart. */
#include "lanes.h"
#include "learn.h"

#include <math.h>

#define BLOCK                                                                                     \
    32 /* columns that are held beside each other at a time, those beyond the last as zeros */
#define STRETCH 128 /* rows that are read while they are near */

enum { SIDE = 4 * LANES_F64 }; /* columns whose sums are in registers */

/* Coarse and fine sums of what one column is apart from SIDE others over some rows: added to `large` and `small`. */
INLINE void add_apart(const double *restrict left, int64_t stride, const double (*right)[BLOCK],
                      int64_t n, int64_t at, int squared, double coarse, double fine,
                      double *restrict large, double *restrict small)
{
    lanes_f64 high[4] = {{0}}, low[4] = {{0}};
    for (int64_t r = 0; r < n; r++)
        UNROLLED for (int c = 0; c < 4; c++)
        {
            const lanes_f64 apart = left[r * stride] - load_f64(right[r] + at + c * LANES_F64);
            const lanes_f64 value = squared ? apart * apart : larger_f64(apart, -apart);
            const lanes_f64 part = (value + coarse) - coarse;
            high[c] += part;
            low[c] += ((value - part) + fine) - fine;
        }
    UNROLLED for (int c = 0; c < 4; c++)
    {
        store_f64(large + at + c * LANES_F64, load_f64(large + at + c * LANES_F64) + high[c]);
        store_f64(small + at + c * LANES_F64, load_f64(small + at + c * LANES_F64) + low[c]);
    }
}

/* `sums` (2 x d x d, above the diagonal): squares of differences, or their magnitudes if not `squared`. */
FOR_THIS_CPU void redist_pairs(const double *restrict rows, int64_t n, int64_t d, int64_t squared,
                               double coarse, double fine, double *restrict sums)
{
    for (int64_t b = 0; b < d; b += BLOCK) {
        const int64_t wide = d - b < BLOCK ? d - b : BLOCK;
        for (int64_t lo = 0; lo < n; lo += STRETCH) {
            const int64_t high = n - lo < STRETCH ? n - lo : STRETCH;
            double right[STRETCH][BLOCK] = {{0}};
            for (int64_t r = 0; r < high; r++)
                for (int64_t j = 0; j < wide; j++)
                    right[r][j] = rows[(lo + r) * d + b + j];
            for (int64_t i = 0; i < b + wide; i++) {
                const double *left = rows + lo * d + i;
                double large[BLOCK] = {0}, small[BLOCK] = {0};
                for (int64_t at = 0; at < wide; at += SIDE)
                    if (squared)
                        add_apart(left, d, right, high, at, 1, coarse, fine, large, small);
                    else
                        add_apart(left, d, right, high, at, 0, coarse, fine, large, small);
                for (int64_t j = 0; j < wide; j++) {
                    sums[i * d + b + j] += large[j];
                    sums[d * d + i * d + b + j] += small[j];
                }
            }
        }
    }
}
