/* How far other points are: all, the nearest K, or which is the nearest; of several the first. */

/* The squares of the K least distances so far, in order; `least` is K, n. */
extern "C" __global__ void __launch_bounds__(THREADS)
    k_least(const REAL *points, i64 n, const REAL *others, i64 n_others, double *least)
{
    for (i64 from = (i64)blockIdx.x * N_THREADS; from < n; from += (i64)gridDim.x * N_THREADS)
        for (i64 first = 0; first < n_others; first += HELD) {
            const i64 m = n_others - first < HELD ? n_others - first : HELD;
            EACH_POINT(n, others, n_others)
            {
                OWN_POINT(points, i)
                double kept[K];
#pragma unroll
                for (int k = 0; k < K; k++)
                    kept[k] = least[k * n + i];
                bool changed = false;
                for (int q = 0; q < m; q += GROUP) {
                    double far[GROUP];
                    squares(own, q, far);
#pragma unroll
                    for (int g = 0; g < GROUP; g++)
                        if (far[g] < kept[K - 1]) {
                            double value = far[g];
                            changed = true;
#pragma unroll
                            for (int k = 0; k < K; k++) {
                                const double low = kept[k] < value ? kept[k] : value;
                                value = kept[k] < value ? value : kept[k];
                                kept[k] = low;
                            }
                        }
                }
                if (changed) {
#pragma unroll
                    for (int k = 0; k < K; k++)
                        least[k * n + i] = kept[k];
                }
            }
        }
}

/* The nearest of the others, and the square of how far it is. */
extern "C" __global__ void __launch_bounds__(THREADS)
    nearest(const REAL *points, i64 n, const REAL *others, i64 n_others, i64 *which, double *least)
{
    for (i64 from = (i64)blockIdx.x * N_THREADS; from < n; from += (i64)gridDim.x * N_THREADS)
        for (i64 first = 0; first < n_others; first += HELD) {
            const i64 m = n_others - first < HELD ? n_others - first : HELD;
            EACH_POINT(n, others, n_others)
            {
                OWN_POINT(points, i)
                double best = least[i];
                i64 found = which[i];
                for (int q = 0; q < m; q += GROUP) {
                    double far[GROUP];
                    squares(own, q, far);
                    for (int g = 0; g < GROUP; g++)
                        if (far[g] < best) {
                            best = far[g];
                            found = first + q + g;
                        }
                }
                least[i] = best;
                which[i] = found;
            }
        }
}

/* The squares of all distances; `far` is n_others, n: neighbouring threads write neighbouring numbers. */
extern "C" __global__ void __launch_bounds__(THREADS)
    all_squares(const REAL *points, i64 n, const REAL *others, i64 n_others, double *far)
{
    EACH_JOB(n, n_others)
    {
        EACH_POINT(n, others, n_others)
        {
            OWN_POINT(points, i)
            for (int q = 0; q < m; q += GROUP) {
                double found[GROUP];
                squares(own, q, found);
#pragma unroll
                for (int g = 0; g < GROUP; g++)
                    if (q + g < m)
                        far[(first + q + g) * n + i] = found[g];
            }
        }
    }
}
