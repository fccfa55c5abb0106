// The kernels of the encoder engine: one table of functions for each instruction set (`Kernels`), and the structures they read.
// kernels.cpp is compiled once for each instruction set; encoder.cpp, which calls them, is compiled once.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Formats of packed weights and of the rows that they are multiplied by; the order is that of matrix.py.
enum Format : int64_t { INT8, BFLOAT16, FLOAT32 };
enum Activation : int64_t { NONE, GELU, GELU_TANH, RELU, SILU };  // in the order of reference_ops.ACTIVATIONS

constexpr long PANEL = 64;        // columns of a product that are packed together
constexpr long BLOCK = 4;         // bytes of a row, and of each column, that one instruction multiplies
constexpr long MAX_THREADS = 16;  // threads that share an encoder
constexpr long MAX_HEAD_WIDTH = 512;

// The number of elements of a format in a block.
constexpr long per_block(long format) { return format == INT8 ? 4 : format == BFLOAT16 ? 2 : 1; }

// A packed weight of `columns` outputs and `inputs` inputs: [panel][block of inputs][column of the panel][BLOCK bytes].
struct Matrix {
    const char* weights;
    const float* scales;    // one for each output; int8 only
    const int32_t* sums;    // the sum of the int8 weights of each output; int8 only
    const float* bias;      // one for each output, or null
    int64_t columns, inputs, format;
};

// Rows in the format of a product. int8 rows are unsigned: value = (level - zero) * scale.
struct Rows {
    char* data;
    float* scales;
    int32_t* zeros;
    int64_t stride;  // bytes from row to row
};

// Which part of a product to compute: panels first to last - 1, over inputs from start to end - 1, with the sums of these inputs.
struct Part {
    int64_t first, last, start, end;
    const int32_t* sums;
};

// Layer norm, or the root-mean-square norm; no weight means no norm, and no bias none.
struct Norm {
    const float *weight, *bias;
    double eps;
    int64_t rms;
};

// The end of a sublayer for some rows: x + the parts of its output + bias, normalized, and in the format of the next product.
struct Finish {
    float* x;
    const float* parts[MAX_THREADS];
    long count, stride, rows, width;
    const float* bias;
    const Norm* norm;
    bool keeps_sum;  // pre-norm: x keeps the sum, and only the next product reads what is normalized
    float* scratch;  // one row
    long format;
    Rows* to;        // or null
};

// Attention of one head over one text: pointers to the head in its first row.
struct Heads {
    const float *query, *key, *value;
    float* out;
    long stride, out_stride, rows, width, format;
    float scale;
    char* scratch;  // attend_scratch bytes
};

struct Kernels {
    const char* name;
    // out = activation(x · weights + bias) for the columns of the part, and bias only where asked
    void (*product)(const Matrix* matrix, const Part* part, const Rows* x, long rows, bool with_bias, long activation,
                    float* out, long stride);
    void (*quantize)(long format, const float* x, long stride, long rows, long width, Rows* to);
    void (*finish)(const Finish* finish);
    void (*attend)(const Heads* heads);
    // the first half of each row, activated, times the second half
    void (*gate)(long activation, float* x, long stride, long rows, long first, long last, long half);
};

extern const Kernels avx512_bf16_kernels, avx512_kernels, avx_vnni_kernels, avx2_kernels, plain_kernels;

static inline long padded(long n) { return (n + PANEL - 1) / PANEL * PANEL; }
// Bytes: the transposed keys, the scores and queries of four rows, and one row of keys.
static inline size_t attend_scratch(long rows, long width) { return (size_t(padded(rows)) * size_t(width + 4) + 5 * size_t(width + 1)) * 4; }
