/* Every point of some against every one of others: what loops over pairs share.

   A block holds HELD of the others in its memory, dim by dim; each of its threads looks after one point. DIMS dims and
   numbers of type REAL are known when this is compiled; whatever the type, squares of differences are added dim by
   dim in double precision, as scikit-learn's trees do; FUSED with the additions where SciPy was built so. */
#define GROUP 8                 /* of the others that are compared at a time; HELD is a multiple */
#define IN_REGISTERS 32         /* dims: a thread keeps a point of so many */
#define POINTS ((double *)ROOM) /* DIMS, HELD */

#if DIMS <= IN_REGISTERS
#define OWN_POINT(points, i)                                                                      \
    double own[DIMS];                                                                             \
    _Pragma("unroll") for (int dim = 0; dim < DIMS; dim++) own[dim] =                             \
        (double)(points)[(i) * DIMS + dim];
typedef const double *Own;
#else
#define OWN_POINT(points, i) const REAL *own = (points) + (i) * DIMS;
typedef const REAL *Own;
#endif

/* Of `n` others those from `first` on, by all threads together; after the last come points that are near nothing. */
static __device__ __forceinline__ void hold(int tid, const REAL *others, i64 n, i64 first)
{
    for (int p = tid; p < DIMS * HELD; p += N_THREADS) {
        const int dim = p / HELD;
        const i64 q = first + p % HELD;
        POINTS[p] = q < n ? (double)others[q * DIMS + dim] : sqrt(-1.0);
    }
}

/* How far a point is from GROUP held ones from the q-th on, squared. */
static __device__ __forceinline__ void squares(Own own, int q, double *far)
{
#pragma unroll
    for (int g = 0; g < GROUP; g++)
        far[g] = 0;
#if DIMS <= IN_REGISTERS
#pragma unroll
#endif
    for (int dim = 0; dim < DIMS; dim++) {
        const double value = (double)own[dim];
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            const double apart = value - POINTS[dim * HELD + q + g];
            far[g] = FUSED ? fused(apart, apart, far[g]) : far[g] + apart * apart;
        }
    }
}

/* Which of them are within a distance, by its square: a bit for each. */
static __device__ __forceinline__ unsigned near_ones(Own own, int q, double limit)
{
    double far[GROUP];
    unsigned near = 0;
    squares(own, q, far);
#pragma unroll
    for (int g = 0; g < GROUP; g++)
        near |= (far[g] <= limit ? 1u : 0u) << g;
    return near;
}

/* A job is a block's points from `from` on against the others from `first` on, `m` of them. */
#define EACH_JOB(n, n_others)                                                                     \
    for (i64 job = blockIdx.x, n_blocks = ((n) + N_THREADS - 1) / N_THREADS, from, first, m;      \
         from = job % n_blocks * N_THREADS, first = job / n_blocks * HELD,                        \
             m = (n_others) - first < HELD ? (n_others) - first : HELD, first < (n_others);       \
         job += gridDim.x)

/* What each of the block's points does with the held ones, once all of them are there. */
#define EACH_POINT(n, others, n_others)                                                           \
    __syncthreads();                                                                              \
    EACH_THREAD                                                                                   \
    hold(tid, others, n_others, first);                                                           \
    __syncthreads();                                                                              \
    EACH_THREAD                                                                                   \
    if (const i64 i = from + tid; i < (n))
