/* The least that a block's threads, and then all blocks, have seen; of several the one with the lowest number. */
#define LEAST ((double *)ROOM)              /* N_THREADS: the least reach that a thread saw */
#define LOWEST ((i64 *)(LEAST + N_THREADS)) /* N_THREADS: its number */
#define PLACE (LOWEST + N_THREADS)          /* N_THREADS: where it is, -1 for none */
#define IS_LAST (PLACE + N_THREADS)         /* 1 */

static __device__ __forceinline__ void keep_nearer(int at, double reach, i64 number, i64 place)
{
    if (place >= 0 &&
        (PLACE[at] < 0 || reach < LEAST[at] || (reach == LEAST[at] && number < LOWEST[at]))) {
        LEAST[at] = reach;
        LOWEST[at] = number;
        PLACE[at] = place;
    }
}

/* Halve the threads that hold something until the first has the nearest of all. */
#define FIND_NEAREST                                                                              \
    for (int half = N_THREADS / 2; half; half /= 2) {                                             \
        __syncthreads();                                                                          \
        EACH_THREAD                                                                               \
        {                                                                                         \
            if (tid < half)                                                                       \
                keep_nearer(tid, LEAST[tid + half], LOWEST[tid + half], PLACE[tid + half]);       \
        }                                                                                         \
    }                                                                                             \
    __syncthreads();
