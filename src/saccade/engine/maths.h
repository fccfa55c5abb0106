// Exponentials and what is made of them, in a form that the compiler can vectorise.
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

// e^x to within two units in the last place, in a form the compiler can vectorise.
inline float exponential(float x) {
    x = std::min(std::max(x, -87.0f), 88.0f);
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // adding 1.5 * 2^23 rounds to the nearest whole number
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    int32_t bits = (int32_t(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return (p * r * r + r + 1.0f) * power;
}

// Gauss's error function with an absolute error under 2e-7 (Abramowitz and Stegun 7.1.26).
inline float error(float x) {
    float a = std::fabs(x), t = 1.0f / (1.0f + 0.3275911f * a);
    float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    return std::copysign(1.0f - p * exponential(-a * a), x);
}

// The activation of a feed-forward layer, over n numbers in place.
inline void activate(long act, float* y, long n) {
    if (act == GELU)
        for (long i = 0; i < n; ++i) y[i] = 0.5f * y[i] * (1.0f + error(y[i] * 0.70710678f));
    if (act == GELU_TANH)  // 0.5 (1 + tanh(u)) is the logistic function of 2u
        for (long i = 0; i < n; ++i)
            y[i] = y[i] / (1.0f + exponential(-1.59576912f * (y[i] + 0.044715f * y[i] * y[i] * y[i])));
    if (act == RELU)
        for (long i = 0; i < n; ++i) y[i] = y[i] < 0.0f ? 0.0f : y[i];  // keeps what is not a number
    if (act == SILU)
        for (long i = 0; i < n; ++i) y[i] = y[i] / (1.0f + exponential(-y[i]));
}

}  // namespace
