// Kernels that work on one row at a time: quantization, norms and gates.
#pragma once
#include "kernels.h"
#include "vectors.h"

namespace {

// Quantize a row to levels from 0 to 255 of a range that includes zero; a row with an infinity or a NaN gets the scale NaN.
// The bytes up to a whole block are zero.
void quantize_int8(const float* x, long width, uint8_t* to, float* scale, int32_t* zero) {
    Floats low = {}, high = {}, poison = {};
    long i = 0;
    for (; i + LANES <= width; i += LANES) {
        Floats v = load<Floats>(x + i);
        low = smaller(v, low);
        high = larger(v, high);
        poison += v * splat(0.0f);
    }
    if (i < width) {
        Floats v = load_some(x + i, width - i);
        low = smaller(v, low);
        high = larger(v, high);
        poison += v * splat(0.0f);
    }
    float lowest = least(low), range = most(high) - lowest;
    bool flat = !(range > 1e-30f && range < 3e38f);
    float factor = flat ? 0.0f : 255.0f / range;
    *scale = (flat ? 0.0f : range / 255.0f) + sum(poison) + (range - range);
    Ints offset = rounded(splat(-lowest * factor));
    *zero = offset[0];
    for (i = 0; i < width; i += LANES) {
        Ints level = rounded((width - i < LANES ? load_some(x + i, width - i) : load<Floats>(x + i)) * splat(factor)) + offset;
        level = level > splat(255) ? splat(255) : level;
        Bytes bytes = __builtin_convertvector(level, Bytes);
        if (width - i < LANES)
            __builtin_memcpy(to + i, &bytes, size_t(width - i));
        else
            store(to + i, bytes);
    }
    for (i = width; i % BLOCK; ++i) to[i] = 0;
}

void convert_bfloat16(const float* x, long width, uint16_t* to) {
    long i = 0;
    for (; i + LANES <= width; i += LANES) store(to + i, to_bfloat16(load<Floats>(x + i)));
    if (i < width) {
        Halves some = to_bfloat16(load_some(x + i, width - i));
        __builtin_memcpy(to + i, &some, size_t(width - i) * 2);
    }
    if (width % 2) to[width] = 0;
}

INLINE void quantize_row(long format, const float* x, long width, Rows* to, long row) {
    char* data = to->data + row * to->stride;
    if (format == INT8)
        quantize_int8(x, width, reinterpret_cast<uint8_t*>(data), to->scales + row, to->zeros + row);
    else if (format == BFLOAT16)
        convert_bfloat16(x, width, reinterpret_cast<uint16_t*>(data));
    else
        __builtin_memcpy(data, x, size_t(width) * 4);
}

void quantize(long format, const float* x, long stride, long rows, long width, Rows* to) {
    for (long row = 0; row < rows; ++row) quantize_row(format, x + row * stride, width, to, row);
}

// `to` may be x itself.
INLINE void normalize_row(const Norm& norm, const float* x, long width, float* to) {
    long i = 0, full = width / LANES * LANES, rest = width - full;
    float mean = 0.0f;
    if (!norm.rms) {
        Floats total = {}, other = {};
        for (; i + 2 * LANES <= full; i += 2 * LANES) {
            total += load<Floats>(x + i);
            other += load<Floats>(x + i + LANES);
        }
        if (i < full) total += load<Floats>(x + i);
        mean = sum(total + other + load_some(x + full, rest));
        mean /= float(width);
    }
    Floats center = splat(mean), squares = {}, more = {};
    for (i = 0; i + 2 * LANES <= full; i += 2 * LANES) {
        Floats a = load<Floats>(x + i) - center, b = load<Floats>(x + i + LANES) - center;
        squares += a * a;
        more += b * b;
    }
    if (i < full) {
        Floats a = load<Floats>(x + i) - center;
        squares += a * a;
    }
    float square = sum(squares + more);
    for (i = full; i < width; ++i) square += (x[i] - mean) * (x[i] - mean);
    float factor = 1.0f / __builtin_sqrtf(square / float(width) + float(norm.eps));
    for (i = 0; i < full; i += LANES) {
        Floats y = (load<Floats>(x + i) - center) * splat(factor) * load<Floats>(norm.weight + i);
        store(to + i, norm.bias ? y + load<Floats>(norm.bias + i) : y);
    }
    for (; i < width; ++i) to[i] = (x[i] - mean) * factor * norm.weight[i] + (norm.bias ? norm.bias[i] : 0.0f);
}

INLINE void add_row(float* x, const float* y, long width) {
    long i = 0;
    for (; i + LANES <= width; i += LANES) store(x + i, load<Floats>(x + i) + load<Floats>(y + i));
    for (; i < width; ++i) x[i] += y[i];
}

void finish(const Finish* f) {
    for (long row = 0; row < f->rows; ++row) {
        float *x = f->x + row * f->stride, *to = f->keeps_sum ? f->scratch : x;
        for (long part = 0; part < f->count; ++part) add_row(x, f->parts[part] + row * f->stride, f->width);
        if (f->bias) add_row(x, f->bias, f->width);
        if (f->norm && f->norm->weight)
            normalize_row(*f->norm, x, f->width, to);
        else
            to = x;
        if (f->to) quantize_row(f->format, to, f->width, f->to, row);
    }
}

void gate(long activation, float* x, long stride, long rows, long first, long last, long half) {
    for (long row = 0; row < rows; ++row) {
        float* y = x + row * stride;
        long i = first;
        for (; i + LANES <= last; i += LANES)
            store(y + i, activated(activation, FLOAT32, load<Floats>(y + i)) * load<Floats>(y + half + i));
        if (i < last) {
            Floats left = activated(activation, FLOAT32, load_some(y + i, last - i));
            store_some(y + i, left * load_some(y + half + i, last - i), last - i);
        }
    }
}

}  // namespace
