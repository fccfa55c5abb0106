// Fused output layer and top-k: the best tokens of each row, without storing the scores of the whole vocabulary.
#include <cfloat>

#include "int8_matmul.h"

namespace {

constexpr long BLOCK = 8 * TILE;  // tokens that are scored before they are ranked, since products and exponentials interleave badly

inline float largest(const float* y) {
    float most = -INFINITY;
#pragma omp simd reduction(max : most)
    for (long r = 0; r < TILE; ++r) most = std::max(most, y[r]);
    return most;
}

// Running statistics of a row's scores: the maximum, the sum of e^(score - maximum), and the top k.
struct Ranks {
    float* values;  // in descending order, padded with -inf
    int64_t* tokens;
    long count;
    float top = -FLT_MAX;
    double sum = 0.0;

    void rank(float value, int64_t token) {
        long i = count - 1;
        if (!(value > values[i])) return;
        for (; i > 0 && value > values[i - 1]; --i) values[i] = values[i - 1], tokens[i] = tokens[i - 1];
        values[i] = value, tokens[i] = token;
    }

    void add(float other_top, double other_sum) {
        float higher = std::max(top, other_top);
        sum = sum * std::exp(double(top) - higher) + other_sum * std::exp(double(other_top) - higher);
        top = higher;
    }

    // Add the scores of a block of tokens that starts at `first`; scores beyond the vocabulary are -inf.
    void take(const float* y, int64_t first) {
        float most[BLOCK / TILE], raised = 0.0f;
        for (long t = 0; t < BLOCK / TILE; ++t) most[t] = largest(y + t * TILE);
        float under = *std::max_element(most, most + BLOCK / TILE);
        if (under > top) add(under, 0.0);
        under = top;
#pragma omp simd reduction(+ : raised)
        for (long r = 0; r < BLOCK; ++r) raised += exponential(y[r] - under);
        sum += raised;
        for (long t = 0; t < BLOCK / TILE; ++t)
            for (long r = t * TILE; most[t] > values[count - 1] && r < (t + 1) * TILE; ++r) rank(y[r], first + r);
    }
};

}  // namespace

extern "C" {

// The `count` highest scores x (M, K) · W^T + bias of each row and their tokens, (M, count), in descending order and the lower token
// first among equals, and the log-probability of the best, (M). Missing entries are -inf; NaN is never among the best.
void saccade_topk(const int8_t* w, const int16_t* weights, const float* scale, const float* bias, long n, long k,
                  const float* x, long m, long count, float* values, int64_t* tokens, float* chances) {
    Rounded rows = rounded(x, m, k);
    Layer layer{w, weights, scale, bias, n, k};
    long tiles = (n + TILE - 1) / TILE, strips = pool_size ? 2 * pool_size() : 1;  // parts of the vocabulary, distributed over the threads
    std::vector<float> best(size_t(strips * m * count), -INFINITY);
    std::vector<int64_t> words(size_t(strips * m * count), 0);
    std::vector<Ranks> ranks(size_t(strips * m));
    for (long i = 0; i < strips * m; ++i) ranks[size_t(i)] = {best.data() + i * count, words.data() + i * count, count};
    Ranks* known = ranks.data();
    spread(strips, 1, n * k * m > 32768, [=](long strip) {
        static thread_local std::vector<float> kept;
        kept.resize(size_t(m * BLOCK));
        float* scores = kept.data();
        long end = (strip + 1) * tiles / strips * TILE, next;
        for (long first = strip * tiles / strips * TILE; first < end; first = next) {
            next = std::min(first + BLOCK, end);
            long size = std::min(next, n) - first;
            for (long word = first; word < next; word += TILE)
                multiply(layer, word / TILE, rows, [=](long row, float* y) {
                    std::memcpy(scores + row * BLOCK + word - first, y, TILE * 4);
                });
            for (long row = 0; row < m; ++row) {
                float* y = scores + row * BLOCK;
                std::fill(y + size, y + BLOCK, -INFINITY);
                known[strip * m + row].take(y, first);
            }
        }
    });
    for (long row = 0; row < m; ++row) {
        Ranks all{values + row * count, tokens + row * count, count};
        std::fill(all.values, all.values + count, -INFINITY);
        std::fill(all.tokens, all.tokens + count, 0);
        for (long strip = 0; strip < strips; ++strip) {
            const Ranks& part = known[strip * m + row];
            all.add(part.top, part.sum);
            for (long i = 0; i < count; ++i) all.rank(part.values[i], part.tokens[i]);
        }
        chances[row] = float(-std::log(all.sum));
    }
}
}
