// Half precision (float16), in which keys and values may be stored; all arithmetic is float32.
#pragma once
#include "vector_math.h"

namespace {

struct Half {
    uint16_t bits;
};
constexpr float MOST = 65504.0f;  // larger values are clamped to it, since an infinity would spread to every sum

inline float value(float x) { return x; }

inline float value(Half x) {
    uint32_t rest = x.bits & 0x7fff, bits = (rest << 13) + (rest < 0x7c00 ? 0x38000000u : 0x70000000u);
    float y;
    std::memcpy(&y, &bits, 4);
    if (rest < 0x400) y = float(rest) * 5.9604645e-8f;  // subnormal numbers have a constant step
    return x.bits & 0x8000 ? -y : y;
}

// Round to nearest, ties to even.
inline Half shortened(float x) {
    uint32_t bits;
    float y = x > MOST ? MOST : x < -MOST ? -MOST : x;
    std::memcpy(&bits, &y, 4);
    uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return {uint16_t(sign | 0x7e00)};  // NaN
    if (bits < 0x38800000) {  // subnormal: adding 0.5 aligns the step
        y = std::fabs(y) + 0.5f;
        std::memcpy(&bits, &y, 4);
        return {uint16_t(sign | (bits - 0x3f000000))};
    }
    return {uint16_t(sign | ((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13))};
}

inline void keep(const float* from, long count, float* to) { std::memmove(to, from, size_t(count) * 4); }

inline void keep(const float* from, long count, Half* to) {
    long i = 0;
#ifdef SACCADE_AVX2
    for (; i + 8 <= count; i += 8) {  // this order of operands keeps NaN
        __m256 x = _mm256_max_ps(_mm256_set1_ps(-MOST), _mm256_loadu_ps(from + i));
        __m128i eight = _mm256_cvtps_ph(_mm256_min_ps(_mm256_set1_ps(MOST), x), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), eight);
    }
#endif
    for (; i < count; ++i) to[i] = shortened(from[i]);
}

#ifdef SACCADE_AVX2
inline __m256 eight(const float* from) { return _mm256_loadu_ps(from); }

inline __m256 eight(const Half* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
#endif

}  // namespace
