// The inner loops of the engine: packing weights to int8, int8 matrix products, norms. Plain C functions without PyTorch's headers;
// build.py compiles them on first use.
#include "int8_matmul.h"

// Nothing runs in parallel before saccade_set_thread_pool is called.
Parallel parallel = nullptr;
int (*pool_size)() = nullptr;
thread_local long alone = 0, patience = 8;

namespace {

constexpr long CHUNK = 98304;  // bytes of weights that a thread takes at a time, long enough for the hardware prefetcher

// Quantize a row of weights to [-127, 127] and return its scale; a row with an infinity or a NaN gets the scale NaN.
float quantize(const float* x, long width, int8_t* q) {
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

}  // namespace

extern "C" {

// Set the two entry points of the thread pool.
void saccade_set_thread_pool(void* run, void* size) {
    parallel = reinterpret_cast<Parallel>(run);
    pool_size = reinterpret_cast<int (*)()>(size);
}

// Quantize a weight (N, K) row by row into tiles, which must be zero before, and compute the sum of each group of each row; a
// row that is not finite gets the scale NaN.
void saccade_pack_int8(const float* weight, long n, long k, int8_t* tiles, int16_t* sums, float* scale) {
    long width = (k + 3) / 4 * 4, groups = (k + GROUP - 1) / GROUP;
    spread((n + TILE - 1) / TILE, 1, n * k > 32768, [=](long t) {
        std::vector<int8_t> row(size_t(width), 0);
        for (long r = 0; r < std::min(TILE, n - t * TILE); ++r) {
            scale[t * TILE + r] = quantize(weight + (t * TILE + r) * k, k, row.data());
            for (long c = 0; c < width; c += 4) std::memcpy(tiles + (t * width + c) * TILE + 4 * r, row.data() + c, 4);
            for (long c = 0; c < k; ++c) sums[(t * groups + c / GROUP) * TILE + r] += row[size_t(c)];
        }
    });
}

// out (M, N) = act(x (M, K) · W^T + bias) + add, with int8 tiles of W, one scale per row of W and one span per group of x.
void saccade_int8_linear(const int8_t* w, const int16_t* weights, const float* scale, const float* bias, long n, long k,
                    const float* x, const float* add, float* out, long m, long act) {
    Rounded rows = rounded(x, m, k);
    Layer layer{w, weights, scale, bias, n, k};
    long tiles = (n + TILE - 1) / TILE, grain = std::max(1L, std::min(CHUNK / (TILE * rows.width), tiles / 8));
    spread(tiles, grain, n * k * m > 32768, [=](long t) {
        long first = t * TILE, count = std::min(TILE, n - first);
        multiply(layer, t, rows, [=](long row, float* y) {
            if (act == NONE && add)
                for (long r = 0; r < count; ++r) y[r] += add[row * n + first + r];
            std::memcpy(out + row * n + first, y, size_t(count) * 4);
        });
        if (act == NONE) return;
        // activations after all products, so that no product waits for an exponential
        for (long row = 0; row < m; ++row) {
            float* y = out + row * n + first;
            activate(act, y, count);
            if (add)
                for (long r = 0; r < count; ++r) y[r] += add[row * n + first + r];
        }
    });
}

// Layer norm of each row, or RMS norm if `rms`.
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
