// Attention of one new token per row over its KV cache, and gathering reordered rows of the cache. Plain C functions, as in native.cpp.
#include <vector>

#include "float16.h"
#include "thread_pool.h"
#include "kv_buffer.h"

namespace {

// query · key * scale for each key of width d; with AVX2 four keys at a time, whose sums are independent.
template <class Number>
void score(const float* query, const Number* const* keys, long count, long d, float scale, float* scores) {
    long t = 0;
#ifdef SACCADE_AVX2
    for (; d % 8 == 0 && t < count; t += 4) {
        const Number* key[4];
        for (int i = 0; i < 4; ++i) key[i] = keys[std::min(t + i, count - 1)];
        __m256 sum[4] = {};
        for (long j = 0; j < d; j += 8) {
            __m256 part = _mm256_loadu_ps(query + j);
            for (int i = 0; i < 4; ++i) sum[i] = _mm256_fmadd_ps(part, eight(key[i] + j), sum[i]);
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
        for (long j = 0; j < d; ++j) dot += query[j] * value(keys[t][j]);
        scores[t] = dot * scale;
    }
}

#ifdef SACCADE_AVX2
// Weighted sum of N times eight columns, accumulated in registers.
template <int N, class Number>
void blend_columns(const float* weights, const Number* const* values, long count, long from, float* to) {
    __m256 sum[N] = {};
    for (long t = 0; t < count; ++t) {
        __m256 weight = _mm256_set1_ps(weights[t]);
        for (int i = 0; i < N; ++i) sum[i] = _mm256_fmadd_ps(weight, eight(values[t] + from + 8 * i), sum[i]);
    }
    for (int i = 0; i < N; ++i) _mm256_storeu_ps(to + from + 8 * i, sum[i]);
}
#endif

// to (d) = weighted sum of all values.
template <class Number>
void blend(const float* weights, const Number* const* values, long count, long d, float* to) {
    long j = 0;
#ifdef SACCADE_AVX2
    for (; j + 64 <= d; j += 64) blend_columns<8>(weights, values, count, j, to);
    for (; j + 8 <= d; j += 8) blend_columns<1>(weights, values, count, j, to);
#endif
    std::fill(to + j, to + d, 0.0f);
    for (long t = 0; t < count; ++t)
        for (long i = j; i < d; ++i) to[i] += weights[t] * value(values[t][i]);
}

// Softmax of the scores, in place.
void softmax(float* p, long count) {
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

// The new token: queries (B, H, D), and its key and value (B, G, D) for the cache, or none.
struct Fresh {
    const float *q, *key, *value;
    long q_row, row;
};

template <class Number>
void attend(const Room& room, const Fresh& fresh, long most, float* out, long b, long h, long g, long d, float scale) {
    long each = h / g;
    spread(b * g, 1, b * h * d * most > 16384, [=](long task) {
        static thread_local std::vector<const Number*> seen;  // pointers to the keys, then to the values; masked entries are unset
        static thread_local std::vector<float> weights;
        long row = task / g, group = task % g, from = row / room.share, length = room.lengths[from], count = 0;
        auto keys = static_cast<Number*>(room.keys), values = static_cast<Number*>(room.values);
        auto at = [=](long t) {
            return (room.origin ? room.origin[row * room.origin_row + t] : from) * room.row + group * room.head + t * room.step;
        };
        if (fresh.key) {
            keep(fresh.key + row * fresh.row + group * d, d, keys + at(length - 1));
            keep(fresh.value + row * fresh.row + group * d, d, values + at(length - 1));
        }
        seen.resize(size_t(2 * length));
        weights.resize(size_t(length));
        for (long t = 0; t < length; ++t) {
            if (room.keep && !room.keep[from * room.keep_row + t]) continue;
            seen[size_t(count)] = keys + at(t);
            seen[size_t(length + count++)] = values + at(t);
        }
        for (long head = group * each; head < (group + 1) * each; ++head) {
            score(fresh.q + row * fresh.q_row + head * d, seen.data(), count, d, scale, weights.data());
            softmax(weights.data(), count);
            blend(weights.data(), seen.data() + length, count, d, out + (row * h + head) * d);
        }
    });
}

// The largest length of all rows, or -1 - i if the length or origin of row i of the cache is out of range. A new key and value are
// written to the row itself, so that no two threads write to the same address.
long longest(const Room& room, bool writes, long b) {
    long most = 0;
    for (long i = 0; i < b / room.share; ++i) {
        long length = room.lengths[i];
        if (length < (writes ? 1 : 0) || length > room.limit) return -1 - i;
        const int32_t* origin = room.origin ? room.origin + i * room.origin_row : nullptr;
        for (long t = 0; origin && t < length; ++t)
            if (origin[t] < 0 || origin[t] >= room.rows) return -1 - i;
        if (origin && writes && origin[length - 1] != i) return -1 - i;
        most = std::max(most, length);
    }
    return most;
}

}  // namespace

extern "C" {

// Attention of one new token per row over its cache: out (B, H, D) = softmax(q · keys * scale) · values.
// A new key and value, if given, are first written to the last position of each row.
// Returns -1, or the first row of the cache whose length or origin is out of range; then nothing was written.
long saccade_attend(const Room* room, const float* q, long q_row, const float* key, const float* value, long fresh_row,
                    float* out, long b, long h, long g, long d, float scale) {
    long most = longest(*room, key != nullptr, b);
    if (most < 0) return -1 - most;
    Fresh fresh{q, key, value, q_row, fresh_row};
    room->half ? attend<Half>(*room, fresh, most, out, b, h, g, d, scale)
               : attend<float>(*room, fresh, most, out, b, h, g, d, scale);
    return -1;
}

// Copies the first positions of a cache, each from the row that `origin` (B, K) names, into a buffer of the same layout; sizes in bytes.
void saccade_gather(const char* from, char* to, const int32_t* origin, long origin_row, long b, long g, long memory_row,
                    long memory_head, long d, long length) {
    spread(b * g, 8, b * g * d * length > 131072, [=](long i) {
        const int32_t* rows = origin + i / g * origin_row;
        char* head = to + i / g * memory_row + i % g * memory_head;
        for (long t = 0, end; t < length; t = end) {
            for (end = t + 1; end < length && rows[end] == rows[t];) ++end;  // adjacent positions of one row are copied together
            const char* there = from + rows[t] * memory_row + i % g * memory_head;
            std::memcpy(head + t * d, there + t * d, size_t((end - t) * d));
        }
    });
}
}
