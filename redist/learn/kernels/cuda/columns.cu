/* Columns of rows: how far each two are apart, added up exactly, means of some of them, and products with blocks of
   columns. */
#define SIDE 4               /* columns of either side whose sums a thread holds */
#define ACROSS 16            /* threads of a block along either side */
#define WIDE (SIDE * ACROSS) /* columns of a block on either side */

/* Coarse and fine sums over rows of squares of differences, or, unless SQUARED, of their magnitudes: `sums` (2, d, d),
   above the diagonal. A job is two sets of WIDE columns and `stretch` rows; sums are exact, so that they may meet in any
   order. */
extern "C" __global__ void __launch_bounds__(THREADS)
    column_pairs(const double *rows, i64 n, i64 d, i64 stretch, double coarse, double fine,
                 double *sums)
{
    const i64 sets = (d + WIDE - 1) / WIDE, parts = (n + stretch - 1) / stretch;
    for (i64 job = blockIdx.x; job < sets * sets * parts; job += gridDim.x) {
        const i64 one = job % (sets * sets) / sets, other = job % sets;
        const i64 begin = job / (sets * sets) * stretch;
        const i64 end = begin + stretch < n ? begin + stretch : n;
        if (one > other)
            continue;
        EACH_THREAD {
            const i64 left = one * WIDE + tid / ACROSS * SIDE;
            const i64 right = other * WIDE + tid % ACROSS * SIDE;
            if (left >= right + SIDE)
                continue;
            i64 lefts[SIDE], rights[SIDE]; /* beyond the last column: the last again */
            double high[SIDE][SIDE], low[SIDE][SIDE];
#pragma unroll
            for (int p = 0; p < SIDE; p++) {
                lefts[p] = left + p < d ? left + p : d - 1;
                rights[p] = right + p < d ? right + p : d - 1;
#pragma unroll
                for (int q = 0; q < SIDE; q++)
                    high[p][q] = low[p][q] = 0;
            }
            for (i64 i = begin; i < end; i++) {
                const double *row = rows + i * d;
                double there[SIDE];
#pragma unroll
                for (int q = 0; q < SIDE; q++)
                    there[q] = row[rights[q]];
#pragma unroll
                for (int p = 0; p < SIDE; p++) {
                    const double here = row[lefts[p]];
#pragma unroll
                    for (int q = 0; q < SIDE; q++) {
                        const double apart = here - there[q];
                        const double value = SQUARED ? apart * apart : fabs(apart);
                        const double part = on_grid(value, coarse);
                        high[p][q] += part;
                        low[p][q] += on_grid(value - part, fine);
                    }
                }
            }
#pragma unroll
            for (int p = 0; p < SIDE; p++)
#pragma unroll
                for (int q = 0; q < SIDE; q++)
                    if (left + p < right + q && right + q < d) {
                        double *at = sums + (left + p) * d + right + q;
                        atomicAdd(at, high[p][q]);
                        atomicAdd(at + d * d, low[p][q]);
                    }
        }
    }
}

/* The means of k sets of columns in each row: columns order[begins[c]] to order[begins[c + 1]], added in this order. */
extern "C" __global__ void column_means(const REAL *rows, i64 n, i64 d, const i64 *order,
                                        const i64 *begins, i64 k, double *means)
{
    EACH_THREAD {
        for (i64 p = (i64)blockIdx.x * N_THREADS + tid; p < n * k;
             p += (i64)gridDim.x * N_THREADS) {
            const i64 begin = begins[p % k], end = begins[p % k + 1];
            double sum = 0;
            for (i64 at = begin; at < end; at++)
                sum += (double)rows[p / k * d + order[at]];
            means[p] = sum / (double)(end - begin);
        }
    }
}

/* Rows times a block of k columns: products are fused with the additions, in the order of the columns of `rows`. */
extern "C" __global__ void row_products(const REAL *rows, i64 n, i64 d, const REAL *block, i64 k,
                                        REAL *out)
{
    EACH_THREAD {
        for (i64 p = (i64)blockIdx.x * N_THREADS + tid; p < n * k;
             p += (i64)gridDim.x * N_THREADS) {
            const REAL *row = rows + p / k * d, *right = block + p % k;
            REAL sum = 0;
#pragma unroll 8
            for (i64 j = 0; j < d; j++)
                sum = fused(row[j], right[j * k], sum);
            out[p] = sum;
        }
    }
}

/* Inner products of the d columns of `rows` with the k of a block: exact sums, coarse and fine: 2, d, k. */
extern "C" __global__ void inner_products(const double *rows, i64 n, i64 d, const double *block,
                                          i64 k, i64 stretch, double coarse, double fine,
                                          double *sums)
{
    const i64 parts = (n + stretch - 1) / stretch;
    EACH_THREAD {
        for (i64 p = (i64)blockIdx.x * N_THREADS + tid; p < d * k * parts;
             p += (i64)gridDim.x * N_THREADS) {
            const i64 i = p % d, j = p / d % k, begin = p / (d * k) * stretch;
            const i64 end = begin + stretch < n ? begin + stretch : n;
            double high = 0, low = 0;
            for (i64 r = begin; r < end; r++) {
                const double value = rows[r * d + i] * block[r * k + j];
                const double part = on_grid(value, coarse);
                high += part;
                low += on_grid(value - part, fine);
            }
            atomicAdd(&sums[i * k + j], high);
            atomicAdd(&sums[(d + i) * k + j], low);
        }
    }
}
