/* Meetings of ranks in shared memory. */
#define _GNU_SOURCE
#include "kernels.h"
#include <sched.h>
#include <stddef.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define YIELD_NS 100000         /* who waits longer sleeps */
#define CONTROL_WORD 8          /* 64-bit words in a cache line */
enum { GAVE_UP = 1, LEFT = 2 }; /* as in control_page.py */

static inline void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Sleep until the word at an address changes; wake who sleeps there. */
static void doze(const uint64_t *word, uint64_t seen, int64_t most_ns)
{
#if defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    struct timespec most = {most_ns / 1000000000, most_ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT, (uint32_t)seen, &most, NULL, 0);
#else
    (void)word, (void)seen, (void)most_ns;
    struct timespec pause = {0, 50000};
    nanosleep(&pause, NULL);
#endif
}

static void rouse(const uint64_t *word)
{
#if defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
#else
    (void)word;
#endif
}

/* Say that rank `me` of n has come to meeting `seq` with a word, and wait for the others.
 *
 * control[i] points to the block of rank i: word 0 the last meeting it came to, word 1 GAVE_UP once
 * it has given up or LEFT once its program has ended (which matters where it has not come), words 8
 * and 16 what it said at even and odd meetings. Nobody is ever two meetings
 * ahead, so two words suffice. ALL_SAME means that all said this word, or those in `words`.
 * Everything written before is visible to whoever returns ALL_SAME.
 */
int redist_meet(uint64_t *const *control, int n, int me, uint64_t seq, uint64_t word,
                const uint64_t *words, int64_t wait_ns)
{
    size_t at = CONTROL_WORD * (1 + (seq & 1));
    __atomic_store_n(control[me] + at, word, __ATOMIC_RELAXED);
    __atomic_store_n(control[me], seq, __ATOMIC_SEQ_CST);
    rouse(control[me]);
    int64_t start = 0, tries = 0;
    for (int i = 0; i < n; i++) {
        uint64_t seen;
        while ((seen = __atomic_load_n(control[i], __ATOMIC_ACQUIRE)) < seq) {
            if (++tries < 64) {
                relax();
                continue;
            }
            for (int k = 0; k < n; k++) {
                uint64_t status = __atomic_load_n(control[k] + 1, __ATOMIC_ACQUIRE);
                if (status == GAVE_UP ||
                    (status == LEFT && __atomic_load_n(control[k], __ATOMIC_ACQUIRE) < seq))
                    return ABORTED;
            }
            int64_t t = now_ns();
            start = start ? start : t;
            if (t - start >= wait_ns)
                return NOT_YET;
            if (t - start < YIELD_NS)
                sched_yield();
            else
                doze(control[i], seen, wait_ns - (t - start));
        }
    }
    for (int i = 0; i < n; i++)
        if (__atomic_load_n(control[i] + at, __ATOMIC_RELAXED) != (words ? words[i] : word))
            return DIFFERENT;
    return ALL_SAME;
}
