// An encoder as the program reads it: encoder_program.py fills in these structures, field by field.
#pragma once
#include "kernels.h"

struct Layer {
    Matrix joint, output, up, down;  // queries, keys and values of all heads; gated: gates and then values
    Norm attention_norm, feedforward_norm;
    int64_t heads, kv_heads, head_width, activation, gated, norm_first;
    double scale;
    const int32_t *output_sums, *down_sums;  // of the int8 weights, for each thread's part of the inputs
};

// Token embeddings; no words means that the program starts from hidden states.
struct Embedding {
    const float *words, *positions, *segments;
    int64_t vocab, max_positions, segment_types, width;
    double scale;
    Norm norm;
    Matrix project;  // from the width of the embeddings to that of the layers; no weights where they are equal
};

struct Encoder {
    Embedding embedding;
    const Layer* layers;
    int64_t count, width, format;
    Norm leave;
    int64_t parts;  // threads that the sums of the layers are made for; 1: a text is never shared by threads
};

enum Pool : int64_t { ALL_ROWS, MEAN, FIRST };

// Texts lie one behind the other, without padding; `starts` has the first row of each in the output, which may have padding.
struct Texts {
    const int32_t *tokens, *segments;  // or
    const float* rows;                 // hidden states
    const int64_t *lengths, *starts;
    int64_t count;
    float* out;
    int64_t pool;
};
