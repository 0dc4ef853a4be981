/* Numbers side by side in one register, and a product of one number with all of them, fused with an addition. */
#ifndef REDIST_LANES_H
#define REDIST_LANES_H

#include <stdint.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__x86_64__)
#define LANE_BYTES 32
#else
#define LANE_BYTES 16
#endif

typedef double lanes_f64 __attribute__((vector_size(LANE_BYTES)));
typedef float lanes_f32 __attribute__((vector_size(LANE_BYTES)));
typedef int64_t places_f64 __attribute__((vector_size(LANE_BYTES)));
typedef int32_t places_f32 __attribute__((vector_size(LANE_BYTES)));
#define LANES_F64 (LANE_BYTES / 8)
#define LANES_F32 (LANE_BYTES / 4)

#define INLINE static inline __attribute__((always_inline))

/* Before a short loop over lanes that are held in registers. */
#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

/* As they lie among other numbers. */
typedef lanes_f64 loose_f64 __attribute__((aligned(8), may_alias));
typedef lanes_f32 loose_f32 __attribute__((aligned(4), may_alias));

INLINE lanes_f64 load_f64(const double *from) { return *(const loose_f64 *)from; }

INLINE lanes_f32 load_f32(const float *from) { return *(const loose_f32 *)from; }

INLINE void store_f64(double *to, lanes_f64 from) { *(loose_f64 *)to = from; }

INLINE lanes_f64 fused_f64(double one, lanes_f64 other, lanes_f64 sum)
{
#if defined(__aarch64__)
    return vfmaq_n_f64(sum, other, one);
#else
    lanes_f64 out;
    for (int c = 0; c < LANES_F64; c++)
        out[c] = __builtin_fma(one, other[c], sum[c]);
    return out;
#endif
}

INLINE lanes_f64 fused_lanes(lanes_f64 one, lanes_f64 other, lanes_f64 sum)
{
#if defined(__aarch64__)
    return vfmaq_f64(sum, other, one);
#else
    lanes_f64 out;
    for (int c = 0; c < LANES_F64; c++)
        out[c] = __builtin_fma(one[c], other[c], sum[c]);
    return out;
#endif
}

INLINE lanes_f32 fused_f32(float one, lanes_f32 other, lanes_f32 sum)
{
#if defined(__aarch64__)
    return vfmaq_n_f32(sum, other, one);
#else
    lanes_f32 out;
    for (int c = 0; c < LANES_F32; c++)
        out[c] = __builtin_fmaf(one, other[c], sum[c]);
    return out;
#endif
}

/* Each of one where a truth is all ones, else of the other. */
INLINE lanes_f64 chosen_f64(places_f64 truth, lanes_f64 one, lanes_f64 other)
{
    return (lanes_f64)((truth & (places_f64)one) | (~truth & (places_f64)other));
}

INLINE lanes_f32 chosen_f32(places_f32 truth, lanes_f32 one, lanes_f32 other)
{
    return (lanes_f32)((truth & (places_f32)one) | (~truth & (places_f32)other));
}

/* Lanes and those so many places away change places. */
INLINE lanes_f64 across_f64(lanes_f64 of, int away)
{
    lanes_f64 out;
    for (int l = 0; l < LANES_F64; l++)
        out[l] = of[l ^ away];
    return out;
}

INLINE lanes_f32 across_f32(lanes_f32 of, int away)
{
    lanes_f32 out;
    for (int l = 0; l < LANES_F32; l++)
        out[l] = of[l ^ away];
    return out;
}

/* The larger one of each two. */
INLINE lanes_f64 larger_f64(lanes_f64 one, lanes_f64 other)
{
#if defined(__aarch64__)
    return vmaxnmq_f64(one, other);
#else
    return chosen_f64(one > other, one, other);
#endif
}

INLINE lanes_f64 smaller_f64(lanes_f64 one, lanes_f64 other) { return -larger_f64(-one, -other); }

INLINE double largest_f64(lanes_f64 of)
{
    double out = of[0];
    for (int l = 1; l < LANES_F64; l++)
        out = of[l] > out ? of[l] : out;
    return out;
}

#endif
