/* k-means++: how near every row would be to its nearest centre with each of some candidates. */
#include "learn.h"

/* `near` (trials x n) becomes the least of `closest` and the squared distance to each candidate; `sums` (trials x 2)
   the exact weighted sum of it, as a coarse and a fine part. */
#define CANDIDATES(NAME, T)                                                                       \
    FOR_THIS_CPU void NAME(const T *restrict rows, int64_t n, int64_t d,                          \
                           const double *restrict norms, const double *restrict weights,          \
                           const T *restrict candidates, const double *restrict candidate_norms,  \
                           int64_t trials, const double *restrict closest, double coarse,         \
                           double fine, double *restrict near, double *restrict sums)             \
    {                                                                                             \
        for (int64_t t = 0; t < trials; t++) {                                                    \
            const T *restrict candidate = candidates + t * d;                                     \
            double *restrict out = near + t * n;                                                  \
            double high = 0, low = 0;                                                             \
            for (int64_t i = 0; i < n; i++) {                                                     \
                const T *restrict row = rows + i * d;                                             \
                double product = 0;                                                               \
                for (int64_t j = 0; j < d; j++)                                                   \
                    product += (double)row[j] * (double)candidate[j];                             \
                double far = (-2 * product + candidate_norms[t]) + norms[i];                      \
                far = far > 0 ? far : 0;                                                          \
                far = far < closest[i] ? far : closest[i];                                        \
                out[i] = far;                                                                     \
                const double value = far * weights[i];                                            \
                const double part = on_grid(value, coarse);                                       \
                high += part;                                                                     \
                low += on_grid(value - part, fine);                                               \
            }                                                                                     \
            sums[2 * t] = high;                                                                   \
            sums[2 * t + 1] = low;                                                                \
        }                                                                                         \
    }

CANDIDATES(redist_candidates_f64, double)
CANDIDATES(redist_candidates_f32, float)
