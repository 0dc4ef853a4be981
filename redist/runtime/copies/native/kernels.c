/* Copies of strided boxes and waiting for peers in shared memory, without Python in between.
 *
 * Plain C behind ctypes: no Python headers, one shared library for every Python version.
 * The package works without it (kernels.py); this only makes it fast.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define MAX_DIMS 6
#define PREFETCH_BLOCK 512
#define SHORT_BLOCK 1024 /* boxes of longer runs are copied one after another */
#define SLAB 32768
#define GROUP 64 /* boxes that are looked at together */
#define YIELD_NS 100000 /* who waits longer sleeps */
#define CONTROL_WORD 8 /* 64-bit words in a cache line */

/* One box: `block` contiguous bytes, repeated over `n_dims` counts with a stride on either side.
 * moves.py writes these as rows of 64-bit integers. */
typedef struct {
    int64_t dst, dst_off, src, src_off, block, n_dims;
    int64_t count[MAX_DIMS], dst_stride[MAX_DIMS], src_stride[MAX_DIMS];
} move;

static inline void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

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

/* d = d OP s, element by element, on runs of n elements that may lie anywhere. */
#define EACH(T, RESULT)                                                                           \
    {                                                                                             \
        typedef T __attribute__((aligned(1), may_alias)) item;                                    \
        item *x = (item *)d;                                                                      \
        const item *y = (const item *)s;                                                          \
        for (int64_t i = 0; i < n / (int64_t)sizeof(T); i++) {                                    \
            T a = x[i], b = y[i];                                                                 \
            x[i] = (T)(RESULT);                                                                   \
        }                                                                                         \
        return;                                                                                   \
    }
#define WRAPPING(CODE, T, SIGNED)                                                                 \
    case CODE: EACH(T, a + b)                                                                     \
    case CODE + 1: EACH(T, a * b)                                                                 \
    case CODE + 2: EACH(SIGNED, a > b ? a : b)                                                    \
    case CODE + 3: EACH(SIGNED, a < b ? a : b)

static void combine_run(char *d, const char *s, int64_t n, int64_t code)
{
    switch (code) { /* the codes of reduce.py: four for each dtype */
        case 0: EACH(float, a + b)
        case 1: EACH(float, a * b)
        case 4: EACH(double, a + b)
        case 5: EACH(double, a * b)
        WRAPPING(8, uint32_t, int32_t)
        WRAPPING(12, uint64_t, int64_t)
        WRAPPING(16, uint32_t, uint32_t)
        WRAPPING(20, uint64_t, uint64_t)
        WRAPPING(24, uint8_t, uint8_t)
    }
}

static void combine_box(char *d, const char *s, const move *m, int64_t dim, int64_t code)
{
    if (dim >= m->n_dims || dim >= MAX_DIMS) {
        combine_run(d, s, m->block, code);
        return;
    }
    for (int64_t i = 0; i < m->count[dim]; i++)
        combine_box(d + i * m->dst_stride[dim], s + i * m->src_stride[dim], m, dim + 1, code);
}

/* Combine sources into destinations, in order. */
void redist_combine(const move *moves, int64_t n, char *const *bases, int64_t code)
{
    for (int64_t k = 0; k < n; k++) {
        const move *m = moves + k;
        combine_box(bases[m->dst] + m->dst_off, bases[m->src] + m->src_off, m, 0, code);
    }
}

#if defined(__linux__)
#define IOVECS 512

typedef struct {
    int pid, used;
    struct iovec here[IOVECS], there[IOVECS];
    size_t bytes;
} batch;

static int flush(batch *b)
{
    size_t i = 0;
    while (b->bytes > 0) {
        ssize_t got = process_vm_readv(b->pid, b->here + i, (size_t)b->used - i, b->there + i,
                                       (size_t)b->used - i, 0);
        if (got <= 0)
            return -1;
        b->bytes -= (size_t)got;
        while (b->bytes > 0 && (size_t)got >= b->here[i].iov_len)
            got -= (ssize_t)b->here[i++].iov_len;
        if (b->bytes > 0 && got > 0) {
            b->here[i].iov_base = (char *)b->here[i].iov_base + got;
            b->there[i].iov_base = (char *)b->there[i].iov_base + got;
            b->here[i].iov_len -= (size_t)got;
            b->there[i].iov_len -= (size_t)got;
        }
    }
    b->used = 0;
    return 0;
}

static int read_box(batch *b, char *d, char *s, const move *m, int64_t dim)
{
    if (dim == m->n_dims) {
        b->here[b->used].iov_base = d;
        b->there[b->used].iov_base = s;
        b->here[b->used].iov_len = b->there[b->used].iov_len = (size_t)m->block;
        b->bytes += (size_t)m->block;
        return ++b->used == IOVECS ? flush(b) : 0;
    }
    for (int64_t i = 0; i < m->count[dim]; i++)
        if (read_box(b, d + i * m->dst_stride[dim], s + i * m->src_stride[dim], m, dim + 1))
            return -1;
    return 0;
}

/* The same, where the source addresses belong to another process. 0, or -1 if the kernel refuses. */
int redist_read(int pid, const move *moves, int64_t n, char *const *bases)
{
    batch b;
    b.pid = pid, b.used = 0, b.bytes = 0;
    for (int64_t k = 0; k < n; k++) {
        const move *m = moves + k;
        if (read_box(&b, bases[m->dst] + m->dst_off, bases[m->src] + m->src_off, m, 0))
            return -1;
    }
    return flush(&b);
}
#else
int redist_read(int pid, const move *moves, int64_t n, char *const *bases)
{
    (void)pid, (void)moves, (void)n, (void)bases;
    return -1;
}
#endif

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Sleep until the word at an address changes; wake who sleeps there. */
static void doze(const uint64_t *word, uint64_t seen, int64_t most_ns)
{
#if defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    struct timespec most = {most_ns / 1000000000, most_ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT, (uint32_t)seen, &most, NULL, 0);
#else
    (void)word, (void)seen, (void)most_ns;
    struct timespec pause = {0, 50000};
    nanosleep(&pause, NULL);
#endif
}

static void rouse(const uint64_t *word)
{
#if defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
#else
    (void)word;
#endif
}

enum { ALL_SAME = 0, DIFFERENT = 1, NOT_YET = 2, ABORTED = 3 };

/* Say that rank `me` of n has come to meeting `seq` with a word, and wait for the others.
 *
 * control[i] points to the block of rank i: word 0 the last meeting it came to, word 1 nonzero once
 * it has given up, words 8 and 16 what it said at even and odd meetings. Nobody is ever two meetings
 * ahead, so two words suffice. ALL_SAME means that all said this word, or those in `words`. Everything written before is visible to whoever returns 0.
 */
int redist_meet(uint64_t *const *control, int n, int me, uint64_t seq, uint64_t word,
                const uint64_t *words, int64_t wait_ns)
{
    size_t at = CONTROL_WORD * (1 + (seq & 1));
    __atomic_store_n(control[me] + at, word, __ATOMIC_RELAXED);
    __atomic_store_n(control[me], seq, __ATOMIC_SEQ_CST);
    rouse(control[me]);
    int64_t start = 0, tries = 0;
    for (int i = 0; i < n; i++) {
        uint64_t seen;
        while ((seen = __atomic_load_n(control[i], __ATOMIC_ACQUIRE)) < seq) {
            if (++tries < 64) {
                relax();
                continue;
            }
            for (int k = 0; k < n; k++)
                if (__atomic_load_n(control[k] + 1, __ATOMIC_ACQUIRE))
                    return ABORTED;
            int64_t t = now_ns();
            start = start ? start : t;
            if (t - start >= wait_ns)
                return NOT_YET;
            if (t - start < YIELD_NS)
                sched_yield();
            else
                doze(control[i], seen, wait_ns - (t - start));
        }
    }
    for (int i = 0; i < n; i++)
        if (__atomic_load_n(control[i] + at, __ATOMIC_RELAXED) != (words ? words[i] : word))
            return DIFFERENT;
    return ALL_SAME;
}

enum { COPY, READ, COMBINE, DESCRIBE, CHECK, MEET };

/* One operation of a script; what the numbers mean depends on the kind. `tables` are the base
 * addresses for even and for odd meetings. */
typedef struct {
    int64_t kind, a, b, c, d;
    char *const *const *tables;
} op;

/* A script, and where it stands: the next operation, whether its meeting has been entered, and the
 * number of the last meeting. */
typedef struct {
    int64_t at, entered;
    uint64_t seq;
    const op *ops;
    int64_t n_ops;
    uint64_t *const *control;
    int64_t n, me, wait_ns;
} script;

enum { DONE = 0, CHANGED = 4, REFUSED = 5 };

/* Run operations until the script is done (0) or cannot go on: a code of redist_meet, CHANGED where
 * a neighbour describes its arrays otherwise than when the script was written, or REFUSED where the
 * kernel does not let us read.
 *
 *   COPY      moves, number of them, 1 if they belong to the coming meeting, 1 if they stream
 *   READ      moves, number of them, process
 *   COMBINE   moves, number of them, code of dtype and reduction
 *   DESCRIBE  place for even meetings, for odd ones, what to write there, number of bytes
 *   CHECK     place for even meetings, for odd ones, what should be there, number of bytes
 *   MEET      word, the words that all should say (0: the same)
 */
int redist_script(script *now)
{
    for (; now->at < now->n_ops; now->at++) {
        const op *o = now->ops + now->at;
        uint64_t coming = o->kind == DESCRIBE || (o->kind == COPY && o->c);
        uint64_t odd = (now->seq + coming) & 1;
        char *const *bases = o->tables ? o->tables[odd] : NULL;
        switch (o->kind) {
        case COPY:
            redist_copy((const move *)o->a, o->b, bases, (int)o->d);
            break;
        case READ:
            if (redist_read((int)o->c, (const move *)o->a, o->b, bases))
                return REFUSED;
            break;
        case COMBINE:
            redist_combine((const move *)o->a, o->b, bases, o->c);
            break;
        case DESCRIBE:
            memcpy((void *)(odd ? o->b : o->a), (const void *)o->c, (size_t)o->d);
            break;
        case CHECK:
            if (memcmp((const void *)(odd ? o->b : o->a), (const void *)o->c, (size_t)o->d))
                return CHANGED;
            break;
        case MEET:
            now->seq += now->entered ? 0 : 1;
            now->entered = 1;
            int answer = redist_meet(now->control, (int)now->n, (int)now->me, now->seq,
                                     (uint64_t)o->a, (const uint64_t *)o->b, now->wait_ns);
            if (answer != ALL_SAME)
                return answer;
            now->entered = 0;
            break;
        }
    }
    return DONE;
}
