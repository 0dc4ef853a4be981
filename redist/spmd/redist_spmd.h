/* Loops in C that meet the other ranks of their node, for redist.spmd.node_loops. */
#ifndef REDIST_SPMD_H
#define REDIST_SPMD_H

#include <stdint.h>

/* What a loop is called with, as LoopWords of meeting.py. `tiles` are what each of the `n` ranks lets the others read, in
   the order of ranks, that of this one at `me`; `seq` is the number of the next meeting. The other fields are redist's. */
struct redist_ranks {
    int (*meet)(uint64_t *const *control, int n, int me, uint64_t seq, uint64_t word,
                const uint64_t *words, int64_t wait_ns);
    uint64_t *const *control;
    void *const *tiles;
    int64_t n, me, wait_ns;
    uint64_t seq, word;
};

/* Meet all ranks. 0: all have come, and what each wrote before is there to be read. Anything else: return it at once; the
   loop is called again later, and must then come to this same meeting. */
static inline int redist_meet_ranks(struct redist_ranks *ranks)
{
    int answer = ranks->meet(ranks->control, (int)ranks->n, (int)ranks->me, ranks->seq,
                             ranks->word, 0, ranks->wait_ns);
    ranks->seq += answer == 0;
    return answer;
}

#endif
