// The KV cache of one attention, as step_ops.py describes it (BoundKVBuffer).
#pragma once
#include <cstdint>

struct Room {
    void *keys, *values;  // float32, or float16 if `half`
    int64_t half;
    int64_t row, head, step;  // strides of rows, heads and positions, in elements
    int64_t rows, limit;      // number of rows of the cache, and positions per row
    int64_t share;  // number of consecutive query rows that read the same row of the cache
    int64_t keep_row, origin_row;
    const int64_t* lengths;
    const uint8_t* keep;
    const int32_t* origin;  // optional indirection table: the row of the cache that holds each position of a row
};
