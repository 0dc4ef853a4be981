/* Put before moves.cu: what is there is combined with what comes.
 *
 * ITEM is the element's type, OP the operation (a name of the enum below), KIND_OF_ITEM how values are
 * computed with: 0 as they are, 1 as whole numbers that wrap, 2 as truth values, 3 as half and 4 as
 * bfloat floats kept in 16 bits, 5 as complex numbers, 6 as bytes whose results stand in TABLE, 8 to a
 * word.
 */
template <class T> __device__ __forceinline__ T plus(T a, T b) { return a + b; }
template <class T> __device__ __forceinline__ T minus(T a, T b) { return a - b; }
template <class T> __device__ __forceinline__ T times(T a, T b) { return a * b; }
template <class T> __device__ __forceinline__ bool at_least(T a, T b) { return a >= b; }

#ifndef HOST_SHIM
/* Written out: compilers are often told to take small floats for zero. */
#define EXACTLY(name, instruction)                                                                \
    __device__ __forceinline__ float name(float a, float b)                                       \
    {                                                                                             \
        float x;                                                                                  \
        asm(instruction " %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));                               \
        return x;                                                                                 \
    }
EXACTLY(plus, "add.rn.f32")
EXACTLY(minus, "sub.rn.f32")
EXACTLY(times, "mul.rn.f32")
__device__ __forceinline__ bool at_least(float a, float b)
{
    unsigned x;
    asm("{.reg .pred p; setp.ge.f32 p, %1, %2; selp.u32 %0, 1, 0, p;}" : "=r"(x) : "f"(a), "f"(b));
    return x;
}
__device__ __forceinline__ float half_to_float(unsigned short h)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
__device__ __forceinline__ unsigned short float_to_half(float x)
{
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
#endif

union Bits32 {
    unsigned bits;
    float value;
};

struct Complex64 {
    float re, im;
};
struct Complex128 {
    double re, im;
};

enum { SUM, PROD, MAX, MIN };

template <int KIND> struct Real;

template <> struct Real<3> {
    static __device__ __forceinline__ float of(unsigned short h) { return half_to_float(h); }
    static __device__ __forceinline__ unsigned short to(float x) { return float_to_half(x); }
};

template <> struct Real<4> {
    static __device__ __forceinline__ float of(unsigned short h)
    {
        Bits32 x;
        x.bits = (unsigned)h << 16;
        return x.value;
    }
    static __device__ __forceinline__ unsigned short to(float value)
    {
        Bits32 x;
        x.value = value;
        if (value != value)
            return (unsigned short)((x.bits >> 16 & 0x8000) | 0x7fc0);
        return (unsigned short)((x.bits + 0x7fff + (x.bits >> 16 & 1)) >> 16);
    }
};

/* NaN wins, as in NumPy's maximum and minimum. */
template <int OP, class T> __device__ __forceinline__ bool keeps(T a, T b)
{
    return (OP == MAX ? at_least(a, b) : at_least(b, a)) || a != a;
}

template <int OP, int KIND, class T> __device__ __forceinline__ T combined(T a, T b)
{
    if constexpr (KIND == 5) {
        T out;
        if constexpr (OP == SUM) {
            out.re = plus(a.re, b.re), out.im = plus(a.im, b.im);
        } else {
            out.re = minus(times(a.re, b.re), times(a.im, b.im));
            out.im = plus(times(a.re, b.im), times(a.im, b.re));
        }
        return out;
    } else if constexpr (KIND == 3 || KIND == 4) {
        float x = Real<KIND>::of(a), y = Real<KIND>::of(b);
        if constexpr (OP == MAX || OP == MIN)
            return keeps<OP>(x, y) ? a : b;
        else
            return Real<KIND>::to(OP == SUM ? plus(x, y) : times(x, y));
    } else if constexpr (KIND == 6) {
#if KIND_OF_ITEM == 6
        return ((const unsigned char *)TABLE)[(unsigned)a << 8 | b];
#endif
    } else if constexpr (KIND == 2) {
        return OP == SUM || OP == MAX ? (a || b) : (a && b);
    } else if constexpr (OP == MAX || OP == MIN) {
        return keeps<OP>(a, b) ? a : b;
    } else if constexpr (KIND == 1) {
        unsigned long long x = (unsigned long long)a, y = (unsigned long long)b;
        return (T)(OP == SUM ? x + y : x * y);
    } else {
        return OP == SUM ? plus(a, b) : times(a, b);
    }
}

template <class W> __device__ __forceinline__ W folded(W old, W come)
{
    constexpr int n = (int)(sizeof(W) / sizeof(ITEM));
    union Items {
        W word;
        ITEM item[n ? n : 1];
    } a, b;
    a.word = old, b.word = come;
#pragma unroll
    for (int k = 0; k < n; k++)
        a.item[k] = combined<OP, KIND_OF_ITEM, ITEM>(a.item[k], b.item[k]);
    return a.word;
}

#define FOLD(W, old, come) folded<W>(old, come)
