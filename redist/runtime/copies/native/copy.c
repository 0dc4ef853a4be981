/* Copies of strided boxes, those that share cache lines together. */
#include "kernels.h"
#include <stddef.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define PREFETCH_BLOCK 512
#define SHORT_BLOCK 1024 /* boxes of longer runs are copied one after another */
#define SLAB 32768
#define GROUP 64 /* boxes that are looked at together */

/* Copy past the cache: large results are not read again soon, and lines need not be fetched first. */
static inline void stream(char *d, const char *s, size_t n)
{
#if defined(__x86_64__)
    size_t head = (size_t)(-(uintptr_t)d) & 63;
    if (n < 128 + head) {
        memcpy(d, s, n);
        return;
    }
    memcpy(d, s, head);
    d += head, s += head, n -= head;
    for (; n >= 64; d += 64, s += 64, n -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)s);
        __m128i b = _mm_loadu_si128((const __m128i *)(s + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(s + 32));
        __m128i e = _mm_loadu_si128((const __m128i *)(s + 48));
        _mm_stream_si128((__m128i *)d, a);
        _mm_stream_si128((__m128i *)(d + 16), b);
        _mm_stream_si128((__m128i *)(d + 32), c);
        _mm_stream_si128((__m128i *)(d + 48), e);
    }
#endif
    memcpy(d, s, n);
}

#define ITEMS(size)                                                                               \
    case size:                                                                                    \
        for (int64_t i = 0; i < n; i++, d += ds, s += ss)                                         \
            memcpy(d, s, size);                                                                   \
        return;

/* One row of runs. */
static void copy_runs(char *d, const char *s, int64_t n, int64_t ds, int64_t ss, int64_t block,
                      int streaming)
{
    switch (block) {
        ITEMS(1)
        ITEMS(2)
        ITEMS(4)
        ITEMS(8)
        ITEMS(16)
        ITEMS(32)
        ITEMS(64)
    }
    /* Hardware does not foresee short runs that lie far apart; fetch the next one early. */
    int64_t ahead = block <= PREFETCH_BLOCK && (ss > block || ss < 0) ? block : 0;
    for (int64_t i = 0; i < n; i++, d += ds, s += ss) {
        for (int64_t k = 0; k < ahead; k += 64)
            __builtin_prefetch(s + ss + k, 0, 0);
        if (streaming)
            stream(d, s, (size_t)block);
        else
            memcpy(d, s, (size_t)block);
    }
}

static void copy_box(char *d, const char *s, const move *m, int64_t dim, int streaming)
{
    if (dim >= m->n_dims - 1) {
        if (m->n_dims == 0)
            copy_runs(d, s, 1, 0, 0, m->block, streaming);
        else
            copy_runs(d, s, m->count[dim], m->dst_stride[dim], m->src_stride[dim], m->block,
                      streaming);
        return;
    }
    for (int64_t i = 0; i < m->count[dim]; i++)
        copy_box(d + i * m->dst_stride[dim], s + i * m->src_stride[dim], m, dim + 1, streaming);
}

/* `n` of the counts of a box along one of its dims. */
static void copy_part(char *d, const char *s, const move *m, int64_t dim, int64_t n, int streaming)
{
    if (dim == m->n_dims - 1) {
        copy_runs(d, s, n, m->dst_stride[dim], m->src_stride[dim], m->block, streaming);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        copy_box(d + i * m->dst_stride[dim], s + i * m->src_stride[dim], m, dim + 1, streaming);
}

static inline int is_between(const char *a, const char *b, int64_t stride)
{
    int64_t gap = a < b ? b - a : a - b;
    return gap < stride;
}

/* Whether two boxes of short runs interleave along a dim: on one side they share cache lines. */
static int interleave(const move *a, const move *b, const char *da, const char *db, const char *sa,
                      const char *sb, int64_t dim)
{
    return a->block < SHORT_BLOCK && b->block < SHORT_BLOCK && a->n_dims > dim &&
           a->n_dims == b->n_dims && a->count[dim] == b->count[dim] &&
           ((a->dst_stride[dim] == b->dst_stride[dim] && is_between(da, db, a->dst_stride[dim])) ||
            (a->src_stride[dim] == b->src_stride[dim] && is_between(sa, sb, a->src_stride[dim])));
}

static void copy_together(char *const *d, const char *const *s, const move *m, int64_t n,
                          int64_t dim, int streaming);

/* Boxes in order; those that interleave, together. */
static void copy_boxes(char *const *d, const char *const *s, const move *m, int64_t n, int64_t dim,
                       int streaming)
{
    for (int64_t a = 0, b; a < n; a = b) {
        for (b = a + 1; b < n; b++)
            if (!interleave(m + a, m + b, d[a], d[b], s[a], s[b], dim))
                break;
        if (b - a == 1)
            copy_box(d[a], s[a], m + a, dim, streaming);
        else
            copy_together(d + a, s + a, m + a, b - a, dim, streaming);
    }
}

/* Boxes that interleave, a slab of all of them at a time: what shares a line meets it in the cache. */
static void copy_together(char *const *d, const char *const *s, const move *m, int64_t n,
                          int64_t dim, int streaming)
{
    int64_t ds = m->dst_stride[dim], ss = m->src_stride[dim], count = m->count[dim];
    int64_t span = (ds < 0 ? -ds : ds) > (ss < 0 ? -ss : ss) ? ds : ss;
    span = span < 0 ? -span : span;
    int64_t step = span > 0 && span < SLAB ? SLAB / span : 1;
    for (int64_t i = 0; i < count; i += step) {
        if (step > 1 || dim == m->n_dims - 1) {
            int64_t part = count - i < step ? count - i : step;
            for (int64_t k = 0; k < n; k++)
                copy_part(d[k] + i * m[k].dst_stride[dim], s[k] + i * m[k].src_stride[dim], m + k,
                          dim, part, streaming);
            continue;
        }
        char *to[GROUP];
        const char *of[GROUP];
        for (int64_t k = 0; k < n; k++) {
            to[k] = d[k] + i * m[k].dst_stride[dim];
            of[k] = s[k] + i * m[k].src_stride[dim];
        }
        copy_boxes(to, of, m, n, dim + 1, streaming);
    }
}

/* Run moves, which write to different places; dst and src index the table of base addresses. */
void redist_copy(const move *moves, int64_t n, char *const *bases, int streaming)
{
    char *d[GROUP];
    const char *s[GROUP];
    for (int64_t a = 0; a < n; a += GROUP) {
        int64_t part = n - a < GROUP ? n - a : GROUP;
        for (int64_t k = 0; k < part; k++) {
            d[k] = bases[moves[a + k].dst] + moves[a + k].dst_off;
            s[k] = bases[moves[a + k].src] + moves[a + k].src_off;
        }
        copy_boxes(d, s, moves + a, part, 0, streaming);
    }
#if defined(__x86_64__)
    if (streaming)
        _mm_sfence();
#endif
}
