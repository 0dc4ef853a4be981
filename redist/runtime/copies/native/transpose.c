/* Copies of single elements whose neighbours in the source lie far apart in the destination.
 *
 * They go in blocks of which every row is a few lines of memory: a page is found once for all of them,
 * and rows that lie powers of two apart, so in the same places of the cache, do not drive each other out,
 * because a block is taken as a whole, turned where it is small, and put down as a whole. Turned are
 * squares: n rows of n elements, 16 bytes each, in registers, by as many rounds of zipping rows with
 * those half the square away as n can be halved.
 */
#include "kernels.h"
#include "run.h"
#include <string.h>

#define BLOCK_BYTES 16384 /* of the largest block */

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

/* A block that lies together, of `side` x `side` elements: squares of n, and all of them. */
#define TURN_BLOCK(type, n, size, side)                                                           \
    static void turn_block_##type(char *d, const char *s)                                         \
    {                                                                                             \
        for (int k = 0; k < side; k += n)                                                         \
            for (int i = 0; i < side; i += n)                                                     \
                turn_##type(d + (k * side + i) * size, s + (i * side + k) * size, side * size,    \
                            side * size);                                                         \
    }

TURN_BLOCK(bytes, 16, 1, 128)
TURN_BLOCK(halves, 8, 2, 64)
TURN_BLOCK(words, 4, 4, 64)
TURN_BLOCK(longs, 2, 8, 32)

static void turn_block_pairs(char *d, const char *s)
{
    for (int k = 0; k < 16; k++)
        for (int i = 0; i < 16; i++)
            memcpy(d + (k * 16 + i) * 16, s + (i * 16 + k) * 16, 16);
}

static int64_t side_of(int64_t size)
{
    return size == 1 ? 128 : size <= 4 ? 64 : size == 8 ? 32 : 16;
}

/* Turn a matrix of elements of 1, 2, 4, 8 or 16 bytes: row i of the source begins at s + i * row, and
 * becomes column i of the destination, whose rows begin at d + k * column. */
void redist_turn(char *d, const char *s, int64_t rows, int64_t columns, int64_t column, int64_t row,
                 int64_t size, int streaming)
{
    char taken[BLOCK_BYTES] __attribute__((aligned(64)));
    char turned[BLOCK_BYTES] __attribute__((aligned(64)));
    int64_t side = side_of(size), pitch = side * size;
    for (int64_t i = 0; i < rows; i += side)
        for (int64_t k = 0; k < columns; k += side) {
            int64_t high = rows - i < side ? rows - i : side;
            int64_t wide = columns - k < side ? columns - k : side;
            for (int64_t r = 0; r < high; r++)
                memcpy(taken + r * pitch, s + (i + r) * row + k * size, (size_t)(wide * size));
            switch (size) {
            case 1:
                turn_block_bytes(turned, taken);
                break;
            case 2:
                turn_block_halves(turned, taken);
                break;
            case 4:
                turn_block_words(turned, taken);
                break;
            case 8:
                turn_block_longs(turned, taken);
                break;
            default:
                turn_block_pairs(turned, taken);
            }
            for (int64_t c = 0; c < wide; c++)
                copy_run(d + (k + c) * column + i * size, turned + c * pitch,
                         (size_t)(high * size), streaming);
        }
}
