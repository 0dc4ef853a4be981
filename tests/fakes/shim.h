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

static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which)
{
    unsigned long long both = ((unsigned long long)high << 32) | low;
    unsigned out = 0;
    for (int k = 0; k < 4; k++)
        out |= (unsigned)(both >> 8 * (which >> 4 * k & 7) & 255) << 8 * k;
    return out;
}

/* Halves by arithmetic on bits: not every compiler knows a type for them. */
static inline float half_to_float(unsigned short h)
{
    unsigned exponent = h >> 10 & 31, fraction = h & 1023, bits;
    float x;
    if (exponent == 0) {
        x = (float)fraction / 16777216.0f; /* units of 2^-24, exact */
        return h >> 15 ? -x : x;
    }
    bits = (unsigned)(h >> 15) << 31 | fraction << 13;
    bits |= exponent == 31 ? 255u << 23 : (exponent + 112) << 23;
    memcpy(&x, &bits, 4);
    return x;
}

/* Rounded to nearest, ties to even, as everywhere. */
static inline unsigned short float_to_half(float x)
{
    unsigned bits, size;
    memcpy(&bits, &x, 4);
    size = bits & 0x7fffffff;
    bits = bits >> 16 & 0x8000;
    if (size > 0x7f800000) /* no number */
        return (unsigned short)(bits | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x47800000) /* 2^16 and more */
        return (unsigned short)(bits | 0x7c00);
    if (size < 0x38800000) { /* below 2^-14: the sum has the unit 2^-24 */
        float sum;
        memcpy(&sum, &size, 4);
        sum += 0.5f;
        memcpy(&size, &sum, 4);
        return (unsigned short)(bits | (size - 0x3f000000));
    }
    size += 0xfff + (size >> 13 & 1);
    return (unsigned short)(bits | (size - (112u << 23)) >> 13);
}
