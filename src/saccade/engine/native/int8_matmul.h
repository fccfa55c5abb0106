// Int8 matrix product: activations are quantized row by row and multiplied by tiles of int8 weights.
#pragma once
#include <vector>

#include "vector_math.h"
#include "thread_pool.h"

namespace {

constexpr long TILE = 32;     // output rows that one pass computes together; int8_linear.py packs the weights for it
constexpr long GROUP = 64;    // columns of a row of activations that share a scale, so that an outlier affects only its group
constexpr long AHEAD = 1024;  // prefetch distance in bytes

// Quantization parameters of a group: value = least + level * step.
struct Span {
    float least, step;
};

// Quantize one group of activations to levels from 0 to 127; a group with an infinity or a NaN gets the step NaN.
inline Span level(const float* x, long width, uint8_t* q) {
    float least = x[0], most = x[0], poison = 0.0f;
#pragma omp simd reduction(min : least) reduction(max : most) reduction(+ : poison)
    for (long i = 0; i < width; ++i) {
        least = std::min(least, x[i]);
        most = std::max(most, x[i]);
        poison += x[i] * 0.0f;
    }
    float range = most - least, factor = range > 1e-30f ? 127.0f / range : 0.0f;
#pragma omp simd
    for (long i = 0; i < width; ++i) {
        float v = ((x[i] - least) * factor + 12582912.0f) - 12582912.0f;
        v = v < 127.0f ? v : 127.0f;
        q[i] = uint8_t(int32_t(v > 0.0f ? v : 0.0f));
    }
    return {least, (factor > 0.0f ? range / 127.0f : 0.0f) + poison};
}

#ifdef SACCADE_AVX2
// The same for a full group, held in registers.
inline Span level(const float* x, uint8_t* q) {
    static_assert(GROUP == 64, "eight registers of eight floats");
    __m256 part[8], low, high, poison = _mm256_setzero_ps();
    for (int i = 0; i < 8; ++i) part[i] = _mm256_loadu_ps(x + 8 * i);
    low = high = part[0];
    for (int i = 0; i < 8; ++i) {
        low = _mm256_min_ps(low, part[i]);
        high = _mm256_max_ps(high, part[i]);
        poison = _mm256_fmadd_ps(part[i], _mm256_setzero_ps(), poison);
    }
    alignas(32) float lows[8], highs[8], poisons[8];
    _mm256_store_ps(lows, low);
    _mm256_store_ps(highs, high);
    _mm256_store_ps(poisons, poison);
    for (int i = 1; i < 8; ++i) {
        lows[0] = std::min(lows[0], lows[i]);
        highs[0] = std::max(highs[0], highs[i]);
        poisons[0] += poisons[i];
    }
    float least = lows[0], range = highs[0] - least, factor = range > 1e-30f ? 127.0f / range : 0.0f;
    __m256 under = _mm256_set1_ps(least), times = _mm256_set1_ps(factor);
    __m256i whole[8];
    for (int i = 0; i < 8; ++i) whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_sub_ps(part[i], under), times));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // the pack instructions work within 128-bit lanes
    for (int i = 0; i < 8; i += 4) {
        __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(whole[i], whole[i + 1]), _mm256_packs_epi32(whole[i + 2], whole[i + 3]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 8 * i), _mm256_permutevar8x32_epi32(bytes, order));
    }
    return {least, (factor > 0.0f ? range / 127.0f : 0.0f) + poisons[0]};
}
#else
inline Span level(const float* x, uint8_t* q) { return level(x, GROUP, q); }
#endif

// Product of a tile with C rows of activations, whose columns are stored in blocks of four. The sum of a group is exact in int32; it is
// scaled by the group's step, and the sum of the group's weights times its least is added. Meanwhile memory at `ahead` is
// prefetched, `pace` bytes at a time.
template <int C>
void product(const int8_t* w, const int16_t* weights, const uint8_t* x, const Span* spans, long width, const int8_t* ahead,
             long pace, float (*sums)[TILE]) {
    long groups = (width + GROUP - 1) / GROUP;
    for (int c = 0; c < C; ++c)
        for (long r = 0; r < TILE; ++r) sums[c][r] = 0.0f;
    for (long group = 0; group < groups; ++group, weights += TILE) {
        const uint8_t* end = x + std::min(GROUP, width - group * GROUP);
#ifdef SACCADE_AVX2
        const __m256i ones = _mm256_set1_epi16(1);
        __m256i total[C][4] = {};
        for (; x < end; x += 4, w += 4 * TILE, ahead += pace) {
            _mm_prefetch(ahead, C < 3 ? _MM_HINT_T0 : _MM_HINT_T1);
            if (C < 3) _mm_prefetch(ahead + 64, _MM_HINT_T0);
            for (int c = 0; c < C; ++c) {
                int32_t bits;
                std::memcpy(&bits, x + c * width, 4);
                __m256i four = _mm256_set1_epi32(bits);
                for (int g = 0; g < 4; ++g) {
                    // two products reach 2 * 127 * 127 = 32,258, so 16 bits never saturate
                    __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w) + g);
                    __m256i pairs = _mm256_maddubs_epi16(four, v);
                    total[c][g] = _mm256_add_epi32(total[c][g], _mm256_madd_epi16(pairs, ones));
                    __asm__ volatile("" : "+x"(total[c][g]));  // keeps the sum in its register; gcc would spill it
                }
            }
        }
        for (int g = 0; g < 4; ++g) {
            __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights) + g);
            __m256 weight = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(narrow));
            for (int c = 0; c < C; ++c) {
                float* sum = sums[c] + 8 * g;
                const Span& span = spans[c * groups + group];
                __m256 below = _mm256_fmadd_ps(weight, _mm256_set1_ps(span.least), _mm256_loadu_ps(sum));
                _mm256_storeu_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(total[c][g]), _mm256_set1_ps(span.step), below));
            }
        }
#else
        int32_t total[C][TILE] = {};
        for (; x < end; x += 4, w += 4 * TILE)
            for (int c = 0; c < C; ++c)
                for (long r = 0; r < TILE; ++r)
                    for (int j = 0; j < 4; ++j) total[c][r] += int32_t(w[4 * r + j]) * x[c * width + j];
        for (int c = 0; c < C; ++c)
            for (long r = 0; r < TILE; ++r) {
                const Span& span = spans[c * groups + group];
                float below = std::fma(float(weights[r]), span.least, sums[c][r]);
                sums[c][r] = std::fma(float(total[c][r]), span.step, below);
            }
#endif
    }
}

// A linear layer as int8_linear.py packs it: n rows of k weights, with one scale and one bias per row.
struct Layer {
    const int8_t* tiles;
    const int16_t* sums;
    const float *scale, *bias;
    long n, k;
};

// Quantized rows of activations.
struct Rounded {
    const uint8_t* levels;
    const Span* spans;
    long rows, width, groups;
};

// Quantize x (m, k) into a thread-local buffer, which the next call of this thread overwrites.
inline Rounded rounded(const float* x, long m, long k) {
    static thread_local std::vector<uint8_t> kept;
    static thread_local std::vector<Span> kept_spans;
    long width = (k + 3) / 4 * 4, groups = (width + GROUP - 1) / GROUP;
    kept.resize(size_t(m * width));
    kept_spans.resize(size_t(m * groups));
    uint8_t* q = kept.data();
    Span* spans = kept_spans.data();
    spread(m, 1, m * k > 16384, [=](long i) {
        for (long g = 0; g < groups; ++g) {
            const float* from = x + i * k + g * GROUP;
            uint8_t* to = q + i * width + g * GROUP;
            long rest = k - g * GROUP;
            spans[i * groups + g] = rest < GROUP ? level(from, rest, to) : level(from, to);
        }
        std::memset(q + i * width + k, 0, size_t(width - k));
    });
    return {q, spans, m, width, groups};
}

// One tile of a layer times all rows: take(row, y) receives x · W^T + bias of each row, TILE numbers.
template <class Take>
void multiply(const Layer& layer, long t, const Rounded& x, const Take& take) {
    const int8_t* tile = layer.tiles + t * TILE * x.width;
    const int16_t* below = layer.sums + t * TILE * x.groups;
    const float *scale = layer.scale + t * TILE, *bias = layer.bias + t * TILE;
    // a single pass prefetches its own data; several passes share the prefetching of the next tile
    long m = x.rows, passes = (m + 2) / 3, pace = 4 * TILE / std::max(passes, 1L), step = pace * x.width / 4;
    for (long i = 0; i < m; i += 3) {
        alignas(32) float sums[3][TILE];
        const int8_t* ahead = tile + (m > 2 ? TILE * x.width + i / 3 * step : AHEAD);
        auto some = m - i == 1 ? product<1> : m - i == 2 ? product<2> : product<3>;
        some(tile, below, x.levels + i * x.width, x.spans + i * x.groups, x.width, ahead, pace, sums);
        for (long c = 0; c < std::min(3L, m - i); ++c) {
            for (long r = 0; r < TILE; ++r) sums[c][r] = std::fma(sums[c][r], scale[r], bias[r]);
            take(i + c, sums[c]);
        }
    }
}

}  // namespace
