/* A round of affinity propagation on rows first, first + 1, ... of n x n matrices: similarities, availabilities and
   responsibilities. */
#include "learn.h"

#include <math.h>

/* The responsibilities after a round; returns the largest magnitude of what will be added up. */
double redist_respond(const double *restrict similar, const double *restrict available,
                      double *restrict responsible, int64_t m, int64_t n, int64_t first,
                      double damping)
{
    double most = 0;
    const double rest = 1 - damping;
    for (int64_t i = 0; i < m; i++) {
        const double *restrict s = similar + i * n, *restrict a = available + i * n;
        double *restrict r = responsible + i * n;
        double best = -INFINITY, second = -INFINITY;
        int64_t at = 0;
        for (int64_t j = 0; j < n; j++) {
            const double value = a[j] + s[j];
            if (value > best) {
                second = best;
                best = value;
                at = j;
            } else if (value > second)
                second = value;
        }
        const double own = s[at] - second, before = r[at];
        for (int64_t j = 0; j < n; j++)
            r[j] = r[j] * damping + (s[j] - best) * rest;
        r[at] = before * damping + own * rest;
        for (int64_t j = 0; j < n; j++)
            most = r[j] > most ? r[j] : most;
        const double self = fabs(r[first + i]);
        most = self > most ? self : most;
    }
    return most;
}

/* Exact sums of columns: of responsibilities above 0, and of each point's for itself. `sums` is 2 x n. */
void redist_support(const double *restrict responsible, int64_t m, int64_t n, int64_t first,
                    double coarse, double fine, double *restrict sums)
{
    for (int64_t i = 0; i < m; i++) {
        const double *restrict r = responsible + i * n;
        for (int64_t j = 0; j < n; j++) {
            const double value = j == first + i ? r[j] : (r[j] > 0 ? r[j] : 0);
            const double part = on_grid(value, coarse);
            sums[j] += part;
            sums[n + j] += on_grid(value - part, fine);
        }
    }
}

/* The availabilities after a round, from the sums of columns. */
void redist_avail(const double *restrict responsible, double *restrict available, int64_t m,
                  int64_t n, int64_t first, double damping, const double *restrict columns)
{
    const double rest = 1 - damping;
    for (int64_t i = 0; i < m; i++) {
        const double *restrict r = responsible + i * n;
        double *restrict a = available + i * n;
        const int64_t self = first + i;
        const double own = a[self] * damping - (r[self] - columns[self]) * rest;
        for (int64_t j = 0; j < n; j++) {
            const double lacks = (r[j] > 0 ? r[j] : 0) - columns[j];
            a[j] = a[j] * damping - (lacks > 0 ? lacks : 0) * rest;
        }
        a[self] = own;
    }
}
