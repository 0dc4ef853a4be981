/* Read cases from a file, run each as a grid of blocks, write the buffers back to another file. */
#include "shim.h"
#include KERNEL

static FILE *in, *out;

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
    in = fopen(argv[1], "rb"), out = fopen(argv[argc - 1], "wb");
    for (int64_t cases = number(); cases > 0; cases--) {
        int64_t n = number(), sizes[512];
        char *memory[512];
        Bases few;
        u64 *many = (u64 *)malloc((size_t)n * 8);
        for (int64_t k = 0; k < n; k++) {
            sizes[k] = number();
            int64_t phase = number();
            memory[k] = (char *)malloc((size_t)(sizes[k] + phase));
            if (fread(memory[k] + phase, 1, (size_t)sizes[k], in) != (size_t)sizes[k])
                exit(3);
            many[k] = (u64)(memory[k] + phase);
            if (k < INLINE_BASES)
                few.at[k] = many[k];
        }
        gridDim.x = (unsigned)number();
        int64_t shift = number(), n_tiles = number();
        Row *rows = (Row *)bytes((size_t)number());
        Shape *shapes = (Shape *)bytes((size_t)number());
        Member *members = (Member *)bytes((size_t)number());
        u32 *hints = (u32 *)bytes((size_t)number());
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
            redist_copy(rows, shapes, members, hints, (u32)shift, (u32)n_tiles,
                        n > INLINE_BASES ? many : 0, few);
        for (int64_t k = 0; k < n; k++) {
            fwrite((char *)many[k], 1, (size_t)sizes[k], out);
            free(memory[k]);
        }
        free(many), free(rows), free(shapes), free(members), free(hints);
    }
    fclose(in), fclose(out);
    return 0;
}
