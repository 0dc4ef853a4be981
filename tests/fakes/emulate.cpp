/* Read cases from a file, run each as a grid of blocks, write the buffers back to another file. */
#include "shim.h"
#include <sys/mman.h>
#include KERNEL

static FILE *in, *out;

/* Chunks of a buffer begin so many bytes apart; 0: it is in one piece. */
#define CHUNK 4096
static int64_t apart;

static char *room(int64_t size, int64_t phase)
{
    if (!apart)
        return (char *)malloc((size_t)(size + phase));
    void *p = mmap(0, (size_t)(size / CHUNK * apart + CHUNK), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        exit(4);
    return (char *)p;
}

static void leave(char *p, int64_t size)
{
    if (!apart)
        free(p);
    else
        munmap(p, (size_t)(size / CHUNK * apart + CHUNK));
}

static int64_t number()
{
    int64_t x;
    if (fread(&x, 8, 1, in) != 1)
        exit(3);
    return x;
}

static void *bytes(size_t n)
{
    void *p = malloc(n ? n : 1);
    if (n && fread(p, 1, n, in) != n)
        exit(3);
    return p;
}

int main(int argc, char **argv)
{
    in = fopen(argv[1], "rb"), out = fopen(argv[2], "wb");
    apart = argc > 3 ? atoll(argv[3]) : 0;
    for (int64_t cases = number(); cases > 0; cases--) {
        int64_t n = number(), sizes[4096];
        char *memory[4096];
        Bases few;
        u64 *many = (u64 *)malloc((size_t)n * 8);
        for (int64_t k = 0; k < n; k++) {
            sizes[k] = number();
            int64_t phase = number();
            memory[k] = room(sizes[k], phase);
            int64_t step = apart ? CHUNK : sizes[k];
            for (int64_t at = 0; at < sizes[k]; at += step)
                if (fread(memory[k] + phase + at / CHUNK * apart, 1, (size_t)step, in) !=
                    (size_t)step)
                    exit(3);
            many[k] = (u64)(memory[k] + phase);
            if (k < INLINE_BASES)
                few.at[k] = many[k];
        }
        for (int64_t launches = number(); launches > 0; launches--) {
            gridDim.x = (unsigned)number();
            int64_t shift = number(), n_tiles = number();
            Row *rows = (Row *)bytes((size_t)number());
            Shape *shapes = (Shape *)bytes((size_t)number());
            Member *members = (Member *)bytes((size_t)number());
            u32 *hints = (u32 *)bytes((size_t)number());
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
                redist_copy(rows, shapes, members, hints, (u32)shift, (u32)n_tiles,
                            n > INLINE_BASES ? many : 0, few);
            free(rows), free(shapes), free(members), free(hints);
        }
        for (int64_t k = 0; k < n; k++) {
            int64_t step = apart ? CHUNK : sizes[k];
            for (int64_t at = 0; at < sizes[k]; at += step)
                fwrite((char *)many[k] + at / CHUNK * apart, 1, (size_t)step, out);
            leave(memory[k], sizes[k]);
        }
        free(many);
    }
    fclose(in), fclose(out);
    return 0;
}
