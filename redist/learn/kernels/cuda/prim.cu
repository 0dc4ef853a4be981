/* A step of Prim's algorithm on the points of one rank that are not in the tree yet.

   The same arithmetic as native/prim.c, in the same order. All that changes from step to step lies on the GPU, so that
   steps follow each other without a word from the host. */
enum { REACH, NUMBER, NEAREST, CORE, POINT }; /* how a point is told */
enum { IN_USE, OFFERED, ARRIVED, STEP };      /* state */

/* Let the tree have the point of a row of `told`, and write the nearest of those outside into the row after it; `told`
   advances by `advance` numbers a step. Points outside: `columns` (d x room, of which the first state[IN_USE] are in use)
   and of each how far it is from the tree, the point of the tree that is nearest, its core distance and its number. The
   point offered last leaves if it is the one added, and the last takes its place. `found` has a place for each
   block. The last block to arrive finds the nearest of all.

   How far points are apart is what struct apart of native/prim.c says; BOTH and FUSED are known when this is compiled. */
extern "C" __global__ void __launch_bounds__(THREADS)
    grow(double *columns, double *reach, i64 *nearest, double *core, i64 *number, i64 room, i64 d,
         i64 *state, double *told, i64 advance, double alpha, double most, double unit,
         double nowhere, i64 *found)
{
    const double *added = told + state[STEP] * advance;
    double *offer = told + state[STEP] * advance + d + POINT;
    const i64 tree_number = (i64)added[NUMBER], gone = state[OFFERED];
    const bool leaves = gone >= 0 && number[gone] == tree_number;
    const i64 m = state[IN_USE] - (leaves ? 1 : 0);
    const double tree_core = added[CORE], square = alpha * alpha * (1 + 1e-12),
                 slack = unit > 0 ? 1 / unit : 0;
    __syncthreads(); /* nobody moves points before all have seen which one leaves */
    EACH_THREAD {
        PLACE[tid] = -1;
        for (i64 i = (i64)blockIdx.x * N_THREADS + tid; i < m; i += (i64)gridDim.x * N_THREADS) {
            if (leaves && i == gone) {
                for (i64 j = 0; j < d; j++)
                    columns[j * room + i] = columns[j * room + m];
                reach[i] = reach[m];
                nearest[i] = nearest[m];
                core[i] = core[m];
            }
            double far = 0, so_far = reach[i];
            const double limit = so_far + slack;
            for (i64 j = 0; j < d; j++) {
                const double apart = added[POINT + j] - columns[j * room + i];
                far = FUSED ? fused(apart, apart, far) : far + apart * apart;
            }
            if (far <=
                limit * limit * square) { /* else no root is needed to see that it is farther */
                double way = sqrt(far) / alpha;
                way = way > most ? nowhere : way;
                way = BOTH && core[i] > way ? core[i] : way;
                way = way > tree_core ? way : tree_core;
                way = unit > 0 ? rint(way * unit) / unit : way;
                if (way < so_far) {
                    reach[i] = so_far = way;
                    nearest[i] = tree_number;
                }
            }
            keep_nearer(tid, so_far, number[leaves && i == gone ? m : i], i);
        }
    }
    FIND_NEAREST EACH_THREAD
    {
        if (tid == 0) {
            found[blockIdx.x] = PLACE[0];
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
        if (tid == 0 && leaves && gone < m)
            number[gone] = number[m]; /* blocks have read which number leaves */
    }
    __syncthreads();
    EACH_THREAD {
        for (i64 b = tid; b < gridDim.x; b += N_THREADS) {
            const i64 place = ((volatile i64 *)found)[b];
            if (place >= 0)
                keep_nearer(tid, ((volatile double *)reach)[place], number[place], place);
        }
    }
    FIND_NEAREST EACH_THREAD
    {
        const i64 best = PLACE[0];
        for (i64 j = tid; best >= 0 && j < d; j += N_THREADS)
            offer[POINT + j] = ((volatile double *)columns)[j * room + best];
        if (tid == 0) {
            offer[REACH] = best < 0 ? nowhere : LEAST[0];
            offer[NUMBER] = best < 0 ? nowhere : (double)LOWEST[0];
            offer[NEAREST] = best < 0 ? 0 : (double)((volatile i64 *)nearest)[best];
            offer[CORE] = best < 0 ? 0 : ((volatile double *)core)[best];
            state[IN_USE] = m;
            state[OFFERED] = best;
            state[ARRIVED] = 0;
            state[STEP]++;
        }
    }
}
