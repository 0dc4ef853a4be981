/* Strided copies on a GPU: all rows of a list in one launch.
 *
 * The host (blocking.py) cuts every row into tiles whose extents are powers of two. An element's
 * number inside a tile is then a word of bits, and every bit adds a fixed offset on either side: no
 * division per element. The low bits are the thread, the high ones the turn of the unrolled loop.
 * Tiles whose fast dims differ between the sides pass through shared memory: loaded in the order of
 * the source, stored in the order of the destination, swizzled so that neither meets a bank twice.
 *
 * KINDS says which kinds of tiles are compiled in: bit 3 * log2(word) + (0 direct, 1 through shared
 * memory, 2 the same for a group of rows that interleave); bit 15 long runs that lie anywhere; bits
 * CELL_KINDS transposes of elements of 1 and 2 bytes, in words of 4.
 * FANS says that rows may have several targets; without it transposes are 4 % quicker.
 * FOLD(W, old, new), where it is defined, combines words: what is there with what comes, or, for a
 * member that is fresh, its sources in their order, and what is there is not read.
 */
#ifndef HOST_SHIM
#define THREAD_BITS 8
#define ME 0
#define PER_THREAD 1
#define EACH_THREAD for (u32 tid = threadIdx.x, once = 1; once; once = 0)
#endif
#define THREADS (1 << THREAD_BITS)
#ifndef KINDS
#define KINDS 0x48ffff
#endif
#define CELL_KINDS 0x480000
#ifndef FANS
#define FANS true
#endif
#define MIN_BLOCKS 4 /* on a multiprocessor: bounds the registers */
/* Bits of the unrolled loop, by log2 of the word. */
#ifndef TURNS
#define TURNS 4, 4, 4, 3, 2
#endif
#define MAX_DIMS 10
#define MAX_BITS 14
#define MAX_GROUP 64
#define INLINE_BASES 64
#define LINE 128 /* bytes; stores of loose runs begin at multiples */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

/* How the number of a tile is read: n tiles along a dim, and what a step means on either side.
 * full and last: the greatest places inside a tile, as a field of `limit`. */
struct Dim {
    u32 n, magic, shift, full;
    i64 dst_step, src_step;
    u32 last, tracked, unused[2];
};

/* What a bit of an element's number means: an offset, a part of its place, a slot in shared memory. */
struct Bit {
    i64 offset;
    u32 place, slot;
};

/* The place along one dim is tracked: the member of a group, or the part of a loose run. */
struct Shape {
    u32 kind, n_dims, limit, guard, tracked_at, tracked_mask, tracked_shift, group_turns;
    i64 run, unused;
    Dim dims[MAX_DIMS];
    Bit src[MAX_BITS], dst[MAX_BITS];
};

/* Its kind stands above the number of its shape. */
struct Row {
    u32 first, shape, member, n_members;
};
#define KIND_AT 24

/* A row has n_members of these for its first sources, then as many for every further one. */
struct Member {
    i64 dst_offset, src_offset;
    u32 dst, src, n_sources, fresh;
};

struct Bases {
    u64 at[INLINE_BASES];
};

struct Tile {
    i64 dst, src;
    u32 limit, whole, tracked;
};

template <int LOG> struct WordOf;
template <> struct WordOf<0> {
    typedef u8 type;
};
template <> struct WordOf<1> {
    typedef u16 type;
};
template <> struct WordOf<2> {
    typedef u32 type;
};
template <> struct WordOf<3> {
    typedef uint2 type;
};
template <> struct WordOf<4> {
    typedef uint4 type;
};

template <class W> __device__ __forceinline__ W get(const char *p) { return *(const W *)p; }

template <class W> __device__ __forceinline__ void put(char *p, W x) { *(W *)p = x; }

/* What becomes of a word with one that comes: replaced, or combined with it on either side. */
enum { REPLACED, FIRST, SECOND };
#ifndef FOLD
#define FOLD(W, old, come) come
#define FOLDS false
#else
#define FOLDS true
#endif

template <class W, int ROLE> __device__ __forceinline__ void take(W &x, const char *p)
{
    W come = get<W>(p);
    x = ROLE == REPLACED ? come : ROLE == FIRST ? FOLD(W, x, come) : FOLD(W, come, x);
}

__device__ __forceinline__ bool fits(u32 limit, u32 guard, u32 place)
{
    return (((limit | guard) - place) & guard) == guard;
}

/* The sum of those of `bits` that are set in u; u is known when this is compiled. */
template <class T, int N> __device__ __forceinline__ T sum(const T (&bits)[N], int u)
{
    T x = 0;
#pragma unroll
    for (int b = 0; b < N; b++)
        if (u >> b & 1)
            x += bits[b];
    return x;
}

template <int N> __device__ __forceinline__ u32 mix(const u32 (&bits)[N], int u)
{
    u32 x = 0;
#pragma unroll
    for (int b = 0; b < N; b++)
        if (u >> b & 1)
            x ^= bits[b];
    return x;
}

/* One side of a thread's elements: what its own bits add up to. */
struct Side {
    i64 at;
    u32 place, slot;

    __device__ __forceinline__ void prepare(u32 tid, const Bit *bits)
    {
        at = 0, place = 0, slot = 0;
#pragma unroll
        for (int k = 0; k < THREAD_BITS; k++)
            if (tid >> k & 1) {
                at += bits[k].offset;
                place += bits[k].place;
                slot ^= bits[k].slot;
            }
    }
};

/* What the turns of the loop add; read when needed, which takes fewer registers than keeping it. */
template <int N> struct Steps {
    i64 offset[N];
    u32 place[N], slot[N];

    __device__ __forceinline__ Steps(const Bit *bits)
    {
#pragma unroll
        for (int k = 0; k < N; k++) {
            offset[k] = bits[THREAD_BITS + k].offset;
            place[k] = bits[THREAD_BITS + k].place;
            slot[k] = bits[THREAD_BITS + k].slot;
        }
    }
};

__device__ __forceinline__ Tile tile_at(u32 t, const Shape *shape)
{
    Tile tile = {0, 0, 0, 0, 0};
    for (u32 k = 0; k < shape->n_dims; k++) {
        const Dim *dim = shape->dims + k;
        u32 next = (u32)(((u64)__umulhi(t, dim->magic) + t) >> dim->shift);
        u32 q = t - next * dim->n;
        t = next;
        tile.dst += (i64)q * dim->dst_step;
        tile.src += (i64)q * dim->src_step;
        tile.limit |= q + 1 == dim->n ? dim->last : dim->full;
        if (dim->tracked)
            tile.tracked = q << shape->tracked_shift;
    }
    tile.whole = tile.limit == shape->limit;
    return tile;
}

__device__ __forceinline__ u32 tracked(const Shape *shape, const Tile &tile, u32 place)
{
    return tile.tracked + ((place >> shape->tracked_at) & shape->tracked_mask);
}

template <class W, int N, bool GROUPED> struct Lane {
    Side src, dst;
    W value[1 << N];

    __device__ __forceinline__ i64 member(const i64 *table, const Shape *shape, const Tile &tile,
                                          u32 place)
    {
        return table[tracked(shape, tile, place)];
    }

    /* The words of one side, in its own order; `turn` is its bit of group_turns. */
    template <int ROLE>
    __device__ __forceinline__ void load(const char *s, const i64 *table, const Shape *shape,
                                         const Tile &tile, const Side &side, const Bit *bits,
                                         i64 first, u32 turn)
    {
        Steps<N> step(bits);
        i64 at = (i64)s + first + side.at;
        if (tile.whole && !GROUPED) {
#pragma unroll
            for (int u = 0; u < 1 << N; u++)
                take<W, ROLE>(value[u], (const char *)(at + sum(step.offset, u)));
            return;
        }
        if (tile.whole && !(shape->group_turns & turn)) {
            at += member(table, shape, tile, side.place);
#pragma unroll
            for (int u = 0; u < 1 << N; u++)
                take<W, ROLE>(value[u], (const char *)(at + sum(step.offset, u)));
            return;
        }
        if (tile.whole) {
#pragma unroll
            for (int u = 0; u < 1 << N; u++)
                take<W, ROLE>(value[u], (const char *)(member(table, shape, tile,
                                                              side.place + sum(step.place, u)) +
                                                       at + sum(step.offset, u)));
            return;
        }
        u32 guard = shape->guard;
#pragma unroll
        for (int u = 0; u < 1 << N; u++) {
            u32 place = side.place + sum(step.place, u);
            if (fits(tile.limit, guard, place)) {
                i64 of = GROUPED ? member(table, shape, tile, place) : 0;
                take<W, ROLE>(value[u], (const char *)(of + at + sum(step.offset, u)));
            }
        }
    }

    template <int ROLE>
    __device__ __forceinline__ void load_source(const char *s, const i64 *table,
                                                const Shape *shape, const Tile &tile)
    {
        load<ROLE>(s, table, shape, tile, src, shape->src, tile.src, 1);
    }

    /* What is there comes before what was loaded. */
    __device__ __forceinline__ void load_target(const char *d, const i64 *table,
                                                const Shape *shape, const Tile &tile)
    {
        load<SECOND>(d, table, shape, tile, dst, shape->dst, tile.dst, 2);
    }

    __device__ __forceinline__ void share(W *slots, const Shape *shape)
    {
        Steps<N> step(shape->src);
#pragma unroll
        for (int u = 0; u < 1 << N; u++)
            slots[src.slot ^ mix(step.slot, u)] = value[u];
    }

    __device__ __forceinline__ void take_shared(const W *slots, const Shape *shape)
    {
        Steps<N> step(shape->dst);
#pragma unroll
        for (int u = 0; u < 1 << N; u++)
            value[u] = slots[dst.slot ^ mix(step.slot, u)];
    }

    template <bool TILED>
    __device__ __forceinline__ void store(char *d, const i64 *table, const Shape *shape,
                                          const Tile &tile, const W *slots)
    {
        Steps<N> step(shape->dst);
        i64 at = (i64)d + tile.dst + dst.at;
        if (tile.whole && !GROUPED) {
#pragma unroll
            for (int u = 0; u < 1 << N; u++)
                put<W>((char *)(at + sum(step.offset, u)),
                       TILED ? slots[dst.slot ^ mix(step.slot, u)] : value[u]);
            return;
        }
        if (tile.whole && !(shape->group_turns & 2)) {
            at += member(table, shape, tile, dst.place);
#pragma unroll
            for (int u = 0; u < 1 << N; u++)
                put<W>((char *)(at + sum(step.offset, u)),
                       TILED ? slots[dst.slot ^ mix(step.slot, u)] : value[u]);
            return;
        }
        if (tile.whole) {
#pragma unroll
            for (int u = 0; u < 1 << N; u++)
                put<W>((char *)(member(table, shape, tile, dst.place + sum(step.place, u)) + at +
                                sum(step.offset, u)),
                       TILED ? slots[dst.slot ^ mix(step.slot, u)] : value[u]);
            return;
        }
        u32 guard = shape->guard;
#pragma unroll
        for (int u = 0; u < 1 << N; u++) {
            u32 place = dst.place + sum(step.place, u);
            if (fits(tile.limit, guard, place)) {
                i64 to = GROUPED ? member(table, shape, tile, place) : 0;
                put<W>((char *)(to + at + sum(step.offset, u)),
                       TILED ? slots[dst.slot ^ mix(step.slot, u)] : value[u]);
            }
        }
    }
};

/* Bytes of shared memory that the kinds compiled in need. */
__host__ __device__ constexpr int shared_bytes()
{
    constexpr int turns[] = {TURNS};
    int most = 16;
    for (int log = 0; log < 5; log++)
        if (KINDS >> (3 * log) & 6)
            most = most < THREADS << (turns[log] + log) ? THREADS << (turns[log] + log) : most;
    if (KINDS & CELL_KINDS)
        most = most < THREADS << (turns[2] + 2) ? THREADS << (turns[2] + 2) : most;
    return most;
}

/* Square cells of elements of CELL bytes: words that lie one under another in the source, 4 or 2 of them,
 * become those of the destination. */
template <int CELL, int N> __device__ __forceinline__ void turn_cells(u32 (&x)[N])
{
#pragma unroll
    for (int u = 0; u < N; u += 4 / CELL) {
        if constexpr (CELL == 1) {
            u32 a = __byte_perm(x[u], x[u + 1], 0x5140), b = __byte_perm(x[u], x[u + 1], 0x7362);
            u32 c = __byte_perm(x[u + 2], x[u + 3], 0x5140);
            u32 d = __byte_perm(x[u + 2], x[u + 3], 0x7362);
            x[u] = __byte_perm(a, c, 0x5410), x[u + 1] = __byte_perm(a, c, 0x7632);
            x[u + 2] = __byte_perm(b, d, 0x5410), x[u + 3] = __byte_perm(b, d, 0x7632);
        } else {
            u32 a = __byte_perm(x[u], x[u + 1], 0x5410);
            x[u + 1] = __byte_perm(x[u], x[u + 1], 0x7632);
            x[u] = a;
        }
    }
}
