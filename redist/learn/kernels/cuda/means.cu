/* The sums of the points that are near each of some places, and their number.

   Values are split into parts that add without rounding: their order does not matter. */

/* `sums` is n, 2 DIMS + 1: coarse parts, fine parts, the number. `limit` is the square of the radius. */
extern "C" __global__ void __launch_bounds__(THREADS)
    sum_near(const REAL *places, i64 n, const REAL *points, i64 n_points, double limit,
             double coarse, double fine, double *sums)
{
    EACH_JOB(n, n_points)
    {
        EACH_POINT(n, points, n_points)
        {
            OWN_POINT(places, i)
            double *total = sums + i * (2 * DIMS + 1);
            i64 count = 0;
#if DIMS <= IN_REGISTERS
            double high[DIMS], low[DIMS];
#pragma unroll
            for (int dim = 0; dim < DIMS; dim++)
                high[dim] = low[dim] = 0;
#endif
            for (int q = 0; q < m; q += GROUP) {
                unsigned near = near_ones(own, q, limit);
                for (int at = q; near; at++, near >>= 1)
                    if (near & 1) {
                        count++;
#if DIMS <= IN_REGISTERS
#pragma unroll
#endif
                        for (int dim = 0; dim < DIMS; dim++) {
                            const double value = POINTS[dim * HELD + at];
                            const double part = on_grid(value, coarse),
                                         rest = on_grid(value - part, fine);
#if DIMS <= IN_REGISTERS
                            high[dim] += part;
                            low[dim] += rest;
#else
                            atomicAdd(&total[dim], part);
                            atomicAdd(&total[DIMS + dim], rest);
#endif
                        }
                    }
            }
            if (count) {
#if DIMS <= IN_REGISTERS
#pragma unroll
                for (int dim = 0; dim < DIMS; dim++) {
                    atomicAdd(&total[dim], high[dim]);
                    atomicAdd(&total[DIMS + dim], low[dim]);
                }
#endif
                atomicAdd(&total[2 * DIMS], (double)count);
            }
        }
    }
}
