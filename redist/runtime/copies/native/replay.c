/* A repeated call as one list of operations. */
#include "kernels.h"
#include <stddef.h>
#include <string.h>

/* The number that Python compares, so that it never calls a library built for another version. */
int64_t redist_abi(void) { return ABI; }

/* Run operations until the script is done (ALL_SAME) or cannot go on: an answer of redist_meet,
 * CHANGED where a neighbour describes its arrays otherwise than when the script was written, REFUSED
 * where the kernel does not let us read, or PAUSED where Python meets ranks of other nodes, notes the
 * number of the meeting, and goes on behind the pause. */
int redist_script(script *now)
{
    for (; now->at < now->n_operations; now->at++) {
        const operation *o = now->operations + now->at;
        int is_ahead = o->kind == DESCRIBE || (o->kind == COPY && o->copy.is_ahead);
        uint64_t odd = (now->seq + (uint64_t)is_ahead) & 1;
        char *const *bases = o->tables ? o->tables[odd] : NULL;
        switch (o->kind) {
        case COPY:
            redist_copy(o->copy.moves, o->copy.n_moves, bases, (int)o->copy.streams);
            break;
        case READ:
            if (redist_read((int)o->read.pid, o->read.moves, o->read.n_moves, bases))
                return REFUSED;
            break;
        case COMBINE:
            redist_combine(o->combine.moves, o->combine.n_moves, bases, o->combine.code);
            break;
        case DESCRIBE:
            memcpy(o->description.places[odd], o->description.bytes,
                   (size_t)o->description.n_bytes);
            break;
        case CHECK:
            if (memcmp(o->description.places[odd], o->description.bytes,
                       (size_t)o->description.n_bytes))
                return CHANGED;
            break;
        case MEET:
            now->seq += now->entered ? 0 : 1;
            now->entered = 1;
            int answer = redist_meet(now->control, (int)now->n, (int)now->me, now->seq,
                                     o->meet.word, o->meet.words, now->wait_ns);
            if (answer != ALL_SAME)
                return answer;
            now->entered = 0;
            break;
        case PAUSE:
            return PAUSED;
        }
    }
    return ALL_SAME;
}
