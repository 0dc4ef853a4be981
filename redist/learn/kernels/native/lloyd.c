/* A Lloyd step: the nearest centre of every row, and the exact sums of the rows of each centre. */
#include "learn.h"

#include <stddef.h>

int64_t redist_learn_abi(void) { return REDIST_LEARN_ABI; }

/* GCC for x86_64 takes a short loop of floats apart before it could become one vector, unless told not to. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WHOLE _Pragma("GCC unroll 1")
#else
#define WHOLE
#endif

/* Rows 4 at a time, centres WIDTH at a time: products of one row and one centre are added dim by dim, so that
   a row's answer does not depend on the rows beside it. Products are fused with the additions, as the matrix products
   do that scikit-learn calls: where two centres are equally far, rounding decides, and then alike. */
#define NEAREST(NAME, T, FUSED)                                                                   \
    static inline __attribute__((always_inline)) void NAME(                                       \
        const T *const row[4], int64_t d, const T *restrict turned, const T *restrict norms,      \
        int64_t k, int32_t label[4])                                                              \
    {                                                                                             \
        T best[4];                                                                                \
        for (int r = 0; r < 4; r++)                                                               \
            label[r] = 0;                                                                         \
        for (int64_t at = 0; at < k; at += WIDTH) {                                               \
            T sum[4][WIDTH] = {{0}};                                                              \
            for (int64_t j = 0; j < d; j++) {                                                     \
                const T *restrict centre = turned + j * k + at;                                   \
                for (int r = 0; r < 4; r++)                                                       \
                    WHOLE for (int c = 0; c < WIDTH; c++) sum[r][c] =                             \
                        FUSED(row[r][j], centre[c], sum[r][c]);                                   \
            }                                                                                     \
            for (int r = 0; r < 4; r++)                                                           \
                for (int c = 0; c < WIDTH; c++) {                                                 \
                    const T far = norms[at + c] - 2 * sum[r][c];                                  \
                    if (at + c == 0 || far < best[r]) {                                           \
                        best[r] = far;                                                            \
                        label[r] = (int32_t)(at + c);                                             \
                    }                                                                             \
                }                                                                                 \
        }                                                                                         \
    }

#define LLOYD(NAME, STEP, T)                                                                      \
    FOR_THIS_CPU int64_t NAME(const T *restrict rows, int64_t n, int64_t d,                       \
                              const T *restrict weights, const T *restrict turned,                \
                              const T *restrict norms, int64_t k, int32_t *restrict labels,       \
                              const double *restrict grids, double *restrict sums)                \
    {                                                                                             \
        const double coarse = sums ? grids[0] : 0, fine = sums ? grids[1] : 0;                    \
        const double w_coarse = sums ? grids[2] : 0, w_fine = sums ? grids[3] : 0;                \
        int64_t changed = 0;                                                                      \
        for (int64_t i = 0; i < n; i += 4) {                                                      \
            const T *row[4];                                                                      \
            int32_t label[4];                                                                     \
            const int64_t m = n - i < 4 ? n - i : 4;                                              \
            for (int r = 0; r < 4; r++)                                                           \
                row[r] = rows + (i + (r < m ? r : 0)) * d;                                        \
            STEP(row, d, turned, norms, k, label);                                                \
            for (int64_t r = 0; r < m; r++) {                                                     \
                changed += labels[i + r] != label[r];                                             \
                labels[i + r] = label[r];                                                         \
                if (sums == NULL)                                                                 \
                    continue;                                                                     \
                double *restrict high = sums + (int64_t)label[r] * 2 * (d + 1);                   \
                double *restrict low = high + d + 1;                                              \
                const T w = weights[i + r];                                                       \
                for (int64_t j = 0; j < d; j++) {                                                 \
                    const double value = (double)(row[r][j] * w);                                 \
                    const double part = on_grid(value, coarse);                                   \
                    high[j] += part;                                                              \
                    low[j] += on_grid(value - part, fine);                                        \
                }                                                                                 \
                const double part = on_grid((double)w, w_coarse);                                 \
                high[d] += part;                                                                  \
                low[d] += on_grid((double)w - part, w_fine);                                      \
            }                                                                                     \
        }                                                                                         \
        return changed;                                                                           \
    }

NEAREST(nearest_f64, double, __builtin_fma)
NEAREST(nearest_f32, float, __builtin_fmaf)

/* Labels of all rows (how many changed is returned), and where `sums` is not NULL, k rows of: d coarse sums, the
   coarse weight, d fine sums, the fine weight. `turned` is d x k, `k` a multiple of WIDTH, padded with norms of
   infinity; the first k rows of `sums` that are used are those of real centres. */
LLOYD(redist_lloyd_f64, nearest_f64, double)
LLOYD(redist_lloyd_f32, nearest_f32, float)
