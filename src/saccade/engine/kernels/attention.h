// Softmax attention of one head over the rows of one text. Keys are transposed once, so that a vector holds the scores of
// LANES keys. Scores are products in bfloat16, or in float32 if the program is; sums of values are in float32.
#pragma once
#include "kernels.h"
#include "product.h"
#include "rows.h"
#include "vectors.h"

namespace {

constexpr int QUERY_ROWS = 4, KEY_GROUPS = 2;

// The parts of the scratch space: transposed keys, queries and scores of QUERY_ROWS rows, and one row of keys.
struct AttendSpace {
    int32_t *keys, *queries, *row;
    float* scores;
    long blocks, groups, capacity;  // blocks of a row; groups of LANES keys; floats of a row of scores
};

INLINE AttendSpace divide_scratch(const Heads& h) {
    AttendSpace s;
    s.blocks = h.format == FLOAT32 ? h.width : (h.width + 1) / 2;
    s.groups = (h.rows + LANES - 1) / LANES;
    s.capacity = padded(h.rows);
    s.keys = reinterpret_cast<int32_t*>(h.scratch);
    s.scores = reinterpret_cast<float*>(s.keys + s.capacity * s.blocks);
    s.queries = reinterpret_cast<int32_t*>(s.scores + QUERY_ROWS * s.capacity);
    s.row = s.queries + QUERY_ROWS * (h.width + 1);
    return s;
}

INLINE void to_blocks(const Heads& h, const float* from, int32_t* to) {
    if (h.format == FLOAT32)
        __builtin_memcpy(to, from, size_t(h.width) * 4);
    else
        convert_bfloat16(from, h.width, reinterpret_cast<uint16_t*>(to));
}

// [group of LANES keys][block][key][4 bytes]; keys beyond the last are zero.
void transpose_keys(const Heads& h, const AttendSpace& s) {
    for (long key = 0; key < s.groups * LANES; ++key) {
        int32_t* to = s.keys + key / LANES * s.blocks * LANES + key % LANES;
        if (key < h.rows) to_blocks(h, h.key + key * h.stride, s.row);
        for (long b = 0; b < s.blocks; ++b) to[b * LANES] = key < h.rows ? s.row[b] : 0;
    }
}

template <class Product, int ROWS, int GROUPS>
INLINE void score_keys(const AttendSpace& s, long width, long group) {
    Floats total[ROWS][GROUPS];
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int g = 0; g < GROUPS; ++g) total[r][g] = Floats{};
    const int32_t* keys = s.keys + group * s.blocks * LANES;
    for (long b = 0; b < s.blocks; ++b)
        UNROLL for (int g = 0; g < GROUPS; ++g) {
            Ints k = load<Ints>(keys + (g * s.blocks + b) * LANES);
            UNROLL for (int r = 0; r < ROWS; ++r) total[r][g] = Product::add(total[r][g], s.queries[r * (width + 1) + b], k);
        }
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int g = 0; g < GROUPS; ++g) store(s.scores + r * s.capacity + (group + g) * LANES, total[r][g]);
}

// Replace the scores of a row by their exponentials, and return one over their sum.
INLINE float exponentiate(float* scores, long keys) {
    Floats top = splat(-3.4e38f), total = {};
    long full = keys / LANES * LANES;
    for (long j = 0; j < full; j += LANES) top = larger(load<Floats>(scores + j), top);
    float highest = most(top);
    for (long j = full; j < keys; ++j) highest = scores[j] > highest ? scores[j] : highest;
    for (long j = 0; j < keys; j += LANES) {
        Floats e = exponential(load<Floats>(scores + j) - splat(highest));
        if (keys - j < LANES) e = load_some(reinterpret_cast<const float*>(&e), keys - j);
        store(scores + j, e);
        total += e;
    }
    return 1.0f / sum(total);
}

template <int ROWS, int COLUMNS>
INLINE void weigh_values(const Heads& h, const AttendSpace& s, const float* inverse, long query, long column) {
    Floats total[ROWS][COLUMNS];
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int c = 0; c < COLUMNS; ++c) total[r][c] = Floats{};
    for (long j = 0; j < h.rows; ++j)
        UNROLL for (int c = 0; c < COLUMNS; ++c) {
            Floats v = load<Floats>(h.value + j * h.stride + column + c * LANES);
            UNROLL for (int r = 0; r < ROWS; ++r) total[r][c] += splat(s.scores[r * s.capacity + j]) * v;
        }
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int c = 0; c < COLUMNS; ++c)
            store(h.out + (query + r) * h.out_stride + column + c * LANES, total[r][c] * splat(inverse[r]));
}

template <class Product, int ROWS>
void attend_rows(const Heads& h, const AttendSpace& s, long query) {
    float scaled[MAX_HEAD_WIDTH], inverse[ROWS];
    for (int r = 0; r < ROWS; ++r) {
        for (long c = 0; c < h.width; ++c) scaled[c] = h.query[(query + r) * h.stride + c] * h.scale;
        to_blocks(h, scaled, s.queries + r * (h.width + 1));
    }
    long group = 0;
    for (; group + KEY_GROUPS <= s.groups; group += KEY_GROUPS) score_keys<Product, ROWS, KEY_GROUPS>(s, h.width, group);
    for (; group < s.groups; ++group) score_keys<Product, ROWS, 1>(s, h.width, group);
    for (int r = 0; r < ROWS; ++r) inverse[r] = exponentiate(s.scores + r * s.capacity, h.rows);
    long column = 0;
    for (; column + 2 * LANES <= h.width; column += 2 * LANES) weigh_values<ROWS, 2>(h, s, inverse, query, column);
    for (; column + LANES <= h.width; column += LANES) weigh_values<ROWS, 1>(h, s, inverse, query, column);
    for (; column < h.width; ++column)
        for (int r = 0; r < ROWS; ++r) {
            float total = 0.0f;
            for (long j = 0; j < h.rows; ++j) total += s.scores[r * s.capacity + j] * h.value[j * h.stride + column];
            h.out[(query + r) * h.out_stride + column] = total * inverse[r];
        }
}

template <class Product>
void attend_head(const Heads& h) {
    AttendSpace s = divide_scratch(h);
    transpose_keys(h, s);
    long query = 0;
    for (; query + QUERY_ROWS <= h.rows; query += QUERY_ROWS) attend_rows<Product, QUERY_ROWS>(h, s, query);
    for (; query < h.rows; ++query) attend_rows<Product, 1>(h, s, query);
}

void attend(const Heads* h) {
    if (h->format == FLOAT32)
        attend_head<Float32Product>(*h);
    else
        attend_head<Bfloat16Product>(*h);
}

}  // namespace
