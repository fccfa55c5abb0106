// Attention of one new token a row, and rows of its memory that change places. Plain C functions, as those of native.cpp.
#include <vector>

#include "maths.h"
#include "pool.h"

namespace {

// query · key * scale for each key, each d wide; with AVX2 four keys at a time, whose sums do not wait for each other.
void score(const float* query, const float* const* keys, long count, long d, float scale, float* scores) {
    long t = 0;
#ifdef SACCADE_AVX2
    for (; d % 8 == 0 && t < count; t += 4) {
        const float* key[4];
        for (int i = 0; i < 4; ++i) key[i] = keys[std::min(t + i, count - 1)];
        __m256 sum[4] = {};
        for (long j = 0; j < d; j += 8) {
            __m256 part = _mm256_loadu_ps(query + j);
            for (int i = 0; i < 4; ++i) sum[i] = _mm256_fmadd_ps(part, _mm256_loadu_ps(key[i] + j), sum[i]);
        }
        __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(sum[0], sum[1]), _mm256_hadd_ps(sum[2], sum[3]));
        alignas(16) float four[4];
        _mm_store_ps(four, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
        for (long i = 0; i < std::min(4L, count - t); ++i) scores[t + i] = four[i] * scale;
    }
#endif
    for (; t < count; ++t) {
        float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
        for (long j = 0; j < d; ++j) dot += query[j] * keys[t][j];
        scores[t] = dot * scale;
    }
}

#ifdef SACCADE_AVX2
// N times eight columns, whose sums stay in registers.
template <int N>
void blend_columns(const float* weights, const float* const* values, long count, long from, float* to) {
    __m256 sum[N] = {};
    for (long t = 0; t < count; ++t) {
        __m256 weight = _mm256_set1_ps(weights[t]);
        for (int i = 0; i < N; ++i) sum[i] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(values[t] + from + 8 * i), sum[i]);
    }
    for (int i = 0; i < N; ++i) _mm256_storeu_ps(to + from + 8 * i, sum[i]);
}
#endif

// to (d) = the sum of all values, each times its weight.
void blend(const float* weights, const float* const* values, long count, long d, float* to) {
    long j = 0;
#ifdef SACCADE_AVX2
    for (; j + 64 <= d; j += 64) blend_columns<8>(weights, values, count, j, to);
    for (; j + 8 <= d; j += 8) blend_columns<1>(weights, values, count, j, to);
#endif
    std::fill(to + j, to + d, 0.0f);
    for (long t = 0; t < count; ++t)
        for (long i = j; i < d; ++i) to[i] += weights[t] * values[t][i];
}

// Scores to weights that sum up to one, in place.
void soften(float* p, long count) {
    float top = -INFINITY, sum = 0.0f;
    for (long t = 0; t < count; ++t) top = std::max(top, p[t]);
    if (top == -INFINITY) top = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (long t = 0; t < count; ++t) {
        p[t] = p[t] == -INFINITY ? 0.0f : exponential(p[t] - top);
        sum += p[t];
    }
    float over = sum > 0.0f ? 1.0f / sum : 0.0f;
    for (long t = 0; t < count; ++t) p[t] *= over;
}

}  // namespace

extern "C" {

// One new token per row of the batch looks at its own memory: out (B, H, D) = softmax(q · keys * scale) · values.
// `share` rows of q in turn look at the same row of the memory. `origin` (B, K), when given, says in which row of the memory
// each place of a row lies. `fresh` keys and values, when given, are first written to the last place of each row's memory.
// Returns the first row whose length does not fit its memory, or -1; then nothing was touched.
long saccade_attend(const float* q, long q_row, float* keys, float* values, long memory_row, long memory_head, long limit,
                    long share, const int64_t* lengths, const uint8_t* keep, long keep_row, const int32_t* origin,
                    long origin_row, const float* fresh_key, const float* fresh_value, long fresh_row, float* out, long b,
                    long h, long g, long d, float scale) {
    long most = 0, each = h / g;
    for (long i = 0; i < b / share; ++i) {
        if (lengths[i] < (fresh_key ? 1 : 0) || lengths[i] > limit) return i;
        most = std::max<long>(most, lengths[i]);
    }
    spread(b * g, 1, b * h * d * most > 16384, [=](long task) {
        static thread_local std::vector<const float*> seen;  // the keys, and behind them the values; what is not seen may be anything
        static thread_local std::vector<float> weights;
        long row = task / g, group = task % g, from = row / share, length = lengths[from], count = 0;
        auto at = [=](long t) {
            return (origin ? origin[row * origin_row + t] : from) * memory_row + group * memory_head + t * d;
        };
        if (fresh_key) {
            std::memcpy(keys + at(length - 1), fresh_key + row * fresh_row + group * d, size_t(d) * 4);
            std::memcpy(values + at(length - 1), fresh_value + row * fresh_row + group * d, size_t(d) * 4);
        }
        seen.resize(size_t(2 * length));
        weights.resize(size_t(length));
        for (long t = 0; t < length; ++t) {
            if (keep && !keep[from * keep_row + t]) continue;
            seen[size_t(count)] = keys + at(t);
            seen[size_t(length + count++)] = values + at(t);
        }
        for (long head = group * each; head < (group + 1) * each; ++head) {
            score(q + row * q_row + head * d, seen.data(), count, d, scale, weights.data());
            soften(weights.data(), count);
            blend(weights.data(), seen.data() + length, count, d, out + (row * h + head) * d);
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
}
