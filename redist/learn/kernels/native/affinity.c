/* A round of affinity propagation on rows first, first + 1, ... of n x n matrices: similarities, availabilities and
   responsibilities. Rows go through the processor's caches once a round: the availabilities of a round are renewed on
   the way to the responsibilities of the next one. Few responsibilities are above 0; `speaks` says of every PART of a
   row whether one of them is, and where none is there is less to do. */
#include "lanes.h"
#include "learn.h"

#include <math.h>
#include <stddef.h>

#define PART 64 /* numbers that are looked at together, as IN_C in messages.py */

static inline double larger(double one, double other) { return one > other ? one : other; }

/* The numbers of a row are worked on SIDE at a time, those at its end one by one. */
enum { SIDE = 4 * LANES_F64 };

/* The largest of a part of a row. */
static double largest(const double *restrict x, int64_t n)
{
    double most = -INFINITY;
    for (int64_t j = 0; j < n; j++)
        most = larger(most, x[j]);
    return most;
}

/* A part of a row: availabilities renewed, if there are new sums of columns, and their sums with similarities; returns
   the largest. `lacks` are what availabilities lack where no responsibility is above 0. */
INLINE double renew(double *restrict a, const double *restrict r, const double *restrict s,
                    const double *restrict columns, const double *restrict lacks, int64_t n,
                    double damping, int is_new, int speaks, double *restrict both)
{
    const double rest = 1 - damping;
    const lanes_f64 none = {0};
    lanes_f64 high[4];
    for (int c = 0; c < 4; c++)
        high[c] = none - INFINITY;
    int64_t j = 0;
    for (; j + SIDE <= n; j += SIDE)
        for (int c = 0; c < 4; c++) {
            const int64_t at = j + c * LANES_F64;
            lanes_f64 here = load_f64(a + at);
            if (is_new) {
                lanes_f64 less = load_f64(lacks + at);
                if (speaks)
                    less = larger_f64(larger_f64(load_f64(r + at), none) - load_f64(columns + at),
                                      none) *
                           rest;
                here = here * damping - less;
                store_f64(a + at, here);
            }
            here += load_f64(s + at);
            store_f64(both + at, here);
            high[c] = larger_f64(high[c], here);
        }
    double most =
        largest_f64(larger_f64(larger_f64(high[0], high[1]), larger_f64(high[2], high[3])));
    for (; j < n; j++) {
        if (is_new)
            a[j] = a[j] * damping - larger(larger(r[j], 0) - columns[j], 0) * rest;
        both[j] = a[j] + s[j];
        most = larger(most, both[j]);
    }
    return most;
}

/* A part of a row: responsibilities after a round, but for the place of the largest; returns the largest. */
INLINE double answer(double *restrict r, const double *restrict s, int64_t n, double best,
                     double damping)
{
    const double rest = 1 - damping;
    lanes_f64 high[4];
    for (int c = 0; c < 4; c++)
        high[c] = (lanes_f64){0} - INFINITY;
    int64_t j = 0;
    for (; j + SIDE <= n; j += SIDE)
        for (int c = 0; c < 4; c++) {
            const int64_t at = j + c * LANES_F64;
            const lanes_f64 here = load_f64(r + at) * damping + (load_f64(s + at) - best) * rest;
            store_f64(r + at, here);
            high[c] = larger_f64(high[c], here);
        }
    double most =
        largest_f64(larger_f64(larger_f64(high[0], high[1]), larger_f64(high[2], high[3])));
    for (; j < n; j++) {
        r[j] = r[j] * damping + (s[j] - best) * rest;
        most = larger(most, r[j]);
    }
    return most;
}

/* The responsibilities after a round, once availabilities are renewed from the sums of columns, if there are any: `room`
   has place for 2 n numbers. Returns the largest magnitude of what will be added up. */
FOR_THIS_CPU double redist_respond(const double *restrict similar, double *restrict available,
                                   double *restrict responsible, int64_t m, int64_t n,
                                   int64_t first, double damping, const double *restrict columns,
                                   int8_t *restrict speaks, double *restrict room)
{
    const double rest = 1 - damping;
    const int64_t parts = (n + PART - 1) / PART;
    const double *totals = columns ? columns : room;
    double *restrict lacks = room, *restrict both = room + n, most = 0;
    for (int64_t j = 0; columns && j < n; j++)
        lacks[j] = larger(0 - columns[j], 0) * rest;
    for (int64_t i = 0; i < m; i++) {
        const double *restrict s = similar + i * n;
        double *restrict a = available + i * n, *restrict r = responsible + i * n;
        int8_t *restrict speak = speaks + i * parts;
        const int64_t self = first + i;
        double own = a[self], best = -INFINITY, second = -INFINITY;
        int64_t at = 0;
        if (columns != NULL)
            own = own * damping - (r[self] - columns[self]) * rest;
        for (int64_t p = 0; p < parts; p++) {
            const int64_t lo = p * PART, size = n - lo < PART ? n - lo : PART;
            double high = size == PART
                              ? renew(a + lo, r + lo, s + lo, totals + lo, lacks + lo, PART,
                                      damping, columns != NULL, speak[p], both + lo)
                              : renew(a + lo, r + lo, s + lo, totals + lo, lacks + lo, size,
                                      damping, columns != NULL, speak[p], both + lo);
            if (self >= lo && self < lo + size) {
                a[self] = own;
                both[self] = own + s[self];
                high = largest(both + lo, size);
            }
            if (high <= second)
                continue;
            for (int64_t j = lo; j < lo + size; j++)
                if (both[j] > best) {
                    second = best;
                    best = both[j];
                    at = j;
                } else
                    second = larger(second, both[j]);
        }
        const double before = r[at];
        for (int64_t p = 0; p < parts; p++) {
            const int64_t lo = p * PART, size = n - lo < PART ? n - lo : PART;
            double high = size == PART ? answer(r + lo, s + lo, PART, best, damping)
                                       : answer(r + lo, s + lo, size, best, damping);
            if (at >= lo && at < lo + size) {
                r[at] = before * damping + (s[at] - second) * rest;
                high = largest(r + lo, size);
            }
            speak[p] = high > 0;
            most = larger(most, high);
        }
        most = larger(most, fabs(r[self]));
    }
    return most;
}

INLINE void add(double value, double coarse, double fine, double *high, double *low)
{
    const double part = on_grid(value, coarse);
    *high += part;
    *low += on_grid(value - part, fine);
}

/* Whether one of SIDE numbers is above 0. */
INLINE int is_one_above(const double *x)
{
    places_f64 above = {0};
    for (int c = 0; c < 4; c++)
        above |= load_f64(x + c * LANES_F64) > (lanes_f64){0};
    int64_t any = 0;
    for (int l = 0; l < LANES_F64; l++)
        any |= above[l];
    return any != 0;
}

/* Exact sums of columns: of responsibilities above 0, and of each point's for itself. `sums` is 2 x n. */
FOR_THIS_CPU void redist_support(const double *restrict responsible, int64_t m, int64_t n,
                                 int64_t first, const int8_t *restrict speaks, double coarse,
                                 double fine, double *restrict sums)
{
    const int64_t parts = (n + PART - 1) / PART;
    double *restrict high = sums, *restrict low = sums + n;
    for (int64_t i = 0; i < m; i++) {
        const double *restrict r = responsible + i * n;
        const int64_t self = first + i;
        for (int64_t p = 0; p < parts; p++) {
            const int64_t hi = n < (p + 1) * PART ? n : (p + 1) * PART;
            for (int64_t lo = speaks[i * parts + p] ? p * PART : hi; lo < hi; lo += SIDE) {
                if (lo + SIDE <= hi && !is_one_above(r + lo))
                    continue;
                for (int64_t j = lo; j < lo + SIDE && j < hi; j++)
                    if (r[j] > 0)
                        add(r[j], coarse, fine, high + j, low + j);
            }
        }
        if (r[self] <= 0)
            add(r[self], coarse, fine, high + self, low + self);
    }
}
