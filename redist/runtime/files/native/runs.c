/* Runs of bytes between memory and a file, each with its part of the checksums, while it is in the cache. */
#define _GNU_SOURCE
#include "files.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define CACHED                                                                                    \
    131072 /* bytes that are checked and written, or read and checked, before the next */

int64_t redist_files_abi(void) { return FILES_ABI; }

/* The runs of a block that were seen one after another, as one message with zeros in the gaps: up to `at`
 * its CRC is `crc`. Gaps are mostly equal, so that x^(8 gap) is known already:
 *
 *     block   aaaa....bbbb....cccc....dddd        crc = (crc(a) * x^(8 gap + 8 run)) ^ crc(b), and so on
 */
typedef struct {
    int64_t block, at, gap;
    uint32_t crc, over_gap;
} message;

static void end_message(const file_runs *r, message *m)
{
    if (m->block < 0)
        return;
    int64_t end = (m->block + 1) * r->block;
    r->sums[m->block] ^= redist_crc_shift(m->crc, (end < r->size ? end : r->size) - m->at);
    m->block = -1;
}

/* Add bytes at an offset of the file to the checksums of the blocks that they lie in. */
static void add_up(const file_runs *r, message *m, const char *data, int64_t offset, int64_t n)
{
    int64_t at = offset - r->base;
    while (n > 0) {
        int64_t block = at / r->block, end = (block + 1) * r->block;
        int64_t part = at + n < end ? n : end - at;
        if (block != m->block || at < m->at) {
            end_message(r, m);
            m->block = block, m->at = at, m->crc = 0;
        }
        if (at - m->at != m->gap)
            m->gap = at - m->at, m->over_gap = redist_crc_power(m->gap);
        if (m->gap)
            m->crc = redist_crc_times(m->crc, m->over_gap);
        m->crc = redist_crc(m->crc, data, part), m->at = at + part;
        data += part, at += part, n -= part;
    }
}

static int64_t carry_out(int kind, int file, char *memory, int64_t offset, int64_t n, int64_t most)
{
    while (n > 0) {
        size_t asked = (size_t)(n < most ? n : most);
        ssize_t done = kind == READ_RUNS ? pread(file, memory, asked, (off_t)offset)
                                         : pwrite(file, memory, asked, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -ENODATA;
        memory += done, offset += done, n -= done;
    }
    return 0;
}

/* Whether the file has these bytes already; at most CACHED of them. */
static int is_there(int file, const char *memory, int64_t offset, int64_t n)
{
    char there[CACHED];
    return pread(file, there, (size_t)n, (off_t)offset) == (ssize_t)n &&
           memcmp(there, memory, (size_t)n) == 0;
}

static int64_t one_run(int kind, int file, char *memory, int64_t offset, const file_runs *r,
                       message *m)
{
    int64_t step =
        r->sums || kind == UPDATE_RUNS ? CACHED : r->run; /* else a run goes as a whole */
    for (int64_t at = 0; at < r->run; at += step) {
        int64_t n = r->run - at < step ? r->run - at : step, failed = 0;
        if (kind == READ_RUNS)
            failed = carry_out(kind, file, memory + at, offset + at, n, r->most);
        if (failed)
            return failed;
        if (r->sums)
            add_up(r, m, memory + at, offset + at, n);
        if (kind == WRITE_RUNS ||
            (kind == UPDATE_RUNS && !is_there(file, memory + at, offset + at, n)))
            failed = carry_out(kind, file, memory + at, offset + at, n, r->most);
        if (failed)
            return failed;
    }
    return 0;
}

static int64_t all_runs(int kind, int file, char *memory, int64_t offset, const file_runs *r,
                        message *m, int64_t dim)
{
    if (dim == r->n_dims)
        return one_run(kind, file, memory, offset, r, m);
    for (int64_t i = 0; i < r->count[dim]; i++) {
        int64_t failed = all_runs(kind, file, memory + i * r->memory_step[dim],
                                  offset + i * r->file_step[dim], r, m, dim + 1);
        if (failed)
            return failed;
    }
    return 0;
}

/* Read, write or check all runs; 0, or minus the number of the system's error. */
int64_t redist_file_runs(int kind, int file, char *memory, const file_runs *runs)
{
    message m = {.block = -1};
    int64_t failed = all_runs(kind, file, memory, runs->offset, runs, &m, 0);
    if (runs->sums)
        end_message(runs, &m);
    return failed;
}
