// The memory of one attention, as steps.py describes it.
#pragma once
#include <cstdint>

struct Room {
    void *keys, *values;  // floats, or halves
    int64_t half;
    int64_t row, head, step;  // numbers from one row, head and place to the next
    int64_t rows, limit;      // how many rows the memory has, and how many places each
    int64_t share;  // so many rows of queries in turn look at one row of the memory
    int64_t keep_row, origin_row;
    const int64_t* lengths;
    const uint8_t* keep;
    const int32_t* origin;  // when given, in which row of the memory each place of a row lies
};
