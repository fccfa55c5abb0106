// Exponentials and activation functions, in a form that the compiler can vectorize.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(SACCADE_PLAIN)
#include <immintrin.h>
#define SACCADE_AVX2
#endif

namespace {

enum Act : long { NONE, GELU, GELU_TANH, RELU, SILU };

// Clamp to the range in which e^x is a normal float32; keeps NaN.
inline float bounded(float x) { return std::min(std::max(x, -87.0f), 88.0f); }

// y times 2^n, for integer n; keeps NaN. Adding 1.5 * 2^23 leaves n in the lowest bits, which avoids a conversion to integer that
// could overflow.
inline float raised(float y, float n) {
    float whole = n + 12582912.0f, power;
    uint32_t bits;
    std::memcpy(&bits, &whole, 4);
    bits = (bits - 0x4b400000u + 127u) << 23;
    std::memcpy(&power, &bits, 4);
    return y * power;
}

#ifdef SACCADE_AVX2
// The same for eight floats; written with intrinsics, since the compiler would turn the clamping into branches.
inline __m256 bounded(__m256 x) {
    return _mm256_min_ps(_mm256_set1_ps(88.0f), _mm256_max_ps(_mm256_set1_ps(-87.0f), x));
}
inline __m256 raised(__m256 y, __m256 n) {
    __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return y * _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}
#endif

// e^x to within two units in the last place, for one float or eight.
template <class Number>
inline Number exponential(Number x) {
    x = bounded(x);
    Number n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // adding 1.5 * 2^23 rounds to the nearest integer
    Number r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Number p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return raised(p * r * r + r + 1.0f, n);
}

// The error function erf with an absolute error under 2e-7 (Abramowitz and Stegun 7.1.26).
inline float error(float x) {
    float a = std::fabs(x), t = 1.0f / (1.0f + 0.3275911f * a);
    float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    return std::copysign(1.0f - p * exponential(-a * a), x);
}

// y = function(y) for n floats, eight at a time with AVX2.
template <class Function>
inline void each(float* y, long n, const Function& function) {
    long i = 0;
#ifdef SACCADE_AVX2
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, function(_mm256_loadu_ps(y + i)));
#endif
    for (; i < n; ++i) y[i] = function(y[i]);
}

// The activation function of a feed-forward layer, applied to n floats in place.
inline void activate(long act, float* y, long n) {
    if (act == GELU)
        for (long i = 0; i < n; ++i) y[i] = 0.5f * y[i] * (1.0f + error(y[i] * 0.70710678f));
    if (act == GELU_TANH)  // 0.5 (1 + tanh(u)) is the logistic function of 2u
        each(y, n, [](auto x) { return x / (1.0f + exponential(-1.59576912f * (x + 0.044715f * x * x * x))); });
    if (act == RELU)
        for (long i = 0; i < n; ++i) y[i] = y[i] < 0.0f ? 0.0f : y[i];  // keeps NaN
    if (act == SILU)
        each(y, n, [](auto x) { return x / (1.0f + exponential(-x)); });
}

}  // namespace
