// The encoder: all layers of a batch of texts in one call. Threads take whole texts; where there are too few of them, they share
// a text, each with its heads and its part of the feed-forward, and meet twice a layer.
#include "encoder.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "space.h"
#include "threads.h"

namespace {

constexpr long CHUNK_ROWS = 96;  // rows that a thread takes at a time, which fit in its cache beside a panel of weights
constexpr double MAX_IMBALANCE = 1.25;  // of whole texts; beyond it, threads share each text
constexpr double MIN_SHARED = 2e7;      // multiplications from which on more than one thread takes part

thread_local Space space;

// What all threads of a call share.
struct Call {
    const Encoder& encoder;
    const Texts& texts;
    const Kernels& kernels;
    std::vector<long> first_rows;               // of each text, and of the end
    std::vector<float*> attended, fed;          // the part of each thread in the output of a sublayer
    std::atomic<long> next{0};                  // the next text that no thread has taken
    std::atomic<bool> failed{false};            // there was not enough memory
    long chunk_rows = CHUNK_ROWS;
};

// The rows of some texts in one thread, and its part of the columns where several threads share them.
class Rowset {
public:
    Rowset(Call& call, long first_text, long last_text, long member, long members)
        : call_(call), encoder_(call.encoder), kernels_(call.kernels), first_text_(first_text), last_text_(last_text),
          member_(member), members_(members), first_row_(call.first_rows[size_t(first_text)]),
          rows_(call.first_rows[size_t(last_text)] - first_row_) {}

    void run() {
        if (!allocate()) call_.failed = true;
        if (members_ > 1) meet();  // the parts of all threads are allocated
        if (call_.failed) return;
        embed();
        for (long i = 0; i < encoder_.count; ++i) {
            const Layer& layer = encoder_.layers[i];
            attend(layer);
            feed(layer, i + 1 < encoder_.count ? encoder_.layers + i + 1 : nullptr);
        }
        if (member_ == 0 || members_ == 1) write();
    }

private:
    bool allocate() {
        stride_ = padded(std::max(encoder_.width, encoder_.embedding.width));
        joint_stride_ = middle_stride_ = context_width_ = 0;
        size_t scratch = 64, longest = 0;
        for (long t = first_text_; t < last_text_; ++t)
            longest = std::max(longest, size_t(call_.texts.lengths[t]));
        for (long i = 0; i < encoder_.count; ++i) {
            const Layer& layer = encoder_.layers[i];
            joint_stride_ = std::max(joint_stride_, padded(layer.joint.columns));
            middle_stride_ = std::max(middle_stride_, padded(layer.up.columns));
            context_width_ = std::max(context_width_, long(layer.heads * layer.head_width));
            scratch = std::max(scratch, attend_scratch(long(longest), layer.head_width));
        }
        context_stride_ = padded(context_width_);
        input_stride_ = std::max({stride_, context_stride_, middle_stride_}) * 4;
        size_t n = size_t(rows_), floats[] = {n * stride_, n * joint_stride_, n * context_stride_, n * middle_stride_,
                                              n * stride_, n * stride_, size_t(stride_), n};
        size_t bytes = Space::aligned(scratch) + Space::aligned(n * input_stride_) + Space::aligned(n * 4);
        for (size_t count : floats) bytes += Space::aligned(count * 4);
        if (!space.reserve(bytes)) return false;
        x_ = space.take<float>(floats[0]);
        joint_ = space.take<float>(floats[1]);
        context_ = space.take<float>(floats[2]);
        middle_ = space.take<float>(floats[3]);
        call_.attended[size_t(member_)] = space.take<float>(floats[4]);
        call_.fed[size_t(member_)] = space.take<float>(floats[5]);
        row_ = space.take<float>(floats[6]);
        input_.scales = space.take<float>(n);
        input_.zeros = space.take<int32_t>(n);
        input_.data = space.take<char>(n * input_stride_);
        input_.stride = input_stride_;
        scratch_ = space.take<char>(scratch);
        return true;
    }

    void meet() { Team::shared().meet(member_, members_, phase_); }

    // Token, segment and position embeddings, and their norm; or hidden states as they are.
    void embed() {
        const Embedding& e = encoder_.embedding;
        const Texts& texts = call_.texts;
        if (!e.words)
            for (long r = 0; r < rows_; ++r)
                std::memcpy(x_ + r * stride_, texts.rows + (first_row_ + r) * encoder_.width, size_t(encoder_.width) * 4);
        else
            for (long t = first_text_, r = 0; t < last_text_; ++t)
                for (long i = 0; i < texts.lengths[t]; ++i, ++r) embed_token(first_row_ + r, i, x_ + r * stride_);
        if (e.project.weights) {
            finish({}, e.width, &e.norm, nullptr, false, encoder_.format);
            multiply(e.project, true, NONE, x_, stride_);
        }
        bool norm_first = encoder_.count && encoder_.layers[0].norm_first;
        const Norm* norm = norm_first ? &encoder_.layers[0].attention_norm : nullptr;
        if (!e.project.weights && e.norm.weight) finish({}, e.width, &e.norm, nullptr, false, norm_first ? NOTHING : encoder_.format);
        else if (!norm_first) kernels_.quantize(encoder_.format, x_, stride_, rows_, encoder_.width, &input_);
        if (norm_first) finish({}, encoder_.width, norm, nullptr, true, encoder_.format);
    }

    void embed_token(long at, long position, float* to) {
        const Embedding& e = encoder_.embedding;
        const float* word = e.words + call_.texts.tokens[at] * e.width;
        const float* place = e.positions ? e.positions + position * e.width : nullptr;
        long type = call_.texts.segments ? call_.texts.segments[at] : 0;
        const float* segment = e.segments ? e.segments + type * e.width : nullptr;
        float scale = float(e.scale);
        for (long i = 0; i < e.width; ++i) to[i] = word[i] * scale;
        if (segment) for (long i = 0; i < e.width; ++i) to[i] += segment[i];
        if (place) for (long i = 0; i < e.width; ++i) to[i] += place[i];
    }

    void multiply(const Matrix& matrix, bool with_bias, long activation, float* out, long stride) {
        multiply_part(matrix, {0, padded(matrix.columns) / PANEL, 0, matrix.inputs, matrix.sums}, with_bias, activation, out, stride);
    }
    void multiply_part(const Matrix& matrix, const Part& part, bool with_bias, long activation, float* out, long stride) {
        kernels_.product(&matrix, &part, &input_, rows_, with_bias, activation, out, stride);
    }

    // The panels of columns first to last - 1; panels at the ends may have columns of other threads too.
    void multiply_columns(const Matrix& matrix, long first, long last) {
        multiply_part(matrix, {first / PANEL, padded(last) / PANEL, 0, matrix.inputs, matrix.sums}, true, NONE, joint_, joint_stride_);
    }

    static constexpr long NOTHING = -1;

    void finish(const std::vector<float*>& parts, long width, const Norm* norm, const float* bias, bool keeps_sum, long format) {
        Finish f{};
        f.x = x_;
        f.count = long(parts.size());
        std::copy(parts.begin(), parts.end(), f.parts);
        f.stride = stride_;
        f.rows = rows_;
        f.width = width;
        f.bias = bias;
        f.norm = norm;
        f.keeps_sum = keeps_sum;
        f.scratch = row_;
        f.format = format;
        f.to = format == NOTHING ? nullptr : &input_;
        kernels_.finish(&f);
    }

    // The parts of all threads that share these rows, or the only one.
    std::vector<float*> parts_of(const std::vector<float*>& all) const {
        return members_ > 1 ? std::vector<float*>(all.begin(), all.begin() + members_) : std::vector<float*>{all[size_t(member_)]};
    }
    long share(long total, long member) const { return members_ > 1 ? total * member / members_ : member ? total : 0; }
    long first_share(long total) const { return members_ > 1 ? share(total, member_) : 0; }
    long last_share(long total) const { return members_ > 1 ? share(total, member_ + 1) : total; }

    // The sums of the int8 weights over this thread's part of the inputs.
    const int32_t* own_sums(const Matrix& matrix, const int32_t* of_parts) const {
        return members_ > 1 ? of_parts + member_ * padded(matrix.columns) : matrix.sums;
    }

    void attend(const Layer& layer) {
        long d = layer.head_width, group = layer.heads / layer.kv_heads;
        long first = first_share(layer.kv_heads), last = last_share(layer.kv_heads);
        long keys = layer.heads * d, values = keys + layer.kv_heads * d;
        if (members_ == 1) {
            multiply(layer.joint, true, NONE, joint_, joint_stride_);
        } else {
            multiply_columns(layer.joint, first * group * d, last * group * d);
            multiply_columns(layer.joint, keys + first * d, keys + last * d);
            multiply_columns(layer.joint, values + first * d, values + last * d);
        }
        for (long t = first_text_, row = 0; t < last_text_; row += call_.texts.lengths[t++])
            for (long head = first * group; head < last * group; ++head) {
                const float* joint = joint_ + row * joint_stride_;
                Heads heads{joint + head * d, joint + keys + head / group * d, joint + values + head / group * d,
                            context_ + row * context_stride_ + head * d, joint_stride_, context_stride_,
                            long(call_.texts.lengths[t]), d, encoder_.format, float(layer.scale), scratch_};
                kernels_.attend(&heads);
            }
        long start = first * group * d, end = last * group * d;
        kernels_.quantize(encoder_.format, context_ + start, context_stride_, rows_, end - start, &input_);
        float* out = call_.attended[size_t(member_)];
        multiply_part(layer.output, {0, padded(layer.output.columns) / PANEL, start, end, own_sums(layer.output, layer.output_sums)},
                      false, NONE, out, stride_);
        if (members_ > 1) meet();
        const Norm* norm = layer.norm_first ? &layer.feedforward_norm : &layer.attention_norm;
        finish(parts_of(call_.attended), encoder_.width, norm, layer.output.bias, layer.norm_first, encoder_.format);
    }

    void feed(const Layer& layer, const Layer* next) {
        long hidden = layer.down.inputs, panels = padded(hidden) / PANEL;
        long first = first_share(panels), last = last_share(panels), start = first * PANEL, end = std::min(last * PANEL, hidden);
        long activation = layer.gated ? NONE : layer.activation;
        if (members_ == 1) {
            multiply(layer.up, true, activation, middle_, middle_stride_);
        } else {
            multiply_part(layer.up, {first, last, 0, layer.up.inputs, layer.up.sums}, true, activation, middle_, middle_stride_);
            if (layer.gated)
                multiply_part(layer.up, {first + panels, last + panels, 0, layer.up.inputs, layer.up.sums}, true, NONE, middle_,
                              middle_stride_);
        }
        if (layer.gated) kernels_.gate(layer.activation, middle_, middle_stride_, rows_, start, end, hidden);
        kernels_.quantize(encoder_.format, middle_ + start, middle_stride_, rows_, end - start, &input_);
        float* out = call_.fed[size_t(member_)];
        multiply_part(layer.down, {0, padded(layer.down.columns) / PANEL, start, end, own_sums(layer.down, layer.down_sums)}, false,
                      NONE, out, stride_);
        if (members_ > 1) meet();
        std::vector<float*> parts = parts_of(call_.fed);
        if (!layer.norm_first)
            finish(parts, encoder_.width, &layer.feedforward_norm, layer.down.bias, false, next ? encoder_.format : NOTHING);
        else if (next)
            finish(parts, encoder_.width, &next->attention_norm, layer.down.bias, true, encoder_.format);
        else
            finish(parts, encoder_.width, nullptr, layer.down.bias, false, NOTHING);
    }

    void write() {
        if (encoder_.leave.weight) finish({}, encoder_.width, &encoder_.leave, nullptr, false, NOTHING);
        const Texts& texts = call_.texts;
        size_t width = size_t(encoder_.width);
        const float* x = x_;
        for (long t = first_text_; t < last_text_; ++t) {
            long n = texts.lengths[t];
            float* out = texts.out + texts.starts[t] * encoder_.width;
            long written = texts.pool == ALL_ROWS ? n : std::min(n, 1L);
            for (long i = 0; i < written; ++i) std::memcpy(out + i * encoder_.width, x + i * stride_, width * 4);
            if (texts.pool == MEAN && n) {
                for (long i = 1; i < n; ++i)
                    for (size_t c = 0; c < width; ++c) out[c] += x[i * stride_ + long(c)];
                for (size_t c = 0; c < width; ++c) out[c] /= float(n);
            }
            x += n * stride_;
        }
    }

    Call& call_;
    const Encoder& encoder_;
    const Kernels& kernels_;
    long first_text_, last_text_, member_, members_, first_row_, rows_;
    long stride_ = 0, joint_stride_ = 0, context_stride_ = 0, context_width_ = 0, middle_stride_ = 0, input_stride_ = 0;
    float *x_ = nullptr, *joint_ = nullptr, *context_ = nullptr, *middle_ = nullptr, *row_ = nullptr;
    char* scratch_ = nullptr;
    Rows input_{};
    uint64_t phase_ = 0;
};

// Take texts until none is left.
void run_texts(void* data, long member) {
    Call& call = *static_cast<Call*>(data);
    for (long first = call.next; first < call.texts.count; first = call.next) {
        long last = first + 1;
        while (last < call.texts.count && call.first_rows[size_t(last + 1)] - call.first_rows[size_t(first)] <= call.chunk_rows) ++last;
        if (call.next.compare_exchange_strong(first, last)) Rowset(call, first, last, member, 1).run();
    }
}

void run_shared(void* data, long member) {
    Call& call = *static_cast<Call*>(data);
    Rowset(call, 0, call.texts.count, member, call.encoder.parts).run();
}

// How much longer the busiest thread works than if all had the same, when threads take one chunk after another.
double imbalance(const Call& call, long threads) {
    std::vector<long> loads(size_t(threads), 0);
    for (long first = 0, last; first < call.texts.count; first = last) {
        for (last = first + 1; last < call.texts.count &&
                               call.first_rows[size_t(last + 1)] - call.first_rows[size_t(first)] <= call.chunk_rows;) ++last;
        *std::min_element(loads.begin(), loads.end()) += call.first_rows[size_t(last)] - call.first_rows[size_t(first)];
    }
    long total = std::max(call.first_rows.back(), 1L);
    return double(*std::max_element(loads.begin(), loads.end())) * double(threads) / double(total);
}

// Whether there is so much to multiply that other threads are worth waiting for.
bool is_worth_sharing(const Encoder& encoder, long rows) {
    double weights = 0;
    for (long i = 0; i < encoder.count; ++i) {
        const Layer& layer = encoder.layers[i];
        for (const Matrix* matrix : {&layer.joint, &layer.output, &layer.up, &layer.down})
            weights += double(matrix->columns) * double(matrix->inputs);
    }
    return weights * double(rows) > MIN_SHARED;
}

}  // namespace

std::atomic<long> shared_texts{0};  // batches whose texts several threads have shared

// Encode texts whose tokens have been checked; false if there is not enough memory.
bool encode(const Encoder& encoder, const Texts& texts, const Kernels& kernels, long threads) {
    Call call{encoder, texts, kernels, {}, {}, {}};
    call.first_rows.resize(size_t(texts.count) + 1);
    for (long t = 0; t < texts.count; ++t) call.first_rows[size_t(t + 1)] = call.first_rows[size_t(t)] + texts.lengths[t];
    call.attended.resize(size_t(MAX_THREADS));
    call.fed.resize(size_t(MAX_THREADS));
    long rows = call.first_rows.back();
    threads = is_worth_sharing(encoder, rows) ? std::min(threads, MAX_THREADS) : 1;
    call.chunk_rows = std::max(1L, std::min(CHUNK_ROWS, (rows + threads - 1) / threads));
    bool shares_texts = threads > 1 && encoder.parts == threads && imbalance(call, threads) > MAX_IMBALANCE;
    if (shares_texts && Team::shared().run({run_shared, &call}, threads, true))
        ++shared_texts;
    else
        Team::shared().run({run_texts, &call}, threads, false);
    return !call.failed;
}
