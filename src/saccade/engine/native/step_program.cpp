// Interpreter of a StepProgram: runs several operators of native.cpp in one call, for one new token per row. step_program.py makes
// the list of operators and step_ops.py defines its layout.
#include "vector_math.h"
#include "kv_buffer.h"

extern "C" {

void saccade_int8_linear(const int8_t*, const int16_t*, const float*, const float*, long, long, const float*, const float*, float*,
                    long, long);
long saccade_attend(const Room*, const float*, long, const float*, const float*, long, float*, long, long, long, long, float);
void saccade_norm(const float*, const float*, const float*, float, float*, long, long, long);

enum Kind : int64_t { LINEAR, ATTEND, NORM, RMS, TURN, GATE };

// One operator; x, to and add are offsets in floats per row into the scratch space, or INPUT, OUTPUT, NOTHING.
enum Place : int64_t { INPUT = -1, OUTPUT = -2, NOTHING = -3 };
struct Step {
    int64_t kind, x, to, add, rows, columns, act, heads, groups, room;
    const void *first, *second, *third, *fourth;
    double number;
};

// Rotary positions: rotate the column pairs of `heads` heads of each row by the row's angles, given as cosines and sines side by side.
static void turn(const Step& s, float* x, const float* turns, long b, long width) {
    long half = s.columns / 2, apart = s.act ? 1 : half, next = s.act ? 2 : 1;
    for (long i = 0; i < b * s.heads; ++i) {
        float* head = x + i / s.heads * width + i % s.heads * s.columns;
        const float *cosine = turns + i / s.heads * s.columns, *sine = cosine + half;
        for (long j = 0; j < half; ++j) {
            float a = head[j * next], c = head[j * next + apart];
            head[j * next] = a * cosine[j] - c * sine[j];
            head[j * next + apart] = c * cosine[j] + a * sine[j];
        }
    }
}

// act(the first half of each row) times the second half.
static void gate(const Step& s, float* x, float* to, long b) {
    for (long i = 0; i < b; ++i) {
        float *left = x + 2 * i * s.rows, *out = to + i * s.rows;
        std::copy(left, left + s.rows, out);
        activate(s.act, out, s.rows);
        for (long j = 0; j < s.rows; ++j) out[j] *= left[s.rows + j];
    }
}

// Attention of a token over a KV buffer; its key and value follow its queries if they are to be written to the buffer.
static long attend(const Step& s, const Room& r, const float* x, float* to, long b) {
    long h = s.heads, g = s.groups, d = s.columns, width = s.rows;
    bool own = width > h * d;
    return saccade_attend(&r, x, width, own ? x + h * d : nullptr, own ? x + (h + g) * d : nullptr, width, to, b, h, g, d,
                          float(s.number));
}

// Run all operators; returns -1, or the buffer whose lengths or origins are out of range.
long saccade_run_program(const Step* steps, long count, const Room* rooms, const float* turns, float* space, const float* input,
                   float* output, long b) {
    auto at = [=](int64_t place) {
        if (place == NOTHING) return static_cast<float*>(nullptr);
        return place == INPUT ? const_cast<float*>(input) : place == OUTPUT ? output : space + place * b;
    };
    for (const Step* s = steps; s < steps + count; ++s) {
        float *x = at(s->x), *to = at(s->to);
        auto first = static_cast<const float*>(s->first), second = static_cast<const float*>(s->second);
        if (s->kind == LINEAR)
            saccade_int8_linear(static_cast<const int8_t*>(s->first), static_cast<const int16_t*>(s->second),
                           static_cast<const float*>(s->third), static_cast<const float*>(s->fourth), s->rows, s->columns, x,
                           at(s->add), to, b, s->act);
        if (s->kind == ATTEND && attend(*s, rooms[s->room], x, to, b) >= 0) return s->room;
        if (s->kind == NORM || s->kind == RMS)
            saccade_norm(x, first, second, float(s->number), to, b, s->rows, s->kind == RMS);
        if (s->kind == TURN) turn(*s, x, turns, b, s->rows);
        if (s->kind == GATE) gate(*s, x, to, b);
    }
    return -1;
}
}
