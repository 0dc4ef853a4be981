/* Copies of single elements whose neighbours in the source lie far apart in the destination.
 *
 * They go in blocks that are a line of memory wide on either side, so that every line is read once and
 * written once, and along the rows of the source, where the processor sees what comes next. Panels of
 * rows of the destination are narrow enough for their pages to be found again. In a block, squares are
 * turned: n rows of n elements, 16 bytes each, in registers, by as many rounds of zipping rows with those
 * half the square away as n can be halved.
 */
#include "kernels.h"
#include <string.h>

#define PANEL 1024 /* rows of the destination that are written in turn */

typedef uint8_t bytes __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));
typedef uint32_t words __attribute__((vector_size(16)));
typedef uint64_t longs __attribute__((vector_size(16)));

#define LOW_bytes {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
#define HIGH_bytes {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
#define LOW_halves {0, 8, 1, 9, 2, 10, 3, 11}
#define HIGH_halves {4, 12, 5, 13, 6, 14, 7, 15}
#define LOW_words {0, 4, 1, 5}
#define HIGH_words {2, 6, 3, 7}
#define LOW_longs {0, 2}
#define HIGH_longs {1, 3}

/* One square of n x n elements: row i of the source is n elements at s + i * row, and row k of the
 * destination at d + k * column. */
#define TURN(type, n)                                                                             \
    static inline void turn_##type(char *d, const char *s, int64_t column, int64_t row)           \
    {                                                                                             \
        const type low = LOW_##type, high = HIGH_##type;                                          \
        type a[n], b[n];                                                                          \
        for (int i = 0; i < n; i++)                                                               \
            memcpy(a + i, s + i * row, 16);                                                       \
        for (int half = 1; half < n; half *= 2) {                                                 \
            for (int i = 0; i < n / 2; i++) {                                                     \
                b[2 * i] = __builtin_shuffle(a[i], a[i + n / 2], low);                            \
                b[2 * i + 1] = __builtin_shuffle(a[i], a[i + n / 2], high);                       \
            }                                                                                     \
            memcpy(a, b, sizeof a);                                                               \
        }                                                                                         \
        for (int k = 0; k < n; k++)                                                               \
            memcpy(d + k * column, a + k, 16);                                                    \
    }

TURN(bytes, 16)
TURN(halves, 8)
TURN(words, 4)
TURN(longs, 2)

/* Blocks of a line of memory by a line of memory, one after another along the rows of the source. Nothing
 * else is written in between, not even to the stack: see copy_rows. */
#define TURN_BLOCKS(type, n)                                                                      \
    static void turn_blocks_##type(char *d, const char *s, int64_t column, int64_t row,           \
                                   int64_t n_blocks)                                              \
    {                                                                                             \
        for (; n_blocks > 0; n_blocks--, d += 4 * n * column, s += 64)                            \
            for (int k = 0; k < 4; k++)                                                           \
                for (int i = 0; i < 4; i++)                                                       \
                    turn_##type(d + k * n * column + i * 16, s + i * n * row + k * 16, column,    \
                                row);                                                             \
    }

TURN_BLOCKS(bytes, 16)
TURN_BLOCKS(halves, 8)
TURN_BLOCKS(words, 4)
TURN_BLOCKS(longs, 2)

/* One by one, for the edges. */
#define TURN_FEW(type, size)                                                                      \
    static void turn_few_##type(char *d, const char *s, int64_t column, int64_t row,              \
                                int64_t rows, int64_t columns)                                    \
    {                                                                                             \
        for (int64_t k = 0; k < columns; k++)                                                     \
            for (int64_t i = 0; i < rows; i++)                                                    \
                memcpy(d + k * column + i * size, s + i * row + k * size, size);                  \
    }

TURN_FEW(bytes, 1)
TURN_FEW(halves, 2)
TURN_FEW(words, 4)
TURN_FEW(longs, 8)
TURN_FEW(pairs, 16)

static void turn_blocks_pairs(char *d, const char *s, int64_t column, int64_t row,
                              int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, d += 4 * column, s += 64)
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 4; i++)
                memcpy(d + k * column + i * 16, s + i * row + k * 16, 16);
}

typedef struct {
    void (*blocks)(char *, const char *, int64_t, int64_t, int64_t);
    void (*few)(char *, const char *, int64_t, int64_t, int64_t, int64_t);
} turner;

static turner turner_of(int64_t size)
{
    switch (size) {
    case 1:
        return (turner){turn_blocks_bytes, turn_few_bytes};
    case 2:
        return (turner){turn_blocks_halves, turn_few_halves};
    case 4:
        return (turner){turn_blocks_words, turn_few_words};
    case 8:
        return (turner){turn_blocks_longs, turn_few_longs};
    }
    return (turner){turn_blocks_pairs, turn_few_pairs};
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Turn a matrix of elements of 1, 2, 4, 8 or 16 bytes: row i of the source begins at s + i * row, and
 * becomes column i of the destination, whose rows begin at d + k * column. Blocks begin where lines do. */
void redist_turn(char *d, const char *s, int64_t rows, int64_t columns, int64_t column,
                 int64_t row, int64_t size)
{
    turner turn = turner_of(size);
    int64_t side = 64 / size, panel = PANEL > side ? PANEL : side;
    int64_t up = (int64_t)((uintptr_t)d / (uintptr_t)size % (uintptr_t)side);
    int64_t along = (int64_t)((uintptr_t)s / (uintptr_t)size % (uintptr_t)side);
    for (int64_t p = 0, next; p < columns; p = next) {
        next = least(columns, p + panel - (p + along) % side);
        for (int64_t i = 0, high; i < rows; i += high) {
            high = least(rows - i, side - (i + up) % side);
            for (int64_t k = p, wide; k < next; k += wide) {
                int64_t left = side - (k + along) % side;
                char *to = d + k * column + i * size;
                const char *of = s + i * row + k * size;
                wide = least(next - k, left);
                if (high == side && left == side && next - k >= side) {
                    wide = (next - k) / side * side;
                    turn.blocks(to, of, column, row, wide / side);
                } else
                    turn.few(to, of, column, row, high, wide);
            }
        }
    }
}
