/* The kernel: every block takes its tiles of every row. Comes after tiles.cu and loose.cu. */

__device__ __forceinline__ i64 source_of(const Member *m, const u64 *bases)
{
    return (i64)bases[m->src] + m->src_offset;
}

/* Where the sources of a row's members begin; nobody reads the table meanwhile. */
__device__ __forceinline__ void tabulate(i64 *table, const Member *m, u32 n, const u64 *bases)
{
    __syncthreads();
    EACH_THREAD
        if (tid < n)
            table[tid] = source_of(m + tid, bases);
    __syncthreads();
}

/* Where the target of a member begins. */
__device__ __forceinline__ char *target_of(const Member *m, const u64 *bases)
{
    return (char *)((i64)bases[m->dst] + m->dst_offset);
}

/* This block's tiles of one row, from t on; the first tile that is not of this row. CELL: bytes of the
 * elements whose cells are turned, or 0. Members of a row that is not grouped are further targets, if
 * FANS. */
template <int LOG, bool TILED, bool GROUPED, int CELL = 0>
__device__ KIND_INLINE u32 copy_row(u32 t, u32 end, Row row, const Shape *shape,
                                    const Member *members, const u64 *bases, void *memory,
                                    i64 *dst_table, i64 *src_table)
{
    constexpr int turns[] = {TURNS};
    constexpr int bits = turns[LOG];
    typedef typename WordOf<LOG>::type W;
    Lane<W, bits, GROUPED> lane[PER_THREAD];
    W *slots = (W *)memory;
    const Member *own = members + row.member;
    const u32 n_sources = FOLDS ? own->n_sources : 1;
    const bool fresh = !FOLDS || own->fresh;
    const char *s = 0;
    char *d = 0;
    if (GROUPED) {
        __syncthreads();
        EACH_THREAD
            if (tid < row.n_members)
                dst_table[tid] = (i64)target_of(own + tid, bases);
        tabulate(src_table, own, row.n_members, bases);
    } else {
        d = target_of(own, bases);
        s = (const char *)source_of(own, bases);
    }
    EACH_THREAD {
        lane[ME].src.prepare(tid, shape->src);
        lane[ME].dst.prepare(tid, shape->dst);
    }
    for (; t < end; t += gridDim.x) {
        Tile tile = tile_at(t - row.first, shape);
        EACH_THREAD
            lane[ME].template load_source<REPLACED>(s, src_table, shape, tile);
        for (u32 k = 1; k < n_sources; k++) {
            const Member *next = own + k * row.n_members;
            if (GROUPED)
                tabulate(src_table, next, row.n_members, bases);
            const char *of = GROUPED ? 0 : (const char *)source_of(next, bases);
            EACH_THREAD
                lane[ME].template load_source<FIRST>(of, src_table, shape, tile);
        }
        if (GROUPED && n_sources > 1)
            tabulate(src_table, own, row.n_members, bases);
        if constexpr (CELL) {
            EACH_THREAD
                turn_cells<CELL>(lane[ME].value);
        }
        if (TILED) {
            __syncthreads();
            EACH_THREAD
                lane[ME].share(slots, shape);
            __syncthreads();
        }
        if constexpr (FOLDS) {
            EACH_THREAD {
                if (TILED)
                    lane[ME].take_shared(slots, shape);
                if (!fresh)
                    lane[ME].load_target(d, dst_table, shape, tile);
            }
        }
        EACH_THREAD
            lane[ME].template store<TILED && !FOLDS>(d, dst_table, shape, tile, slots);
        if constexpr (FANS && !GROUPED && !FOLDS) {
#pragma unroll 1
            for (u32 k = 1; k < row.n_members; k++) {
                char *next = target_of(own + k, bases);
                EACH_THREAD
                    lane[ME].template store<TILED>(next, dst_table, shape, tile, slots);
            }
        }
    }
    return t;
}

#define KIND(code, ...)                                                                           \
    case code:                                                                                    \
        if constexpr ((KINDS >> (code)) & 1)                                                      \
            t = copy_row<__VA_ARGS__>(t, end, row, shape, members, bases, memory, dst_table,      \
                                      src_table);                                                 \
        break;
#define WORD(log)                                                                                 \
    KIND(3 * log, log, false, false)                                                              \
    KIND(3 * log + 1, log, true, false)                                                           \
    KIND(3 * log + 2, log, true, true)

/* Rows are looked up by `hints`: the row of every (1 << hint_shift)th tile. One more row ends them.
 * `many` has the bases where they are too many for `few`. */
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    redist_copy(const Row *rows, const Shape *shapes, const Member *members, const u32 *hints,
                u32 hint_shift, u32 n_tiles, const u64 *many, const __grid_constant__ Bases few)
{
    __shared__ uint4 memory[shared_bytes() / 16];
    __shared__ i64 dst_table[KINDS & 0x4924 ? MAX_GROUP : 1];
    __shared__ i64 src_table[KINDS & 0x4924 ? MAX_GROUP : 1];
    const u64 *bases = many ? many : few.at;
    for (u32 t = blockIdx.x; t < n_tiles;) {
        u32 r = hints[t >> hint_shift];
        Row row = rows[r];
        u32 end = rows[r + 1].first;
        while (end <= t) {
            row = rows[++r];
            end = rows[r + 1].first;
        }
        const Shape *shape = shapes + (row.shape & ((1u << KIND_AT) - 1));
        u32 before = t;
        switch (row.shape >> KIND_AT) {
            WORD(0)
            WORD(1)
            WORD(2)
            WORD(3)
            WORD(4)
            KIND(19, 2, true, false, 1)
            KIND(22, 2, true, false, 2)
#if KINDS & 0x8000
        case 15:
            t = copy_loose(t, end, row, shape, members, bases);
            break;
#endif
        }
        if (t == before) /* a kind that is not compiled in */
            __trap();
    }
}
