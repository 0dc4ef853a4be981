/* Long runs that lie anywhere: loads and stores are aligned, what is between them is shifted. */
#if (KINDS & (KINDS - 1)) == 0
#define KIND_INLINE __forceinline__
#else
#define KIND_INLINE __noinline__
#endif

#if KINDS & 0x8000
/* 16 bytes of the 32 of a and b, from byte n on. */
__device__ __forceinline__ uint4 shifted(uint4 a, uint4 b, u32 n)
{
    u32 w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    if (n & 8) {
#pragma unroll
        for (int k = 0; k < 6; k++)
            w[k] = w[k + 2];
    }
    if (n & 4) {
#pragma unroll
        for (int k = 0; k < 5; k++)
            w[k] = w[k + 1];
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        w[k] = __funnelshift_r(w[k], w[k + 1], 8 * (n & 3));
    uint4 out = {w[0], w[1], w[2], w[3]};
    return out;
}

/* 16 bytes of a run that begins anywhere on either side: place c, whose bytes would go to `to` and
 * come from `of`, were the run aligned to lines where it is written. */
struct Loose {
    i64 to, of, at;

    __device__ __forceinline__ Loose(i64 to, i64 of, u32 c)
    {
        i64 phase = (to - 16 * (i64)c) & (LINE - 1);
        this->to = to - phase, this->of = of - phase, at = 16 * (i64)c - phase;
    }
    /* Whether the aligned words around it belong to the run. */
    __device__ __forceinline__ bool inside(i64 run) const
    {
        u32 n = (u32)of & 15;
        return at >= n && at + 16 + ((16 - n) & 15) <= run;
    }
};

template <class W> __device__ __forceinline__ void put_loose(char *p, W x)
{
    if constexpr (FOLDS)
        take<W, SECOND>(x, p);
    put<W>(p, x);
}

/* The ends of runs, byte by byte. */
__device__ __noinline__ void copy_ends(Loose part, i64 run)
{
    u8 x[16];
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (part.at + k >= 0 && part.at + k < run)
            x[k] = get<u8>((const char *)(part.of + k));
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (part.at + k >= 0 && part.at + k < run)
            put_loose<u8>((char *)(part.to + k), x[k]);
}

__device__ KIND_INLINE u32 copy_loose(u32 t, u32 end, Row row, const Shape *shape,
                                      const Member *members, const u64 *bases)
{
    constexpr int turns[] = {TURNS};
    constexpr int bits = turns[4];
    const Member *m = members + row.member;
    i64 d = (i64)bases[m->dst] + m->dst_offset, s = (i64)bases[m->src] + m->src_offset;
    Side src[PER_THREAD], dst[PER_THREAD];
    EACH_THREAD {
        src[ME].prepare(tid, shape->src);
        dst[ME].prepare(tid, shape->dst);
    }
    for (; t < end; t += gridDim.x) {
        Tile tile = tile_at(t - row.first, shape);
        EACH_THREAD {
            Steps<bits> of(shape->src), to(shape->dst);
            i64 s_at = s + tile.src + src[ME].at, d_at = d + tile.dst + dst[ME].at;
            i64 target[1 << bits];
            uint4 a[1 << bits], b[1 << bits];
            u32 skew[1 << bits], ends = 0;
#pragma unroll
            for (int u = 0; u < 1 << bits; u++) {
                u32 place = src[ME].place + sum(of.place, u);
                Loose part(d_at + sum(to.offset, u), s_at + sum(of.offset, u),
                           tracked(shape, tile, place));
                bool here = fits(tile.limit, shape->guard, place);
                bool inside = here && part.inside(shape->run);
                skew[u] = (u32)part.of & 15;
                target[u] = inside ? part.to : 0;
                ends |= (u32)(here && !inside) << u;
                const char *p = (const char *)(part.of - skew[u]);
                if (inside)
                    a[u] = get<uint4>(p);
                if (inside && skew[u])
                    b[u] = get<uint4>(p + 16);
            }
#pragma unroll
            for (int u = 0; u < 1 << bits; u++)
                if (target[u])
                    put_loose<uint4>((char *)target[u],
                                     skew[u] ? shifted(a[u], b[u], skew[u]) : a[u]);
#pragma unroll 1
            for (int u = 0; ends; u++, ends >>= 1)
                if (ends & 1) {
                    u32 place = src[ME].place + sum(of.place, u);
                    copy_ends(Loose(d_at + sum(to.offset, u), s_at + sum(of.offset, u),
                                    tracked(shape, tile, place)),
                              shape->run);
                }
        }
    }
    return t;
}
#endif
