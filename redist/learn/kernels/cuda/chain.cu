/* A step of a chain of nearest neighbours: as redist_chain of native/chain.c, with its bits, all steps on the GPU.

   A step carries out the merge that the one before decided on, finds the nearest neighbour of the chain's last cluster, and
   decides: the chain grows by it, or its last two are nearest to each other and merge. The last block to arrive decides.

   A thread looks after a cluster j. To merge x into y it writes far[y, j], far[j, y] and far[j, x], which no other thread
   reads: of the row that is searched, that of `top`, it takes far[top, j]; what is new there, far[top, y], is known to the
   thread of `top`. */
enum { WARD, AVERAGE, COMPLETE };
enum { LENGTH, BEGIN, DONE, FROM, INTO, TOP, BEFORE, ARRIVED }; /* state */
enum { APART, N_FROM, N_INTO };                                 /* merging */

/* How far the cluster of x and y is from another, of n points. */
static __device__ __forceinline__ double merged(double to_x, double to_y, double n,
                                                const double *merging)
{
    const double apart = merging[APART], n_x = merging[N_FROM], n_y = merging[N_INTO];
    if (LINKAGE == COMPLETE)
        return to_x > to_y ? to_x : to_y;
    if (LINKAGE == AVERAGE)
        return (n_x * to_x + n_y * to_y) / (n_x + n_y);
    const double t = 1.0 / (n_x + n_y + n);
    return sqrt((n + n_x) * t * to_x * to_x + (n + n_y) * t * to_y * to_y - n * t * apart * apart);
}

/* `far` is n x n, infinite for a point and itself; `size` how many points each cluster has, 0 if it is part of another;
   `chain` has room for n, `merges` rows of two points, how far, and how many. `found` has a place for each block. */
extern "C" __global__ void __launch_bounds__(THREADS)
    chain_step(double *far, i64 n, double *size, i64 *chain, double *merges, i64 *state,
               double *merging, i64 *found, double *least_found, double nowhere)
{
    const i64 done = state[DONE], x = state[FROM], y = state[INTO], top = state[TOP];
    if (done >= n - 1)
        return;
    EACH_THREAD {
        PLACE[tid] = -1;
        for (i64 j = (i64)blockIdx.x * N_THREADS + tid; j < n; j += (i64)gridDim.x * N_THREADS) {
            double here = far[top * n + j];
            if (x >= 0) {
                if (j == x || j == y) /* far[top, y]: the thread of `top` knows it */
                    here = nowhere;
                if (j == y)
                    far[y * n + x] = nowhere;
                if (j != y && size[j] != 0) {
                    const double new_one =
                        merged(far[x * n + j], far[y * n + j], size[j], merging);
                    far[y * n + j] = far[j * n + y] = new_one;
                    far[j * n + x] = nowhere;
                    if (top == y)
                        here = new_one;
                    if (top == j)
                        keep_nearer(tid, new_one, y, y);
                }
            }
            keep_nearer(tid, here, j, j);
        }
    }
    FIND_NEAREST EACH_THREAD
    {
        if (tid == 0) {
            found[blockIdx.x] = PLACE[0];
            least_found[blockIdx.x] = LEAST[0];
            __threadfence();
            *IS_LAST = atomicAdd((unsigned long long *)&state[ARRIVED], 1ull) == gridDim.x - 1;
        }
    }
    __syncthreads();
    if (!*IS_LAST)
        return;
    __threadfence();
    EACH_THREAD {
        PLACE[tid] = -1;
        for (i64 b = tid; b < gridDim.x; b += N_THREADS) {
            const i64 place = ((volatile i64 *)found)[b];
            if (place >= 0)
                keep_nearer(tid, ((volatile double *)least_found)[b], place, place);
        }
    }
    FIND_NEAREST EACH_THREAD
    {
        if (tid == 0) {
            const i64 before = state[BEFORE];
            double least =
                PLACE[0] < 0 ? nowhere : LEAST[0]; /* no distance is a number: as in C */
            i64 next = PLACE[0] < 0 ? 0 : PLACE[0], length = state[LENGTH];
            if (before >= 0 && !(least < ((volatile double *)far)[top * n + before])) {
                next = before;
                least = ((volatile double *)far)[top * n + before];
            }
            state[ARRIVED] = 0;
            if (next != before) {
                chain[length] = next;
                state[LENGTH] = length + 1;
                state[FROM] = -1;
                state[BEFORE] = top;
                state[TOP] = next;
            } else {
                const i64 from = top < before ? top : before, into = top < before ? before : top;
                double *merge = merges + 4 * done;
                merge[0] = (double)from;
                merge[1] = (double)into;
                merge[2] = merging[APART] = least;
                merging[N_FROM] = size[from];
                merging[N_INTO] = size[into];
                merge[3] = size[into] = size[from] + size[into];
                size[from] = 0;
                length -= 2;
                if (!length) {
                    while (size[state[BEGIN]] == 0)
                        state[BEGIN]++;
                    chain[length++] = state[BEGIN];
                }
                state[LENGTH] = length;
                state[FROM] = from;
                state[INTO] = into;
                state[TOP] = chain[length - 1];
                state[BEFORE] = length > 1 ? chain[length - 2] : -1;
                state[DONE] = done + 1;
            }
        }
    }
}
