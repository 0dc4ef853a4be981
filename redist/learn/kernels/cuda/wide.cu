/* A Lloyd step for rows of many dims or for very many centres, and what seeds are chosen by: a thread a row.

   Sums go to memory one by one: they are exact, so that their order does not matter. */
#define GROUP 8 /* centres that are compared at a time */

extern "C" __global__ void label(const REAL *rows, i64 n, i64 d, const REAL *centers,
                                 const REAL *norms, i64 k, int *labels,
                                 unsigned long long *changed)
{
    EACH_THREAD {
        for (i64 i = (i64)blockIdx.x * N_THREADS + tid; i < n; i += (i64)gridDim.x * N_THREADS) {
            const REAL *row = rows + i * d;
            REAL best = 0;
            int nearest = 0;
            for (i64 first = 0; first < k; first += GROUP) {
                const int m = (int)(k - first < GROUP ? k - first : GROUP);
                REAL sum[GROUP];
                for (int c = 0; c < GROUP; c++)
                    sum[c] = 0;
                for (i64 j = 0; j < d; j++)
#pragma unroll
                    for (int c = 0; c < GROUP; c++)
                        if (c < m)
                            sum[c] = fused(row[j], centers[(first + c) * d + j], sum[c]);
                for (int c = 0; c < m; c++) {
                    const REAL far = norms[first + c] - 2 * sum[c];
                    if (first + c == 0 || far < best) {
                        best = far;
                        nearest = (int)(first + c);
                    }
                }
            }
            if (labels[i] != nearest)
                atomicAdd(changed, 1ull);
            labels[i] = nearest;
        }
    }
}

/* Numbers of rows side by side: neighbouring threads read neighbouring numbers. */
extern "C" __global__ void add_rows(const REAL *rows, i64 n, i64 d, const REAL *weights,
                                    const int *labels, const double *grids, double *sums)
{
    EACH_THREAD {
        for (i64 p = (i64)blockIdx.x * N_THREADS + tid; p < n * (d + 1);
             p += (i64)gridDim.x * N_THREADS) {
            const i64 i = p / (d + 1), j = p % (d + 1);
            const REAL w = weights[i];
            const double value = (double)(j < d ? rows[i * d + j] * w : w);
            const double part = on_grid(value, grids[j < d ? 0 : 2]);
            double *high = sums + (i64)labels[i] * 2 * (d + 1) + j;
            atomicAdd(high, part);
            atomicAdd(high + d + 1, on_grid(value - part, grids[j < d ? 1 : 3]));
        }
    }
}

/* How near each row would be to its nearest seed with each of some candidates: near has a row for each. */
extern "C" __global__ void try_candidates(const REAL *rows, i64 n, i64 d, const double *norms,
                                          const REAL *candidates, const double *candidate_norms,
                                          i64 n_candidates, const double *closest, double *near)
{
    EACH_THREAD {
        for (i64 i = (i64)blockIdx.x * N_THREADS + tid; i < n; i += (i64)gridDim.x * N_THREADS)
            for (i64 t = 0; t < n_candidates; t++) {
                double product = 0;
                for (i64 j = 0; j < d; j++)
                    product += (double)rows[i * d + j] * (double)candidates[t * d + j];
                double far = (-2 * product + candidate_norms[t]) + norms[i];
                far = far > 0 ? far : 0;
                near[t * n + i] = far < closest[i] ? far : closest[i];
            }
    }
}
