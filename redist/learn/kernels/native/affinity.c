/* A round of affinity propagation on rows first, first + 1, ... of n x n matrices: similarities, availabilities and
   responsibilities. Rows go through the processor's caches once a round and half: the availabilities of a round are
   renewed on the way to the responsibilities of the next one. Loops over LANES become vectors. */
#include "learn.h"

#include <math.h>
#include <stddef.h>

#define LANES 8

/* The availabilities of a row, from the sums of columns. */
static inline void renew(double *restrict a, const double *restrict r,
                         const double *restrict columns, int64_t n, int64_t self, double damping)
{
    const double rest = 1 - damping;
    const double own = a[self] * damping - (r[self] - columns[self]) * rest;
    for (int64_t j = 0; j < n; j++) {
        const double lacks = (r[j] > 0 ? r[j] : 0) - columns[j];
        a[j] = a[j] * damping - (lacks > 0 ? lacks : 0) * rest;
    }
    a[self] = own;
}

/* The largest sum of two rows, the largest but one, and where the largest is; of equal ones any, for then both are. */
static inline int64_t two_largest(const double *restrict a, const double *restrict s, int64_t n,
                                  double *restrict largest, double *restrict next)
{
    double best[LANES], second[LANES];
    int64_t at[LANES];
    for (int l = 0; l < LANES; l++) {
        best[l] = second[l] = -INFINITY;
        at[l] = 0;
    }
    const int64_t whole = n / LANES * LANES;
    for (int64_t j = 0; j < whole; j += LANES)
        for (int l = 0; l < LANES; l++) {
            const double value = a[j + l] + s[j + l];
            const double loser = value > best[l] ? best[l] : value;
            second[l] = loser > second[l] ? loser : second[l];
            at[l] = value > best[l] ? j + l : at[l];
            best[l] = value > best[l] ? value : best[l];
        }
    for (int64_t j = whole; j < n; j++) {
        const double value = a[j] + s[j];
        const double loser = value > best[0] ? best[0] : value;
        second[0] = loser > second[0] ? loser : second[0];
        at[0] = value > best[0] ? j : at[0];
        best[0] = value > best[0] ? value : best[0];
    }
    for (int l = 1; l < LANES; l++) {
        const double loser = best[l] > best[0] ? best[0] : best[l];
        const double other = second[l] > second[0] ? second[l] : second[0];
        second[0] = loser > other ? loser : other;
        at[0] = best[l] > best[0] ? at[l] : at[0];
        best[0] = best[l] > best[0] ? best[l] : best[0];
    }
    *largest = best[0];
    *next = second[0];
    return at[0];
}

/* The responsibilities after a round, once availabilities are renewed from the sums of columns, if there are any;
   returns the largest magnitude of what will be added up. */
double redist_respond(const double *restrict similar, double *restrict available,
                      double *restrict responsible, int64_t m, int64_t n, int64_t first,
                      double damping, const double *restrict columns)
{
    double lane[LANES] = {0}, most = 0;
    const double rest = 1 - damping;
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < m; i++) {
        const double *restrict s = similar + i * n;
        double *restrict a = available + i * n, *restrict r = responsible + i * n;
        double best, second;
        if (columns != NULL)
            renew(a, r, columns, n, first + i, damping);
        const int64_t at = two_largest(a, s, n, &best, &second);
        const double own = s[at] - second, before = r[at];
        for (int64_t j = 0; j < n; j++)
            r[j] = r[j] * damping + (s[j] - best) * rest;
        r[at] = before * damping + own * rest;
        for (int64_t j = 0; j < whole; j += LANES)
            for (int l = 0; l < LANES; l++)
                lane[l] = r[j + l] > lane[l] ? r[j + l] : lane[l];
        for (int64_t j = whole; j < n; j++)
            most = r[j] > most ? r[j] : most;
        const double self = fabs(r[first + i]);
        most = self > most ? self : most;
    }
    for (int l = 0; l < LANES; l++)
        most = lane[l] > most ? lane[l] : most;
    return most;
}

static inline void add(double value, double coarse, double fine, double *high, double *low)
{
    const double part = on_grid(value, coarse);
    *high += part;
    *low += on_grid(value - part, fine);
}

/* Exact sums of columns: of responsibilities above 0, and of each point's for itself. `sums` is 2 x n. */
void redist_support(const double *restrict responsible, int64_t m, int64_t n, int64_t first,
                    double coarse, double fine, double *restrict sums)
{
    double *restrict high = sums, *restrict low = sums + n;
    for (int64_t i = 0; i < m; i++) {
        const double *restrict r = responsible + i * n;
        const int64_t self = first + i;
        for (int64_t j = 0; j < self; j++)
            add(r[j] > 0 ? r[j] : 0, coarse, fine, high + j, low + j);
        add(r[self], coarse, fine, high + self, low + self);
        for (int64_t j = self + 1; j < n; j++)
            add(r[j] > 0 ? r[j] : 0, coarse, fine, high + j, low + j);
    }
}
