/* Hierarchies by chains of nearest neighbours: the nearest of a row, the row of a merged cluster, and all merges of
   points whose distances are on one rank. Formulas, chains and ties are those of SciPy. */
#include "learn.h"

#include <math.h>

#define LANES 8

enum { WARD, AVERAGE, COMPLETE };

/* Where the least number of a row is, the first of several. */
FOR_THIS_CPU int64_t redist_least(const double *restrict row, int64_t n)
{
    double lane[LANES], least = INFINITY;
    for (int l = 0; l < LANES; l++)
        lane[l] = INFINITY;
    const int64_t whole = n / LANES * LANES;
    for (int64_t j = 0; j < whole; j += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = row[j + l] < lane[l] ? row[j + l] : lane[l];
    for (int l = 0; l < LANES; l++)
        least = lane[l] < least ? lane[l] : least;
    for (int64_t j = whole; j < n; j++)
        least = row[j] < least ? row[j] : least;
    for (int64_t j = 0; j < n; j++)
        if (row[j] == least)
            return j;
    return 0;
}

/* How far the cluster of x and y, `apart` from each other, is from all others: in place of those of y. */
FOR_THIS_CPU void redist_merge(const double *restrict to_x, double *restrict to_y, int64_t n,
                               int64_t linkage, double apart, double n_x, double n_y,
                               const double *restrict size)
{
    switch (linkage) {
    case COMPLETE:
        for (int64_t j = 0; j < n; j++)
            to_y[j] = to_x[j] > to_y[j] ? to_x[j] : to_y[j];
        break;
    case AVERAGE:
        for (int64_t j = 0; j < n; j++)
            to_y[j] = (n_x * to_x[j] + n_y * to_y[j]) / (n_x + n_y);
        break;
    default:
        for (int64_t j = 0; j < n; j++) {
            const double t = 1.0 / (n_x + n_y + size[j]);
            const double square = (size[j] + n_x) * t * to_x[j] * to_x[j] +
                                  (size[j] + n_y) * t * to_y[j] * to_y[j] -
                                  size[j] * t * apart * apart;
            to_y[j] = sqrt(square);
        }
    }
}

/* All merges: two points, how far they are apart, how many are in both. `far` is n x n, infinite for a point and itself;
   `size` has n ones, `chain` room for n. */
FOR_THIS_CPU void redist_chain(double *restrict far, int64_t n, int64_t linkage,
                               double *restrict size, int64_t *restrict chain,
                               double *restrict merges)
{
    int64_t length = 0, begin = 0;
    for (int64_t k = 0; k < n - 1; k++) {
        int64_t x, y, before;
        double least;
        while (!length && size[begin] == 0)
            begin++;
        if (!length)
            chain[length++] = begin;
        for (;;) {
            x = chain[length - 1];
            before = length > 1 ? chain[length - 2] : -1;
            y = redist_least(far + x * n, n);
            least = far[x * n + y];
            if (before >= 0 && !(least < far[x * n + before])) {
                y = before;
                least = far[x * n + before];
            }
            if (y == before)
                break;
            chain[length++] = y;
        }
        length -= 2;
        if (x > y) {
            const int64_t other = x;
            x = y;
            y = other;
        }
        double *restrict merge = merges + 4 * k, *restrict new = far + y * n;
        merge[0] = (double)x;
        merge[1] = (double)y;
        merge[2] = least;
        merge[3] = size[x] + size[y];
        redist_merge(far + x * n, new, n, linkage, least, size[x], size[y], size);
        size[y] += size[x];
        size[x] = 0;
        new[y] = INFINITY;
        for (int64_t i = 0; i < n; i++)
            if (size[i] != 0) {
                far[i * n + y] = new[i];
                far[i * n + x] = INFINITY;
            }
    }
}
