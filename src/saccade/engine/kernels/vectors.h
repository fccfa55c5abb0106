// Vectors of the instruction set that kernels.cpp is compiled for, and the functions that all kernels share.
// Everything is inlined: a function that another instruction set also compiles must not be left for the linker to choose from.
#pragma once
#include <stddef.h>
#include <stdint.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

namespace {

#if defined(__AVX512VNNI__)
constexpr int LANES = 16, VECTORS = 4;  // floats of a vector; vectors of a tile, whose sums stay in registers
#elif defined(__AVX2__)
constexpr int LANES = 8, VECTORS = 2;
#else
constexpr int LANES = 4, VECTORS = 2;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

template <class Vector>
INLINE Vector load(const void* from) {
    Vector x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
}
template <class Vector>
INLINE void store(void* to, Vector x) {
    __builtin_memcpy(to, &x, sizeof x);
}

// The first n floats, and zeros.
INLINE Floats load_some(const float* from, long n) {
    Floats x = {};
    __builtin_memcpy(&x, from, size_t(n) * 4);
    return x;
}
INLINE void store_some(float* to, Floats x, long n) { __builtin_memcpy(to, &x, size_t(n) * 4); }

INLINE int32_t load_block(const void* from) {
    int32_t bits;
    __builtin_memcpy(&bits, from, 4);
    return bits;
}

INLINE Ints splat(int32_t x) {
#if defined(__AVX512VNNI__)
    return Ints(_mm512_set1_epi32(x));
#elif defined(__AVX2__)
    return Ints(_mm256_set1_epi32(x));
#else
    return Ints{x, x, x, x};
#endif
}
INLINE Floats splat(float x) {
#if defined(__AVX512VNNI__)
    return _mm512_set1_ps(x);
#elif defined(__AVX2__)
    return _mm256_set1_ps(x);
#else
    return Floats{x, x, x, x};
#endif
}

// Minimum and maximum; where one is NaN, the second.
INLINE Floats smaller(Floats a, Floats b) {
#if defined(__AVX512VNNI__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    return a < b ? a : b;
#endif
}
INLINE Floats larger(Floats a, Floats b) {
#if defined(__AVX512VNNI__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return a > b ? a : b;
#endif
}

#if defined(__AVX512VNNI__)
INLINE float sum(Floats x) { return _mm512_reduce_add_ps(x); }
INLINE float least(Floats x) { return _mm512_reduce_min_ps(x); }
INLINE float most(Floats x) { return _mm512_reduce_max_ps(x); }
#else
INLINE float sum(Floats x) {
    float y = x[0];
    UNROLL for (int i = 1; i < LANES; ++i) y += x[i];
    return y;
}
INLINE float least(Floats x) {
    float y = x[0];
    UNROLL for (int i = 1; i < LANES; ++i) y = x[i] < y ? x[i] : y;
    return y;
}
INLINE float most(Floats x) {
    float y = x[0];
    UNROLL for (int i = 1; i < LANES; ++i) y = x[i] > y ? x[i] : y;
    return y;
}
#endif

// Round to the nearest integer, ties to even, for numbers below 2^22: adding 1.5 * 2^23 leaves it in the lowest bits.
INLINE Ints rounded(Floats x) { return Ints(x + splat(12582912.0f)) - splat(int32_t(0x4b400000)); }
INLINE Floats to_floats(Ints x) { return __builtin_convertvector(x, Floats); }

// bfloat16, rounded to the nearest, ties to even; NaN stays NaN.
INLINE Halves to_bfloat16(Floats x) {
    typedef uint32_t Unsigned __attribute__((vector_size(4 * LANES)));
    Unsigned bits = Unsigned(x);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    bits = x == x ? bits : bits * 0u + 0x7fc0u;
    return __builtin_convertvector(bits, Halves);
}

// e^x to within a few units in the last place, for x up to 88.
INLINE Floats exponential(Floats x) {
    x = larger(splat(-87.0f), smaller(splat(88.0f), x));
    Ints n = rounded(x * splat(1.44269504f));
    Floats whole = to_floats(n);
    Floats r = x - whole * splat(0.693359375f) + whole * splat(2.12194440e-4f);
    Floats p = r * splat(1.9875691500e-4f) + splat(1.3981999507e-3f);
    p = p * r + splat(8.3334519073e-3f);
    p = p * r + splat(4.1665795894e-2f);
    p = p * r + splat(1.6666665459e-1f);
    p = p * r + splat(5.0000001201e-1f);
    Floats y = p * r * r + r + splat(1.0f);
    return Floats(Ints(y) + (n << 23));
}

// GELU for rows that are rounded to bfloat16 or int8 next: Φ(t) = 1/2 + t P(t²) within ±4.5, with an error below 5e-5.
INLINE Floats gelu_rounded(Floats x) {
    Floats t = larger(splat(-4.5f), smaller(splat(4.5f), x)), u = t * t;
    Floats p = u * splat(3.00003251e-11f) + splat(-3.28393623e-9f);
    p = p * u + splat(1.58026651e-7f);
    p = p * u + splat(-4.43170438e-6f);
    p = p * u + splat(8.12099606e-5f);
    p = p * u + splat(-1.03625515e-3f);
    p = p * u + splat(9.58066154e-3f);
    p = p * u + splat(-6.59772828e-2f);
    p = p * u + splat(3.98708582e-1f);
    return x * (p * t + splat(0.5f));
}

// GELU with the error function to 2e-7 (Abramowitz and Stegun 7.1.26).
INLINE Floats gelu_exact(Floats x) {
    Floats z = x * splat(0.70710678f), a = larger(z, -z), t = splat(1.0f) / (splat(1.0f) + splat(0.3275911f) * a);
    Floats p = t * splat(1.061405429f) + splat(-1.453152027f);
    p = p * t + splat(1.421413741f);
    p = p * t + splat(-0.284496736f);
    p = (p * t + splat(0.254829592f)) * t;
    Floats tail = p * exponential(-(a * a)) * splat(0.5f);  // 1 - Φ(|x|)
    return x * (x < splat(0.0f) ? tail : splat(1.0f) - tail);
}

INLINE Floats activated(long activation, long format, Floats x) {
    switch (activation) {
        case 1: return format == 2 ? gelu_exact(x) : gelu_rounded(x);
        case 2: return x / (splat(1.0f) + exponential(splat(-1.59576912f) * (x + splat(0.044715f) * x * x * x)));
        case 3: return x < splat(0.0f) ? splat(0.0f) : x;  // keeps NaN
        case 4: return x / (splat(1.0f) + exponential(-x));
        default: return x;
    }
}

}  // namespace
