/* Reductions in place: every source is combined into its destination. */
#include "kernels.h"

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
    case CODE:                                                                                    \
        EACH(T, a + b)                                                                            \
    case CODE + 1:                                                                                \
        EACH(T, (a * b))                                                                          \
    case CODE + 2:                                                                                \
        EACH(SIGNED, a > b ? a : b)                                                               \
    case CODE + 3:                                                                                \
        EACH(SIGNED, a < b ? a : b)

static void combine_run(char *d, const char *s, int64_t n, int64_t code)
{
    switch (code) { /* the codes of reduce.py: four for each dtype */
    case 0:
        EACH(float, a + b)
    case 1:
        EACH(float, (a * b))
    case 4:
        EACH(double, a + b)
    case 5:
        EACH(double, (a * b))
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
