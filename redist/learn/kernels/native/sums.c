/* Exact sums over rows: of columns, of their squares, and of squared distances to centres. */
#include "learn.h"

/* `sums` (2 x d): the coarse and the fine parts of the sums of columns, or of their squares. */
#define COLUMNS(NAME, T)                                                                          \
    FOR_THIS_CPU void NAME(const T *restrict rows, int64_t n, int64_t d, int64_t squared,         \
                           double coarse, double fine, double *restrict sums)                     \
    {                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                           \
            for (int64_t j = 0; j < d; j++) {                                                     \
                const double here = (double)rows[i * d + j];                                      \
                const double value = squared ? here * here : here;                                \
                const double part = on_grid(value, coarse);                                       \
                sums[j] += part;                                                                  \
                sums[d + j] += on_grid(value - part, fine);                                       \
            }                                                                                     \
    }

COLUMNS(redist_columns_f64, double)
COLUMNS(redist_columns_f32, float)

/* `sums` (2 x m): the weighted squared distances of rows to their centres, each in the sum that `into` names. */
#define INERTIA(NAME, T)                                                                          \
    FOR_THIS_CPU void NAME(const T *restrict rows, int64_t n, int64_t d,                          \
                           const T *restrict weights, const T *restrict centers,                  \
                           const int32_t *restrict labels, const int32_t *restrict into,          \
                           int64_t m, double coarse, double fine, double *restrict sums)          \
    {                                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                         \
            const T *restrict row = rows + i * d, *restrict centre = centers + labels[i] * d;     \
            double far = 0;                                                                       \
            for (int64_t j = 0; j < d; j++) {                                                     \
                const double apart = (double)row[j] - (double)centre[j];                          \
                far += apart * apart;                                                             \
            }                                                                                     \
            const double value = far * (double)weights[i];                                        \
            const double part = on_grid(value, coarse);                                           \
            sums[into[i]] += part;                                                                \
            sums[m + into[i]] += on_grid(value - part, fine);                                     \
        }                                                                                         \
    }

INERTIA(redist_inertia_f64, double)
INERTIA(redist_inertia_f32, float)
