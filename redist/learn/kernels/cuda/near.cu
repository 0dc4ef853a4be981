/* What dense clusters are made of: how much is within a radius of each point, and which dense points that joins.

   `limit` is the square of the radius. Parts are trees in `parent`: a point leads to one with a lower number, the lowest
   of its part to itself. */

/* Add up the weights, their coarse and their fine parts, of the others that are near each point; all are 1 if none are
   given. Parts add without rounding: their order does not matter. */
extern "C" __global__ void __launch_bounds__(THREADS)
    weigh(const REAL *points, i64 n, const REAL *others, i64 n_others, double limit,
          const double *weights, double *sums)
{
    EACH_JOB(n, n_others)
    {
        EACH_POINT(n, others, n_others)
        {
            OWN_POINT(points, i)
            double coarse = 0, fine = 0;
            int count = 0;
            for (int q = 0; q < m; q += GROUP) {
                unsigned near = near_ones(own, q, limit);
                if (!weights) {
#pragma unroll
                    for (int g = 0; g < GROUP; g++)
                        count += near >> g & 1;
                    continue;
                }
                for (i64 at = first + q; near; at++, near >>= 1)
                    if (near & 1) {
                        coarse += weights[at];
                        fine += weights[n_others + at];
                    }
            }
            coarse += count;
            if (coarse != 0)
                atomicAdd(&sums[i], coarse);
            if (fine != 0)
                atomicAdd(&sums[n + i], fine);
        }
    }
}

/* The lowest of a point's part, as far as this thread can see: others may join parts meanwhile. */
static __device__ __forceinline__ int root_of(volatile int *parent, int at)
{
    int above = parent[at];
    while (above != at) {
        const int next = parent[above];
        if (next != above)
            parent[at] = next; /* whoever writes here leads upwards, too */
        at = above;
        above = next;
    }
    return at;
}

/* The same without leading anything upwards. */
static __device__ __forceinline__ int end_of_way(volatile int *parent, int at)
{
    for (int above = parent[at]; above != at; above = parent[at])
        at = above;
    return at;
}

/* Join the parts of two points; returns the root of both. The higher root is put below the lower one; if another thread
   was faster, what it did is looked at. */
static __device__ __forceinline__ int join(int *parent, int one, int other)
{
    one = root_of(parent, one);
    other = root_of(parent, other);
    while (one != other) {
        const int high = one < other ? other : one, low = one < other ? one : other;
        const int was = atomicCAS(&parent[high], high, low);
        if (was == high)
            return low;
        one = root_of(parent, was);
        other = root_of(parent, low);
    }
    return one;
}

/* Join each point with the others that are near it. Numbers ascend; if both are the same points, each pair is looked at
   once or twice. */
extern "C" __global__ void __launch_bounds__(THREADS)
    join_near(const REAL *points, i64 n, const int *numbers, const REAL *others, i64 n_others,
              const int *their_numbers, double limit, i64 same, int *parent)
{
    EACH_JOB(n, n_others)
    {
        if (same && first >= from + N_THREADS)
            continue; /* those look at these */
        EACH_POINT(n, others, n_others)
        {
            OWN_POINT(points, i)
            int root = root_of(parent, numbers[i]);
            for (int q = 0; q < m; q += GROUP) {
                unsigned near = near_ones(own, q, limit);
                for (i64 at = first + q; near; at++, near >>= 1)
                    if (near & 1) {
                        const int other = their_numbers[at];
                        if (((volatile int *)parent)[other] != root)
                            root = join(parent, root, other);
                    }
            }
        }
    }
}

/* The least label of the others that are near each point. */
extern "C" __global__ void __launch_bounds__(THREADS)
    least_near(const REAL *points, i64 n, const REAL *others, i64 n_others,
               const int *their_labels, double limit, int *labels)
{
    EACH_JOB(n, n_others)
    {
        EACH_POINT(n, others, n_others)
        {
            OWN_POINT(points, i)
            int least = labels[i];
            const int was = least;
            for (int q = 0; q < m; q += GROUP) {
                unsigned near = near_ones(own, q, limit);
                for (i64 at = first + q; near; at++, near >>= 1)
                    if (near & 1 && their_labels[at] < least)
                        least = their_labels[at];
            }
            if (least < was)
                atomicMin(&labels[i], least);
        }
    }
}

/* Join every number with the one that is told of it. */
extern "C" __global__ void join_told(int *parent, const int *told, i64 n)
{
    EACH_THREAD {
        for (i64 i = (i64)blockIdx.x * N_THREADS + tid; i < n; i += (i64)gridDim.x * N_THREADS)
            if (told[i] != i)
                join(parent, (int)i, told[i]);
    }
}

/* Let every number lead to the lowest of its part at once. Nothing else is written: a thread that shortened the way of
   another's number on its own could undo what that has found. */
extern "C" __global__ void flatten(int *parent, i64 n)
{
    EACH_THREAD {
        for (i64 i = (i64)blockIdx.x * N_THREADS + tid; i < n; i += (i64)gridDim.x * N_THREADS)
            parent[i] = end_of_way(parent, (int)i);
    }
}
