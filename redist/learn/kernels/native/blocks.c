/* Blocks of columns whose rows are cut over ranks: rows times a small matrix, and exact inner products of columns. */
#include "lanes.h"
#include "learn.h"

/* columns of `rows` that are worked on at a time, while the rows of `block` for them are near */
#define PANEL 512

/* 4 rows and WIDE columns at a time. A row's products are added column by column, fused with the additions, so that
   a row's answer does not depend on the rows beside it. */
#define TIMES(NAME, WIDE)                                                                         \
    INLINE void NAME(const double *const row[4], int64_t lo, int64_t hi,                          \
                     const double *restrict block, int64_t k, double *restrict out,               \
                     int64_t out_stride)                                                          \
    {                                                                                             \
        lanes_f64 sum[4][WIDE / LANES_F64];                                                       \
        UNROLLED for (int r = 0; r < 4; r++) UNROLLED for (int c = 0; c < WIDE / LANES_F64; c++)  \
            sum[r][c] = load_f64(out + r * out_stride + c * LANES_F64);                           \
        for (int64_t j = lo; j < hi; j++) {                                                       \
            const double *restrict right = block + j * k;                                         \
            UNROLLED for (int c = 0; c < WIDE / LANES_F64; c++)                                   \
            {                                                                                     \
                const lanes_f64 here = load_f64(right + c * LANES_F64);                           \
                UNROLLED for (int r = 0; r < 4; r++) sum[r][c] =                                  \
                    fused_f64(row[r][j], here, sum[r][c]);                                        \
            }                                                                                     \
        }                                                                                         \
        UNROLLED for (int r = 0; r < 4; r++) UNROLLED for (int c = 0; c < WIDE / LANES_F64; c++)  \
            store_f64(out + r * out_stride + c * LANES_F64, sum[r][c]);                           \
    }

TIMES(times_8, 8)
TIMES(times_4, 4)

/* `out` (n x k, rows `out_stride` apart) takes on `rows` (n rows of m numbers, `stride` apart) times `block` (m x k, k a
   multiple of 4). */
FOR_THIS_CPU void redist_times(const double *restrict rows, int64_t n, int64_t m, int64_t stride,
                               const double *restrict block, int64_t k, double *restrict out,
                               int64_t out_stride)
{
    for (int64_t lo = 0; lo < m; lo += PANEL) {
        const int64_t hi = m - lo < PANEL ? m : lo + PANEL;
        for (int64_t i = 0; i < n; i += 4) {
            const int64_t here = n - i < 4 ? n - i : 4;
            const double *row[4];
            for (int64_t r = 0; r < 4; r++)
                row[r] = rows + (i + (r < here ? r : 0)) * stride;
            for (int64_t at = 0, wide; at < k; at += wide) {
                double *into = out + i * out_stride + at, spare[4 * 8] = {0};
                wide = k - at < 8 ? 4 : 8;
                if (here < 4) /* beyond the last row there is nothing to write to */
                    for (int64_t r = 0; r < here; r++)
                        for (int64_t c = 0; c < wide; c++)
                            spare[r * 8 + c] = into[r * out_stride + c];
                double *sums = here < 4 ? spare : into;
                const int64_t sums_stride = here < 4 ? 8 : out_stride;
                if (wide == 8)
                    times_8(row, lo, hi, block + at, k, sums, sums_stride);
                else
                    times_4(row, lo, hi, block + at, k, sums, sums_stride);
                if (here < 4)
                    for (int64_t r = 0; r < here; r++)
                        for (int64_t c = 0; c < wide; c++)
                            into[r * out_stride + c] = spare[r * 8 + c];
            }
        }
    }
}

#define BLOCK                                                                                     \
    32 /* columns that are held beside each other at a time, those beyond the last as zeros */
#define STRETCH 128 /* rows that are read while they are near */

enum { SIDE = 4 * LANES_F64 }; /* columns whose sums are in registers */

/* Coarse and fine sums of the products of SIDE columns with one other over some rows: added to `large` and `small`. */
INLINE void add_products(const double (*left)[BLOCK], const double *restrict right, int64_t stride,
                         int64_t n, int64_t at, double coarse, double fine, double *restrict large,
                         double *restrict small)
{
    lanes_f64 high[4] = {{0}}, low[4] = {{0}};
    for (int64_t r = 0; r < n; r++)
        UNROLLED for (int c = 0; c < 4; c++)
        {
            const lanes_f64 value = load_f64(left[r] + at + c * LANES_F64) * right[r * stride];
            const lanes_f64 part = (value + coarse) - coarse;
            high[c] += part;
            low[c] += ((value - part) + fine) - fine;
        }
    UNROLLED for (int c = 0; c < 4; c++)
    {
        store_f64(large + at + c * LANES_F64, high[c]);
        store_f64(small + at + c * LANES_F64, low[c]);
    }
}

/* `sums` (2 x a x b, zeros before): coarse and fine parts of the inner products of the columns of two blocks. */
FOR_THIS_CPU void redist_inner(const double *restrict left, int64_t a, int64_t left_stride,
                               const double *restrict right, int64_t b, int64_t right_stride,
                               int64_t n, double coarse, double fine, double *restrict sums)
{
    for (int64_t p = 0; p < a; p += BLOCK) {
        const int64_t wide = a - p < BLOCK ? a - p : BLOCK;
        double held[STRETCH][BLOCK] = {{0}};
        for (int64_t lo = 0; lo < n; lo += STRETCH) {
            const int64_t rows = n - lo < STRETCH ? n - lo : STRETCH;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t i = 0; i < wide; i++)
                    held[r][i] = left[(lo + r) * left_stride + p + i];
            for (int64_t q = 0; q < b; q++) {
                double large[BLOCK], small[BLOCK];
                for (int64_t at = 0; at < wide; at += SIDE)
                    add_products(held, right + lo * right_stride + q, right_stride, rows, at,
                                 coarse, fine, large, small);
                for (int64_t i = 0; i < wide; i++) {
                    sums[(p + i) * b + q] += large[i];
                    sums[(a + p + i) * b + q] += small[i];
                }
            }
        }
    }
}
