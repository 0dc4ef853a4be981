/* Copy one run of bytes, going up. */
#ifndef REDIST_RUN_H
#define REDIST_RUN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#if defined(__x86_64__)
/* Past the cache: large results are not read again soon, and lines need not be fetched first. */
static inline void stream_line(char *d, const char *s)
{
    __m128i a = _mm_loadu_si128((const __m128i *)s);
    __m128i b = _mm_loadu_si128((const __m128i *)(s + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(s + 32));
    __m128i e = _mm_loadu_si128((const __m128i *)(s + 48));
    _mm_stream_si128((__m128i *)d, a);
    _mm_stream_si128((__m128i *)(d + 16), b);
    _mm_stream_si128((__m128i *)(d + 32), c);
    _mm_stream_si128((__m128i *)(d + 48), e);
}
#endif

/* Less than a line, without a call. */
static inline void copy_few(char *d, const char *s, size_t n)
{
#define PART(size)                                                                                \
    if (n & size) {                                                                               \
        memcpy(d, s, size);                                                                       \
        d += size, s += size;                                                                     \
    }
    PART(32)
    PART(16)
    PART(8)
    PART(4)
    PART(2)
    PART(1)
#undef PART
}

/* One run. Long ones go up line by line: memcpy copies short runs from both ends, and then ARM's
 * cores do not see that whole lines are written. */
static inline void copy_run(char *d, const char *s, size_t n, int streaming)
{
    size_t head = (size_t)(-(uintptr_t)d) & 63;
    int whole = n >= 64 + head;
#if defined(__x86_64__)
    if (!streaming || !whole) {
        memcpy(d, s, n);
        return;
    }
    copy_few(d, s, head);
    d += head, s += head, n -= head;
    for (; n >= 64; d += 64, s += 64, n -= 64)
        stream_line(d, s);
    copy_few(d, s, n);
#elif defined(__aarch64__)
    (void)streaming;
    if (whole) {
        copy_few(d, s, head);
        d += head, s += head, n -= head;
    }
    for (; n >= 64; d += 64, s += 64, n -= 64) {
        memcpy(d, s, 64);
        __asm__ volatile("" : "+r"(d), "+r"(s)); /* no call of memcpy in the loop's place */
    }
    copy_few(d, s, n);
#else
    (void)streaming, (void)whole;
    memcpy(d, s, n);
#endif
}

/* A short run whose length the compiler knows. */
static inline void copy_short(char *d, const char *s, size_t n, int streaming)
{
#if defined(__x86_64__)
    if (streaming && n % 64 == 0 && (uintptr_t)d % 64 == 0) {
        for (size_t k = 0; k < n; k += 64)
            stream_line(d + k, s + k);
        return;
    }
#endif
    (void)streaming;
    memcpy(d, s, n);
}

/* The line in which one run ends and the next begins at `d`: `end` is where the first ends in the
 * source, `s` where the second begins there. How much of the second is written with it. */
static inline size_t copy_seam(char *d, const char *end, const char *s, int streaming)
{
    size_t left = (uintptr_t)d & 63;
#if defined(__x86_64__)
    if (streaming && left) {
        char line[64];
        memcpy(line, end - left, left);
        memcpy(line + left, s, 64 - left);
        stream_line(d - left, line);
        return 64 - left;
    }
#endif
    (void)s, (void)streaming;
    copy_few(d - left, end - left, left);
    return 0;
}

#endif
