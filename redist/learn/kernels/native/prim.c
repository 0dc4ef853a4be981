/* Prim's algorithm on the rows of ranks that share a node: each step takes the nearest point outside into a tree. */
#include "lanes.h"
#include "learn.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define PART 64 /* points of which the nearest is known, as PART in spanning_tree.py */

enum { SIDE = 4 * LANES_F64 }; /* points that are looked at together */

enum { REACH, NUMBER, NEAREST, CORE, POINT }; /* how a point is told */
enum { COUNT, OFFERED, DONE, WAITS };         /* what goes on from call to call */

/* The points of one rank outside the tree, the first state[COUNT] of a multiple of PART places: the columns of
   each PART, how far each is from the tree, which point of the tree is nearest, its core distance, its number, the squared
   distance from which on a new point of the tree cannot matter to it (negative where nothing can, and where no point is),
   and the least reach of each PART. state[OFFERED] is the place of the point that was offered last, state[DONE] how many
   steps are done, state[WAITS] whether this rank has offered and others have not. */
struct outside {
    double *columns, *reach;
    int64_t *nearest;
    double *core;
    int64_t *number;
    double *limit, *least;
    int64_t d, *state;
};

/* How far points are apart: their distance over alpha, infinite above `most`; at least the core distance of the point of
   the tree, and with `both` of the other; rounded to whole units of 1 / unit if there is a unit. Squares are added dim
   by dim, fused with the additions or not, then the root is taken. */
struct apart {
    double alpha, most, unit;
    int64_t both, fused;
};

/* Where a column of a point is. */
INLINE double *place(const struct outside *o, int64_t at, int64_t column)
{
    return o->columns + (at / PART * o->d + column) * PART + at % PART;
}

/* Find the least reach of a PART; where no point is, it is infinite. */
static void find_least(const struct outside *o, int64_t part)
{
    const double *reach = o->reach + part * PART;
    lanes_f64 least[4];
    for (int c = 0; c < 4; c++)
        least[c] = load_f64(reach + c * LANES_F64);
    for (int64_t i = SIDE; i < PART; i += SIDE)
        for (int c = 0; c < 4; c++)
            least[c] = smaller_f64(least[c], load_f64(reach + i + c * LANES_F64));
    least[0] = smaller_f64(smaller_f64(least[0], least[1]), smaller_f64(least[2], least[3]));
    double out = least[0][0];
    for (int l = 1; l < LANES_F64; l++)
        out = least[0][l] < out ? least[0][l] : out;
    o->least[part] = out;
}

/* The point offered last leaves if the tree grew by it; the last takes its place. */
static void take(const struct outside *o, const double *added)
{
    const int64_t at = o->state[OFFERED];
    if (at < 0 || o->number[at] != (int64_t)added[NUMBER])
        return;
    const int64_t last = --o->state[COUNT];
    for (int64_t j = 0; j < o->d; j++)
        *place(o, at, j) = *place(o, last, j);
    o->reach[at] = o->reach[last];
    o->nearest[at] = o->nearest[last];
    o->core[at] = o->core[last];
    o->number[at] = o->number[last];
    o->limit[at] = o->limit[last];
    o->reach[last] = INFINITY;
    o->limit[last] = -1;
    o->state[OFFERED] = -1;
    find_least(o, last / PART);
    if (at / PART != last / PART)
        find_least(o, at / PART);
}

/* Squared distances of SIDE points from one; whether one of them may matter. */
INLINE int look(const struct outside *o, int64_t lo, const double *point, int is_fused,
                double *far)
{
    lanes_f64 sum[4] = {{0}};
    const double *columns = place(o, lo, 0);
    for (int64_t j = 0; j < o->d; j++)
        for (int c = 0; c < 4; c++) {
            const lanes_f64 apart = point[j] - load_f64(columns + j * PART + c * LANES_F64);
            sum[c] = is_fused ? fused_lanes(apart, apart, sum[c]) : sum[c] + apart * apart;
        }
    places_f64 matters = {0};
    for (int c = 0; c < 4; c++) {
        matters |= sum[c] <= load_f64(o->limit + lo + c * LANES_F64);
        store_f64(far + c * LANES_F64, sum[c]);
    }
    int64_t any = 0;
    for (int l = 0; l < LANES_F64; l++)
        any |= matters[l];
    return any != 0;
}

/* Let a point be as near to the tree as it is to the point that it has grown by, so far away by squares. */
INLINE void come_nearer(const struct outside *o, int64_t at, double far, const double *added,
                        const struct apart *how)
{
    const double slack = how->unit > 0 ? 1 / how->unit : 0;
    double apart = how->alpha == 1 ? sqrt(far) : sqrt(far) / how->alpha;
    apart = apart > how->most ? INFINITY : apart;
    if (how->both)
        apart = apart > o->core[at] ? apart : o->core[at];
    apart = apart > added[CORE] ? apart : added[CORE];
    if (how->unit > 0)
        apart = rint(apart * how->unit) / how->unit;
    if (!(apart < o->reach[at]))
        return;
    o->reach[at] = apart;
    o->nearest[at] = (int64_t)added[NUMBER];
    o->limit[at] = (apart + slack) * (apart + slack) * (how->alpha * how->alpha * (1 + 1e-12));
    if (how->both && apart <= o->core[at])
        o->limit[at] = -1; /* nearer it cannot be */
}

/* Let all points come nearer. A root is only taken where the squares say that it may matter: they are held against more
   than rounding can take away. */
INLINE void approach(const struct outside *o, const double *added, const struct apart *how,
                     int is_fused)
{
    for (int64_t part = 0; part * PART < o->state[COUNT]; part++) {
        int has_come = 0;
        for (int64_t lo = part * PART; lo < (part + 1) * PART; lo += SIDE) {
            double far[SIDE];
            if (!look(o, lo, added + POINT, is_fused, far))
                continue;
            has_come = 1;
            for (int64_t i = 0; i < SIDE; i++)
                if (far[i] <= o->limit[lo + i])
                    come_nearer(o, lo + i, far[i], added, how);
        }
        if (has_come)
            find_least(o, part);
    }
}

FOR_THIS_CPU void redist_approach_fused(const struct outside *o, const double *added,
                                        const struct apart *how)
{
    approach(o, added, how, 1);
}

FOR_THIS_CPU void redist_approach(const struct outside *o, const double *added,
                                  const struct apart *how)
{
    approach(o, added, how, 0);
}

/* Write the nearest point: of several the one with the lowest number, infinitely far with no number if there is none. */
static void offer_nearest(const struct outside *o, double *offer)
{
    const int64_t m = o->state[COUNT], parts = (m + PART - 1) / PART;
    int64_t best = -1;
    double least = INFINITY;
    for (int64_t part = 0; part < parts; part++)
        least = o->least[part] < least ? o->least[part] : least;
    for (int64_t part = 0; part < parts; part++) {
        if (o->least[part] > least)
            continue;
        const int64_t hi = m < (part + 1) * PART ? m : (part + 1) * PART;
        for (int64_t i = part * PART; i < hi; i++)
            if (o->reach[i] == least && (best < 0 || o->number[i] < o->number[best]))
                best = i;
    }
    o->state[OFFERED] = best;
    offer[REACH] = offer[NUMBER] = INFINITY;
    if (best < 0)
        return;
    offer[REACH] = o->reach[best];
    offer[NUMBER] = (double)o->number[best];
    offer[NEAREST] = (double)o->nearest[best];
    offer[CORE] = o->core[best];
    for (int64_t j = 0; j < o->d; j++)
        offer[POINT + j] = *place(o, best, j);
}

/* Where a rank tells of a point. */
static double *told_by(const struct redist_ranks *ranks, int64_t rank, int64_t at)
{
    return (double *)ranks->tiles[rank] + at;
}

/* The nearest of what the ranks offer, of several the one with the lowest number. */
static const double *nearest_offer(const struct redist_ranks *ranks, int64_t at)
{
    const double *best = told_by(ranks, 0, at);
    for (int64_t rank = 1; rank < ranks->n; rank++) {
        const double *other = told_by(ranks, rank, at);
        if (other[REACH] < best[REACH] ||
            (other[REACH] == best[REACH] && other[NUMBER] < best[NUMBER]))
            best = other;
    }
    return best;
}

/* Let the tree grow from state[DONE] points to `steps`: `added` is the point that it has grown by, then each time the
   nearest of all that were outside; `found` (rows of 3) has of each how far it was, its number, and the nearest point of
   the tree. Each rank's tile has room for two points: one is read while the next is written. Without `ranks` there are
   no others. Returns what the last meeting answered: a call goes on where the one before it had to wait. */
int redist_grow(const struct outside *o, const struct apart *how, double *added, double *found,
                int64_t steps, struct redist_ranks *ranks)
{
    const int64_t width = o->d + POINT;
    while (o->state[DONE] < steps) {
        const int64_t at = ranks ? (int64_t)(ranks->seq & 1) * width : 0;
        if (!o->state[WAITS]) {
            take(o, added);
            if (!isinf(added[CORE]))
                (how->fused ? redist_approach_fused : redist_approach)(o, added, how);
            offer_nearest(o, ranks ? told_by(ranks, ranks->me, at) : added);
        }
        if (ranks) {
            o->state[WAITS] = 1;
            const int answer = redist_meet_ranks(ranks);
            if (answer)
                return answer;
            memcpy(added, nearest_offer(ranks, at), sizeof(double) * (size_t)width);
            o->state[WAITS] = 0;
        }
        memcpy(found + 3 * ++o->state[DONE], added, 3 * sizeof(double));
    }
    return 0;
}
