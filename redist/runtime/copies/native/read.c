/* Copies out of the memory of another process, by the kernel. */
#define _GNU_SOURCE
#include "kernels.h"
#include <stddef.h>
#include <sys/types.h>
#if defined(__linux__)
#include <sys/uio.h>
#endif

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

/* Copy where the source addresses belong to another process. 0, or -1 if the kernel refuses. */
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
