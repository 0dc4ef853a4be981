/* CRC-32, with the polynomial of zlib, as arithmetic on polynomials over two elements.
 *
 * A message is a polynomial M, and its plain CRC is M * x^32 mod P: no start value, nothing inverted. So it is
 * linear: the CRC of a block is the sum (xor) of what its parts give, each multiplied by x^(8 * bytes that
 * follow it). Whoever holds a part of a block needs none of the others:
 *
 *     block   aaaa bbbbbb cc          crc = crc(a) * x^(8*8) ^ crc(b) * x^(8*2) ^ crc(c)
 *
 * In a word the highest bit is the coefficient of x^0, as in zlib.
 */
#include "files.h"
#include <stddef.h>
#include <string.h>

#define POLYNOMIAL 0xedb88320u

/* The product of two polynomials, mod P. */
uint32_t redist_crc_times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & -(a >> 31);
        b = (b >> 1) ^ (POLYNOMIAL & -(b & 1));
    }
    return product;
}

static uint32_t tables[8][256], squares[64]; /* squares[k] is x^(8 * 2^k) */

/* x^(8 n) */
uint32_t redist_crc_power(int64_t n)
{
    uint32_t product = 1u << 31;
    for (int k = 0; n; k++, n >>= 1)
        if (n & 1)
            product = redist_crc_times(squares[k], product);
    return product;
}

static uint32_t by_tables(uint32_t crc, const unsigned char *p, int64_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                              (uint32_t)p[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
              tables[4][low >> 24] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^
              tables[0][p[7]];
    }
    for (; n > 0; p++, n--)
        crc = crc >> 8 ^ tables[0][(crc ^ *p) & 255];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FAST "pclmul,sse4.1"
static uint64_t fold_by_4[2], fold_by_1[2];

/* A constant that moves 64 bits over n more bits; products of two words come out one bit lower. */
static uint64_t carry(int64_t n)
{
    uint32_t product = 1u << 31, x = 1u << 30;
    for (; n; n >>= 1, x = redist_crc_times(x, x))
        if (n & 1)
            product = redist_crc_times(x, product);
    return (uint64_t)product << 1;
}

static void set_up_fast(void)
{
    fold_by_4[0] = carry(4 * 128 + 32), fold_by_4[1] = carry(4 * 128 - 32);
    fold_by_1[0] = carry(128 + 32), fold_by_1[1] = carry(128 - 32);
}

static int has_fast(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

__attribute__((target(FAST))) static inline __m128i fold(__m128i a, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(a, by, 0x00), high = _mm_clmulepi64_si128(a, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Four lanes of 16 bytes are folded onto the next 64, then onto one; what is left is a message of 16 bytes
 * with the same CRC. */
__attribute__((target(FAST))) static uint32_t fast(uint32_t crc, const unsigned char *p, int64_t n)
{
    const __m128i by_4 = _mm_set_epi64x((long long)fold_by_4[1], (long long)fold_by_4[0]);
    const __m128i by_1 = _mm_set_epi64x((long long)fold_by_1[1], (long long)fold_by_1[0]);
    const __m128i *q = (const __m128i *)p;
    unsigned char left[16];
    if (n < 128)
        return by_tables(crc, p, n);
    __m128i a = _mm_xor_si128(_mm_loadu_si128(q), _mm_cvtsi32_si128((int)crc));
    __m128i b = _mm_loadu_si128(q + 1), c = _mm_loadu_si128(q + 2), d = _mm_loadu_si128(q + 3);
    for (q += 4, n -= 64; n >= 64; q += 4, n -= 64) {
        a = fold(a, by_4, _mm_loadu_si128(q));
        b = fold(b, by_4, _mm_loadu_si128(q + 1));
        c = fold(c, by_4, _mm_loadu_si128(q + 2));
        d = fold(d, by_4, _mm_loadu_si128(q + 3));
    }
    d = fold(fold(fold(a, by_1, b), by_1, c), by_1, d);
    for (; n >= 16; q++, n -= 16)
        d = fold(d, by_1, _mm_loadu_si128(q));
    _mm_storeu_si128((__m128i *)left, d);
    return by_tables(by_tables(0, left, 16), (const unsigned char *)q, n);
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
static void set_up_fast(void) {}

static int has_fast(void) { return (getauxval(AT_HWCAP) & (1ul << 7)) != 0; /* CRC32 */ }

static uint32_t fast(uint32_t crc, const unsigned char *p, int64_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    return by_tables(crc, p, n);
}
#else
static void set_up_fast(void) {}
static int has_fast(void) { return 0; }
static uint32_t fast(uint32_t crc, const unsigned char *p, int64_t n)
{
    return by_tables(crc, p, n);
}
#endif

static uint32_t (*update)(uint32_t, const unsigned char *, int64_t) = by_tables;

/* Called once, when the library is loaded. */
__attribute__((constructor)) static void set_up(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (POLYNOMIAL & -(crc & 1));
        tables[0][i] = crc;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 255];
    squares[0] = 1u << 23;
    for (int k = 1; k < 64; k++)
        squares[k] = redist_crc_times(squares[k - 1], squares[k - 1]);
    set_up_fast();
    if (has_fast())
        update = fast;
}

/* The plain CRC of a message that goes on with these bytes. */
uint32_t redist_crc(uint32_t state, const void *data, int64_t n) { return update(state, data, n); }

/* The plain CRC with n more bytes of zero behind it. */
uint32_t redist_crc_shift(uint32_t crc, int64_t n)
{
    return redist_crc_times(crc, redist_crc_power(n));
}
