/* A Lloyd step: the nearest centre of every row, of several the first, and the exact sums of each centre's rows.

   DIMS and REAL, the type of numbers, are known when this is compiled. A block takes TILE rows at a time: its threads
   label PER_THREAD rows each, put the rows in the order of their labels by counting, and then each looks after some
   sums, which no other thread touches. Rows of few dims stay in registers (IN_REGISTERS); centres and sums lie in the
   block's memory where it is large enough (NEAR_CENTERS, NEAR_SUMS). Centres come PITCH numbers apart. */
#define TILE (PER_THREAD * THREADS)
#define LANES (16 / (int)sizeof(REAL)) /* numbers of 16 bytes */
#define PITCH                                                                                     \
    (((DIMS + LANES - 1) / LANES | 1) *                                                           \
     LANES) /* odd, in 16 bytes: threads meet in no bank of memory */

struct __align__(16) Lanes {
    REAL at[LANES];
};

#define GROUP (IN_REGISTERS ? 1 : 8) /* centres that a row is compared with at a time */

/* Where things lie in a block's memory, one after another; the caller asks for as much. */
#define SUMS ((double *)ROOM) /* k, 2, DIMS + 1: coarse and fine */
#define HELD ((REAL *)(SUMS + NEAR_SUMS * k * 2 * (DIMS + 1))) /* rows of the tile, PITCH apart */
#define CENTERS (HELD + TILE * PITCH)                          /* k of them, PITCH apart */
#define NORMS (CENTERS + NEAR_CENTERS * k * PITCH)             /* k */
#define WEIGHTS (NORMS + (k + LANES - 1) / LANES * LANES)      /* TILE */
#define CHANGED ((int *)(WEIGHTS + TILE))
#define COUNTS (CHANGED + 1)                        /* k: rows of each label */
#define BEGINS (COUNTS + k)                         /* k + 1: where they begin in the order */
#define LABELS ((unsigned short *)(BEGINS + k + 1)) /* TILE */
#define PLACES (LABELS + TILE)                      /* TILE: of a row among those with its label */
#define ORDER (PLACES + TILE)                       /* TILE: rows in the order of their labels */

extern "C" __global__ void __launch_bounds__(THREADS)
    lloyd(const REAL *rows, i64 n, const REAL *weights, const REAL *centers, const REAL *norms,
          i64 k, int *labels, const double *grids, double *sums, unsigned long long *changed)
{
    EACH_THREAD {
        for (i64 p = tid; NEAR_SUMS && p < k * 2 * (DIMS + 1); p += THREADS)
            SUMS[p] = 0;
        for (i64 p = tid; NEAR_CENTERS && p < k * PITCH; p += THREADS)
            CENTERS[p] = centers[p];
        for (i64 p = tid; p < k; p += THREADS)
            NORMS[p] = norms[p];
        if (tid == 0)
            *CHANGED = 0;
    }
    for (i64 first = (i64)blockIdx.x * TILE; first < n; first += (i64)gridDim.x * TILE) {
        const int m = (int)(n - first < TILE ? n - first : TILE);
        __syncthreads();
        EACH_THREAD {
            const REAL *from = rows + first * DIMS;
#if ALIGNED
            for (int p = tid; p < m * (DIMS / LANES); p += THREADS)
                *(Lanes *)&HELD[p / (DIMS / LANES) * PITCH + p % (DIMS / LANES) * LANES] =
                    ((const Lanes *)from)[p];
#else
            for (int p = tid; p < m * DIMS; p += THREADS)
                HELD[p / DIMS * PITCH + p % DIMS] = from[p];
#endif
            for (int p = tid; sums && p < m; p += THREADS)
                WEIGHTS[p] = weights[first + p];
            for (int p = tid; p < k; p += THREADS)
                COUNTS[p] = 0;
        }
        __syncthreads();
        EACH_THREAD {
            const REAL *places = NEAR_CENTERS ? CENTERS : centers;
            REAL best[PER_THREAD];
            int label[PER_THREAD];
#pragma unroll
            for (int r = 0; r < PER_THREAD; r++)
                label[r] = 0;
#if IN_REGISTERS
            REAL own[PER_THREAD][PITCH];
#pragma unroll
            for (int r = 0; r < PER_THREAD; r++)
#pragma unroll
                for (int j = 0; j < DIMS; j += LANES)
                    *(Lanes *)&own[r][j] = *(const Lanes *)&HELD[(r * THREADS + tid) * PITCH + j];
#endif
            for (int first_c = 0; first_c < k; first_c += GROUP) {
                REAL sum[PER_THREAD][GROUP];
#pragma unroll
                for (int r = 0; r < PER_THREAD; r++)
#pragma unroll
                    for (int g = 0; g < GROUP; g++)
                        sum[r][g] = 0;
#if IN_REGISTERS
#pragma unroll
#endif
                for (int j = 0; j < DIMS; j += LANES) {
                    Lanes some[PER_THREAD];
#pragma unroll
                    for (int r = 0; r < PER_THREAD; r++)
#if IN_REGISTERS
                        some[r] = *(const Lanes *)&own[r][j];
#else
                        some[r] = *(const Lanes *)&HELD[(r * THREADS + tid) * PITCH + j];
#endif
#pragma unroll
                    for (int g = 0; g < GROUP; g++) {
                        const int c = first_c + g < k ? first_c + g : first_c;
                        const Lanes centre = *(const Lanes *)&places[c * PITCH + j];
#pragma unroll
                        for (int l = 0; l < LANES; l++)
                            if (j + l < DIMS)
#pragma unroll
                                for (int r = 0; r < PER_THREAD; r++)
                                    sum[r][g] = fused(some[r].at[l], centre.at[l], sum[r][g]);
                    }
                }
#pragma unroll
                for (int g = 0; g < GROUP; g++) {
                    const int c = first_c + g;
                    if (c >= k)
                        break;
                    const REAL norm = NORMS[c];
#pragma unroll
                    for (int r = 0; r < PER_THREAD; r++) {
                        const REAL far = norm - 2 * sum[r][g];
                        if (c == 0 || far < best[r]) {
                            best[r] = far;
                            label[r] = c;
                        }
                    }
                }
            }
            int others = 0;
#pragma unroll
            for (int r = 0; r < PER_THREAD; r++) {
                const int i = r * THREADS + tid;
                if (i >= m)
                    continue;
                others += labels[first + i] != label[r];
                labels[first + i] = label[r];
                if (sums) {
                    LABELS[i] = (unsigned short)label[r];
                    PLACES[i] = (unsigned short)atomicAdd(&COUNTS[label[r]], 1);
                }
            }
            if (others)
                atomicAdd(CHANGED, others);
        }
        if (!sums)
            continue;
        __syncthreads();
        EACH_THREAD {
            for (int c = tid; c <= k; c += THREADS) {
                int before = 0;
                for (int other = 0; other < c; other++)
                    before += COUNTS[other];
                BEGINS[c] = before;
            }
        }
        __syncthreads();
        EACH_THREAD {
            for (int i = tid; i < m; i += THREADS)
                ORDER[BEGINS[LABELS[i]] + PLACES[i]] = (unsigned short)i;
        }
        __syncthreads();
        EACH_THREAD {
            for (int p = tid; p < k * (DIMS + 1); p += THREADS) {
                const int c = p / (DIMS + 1), j = p % (DIMS + 1), end = BEGINS[c + 1];
                const double coarse = grids[j < DIMS ? 0 : 2], fine = grids[j < DIMS ? 1 : 3];
                double high = 0, low = 0;
                for (int at = BEGINS[c]; at < end; at++) {
                    const int i = ORDER[at];
                    const REAL w = WEIGHTS[i];
                    const double value = (double)(j < DIMS ? HELD[i * PITCH + j] * w : w);
                    const double part = on_grid(value, coarse);
                    high += part;
                    low += on_grid(value - part, fine);
                }
#if NEAR_SUMS
                SUMS[c * 2 * (DIMS + 1) + j] += high;
                SUMS[(c * 2 + 1) * (DIMS + 1) + j] += low;
#else
                if (high != 0)
                    atomicAdd(&sums[(i64)c * 2 * (DIMS + 1) + j], high);
                if (low != 0)
                    atomicAdd(&sums[((i64)c * 2 + 1) * (DIMS + 1) + j], low);
#endif
            }
        }
    }
    __syncthreads();
    EACH_THREAD {
        for (i64 p = tid; NEAR_SUMS && sums && p < k * 2 * (DIMS + 1); p += THREADS)
            if (SUMS[p] != 0)
                atomicAdd(&sums[p], SUMS[p]);
        if (tid == 0 && *CHANGED)
            atomicAdd(changed, (unsigned long long)*CHANGED);
    }
}
