// The inner loops of the engine: int8 products, attention of one new token, norms. Plain C functions without torch's
// headers; building.py compiles them on first use.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "pool.h"
#if defined(__AVX2__) && defined(__FMA__) && !defined(SACCADE_PLAIN)
#include <immintrin.h>
#define SACCADE_AVX2
#endif

namespace {

constexpr long TILE = 32;     // output rows that one pass computes together; packed.py packs the weights for it
constexpr long GROUP = 64;    // columns of a row of activations that share a scale, so that one large number spoils few others
constexpr long AHEAD = 1024;  // bytes between what is multiplied and what is fetched from memory
constexpr long CHUNK = 98304; // bytes of weights a thread takes at a time: a long run for the processor's own prefetcher
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

// Round a row of weights to [-127, 127] and return its scale; one that holds an infinity or a NaN gets the scale NaN.
float quantise(const float* x, long width, int8_t* q) {
    float most = 0.0f, poison = 0.0f;
#pragma omp simd reduction(max : most) reduction(+ : poison)
    for (long i = 0; i < width; ++i) {
        most = std::max(most, std::fabs(x[i]));
        poison += x[i] * 0.0f;
    }
    float factor = most > 1e-30f ? 127.0f / most : 0.0f;
#pragma omp simd
    for (long i = 0; i < width; ++i) {
        float v = (x[i] * factor + 12582912.0f) - 12582912.0f;
        v = v < 127.0f ? v : 127.0f;
        q[i] = int8_t(int32_t(v > -127.0f ? v : -127.0f));
    }
    return (factor > 0.0f ? most / 127.0f : 0.0f) + poison;
}

// What a level of a group stands for: least + level * step.
struct Span {
    float least, step;
};

// Round one group of activations to levels from 0 to 127; one that holds an infinity or a NaN gets the step NaN.
inline __attribute__((always_inline)) Span level(const float* x, long width, uint8_t* q) {
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

// Products of a tile with C rows of activations; four columns of a row lie side by side. The sum of a group is exact in int32,
// and is added to the others times its step, beside the sum of its weights times its least. Meanwhile `pace` bytes at a time
// are fetched from `ahead`, so that memory is read while the processor multiplies.
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
                    __asm__ volatile("" : "+x"(total[c][g]));  // keeps the sum in its register: gcc would move it about
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

}  // namespace

extern "C" {

// The activation of a feed-forward layer, over n numbers in place.
void saccade_activate(long act, float* y, long n) {
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

// Name the pool's two entry points; nothing runs in parallel before.
void saccade_pool(void* run, void* size) {
    parallel = reinterpret_cast<Parallel>(run);
    pool_size = reinterpret_cast<int (*)()>(size);
}

// Round a weight (N, K) row by row and lay it out in tiles, which are zero before, and sum up each group of each row; a row
// that is not finite gets the scale NaN.
void saccade_pack(const float* weight, long n, long k, int8_t* tiles, int16_t* sums, float* scale) {
    long width = (k + 3) / 4 * 4, groups = (k + GROUP - 1) / GROUP;
    spread((n + TILE - 1) / TILE, 1, n * k > 32768, [=](long t) {
        std::vector<int8_t> row(size_t(width), 0);
        for (long r = 0; r < std::min(TILE, n - t * TILE); ++r) {
            scale[t * TILE + r] = quantise(weight + (t * TILE + r) * k, k, row.data());
            for (long c = 0; c < width; c += 4) std::memcpy(tiles + (t * width + c) * TILE + 4 * r, row.data() + c, 4);
            for (long c = 0; c < k; ++c) sums[(t * groups + c / GROUP) * TILE + r] += row[size_t(c)];
        }
    });
}

// out (M, N) = act(x (M, K) · W^T + bias) + add, with W in tiles of int8 and one scale a row of W and a span a group of x.
void saccade_linear(const int8_t* w, const int16_t* weights, const float* scale, const float* bias, long n, long k,
                    const float* x, const float* add, float* out, long m, long act) {
    static thread_local std::vector<uint8_t> kept;
    static thread_local std::vector<Span> kept_spans;
    long width = (k + 3) / 4 * 4, tiles = (n + TILE - 1) / TILE, groups = (width + GROUP - 1) / GROUP;
    kept.resize(size_t(m * width));
    kept_spans.resize(size_t(m * groups));
    uint8_t* q = kept.data();
    Span* spans = kept_spans.data();
    spread(m, 1, m * k > 16384, [=](long i) {
        for (long g = 0; g < groups; ++g) {
            const float* from = x + i * k + g * GROUP;
            uint8_t* to = q + i * width + g * GROUP;
            long rest = k - g * GROUP;
            spans[i * groups + g] = rest < GROUP ? level(from, rest, to) : level(from, GROUP, to);
        }
        std::memset(q + i * width + k, 0, size_t(width - k));
    });
    long grain = std::max(1L, std::min(CHUNK / (TILE * width), tiles / 8));
    spread(tiles, grain, n * k * m > 32768, [=](long t) {
        const int8_t* tile = w + t * TILE * width;
        const int16_t* below = weights + t * TILE * groups;
        long first = t * TILE, count = std::min(TILE, n - first);
        // a single pass fetches what it needs soon, several passes share the fetching of the next tile
        long passes = (m + 2) / 3, pace = 4 * TILE / std::max(passes, 1L), step = pace * width / 4;
        for (long i = 0; i < m; i += 3) {
            alignas(32) float sums[3][TILE];
            const int8_t* ahead = tile + (m > 2 ? TILE * width + i / 3 * step : AHEAD);
            auto multiply = m - i == 1 ? product<1> : m - i == 2 ? product<2> : product<3>;
            multiply(tile, below, q + i * width, spans + i * groups, width, ahead, pace, sums);
            for (long c = 0; c < std::min(3L, m - i); ++c) {
                float y[TILE];
                for (long r = 0; r < TILE; ++r) y[r] = std::fma(sums[c][r], scale[first + r], bias[first + r]);
                saccade_activate(act, y, TILE);
                float* to = out + (i + c) * n + first;
                const float* plus = add ? add + (i + c) * n + first : nullptr;
                for (long r = 0; r < count; ++r) to[r] = plus ? y[r] + plus[r] : y[r];
            }
        }
    });
}

// One new token per row of the batch looks at its own memory: out (B, H, D) = softmax(q · keys * scale) · values.
// `share` rows of q in turn look at the same row of the memory. `origin` (B, K), when given, says in which row of the memory
// each place of a row lies. `fresh` keys and values, when given, are first written to the last place of each row's memory.
// Returns the first row whose length does not fit its memory, or -1; then nothing was touched.
long saccade_attend(const float* q, long q_row, float* keys, float* values, long memory_row, long memory_head, long limit,
                    long share, const int64_t* lengths, const uint8_t* keep, long keep_row, const int32_t* origin,
                    long origin_row, const float* fresh_key, const float* fresh_value, long fresh_row, float* out, long b, long h, long g, long d, float scale) {
    long most = 0, each = h / g;
    for (long i = 0; i < b / share; ++i) {
        if (lengths[i] < (fresh_key ? 1 : 0) || lengths[i] > limit) return i;
        most = std::max<long>(most, lengths[i]);
    }
    spread(b * g, 1, b * h * d * most > 16384, [=](long task) {
        static thread_local std::vector<float> kept;
        long row = task / g, group = task % g, from = row / share, length = lengths[from];
        auto at = [=](long t) {
            return (origin ? origin[row * origin_row + t] : from) * memory_row + group * memory_head + t * d;
        };
        if (fresh_key) {
            std::memcpy(keys + at(length - 1), fresh_key + row * fresh_row + group * d, size_t(d) * 4);
            std::memcpy(values + at(length - 1), fresh_value + row * fresh_row + group * d, size_t(d) * 4);
        }
        kept.resize(size_t(length));
        float* p = kept.data();
        for (long head = group * each; head < (group + 1) * each; ++head) {
            const float* query = q + row * q_row + head * d;
            float* to = out + (row * h + head) * d;
            float top = -INFINITY, sum = 0.0f;
            for (long t = 0; t < length; ++t) {
                const float* key = keys + at(t);
                float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
                for (long j = 0; j < d; ++j) dot += query[j] * key[j];
                p[t] = keep && !keep[from * keep_row + t] ? -INFINITY : dot * scale;
                top = std::max(top, p[t]);
            }
            if (top == -INFINITY) top = 0.0f;  // sees nothing: every weight is zero
#pragma omp simd reduction(+ : sum)
            for (long t = 0; t < length; ++t) {
                p[t] = p[t] == -INFINITY ? 0.0f : exponential(p[t] - top);
                sum += p[t];
            }
            std::memset(to, 0, size_t(d) * 4);
            float over = sum > 0.0f ? 1.0f / sum : 0.0f;
            for (long t = 0; t < length; ++t) {
                if (p[t] == 0.0f) continue;  // what is not seen may be anything
                const float *value = values + at(t), weight = p[t] * over;
#pragma omp simd
                for (long j = 0; j < d; ++j) to[j] += weight * value[j];
            }
        }
    });
    return -1;
}

// The first places of a memory, each from the row that `origin` (B, K) says, into another of the same layout.
void saccade_gather(const float* from, float* to, const int32_t* origin, long origin_row, long b, long g, long memory_row,
                    long memory_head, long d, long length) {
    spread(b * g, 8, b * g * d * length > 32768, [=](long i) {
        const int32_t* rows = origin + i / g * origin_row;
        float* head = to + i / g * memory_row + i % g * memory_head;
        for (long t = 0, end; t < length; t = end) {
            for (end = t + 1; end < length && rows[end] == rows[t];) ++end;  // neighbours that lie together move together
            const float* there = from + rows[t] * memory_row + i % g * memory_head;
            std::memcpy(head + t * d, there + t * d, size_t((end - t) * d) * 4);
        }
    });
}

// Each row minus its mean (unless `rms`), over its root mean square, times weight, plus bias.
void saccade_norm(const float* x, const float* weight, const float* bias, float eps, float* out, long rows, long width,
                  long rms) {
    spread(rows, 1, rows * width > 32768, [=](long row) {
        const float* from = x + row * width;
        float *to = out + row * width, mean = 0.0f, square = 0.0f;
        if (!rms) {
#pragma omp simd reduction(+ : mean)
            for (long i = 0; i < width; ++i) mean += from[i];
            mean /= float(width);
        }
#pragma omp simd reduction(+ : square)
        for (long i = 0; i < width; ++i) square += (from[i] - mean) * (from[i] - mean);
        float over = 1.0f / std::sqrt(square / float(width) + eps);
        for (long i = 0; i < width; ++i) to[i] = (from[i] - mean) * over * weight[i] + (bias ? bias[i] : 0.0f);
    });
}
}
