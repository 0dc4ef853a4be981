/* Copies of strided boxes, those that share cache lines together. */
#include "kernels.h"
#include "run.h"
#include <stddef.h>
#include <string.h>

#define PREFETCH_BLOCK 512
#define JOINED_BLOCK 4096   /* runs this long are not put together from many sources at a time */
#define DEALT_BLOCK 1048576 /* nor dealt out to many destinations */
#define STREAK 256 /* bytes of a box that are copied before the next of those that interleave */
#define GROUP 64   /* boxes that are looked at together */

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
        copy_run(d, s, (size_t)block, streaming);
    }
}

/* The dim along which single elements lie together in the source, if in the destination that is
 * another, the last; else -1. */
static int64_t turned_dim(const move *m, int64_t dim)
{
    int64_t last = m->n_dims - 1;
    if (m->block > 16 || (m->block & (m->block - 1)) || m->dst_stride[last] != m->block)
        return -1;
    for (; dim < last; dim++)
        if (m->src_stride[dim] == m->block)
            return dim;
    return -1;
}

static void copy_turned(char *d, const char *s, const move *m, int64_t dim, int64_t turned)
{
    int64_t last = m->n_dims - 1;
    if (dim == turned)
        copy_turned(d, s, m, dim + 1, turned);
    else if (dim == last)
        redist_turn(d, s, m->count[last], m->count[turned], m->dst_stride[turned],
                    m->src_stride[last], m->block);
    else
        for (int64_t i = 0; i < m->count[dim]; i++)
            copy_turned(d + i * m->dst_stride[dim], s + i * m->src_stride[dim], m, dim + 1,
                        turned);
}

static void copy_box(char *d, const char *s, const move *m, int64_t dim, int streaming)
{
    int64_t turned = dim < m->n_dims - 1 ? turned_dim(m, dim) : -1;
    if (turned >= 0) {
        copy_turned(d, s, m, dim, turned);
        return;
    }
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

static inline int is_between(const char *a, const char *b, int64_t stride)
{
    int64_t gap = a < b ? b - a : a - b;
    return gap < stride;
}

/* Whether two boxes of short runs interleave along a dim, on one side. */
static int interleave(const move *a, const move *b, const char *da, const char *db, const char *sa,
                      const char *sb, int64_t dim)
{
    int64_t block = a->block > b->block ? a->block : b->block;
    int64_t ds = a->dst_stride[dim], ss = a->src_stride[dim];
    return a->n_dims > dim && a->n_dims == b->n_dims && a->count[dim] == b->count[dim] &&
           turned_dim(a, dim) < 0 &&
           ((block < JOINED_BLOCK && ds == b->dst_stride[dim] && is_between(da, db, ds)) ||
            (block < DEALT_BLOCK && ss == b->src_stride[dim] && is_between(sa, sb, ss)));
}

#define ROWS(size)                                                                                \
    case size:                                                                                    \
        for (int64_t i = 0; i < count; i += step)                                                 \
            for (int64_t k = 0; k < n; k++) {                                                     \
                int64_t ds = m[k].dst_stride[dim], ss = m[k].src_stride[dim];                     \
                char *to = d[k] + i * ds;                                                         \
                const char *of = s[k] + i * ss;                                                   \
                int64_t end = count - i < step ? count - i : step;                                \
                for (int64_t j = 0; j < end; j++, to += ds, of += ss)                             \
                    copy_short(to, of, size, streaming);                                          \
            }                                                                                     \
        return;

/* Rows of boxes that interleave, as copy_rows does it, of runs of any length.
 *
 * Where the runs of a box follow one another in the destination, a line in which one ends and the next
 * begins is not written twice with those of other boxes in between: the end waits for the beginning. */
static __attribute__((noinline)) void copy_long_rows(char *const *d, const char *const *s,
                                                     const move *m, int64_t n, int64_t dim,
                                                     int64_t step, int streaming)
{
    int64_t count = m->count[dim];
    for (int64_t i = 0; i < count; i += step)
        for (int64_t k = 0; k < n; k++) {
            int64_t ds = m[k].dst_stride[dim], ss = m[k].src_stride[dim], block = m[k].block;
            int64_t end = count - i < step ? count : i + step;
            char *to = d[k] + i * ds;
            const char *of = s[k] + i * ss;
            int joins = ds == block && block >= 128;
            size_t done = joins && i > 0 ? copy_seam(to, of - ss + block, of, streaming) : 0;
            for (int64_t j = i; j < end; j++, to += ds, of += ss, done = 0) {
                int waits = joins && j == end - 1 && end < count;
                size_t left = waits ? (uintptr_t)(to + block) & 63 : 0;
                copy_run(to + done, of + done, (size_t)block - done - left, streaming);
            }
        }
}

/* Rows of boxes that interleave: a streak of every box at a time, so that those that share lines meet
 * there. Between runs nothing else is written, not even to the stack: that would end the streaks of whole
 * lines which ARM's cores write without fetching them first. */
static void copy_rows(char *const *d, const char *const *s, const move *m, int64_t n, int64_t dim,
                      int streaming)
{
    int64_t count = m->count[dim], block = m->block;
    int64_t step = block < STREAK ? (STREAK + block - 1) / block : 1;
    for (int64_t k = 1; k < n; k++)
        block = m[k].block == block ? block : 0;
    switch (block) {
        ROWS(1)
        ROWS(2)
        ROWS(4)
        ROWS(8)
        ROWS(16)
        ROWS(32)
        ROWS(64)
        ROWS(128)
    }
    copy_long_rows(d, s, m, n, dim, step, streaming);
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

/* Boxes that interleave, a row of all of them at a time. */
static void copy_together(char *const *d, const char *const *s, const move *m, int64_t n,
                          int64_t dim, int streaming)
{
    if (dim == m->n_dims - 1) {
        copy_rows(d, s, m, n, dim, streaming);
        return;
    }
    for (int64_t i = 0; i < m->count[dim]; i++) {
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
