/* A Lloyd step: the nearest centre of every row, and the exact sums of the rows of each centre. */
#include "lanes.h"
#include "learn.h"

#include <math.h>
#include <stddef.h>

int64_t redist_learn_abi(void) { return REDIST_LEARN_ABI; }

/* Rows 4 at a time, centres WIDE at a time: products of one row and one centre are added dim by dim, so that
   a row's answer does not depend on the rows beside it. Products are fused with the additions, as the matrix products
   do that scikit-learn calls: where two centres are equally far, rounding decides, and then alike. Every lane keeps the
   first nearest of its own centres, and its number; of all of them the first is taken. */
#define NEAREST(KIND, LANES, T, WIDE)                                                             \
    INLINE void nearest_##KIND##_##WIDE(const T *const row[4], int64_t d,                         \
                                        const T *restrict turned, const T *restrict norms,        \
                                        int64_t k, int32_t label[4])                              \
    {                                                                                             \
        lanes_##KIND best[4], where[4], places;                                                   \
        for (int l = 0; l < LANES; l++)                                                           \
            places[l] = (T)l;                                                                     \
        for (int r = 0; r < 4; r++) {                                                             \
            best[r] = (lanes_##KIND){0} + (T)INFINITY;                                            \
            where[r] = (lanes_##KIND){0};                                                         \
        }                                                                                         \
        for (int64_t at = 0; at < k; at += WIDE) {                                                \
            lanes_##KIND sum[4][WIDE / LANES] = {{{0}}};                                          \
            for (int64_t j = 0; j < d; j++)                                                       \
                UNROLLED for (int c = 0; c < WIDE / LANES; c++)                                   \
                {                                                                                 \
                    const lanes_##KIND centre = load_##KIND(turned + j * k + at + c * LANES);     \
                    UNROLLED for (int r = 0; r < 4; r++) sum[r][c] =                              \
                        fused_##KIND(row[r][j], centre, sum[r][c]);                               \
                }                                                                                 \
            for (int c = 0; c < WIDE / LANES; c++) {                                              \
                const lanes_##KIND norm = load_##KIND(norms + at + c * LANES);                    \
                for (int r = 0; r < 4; r++) {                                                     \
                    const lanes_##KIND far = norm - 2 * sum[r][c];                                \
                    const places_##KIND is_nearer = far < best[r];                                \
                    best[r] = chosen_##KIND(is_nearer, far, best[r]);                             \
                    where[r] = chosen_##KIND(is_nearer, places, where[r]);                        \
                }                                                                                 \
                places += (T)LANES;                                                               \
            }                                                                                     \
        }                                                                                         \
        for (int r = 0; r < 4; r++) {                                                             \
            for (int half = LANES / 2; half; half /= 2) {                                         \
                const lanes_##KIND other = across_##KIND(best[r], half);                          \
                const lanes_##KIND there = across_##KIND(where[r], half);                         \
                const places_##KIND is_first =                                                    \
                    (other < best[r]) | ((other == best[r]) & (there < where[r]));                \
                best[r] = chosen_##KIND(is_first, other, best[r]);                                \
                where[r] = chosen_##KIND(is_first, there, where[r]);                              \
            }                                                                                     \
            label[r] = (int32_t)where[r][0];                                                      \
        }                                                                                         \
    }

/* Add a row to the sums of its centre: coarse parts, then fine ones. */
#define ADD_ROW(KIND, T)                                                                          \
    INLINE void add_row_##KIND(const T *restrict row, T w, int64_t d,                             \
                               const double *restrict grids, double *restrict high,               \
                               double *restrict low)                                              \
    {                                                                                             \
        for (int64_t j = 0; j < d; j++) {                                                         \
            const double value = (double)(row[j] * w);                                            \
            const double part = on_grid(value, grids[0]);                                         \
            high[j] += part;                                                                      \
            low[j] += on_grid(value - part, grids[1]);                                            \
        }                                                                                         \
        const double part = on_grid((double)w, grids[2]);                                         \
        high[d] += part;                                                                          \
        low[d] += on_grid((double)w - part, grids[3]);                                            \
    }

#define LLOYD(KIND, T, FEW)                                                                       \
    FOR_THIS_CPU int64_t redist_lloyd_##KIND(                                                     \
        const T *restrict rows, int64_t n, int64_t d, const T *restrict weights,                  \
        const T *restrict turned, const T *restrict norms, int64_t k, int32_t *restrict labels,   \
        const double *restrict grids, double *restrict sums)                                      \
    {                                                                                             \
        int64_t changed = 0;                                                                      \
        for (int64_t i = 0; i < n; i += 4) {                                                      \
            const T *row[4];                                                                      \
            int32_t label[4];                                                                     \
            const int64_t m = n - i < 4 ? n - i : 4;                                              \
            for (int r = 0; r < 4; r++)                                                           \
                row[r] = rows + (i + (r < m ? r : 0)) * d;                                        \
            if (k < 8)                                                                            \
                FEW(row, d, turned, norms, k, label);                                             \
            else                                                                                  \
                nearest_##KIND##_8(row, d, turned, norms, k, label);                              \
            for (int64_t r = 0; r < m; r++) {                                                     \
                changed += labels[i + r] != label[r];                                             \
                labels[i + r] = label[r];                                                         \
                if (sums == NULL)                                                                 \
                    continue;                                                                     \
                double *high = sums + (int64_t)label[r] * 2 * (d + 1);                            \
                add_row_##KIND(row[r], weights[i + r], d, grids, high, high + d + 1);             \
            }                                                                                     \
        }                                                                                         \
        return changed;                                                                           \
    }

NEAREST(f64, LANES_F64, double, 4)
NEAREST(f64, LANES_F64, double, 8)
NEAREST(f32, LANES_F32, float, 8)
ADD_ROW(f64, double)
ADD_ROW(f32, float)

/* Labels of all rows (how many changed is returned), and where `sums` is not NULL, k rows of: d coarse sums, the
   coarse weight, d fine sums, the fine weight. `turned` is d x k, `k` 4 (of doubles) or a multiple of 8, padded with
   norms of infinity; the first k rows of `sums` that are used are those of real centres. */
LLOYD(f64, double, nearest_f64_4)
LLOYD(f32, float, nearest_f32_8)
