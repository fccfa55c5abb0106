// Matrix products of rows and packed weights: tiles of up to six rows, whose sums stay in registers over all inputs.
#pragma once
#include "kernels.h"
#include "vectors.h"

namespace {

constexpr int TILE_ROWS = 6;
constexpr long STEP = PANEL * BLOCK;  // bytes of a panel's weights for one block of inputs

// How each format multiplies a block of four bytes of a row with four bytes of each column.
struct Int8Product {
    typedef Ints Sums;
    static constexpr bool SCALED = true;
    INLINE Sums start(int32_t zero, const int32_t* sums) { return splat(-zero) * load<Ints>(sums); }
    INLINE Sums add(Sums sum, int32_t x, Ints w) {
#if defined(__AVX512VNNI__)
        return Ints(_mm512_dpbusd_epi32(__m512i(sum), _mm512_set1_epi32(x), __m512i(w)));
#elif defined(__AVXVNNI__)
        return Ints(_mm256_dpbusd_avx_epi32(__m256i(sum), _mm256_set1_epi32(x), __m256i(w)));
#elif defined(__AVX2__)
        // 16-bit products of the even and of the odd bytes; vpmaddubsw would saturate
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(__m256i(w), 8), 8), odd = _mm256_srai_epi16(__m256i(w), 8);
        __m256i low = _mm256_madd_epi16(even, _mm256_set1_epi32(x & 0x00ff00ff));
        __m256i high = _mm256_madd_epi16(odd, _mm256_set1_epi32(int32_t(uint32_t(x) >> 8) & 0x00ff00ff));
        return sum + Ints(low) + Ints(high);
#else
        UNROLL for (int j = 0; j < 4; ++j)
            sum += splat(int32_t(uint32_t(x) >> 8 * j & 255u)) * ((w << (24 - 8 * j)) >> 24);
        return sum;
#endif
    }
    INLINE Floats finish(Sums sum) { return to_floats(sum); }
};

struct Bfloat16Product {
    typedef Floats Sums;
    static constexpr bool SCALED = false;
    INLINE Sums start(int32_t, const int32_t*) { return Floats{}; }
    INLINE Sums add(Sums sum, int32_t x, Ints w) {
#if defined(__AVX512BF16__)
        return _mm512_dpbf16_ps(sum, __m512bh(_mm512_set1_epi32(x)), __m512bh(__m512i(w)));
#else
        const int32_t upper = int32_t(0xffff0000u);
        sum += Floats(splat(int32_t(uint32_t(x) << 16))) * Floats(w << 16);
        return sum + Floats(splat(x & upper)) * Floats(w & splat(upper));
#endif
    }
    INLINE Floats finish(Sums sum) { return sum; }
};

struct Float32Product {
    typedef Floats Sums;
    static constexpr bool SCALED = false;
    INLINE Sums start(int32_t, const int32_t*) { return Floats{}; }
    INLINE Sums add(Sums sum, int32_t x, Ints w) { return sum + Floats(splat(x)) * Floats(w); }
    INLINE Floats finish(Sums sum) { return sum; }
};

// What the tiles of one group of rows have in common.
struct TileRows {
    const char* x;
    long stride;
    const float* scales;
    const int32_t* zeros;
    float* out;
    long out_stride;
};

// ROWS rows times VECTORS * LANES columns. Meanwhile memory at `ahead` is prefetched, `pace` bytes at a time.
template <class Product, int ROWS>
INLINE void multiply_tile(const TileRows& rows, const char* weights, long blocks, const int32_t* sums, const float* scales,
                          const float* bias, const char* ahead, long pace) {
    typename Product::Sums total[ROWS][VECTORS];
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int c = 0; c < VECTORS; ++c)
            total[r][c] = Product::start(Product::SCALED ? rows.zeros[r] : 0, sums + c * LANES);
#pragma GCC unroll 2
    for (long k = 0; k < blocks; ++k) {
        Ints w[VECTORS];
        UNROLL for (int c = 0; c < VECTORS; ++c) w[c] = load<Ints>(weights + k * STEP + c * 4 * LANES);
        __builtin_prefetch(ahead, 0, 2);
        ahead += pace;
        UNROLL for (int r = 0; r < ROWS; ++r) {
            int32_t x = load_block(rows.x + r * rows.stride + k * BLOCK);
            UNROLL for (int c = 0; c < VECTORS; ++c) total[r][c] = Product::add(total[r][c], x, w[c]);
        }
    }
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int c = 0; c < VECTORS; ++c) {
            Floats y = Product::finish(total[r][c]);
            if (Product::SCALED) y *= splat(rows.scales[r]) * load<Floats>(scales + c * LANES);
            if (bias) y += load<Floats>(bias + c * LANES);
            store(rows.out + r * rows.out_stride + c * LANES, y);
        }
}

template <class Product>
INLINE void multiply_rows(int count, const TileRows& rows, const char* weights, long blocks, const int32_t* sums,
                          const float* scales, const float* bias, const char* ahead, long pace) {
    switch (count) {
        case 1: return multiply_tile<Product, 1>(rows, weights, blocks, sums, scales, bias, ahead, pace);
        case 2: return multiply_tile<Product, 2>(rows, weights, blocks, sums, scales, bias, ahead, pace);
        case 3: return multiply_tile<Product, 3>(rows, weights, blocks, sums, scales, bias, ahead, pace);
        case 4: return multiply_tile<Product, 4>(rows, weights, blocks, sums, scales, bias, ahead, pace);
        case 5: return multiply_tile<Product, 5>(rows, weights, blocks, sums, scales, bias, ahead, pace);
        default: return multiply_tile<Product, 6>(rows, weights, blocks, sums, scales, bias, ahead, pace);
    }
}

void activate_tile(long activation, long format, float* out, long stride, int rows) {
    for (int r = 0; r < rows; ++r)
        for (long c = 0; c < PANEL; c += LANES) {
            float* y = out + r * stride + c;
            store(y, activated(activation, format, load<Floats>(y)));
        }
}

template <class Product>
void multiply(const Matrix* matrix, const Part* part, const Rows* x, long rows, bool with_bias, long activation, float* out,
              long stride) {
    static const int32_t no_sums[PANEL] = {};
    static const float no_scales[PANEL] = {};
    long each = per_block(matrix->format), all = (matrix->inputs + each - 1) / each;
    long start = part->start / each, blocks = (part->end + each - 1) / each - start;
    long tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (long p = part->first; p < part->last; ++p) {
        const char* panel = matrix->weights + (p * all + start) * STEP;
        const char* next = p + 1 < part->last ? panel + all * STEP : panel;
        const int32_t* sums = Product::SCALED ? part->sums + p * PANEL : no_sums;
        const float* scales = Product::SCALED ? matrix->scales + p * PANEL : no_scales;
        const float* bias = with_bias && matrix->bias ? matrix->bias + p * PANEL : nullptr;
        for (long t = 0, row = 0; t < tiles; ++t) {
            int count = int(rows / tiles + (t < rows % tiles));
            TileRows some{x->data + row * x->stride, x->stride, x->scales + row, x->zeros + row, out + row * stride + p * PANEL, stride};
            for (long c = 0; c < PANEL; c += VECTORS * LANES) {
                long skip = Product::SCALED ? c : 0;
                const char* ahead = next + blocks * STEP / tiles * t + c * BLOCK;
                multiply_rows<Product>(count, some, panel + c * BLOCK, blocks, sums + skip, scales + skip, bias ? bias + c : nullptr,
                                       ahead, STEP / tiles);
                some.out += VECTORS * LANES;
            }
            if (activation != NONE) activate_tile(activation, matrix->format, out + row * stride + p * PANEL, stride, count);
            row += count;
        }
    }
}

void product(const Matrix* matrix, const Part* part, const Rows* x, long rows, bool with_bias, long activation, float* out,
             long stride) {
    auto run = matrix->format == INT8       ? multiply<Int8Product>
               : matrix->format == BFLOAT16 ? multiply<Bfloat16Product>
                                            : multiply<Float32Product>;
    run(matrix, part, x, rows, with_bias, activation, out, stride);
}

}  // namespace
