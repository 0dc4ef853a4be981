/* Components of a graph that comes as lists of neighbours, a part at a time. */
#include "learn.h"

static int64_t root_of(int64_t *parent, int64_t at)
{
    while (parent[at] != at) {
        parent[at] = parent[parent[at]];
        at = parent[at];
    }
    return at;
}

/* Items first, first + 1, ... have neighbours ends[0] .. ends[1], ends[1] .. ends[2], ... of `indices`: join the parts of
   those that are marked with their marked neighbours. The lower root stays. */
void redist_join(const int64_t *restrict ends, const int32_t *restrict indices, int64_t first,
                 int64_t n, const uint8_t *restrict marked, int64_t *restrict parent)
{
    for (int64_t i = 0; i < n; i++) {
        if (!marked[first + i])
            continue;
        int64_t root = root_of(parent, first + i);
        for (int64_t e = ends[i]; e < ends[i + 1]; e++) {
            if (!marked[indices[e]])
                continue;
            const int64_t other = root_of(parent, indices[e]);
            if (other < root) {
                parent[root] = other;
                root = other;
            } else
                parent[other] = root;
        }
    }
}
