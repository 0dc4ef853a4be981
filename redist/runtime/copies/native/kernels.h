/* What the kernels share with each other and with Python.
 *
 * Plain C behind ctypes: no Python headers, one shared library for every Python version. The package
 * works without it; this only makes it fast. kernels.py and script.py have the same numbers and
 * structures; whoever changes them here changes ABI in both places.
 */
#ifndef REDIST_KERNELS_H
#define REDIST_KERNELS_H

#include <stdint.h>

#define ABI 2
#define MAX_DIMS 6

/* One box: `block` contiguous bytes, repeated over `n_dims` counts with a stride on either side.
 * copy_list.py writes these as rows of 64-bit integers. */
typedef struct {
    int64_t dst, dst_off, src, src_off, block, n_dims;
    int64_t count[MAX_DIMS], dst_stride[MAX_DIMS], src_stride[MAX_DIMS];
} move;

/* Answers of meetings and of scripts; a script that is done answers ALL_SAME. */
enum { ALL_SAME, DIFFERENT, NOT_YET, ABORTED, CHANGED, REFUSED, PAUSED };

/* Kinds of operations. */
enum { COPY, READ, COMBINE, DESCRIBE, CHECK, MEET, PAUSE };

/* One operation of a script. `tables` are the base addresses for even and for odd meetings. */
typedef struct {
    int64_t kind;
    char *const *const *tables;
    union {
        struct {
            const move *moves;
            int64_t n_moves;
            int64_t is_ahead; /* 1: they belong to the coming meeting */
            int64_t streams;
        } copy;
        struct {
            const move *moves;
            int64_t n_moves;
            int64_t pid;
        } read;
        struct {
            const move *moves;
            int64_t n_moves;
            int64_t code; /* of dtype and reduction */
        } combine;
        struct { /* DESCRIBE writes `bytes` there, CHECK compares */
            char *places[2];
            const char *bytes;
            int64_t n_bytes;
        } description;
        struct {
            uint64_t word;
            const uint64_t *words; /* what each should say; NULL: all the same */
        } meet;
    };
} operation;

/* A script, and where it stands: the next operation, whether its meeting has been entered, and the
 * number of the last meeting. */
typedef struct {
    int64_t at, entered;
    uint64_t seq;
    const operation *operations;
    int64_t n_operations;
    uint64_t *const *control;
    int64_t n, me, wait_ns;
} script;

_Static_assert(sizeof(move) == 8 * (6 + 3 * MAX_DIMS), "a row of copy_list.py");
_Static_assert(sizeof(operation) == 8 * 6, "Operation of script.py");
_Static_assert(sizeof(script) == 8 * 9, "Script of script.py");

int64_t redist_abi(void);
void redist_copy(const move *moves, int64_t n, char *const *bases, int streaming);
void redist_turn(char *d, const char *s, int64_t rows, int64_t columns, int64_t column,
                 int64_t row, int64_t size);
void redist_combine(const move *moves, int64_t n, char *const *bases, int64_t code);
int redist_read(int pid, const move *moves, int64_t n, char *const *bases);
int redist_meet(uint64_t *const *control, int n, int me, uint64_t seq, uint64_t word,
                const uint64_t *words, int64_t wait_ns);
int redist_script(script *now);

#endif
