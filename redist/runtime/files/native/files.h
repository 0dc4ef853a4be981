/* What reads, writes and checks files, shared with Python; kernels.py of this package has the same numbers. */
#ifndef REDIST_FILES_H
#define REDIST_FILES_H

#include <stdint.h>

#define FILES_ABI 1
#define FILE_DIMS 12

enum { CHECK_RUNS, READ_RUNS, WRITE_RUNS, UPDATE_RUNS }; /* UPDATE: write only what is different */

/* Runs of bytes that lie one behind the other both in memory and in a file, `run` bytes each, over
 * `n_dims` counts with a step on either side. `offset` is where the first run lies in the file.
 * Checksums, where `sums` is not NULL: one number for each block of `block` bytes of an array that begins
 * at `base` in the file and has `size` bytes; each run is added to the blocks that it lies in. */
typedef struct {
    int64_t offset, run, n_dims, most; /* the system is asked for `most` bytes at a time */
    int64_t count[FILE_DIMS], memory_step[FILE_DIMS], file_step[FILE_DIMS];
    uint32_t *sums;
    int64_t base, size, block;
} file_runs;

uint32_t redist_crc(uint32_t state, const void *data, int64_t n);
uint32_t redist_crc_shift(uint32_t crc, int64_t n);
uint32_t redist_crc_power(int64_t n);
uint32_t redist_crc_times(uint32_t a, uint32_t b);
int64_t redist_file_runs(int kind, int file, char *memory, const file_runs *runs);

#endif
