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

/* Add bytes at an offset of the file to the checksums of the blocks that they lie in. */
static void add_up(const file_runs *r, const char *data, int64_t offset, int64_t n)
{
    int64_t at = offset - r->base;
    while (n > 0) {
        int64_t block = at / r->block, end = (block + 1) * r->block;
        int64_t part = at + n < end ? n : end - at;
        if (end > r->size)
            end = r->size;
        r->sums[block] ^= redist_crc_shift(redist_crc(0, data, part), end - at - part);
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

static int64_t one_run(int kind, int file, char *memory, int64_t offset, const file_runs *r)
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
            add_up(r, memory + at, offset + at, n);
        if (kind == WRITE_RUNS ||
            (kind == UPDATE_RUNS && !is_there(file, memory + at, offset + at, n)))
            failed = carry_out(kind, file, memory + at, offset + at, n, r->most);
        if (failed)
            return failed;
    }
    return 0;
}

static int64_t all_runs(int kind, int file, char *memory, int64_t offset, const file_runs *r,
                        int64_t dim)
{
    if (dim == r->n_dims)
        return one_run(kind, file, memory, offset, r);
    for (int64_t i = 0; i < r->count[dim]; i++) {
        int64_t failed = all_runs(kind, file, memory + i * r->memory_step[dim],
                                  offset + i * r->file_step[dim], r, dim + 1);
        if (failed)
            return failed;
    }
    return 0;
}

/* Read, write or check all runs; 0, or minus the number of the system's error. */
int64_t redist_file_runs(int kind, int file, char *memory, const file_runs *runs)
{
    return all_runs(kind, file, memory, runs->offset, runs, 0);
}
