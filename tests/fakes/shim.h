/* Enough of CUDA to run moves.cu as plain C++: a block's threads take turns between barriers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_SHIM
#define THREAD_BITS 8
#define ME tid
#define PER_THREAD THREADS
#define EACH_THREAD for (u32 tid = 0; tid < THREADS; tid++)
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __syncthreads()
#define __trap() abort()

struct uint2 {
    unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
    unsigned x, y, z, w;
} __attribute__((aligned(16)));

static struct {
    unsigned x;
} blockIdx, gridDim;

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n)
{
    return (unsigned)((((unsigned long long)high << 32) | low) >> (n & 31));
}

static inline float half_to_float(unsigned short h) { return (float)*(_Float16 *)&h; }
static inline unsigned short float_to_half(float x)
{
    _Float16 h = (_Float16)x;
    return *(unsigned short *)&h;
}
