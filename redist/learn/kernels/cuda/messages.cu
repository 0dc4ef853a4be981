/* Affinity propagation on rows first, first + 1, ... of n x n matrices: the same bits as native/affinity.c.

   Availabilities of a round are renewed on the way to the responsibilities of the next one: a round reads responsibilities
   twice, similarities and availabilities once, and writes both messages once. Neighbouring threads have neighbouring
   numbers, and ask for LOADS of them before they use the first. */
#define LOADS 4
#define ROWS 8  /* that a thread of `support` asks for at a time */
#define GROUP 8 /* own rows that a thread of `similar` compares with one other row */
#define NOTHING (-1e308 * 1e10) /* minus infinity */

/* Where things lie in a block's memory, one after another; the caller asks for as much. */
#define BEST ((double *)ROOM)           /* THREADS: the largest sum that each thread saw */
#define SECOND (BEST + THREADS)         /* THREADS: the largest but one */
#define MOST (SECOND + THREADS)         /* THREADS: the largest magnitude that will be added up */
#define PLACE ((i64 *)(MOST + THREADS)) /* THREADS: where the largest sum is */
#define HELD                                                                                      \
    ((double *)(PLACE +                                                                           \
                THREADS)) /* HOLDS x n: the row's similarities, then its responsibilities */

/* Availability and responsibility of a row and a column: what the next availability is. */
static __device__ __forceinline__ double renewed(double a, double r, double column, bool is_self,
                                                 double damping)
{
    const double rest = 1 - damping;
    if (is_self)
        return a * damping - (r - column) * rest;
    const double lacks = (r > 0 ? r : 0) - column;
    return a * damping - (lacks > 0 ? lacks : 0) * rest;
}

/* A block a row. Renews availabilities from the sums of columns, if there were any, then responsibilities; `most` gets
   for each block the largest magnitude of what will be added up. */
extern "C" __global__ void __launch_bounds__(THREADS)
    respond(const double *__restrict__ similar, double *__restrict__ available,
            double *__restrict__ responsible, const double *__restrict__ columns, i64 m, i64 n,
            i64 first, double damping, double *__restrict__ most)
{
    const double rest = 1 - damping;
    EACH_THREAD {
        MOST[tid] = 0;
    }
    for (i64 i = blockIdx.x; i < m; i += gridDim.x) {
        const double *__restrict__ from = similar + i * n;
        double *__restrict__ own_a = available + i * n;
        double *__restrict__ own_r = responsible + i * n;
        const i64 self = first + i;
        __syncthreads();
        EACH_THREAD {
            double best = NOTHING, second = NOTHING;
            i64 at = 0;
            for (i64 start = tid; start < n; start += LOADS * THREADS) {
                double s[LOADS], a[LOADS], r[LOADS];
#pragma unroll
                for (int l = 0; l < LOADS; l++) {
                    const i64 j = start + l * THREADS;
                    if (j < n) {
                        s[l] = from[j];
                        a[l] = own_a[j];
                        r[l] = columns || HOLDS > 1 ? own_r[j] : 0;
                    }
                }
#pragma unroll
                for (int l = 0; l < LOADS; l++) {
                    const i64 j = start + l * THREADS;
                    if (j >= n)
                        continue;
                    double now = a[l];
                    if (columns)
                        own_a[j] = now = renewed(now, r[l], columns[j], j == self, damping);
                    if (HOLDS > 0)
                        HELD[j] = s[l];
                    if (HOLDS > 1)
                        HELD[n + j] = r[l];
                    const double value = now + s[l];
                    if (value > best) {
                        second = best;
                        best = value;
                        at = j;
                    } else if (value > second)
                        second = value;
                }
            }
            BEST[tid] = best;
            SECOND[tid] = second;
            PLACE[tid] = at;
        }
        for (int half = THREADS / 2; half; half /= 2) {
            __syncthreads();
            EACH_THREAD {
                if (tid < half) {
                    const double here = BEST[tid], there = BEST[tid + half];
                    const bool takes =
                        there > here; /* of equal ones either: the second is as large */
                    const double second = takes ? SECOND[tid + half] : SECOND[tid],
                                 loser = takes ? here : there;
                    SECOND[tid] = loser > second ? loser : second;
                    if (takes) {
                        BEST[tid] = there;
                        PLACE[tid] = PLACE[tid + half];
                    }
                }
            }
        }
        __syncthreads();
        EACH_THREAD {
            const double best = BEST[0], second = SECOND[0];
            const i64 at = PLACE[0];
            double largest = MOST[tid];
            for (i64 start = tid; start < n; start += LOADS * THREADS) {
                double s[LOADS], r[LOADS];
#pragma unroll
                for (int l = 0; l < LOADS; l++) {
                    const i64 j = start + l * THREADS;
                    if (j < n) {
                        s[l] = HOLDS > 0 ? HELD[j] : from[j];
                        r[l] = HOLDS > 1 ? HELD[n + j] : own_r[j];
                    }
                }
#pragma unroll
                for (int l = 0; l < LOADS; l++) {
                    const i64 j = start + l * THREADS;
                    if (j >= n)
                        continue;
                    const double now = r[l] * damping + (s[l] - (j == at ? second : best)) * rest;
                    const double size = j == self ? fabs(now) : now;
                    own_r[j] = now;
                    largest = size > largest ? size : largest;
                }
            }
            MOST[tid] = largest;
        }
    }
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        EACH_THREAD {
            if (tid < half && MOST[tid + half] > MOST[tid])
                MOST[tid] = MOST[tid + half];
        }
    }
    __syncthreads();
    EACH_THREAD {
        if (tid == 0)
            most[blockIdx.x] = MOST[0];
    }
}

/* Exact sums of columns, of responsibilities above 0 and of each point's for itself: a block has THREADS columns of one
   of some parts of the rows. `sums` is 2 x n. */
extern "C" __global__ void __launch_bounds__(THREADS)
    support(const double *__restrict__ responsible, i64 m, i64 n, i64 first, i64 parts,
            double coarse, double fine, double *sums)
{
    const i64 wide = (n + THREADS - 1) / THREADS, part = blockIdx.x / wide;
    const i64 begin = m * part / parts, end = m * (part + 1) / parts;
    EACH_THREAD {
        const i64 j = blockIdx.x % wide * THREADS + tid;
        double high = 0, low = 0;
        for (i64 start = begin; j < n && start < end; start += ROWS) {
            double r[ROWS];
#pragma unroll
            for (int l = 0; l < ROWS; l++)
                r[l] = start + l < end ? responsible[(start + l) * n + j] : 0;
#pragma unroll
            for (int l = 0; l < ROWS; l++) {
                const double value = j == first + start + l || r[l] > 0 ? r[l] : 0;
                const double part_of = on_grid(value, coarse);
                high += part_of;
                low += on_grid(value - part_of, fine);
            }
        }
        if (j < n) {
            atomicAdd(&sums[j], high);
            atomicAdd(&sums[n + j], low);
        }
    }
}

/* Whether each own row is an exemplar, once its availabilities will have been renewed. */
extern "C" __global__ void chosen(const double *available, const double *responsible,
                                  const double *columns, i64 m, i64 n, i64 first, double damping,
                                  unsigned char *out)
{
    EACH_THREAD {
        for (i64 i = (i64)blockIdx.x * N_THREADS + tid; i < m; i += (i64)gridDim.x * N_THREADS) {
            const i64 at = i * n + first + i;
            const double r = responsible[at];
            out[i] = renewed(available[at], r, columns[first + i], true, damping) + r > 0;
        }
    }
}

/* Minus the squared distances of own rows, first and following, to other rows, begin and following, which are turned:
   d x n_there. They go into columns begin and following of `out`, which has n. */
extern "C" __global__ void similar(const REAL *own, const double *norms, i64 m, i64 d, i64 first,
                                   const REAL *turned, const double *their_norms, i64 n_there,
                                   i64 begin, REAL *out, i64 n)
{
    const i64 wide = (n_there + N_THREADS - 1) / N_THREADS,
              blocks = wide * ((m + GROUP - 1) / GROUP);
    EACH_THREAD {
        for (i64 block = blockIdx.x; block < blocks; block += gridDim.x) {
            const i64 j = block % wide * N_THREADS + tid, low = block / wide * GROUP;
            const int group = (int)(m - low < GROUP ? m - low : GROUP);
            if (j >= n_there)
                continue;
            double product[GROUP];
#pragma unroll
            for (int g = 0; g < GROUP; g++)
                product[g] = 0;
            for (i64 q = 0; q < d; q++) {
                const double value = (double)turned[q * n_there + j];
#pragma unroll
                for (int g = 0; g < GROUP; g++)
                    if (g < group)
                        product[g] += value * (double)own[(low + g) * d + q];
            }
#pragma unroll
            for (int g = 0; g < GROUP; g++) {
                if (g >= group)
                    continue;
                const double far = (-2 * product[g] + norms[low + g]) + their_norms[j];
                const bool is_self = begin + j == first + low + g;
                out[(low + g) * n + begin + j] = (REAL)(is_self ? 0 : -(far > 0 ? far : 0));
            }
        }
    }
}
