// A linear layer for any rows: threads share its panels, or the rows where there are many.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "space.h"
#include "threads.h"

namespace {

constexpr long CHUNK_ROWS = 96;        // rows that a thread takes at a time
constexpr long MIN_SHARED = 2000000;   // multiplications from which on more than one thread takes part

thread_local Space space;

struct LinearCall {
    const Kernels& kernels;
    const Matrix& matrix;
    const float *x, *add;
    long rows, activation;
    float* out;
    Rows input;                  // of all rows, where threads share the panels
    std::atomic<long> next{0};   // the next chunk of rows, or the next panel
    std::atomic<bool> failed{false};
};

size_t space_bytes(const Matrix& matrix, long rows) {
    size_t n = size_t(rows), stride = size_t(padded(matrix.inputs)) * 4;
    return Space::aligned(n * stride) + 2 * Space::aligned(n * 4) + Space::aligned(n * PANEL * 4);
}

// Quantize some rows into the space of this thread, which has room for them.
Rows quantize_rows(const LinearCall& call, long first, long count) {
    Rows to{};
    to.stride = padded(call.matrix.inputs) * 4;
    to.data = space.take<char>(size_t(count * to.stride));
    to.scales = space.take<float>(size_t(count));
    to.zeros = space.take<int32_t>(size_t(count));
    call.kernels.quantize(call.matrix.format, call.x + first * call.matrix.inputs, call.matrix.inputs, count, call.matrix.inputs, &to);
    return to;
}

// One panel of some rows. The last one may be wider than the output, and is computed beside it.
void multiply_panel(const LinearCall& call, const Rows& input, long first, long count, long panel, float* beside) {
    const Matrix& matrix = call.matrix;
    long columns = matrix.columns, left = std::min(PANEL, columns - panel * PANEL);
    float* out = call.out + first * columns;
    Part part{panel, panel + 1, 0, matrix.inputs, matrix.sums};
    if (left == PANEL) {
        call.kernels.product(&matrix, &part, &input, count, true, call.activation, out, columns);
    } else {
        call.kernels.product(&matrix, &part, &input, count, true, call.activation, beside - panel * PANEL, PANEL);
        for (long r = 0; r < count; ++r)
            std::memcpy(out + r * columns + panel * PANEL, beside + r * PANEL, size_t(left) * 4);
    }
    if (call.add)
        for (long r = 0; r < count; ++r)
            for (long c = panel * PANEL; c < panel * PANEL + left; ++c) out[r * columns + c] += call.add[(first + r) * columns + c];
}

void run_chunks(void* data, long) {
    LinearCall& call = *static_cast<LinearCall*>(data);
    long chunks = (call.rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    for (long chunk = call.next++; chunk < chunks; chunk = call.next++) {
        long first = chunk * CHUNK_ROWS, count = std::min(CHUNK_ROWS, call.rows - first);
        if (!space.reserve(space_bytes(call.matrix, count))) {
            call.failed = true;
            return;
        }
        Rows input = quantize_rows(call, first, count);
        float* beside = space.take<float>(size_t(count * PANEL));
        for (long panel = 0; panel * PANEL < call.matrix.columns; ++panel) multiply_panel(call, input, first, count, panel, beside);
    }
}

void run_panels(void* data, long member) {
    LinearCall& call = *static_cast<LinearCall*>(data);
    long panels = (call.matrix.columns + PANEL - 1) / PANEL;
    if (member && !space.reserve(Space::aligned(size_t(call.rows * PANEL) * 4))) return;  // the others do its work
    float* beside = space.take<float>(size_t(call.rows * PANEL));
    for (long panel = call.next++; panel < panels; panel = call.next++) multiply_panel(call, call.input, 0, call.rows, panel, beside);
}

}  // namespace

// out (rows, columns) = activation(x (rows, inputs) · weights + bias) + add; false if there is not enough memory.
bool linear(const Kernels& kernels, const Matrix& matrix, const float* x, long rows, long activation, const float* add, float* out,
            long threads) {
    LinearCall call{kernels, matrix, x, add, rows, activation, out, {}};
    if (double(rows) * double(matrix.columns) * double(matrix.inputs) < double(MIN_SHARED)) threads = 1;
    if (rows > CHUNK_ROWS) {
        Team::shared().run({run_chunks, &call}, threads, false);
        return !call.failed;
    }
    if (!space.reserve(space_bytes(matrix, rows))) return false;
    call.input = quantize_rows(call, 0, rows);
    Team::shared().run({run_panels, &call}, threads, false);
    return true;
}
