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

#define INLINE static inline __attribute__((always_inline))

/* Before a short loop over lanes that are held in registers. */
#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

#define LANES_F64 (LANE_BYTES / 8)
#define LANES_F32 (LANE_BYTES / 4)

#if defined(__aarch64__)
#define FUSED(KIND, LANES, BUILTIN) return vfmaq_n_##KIND(sum, other, one)
#else
#define FUSED(KIND, LANES, BUILTIN)                                                               \
    lanes_##KIND out;                                                                             \
    for (int c = 0; c < LANES; c++)                                                               \
        out[c] = BUILTIN(one, other[c], sum[c]);                                                  \
    return out
#endif

/* Lanes of a kind of numbers, `loose` as they lie among others: loaded, stored, one number times all of them fused with
   an addition, each of one where a truth is all ones and else of the other, and lanes so many places away from each
   other that change places. */
#define KIND_OF_LANES(KIND, LANES, T, PLACE, BUILTIN)                                             \
    typedef T lanes_##KIND __attribute__((vector_size(LANE_BYTES)));                              \
    typedef PLACE places_##KIND __attribute__((vector_size(LANE_BYTES)));                         \
    typedef lanes_##KIND loose_##KIND __attribute__((aligned(sizeof(T)), may_alias));             \
                                                                                                  \
    INLINE lanes_##KIND load_##KIND(const T *from) { return *(const loose_##KIND *)from; }        \
                                                                                                  \
    INLINE void store_##KIND(T *to, lanes_##KIND from) { *(loose_##KIND *)to = from; }            \
                                                                                                  \
    INLINE lanes_##KIND fused_##KIND(T one, lanes_##KIND other, lanes_##KIND sum)                 \
    {                                                                                             \
        FUSED(KIND, LANES, BUILTIN);                                                              \
    }                                                                                             \
                                                                                                  \
    INLINE lanes_##KIND chosen_##KIND(places_##KIND truth, lanes_##KIND one, lanes_##KIND other)  \
    {                                                                                             \
        return (lanes_##KIND)((truth & (places_##KIND)one) | (~truth & (places_##KIND)other));    \
    }                                                                                             \
                                                                                                  \
    INLINE lanes_##KIND across_##KIND(lanes_##KIND of, int away)                                  \
    {                                                                                             \
        lanes_##KIND out;                                                                         \
        for (int l = 0; l < LANES; l++)                                                           \
            out[l] = of[l ^ away];                                                                \
        return out;                                                                               \
    }

KIND_OF_LANES(f64, LANES_F64, double, int64_t, __builtin_fma)
KIND_OF_LANES(f32, LANES_F32, float, int32_t, __builtin_fmaf)

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
