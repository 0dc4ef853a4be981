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

#define SIDE 4      /* columns of either block whose inner products are held at a time */
#define STRETCH 512 /* rows that are read while they are near */

/* Inner products of up to SIDE columns of either block over some rows; all of them if FULL. */
#define INNER(NAME, HIGH, WIDE)                                                                   \
    INLINE void NAME(const double *restrict left, int64_t left_stride,                            \
                     const double *restrict right, int64_t right_stride, int64_t n,               \
                     double coarse, double fine, int64_t high, int64_t wide,                      \
                     double large[SIDE][SIDE], double small[SIDE][SIDE])                          \
    {                                                                                             \
        (void)high;                                                                               \
        (void)wide;                                                                               \
        double some[SIDE][SIDE] = {{0}}, rest[SIDE][SIDE] = {{0}};                                \
        for (int64_t r = 0; r < n; r++) {                                                         \
            const double *restrict one = left + r * left_stride;                                  \
            const double *restrict other = right + r * right_stride;                              \
            for (int64_t i = 0; i < HIGH; i++)                                                    \
                for (int64_t j = 0; j < WIDE; j++) {                                              \
                    const double value = one[i] * other[j];                                       \
                    const double part = on_grid(value, coarse);                                   \
                    some[i][j] += part;                                                           \
                    rest[i][j] += on_grid(value - part, fine);                                    \
                }                                                                                 \
        }                                                                                         \
        for (int i = 0; i < SIDE; i++)                                                            \
            for (int j = 0; j < SIDE; j++) {                                                      \
                large[i][j] = some[i][j];                                                         \
                small[i][j] = rest[i][j];                                                         \
            }                                                                                     \
    }

INNER(inner_full, SIDE, SIDE)
INNER(inner_edge, high, wide)

/* `sums` (2 x a x b, zeros before): coarse and fine parts of the inner products of the columns of two blocks. */
FOR_THIS_CPU void redist_inner(const double *restrict left, int64_t a, int64_t left_stride,
                               const double *restrict right, int64_t b, int64_t right_stride,
                               int64_t n, double coarse, double fine, double *restrict sums)
{
    for (int64_t lo = 0; lo < n; lo += STRETCH)
        for (int64_t p = 0; p < a; p += SIDE)
            for (int64_t q = 0; q < b; q += SIDE) {
                const int64_t rows = n - lo < STRETCH ? n - lo : STRETCH;
                const int64_t high = a - p < SIDE ? a - p : SIDE,
                              wide = b - q < SIDE ? b - q : SIDE;
                const double *one = left + lo * left_stride + p,
                             *other = right + lo * right_stride + q;
                double large[SIDE][SIDE], small[SIDE][SIDE];
                if (high == SIDE && wide == SIDE)
                    inner_full(one, left_stride, other, right_stride, rows, coarse, fine, high,
                               wide, large, small);
                else
                    inner_edge(one, left_stride, other, right_stride, rows, coarse, fine, high,
                               wide, large, small);
                for (int64_t i = 0; i < high; i++)
                    for (int64_t j = 0; j < wide; j++) {
                        sums[(p + i) * b + q + j] += large[i][j];
                        sums[a * b + (p + i) * b + q + j] += small[i][j];
                    }
            }
}
