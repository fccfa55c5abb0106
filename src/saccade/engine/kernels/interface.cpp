// The plain C interface of the library: library.py declares these functions to Python.
#include <cstring>

#include "encoder.h"
#include "threads.h"

bool linear(const Kernels&, const Matrix&, const float*, long, long, const float*, float*, long);
bool encode(const Encoder&, const Texts&, const Kernels&, long);
extern std::atomic<long> shared_texts;

namespace {

// The instruction sets of this library, the best first, and whether this processor has them.
struct Choice {
    const Kernels* kernels;
    bool (*is_supported)();
};

const Choice CHOICES[] = {
#if defined(__x86_64__) && !defined(SACCADE_PLAIN_ONLY)
    {&avx512_bf16_kernels,
     [] {
         return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
     }},
    {&avx512_kernels,
     [] {
         return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
     }},
    {&avx_vnni_kernels,
     [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avxvnni"); }},
    {&avx2_kernels, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
#endif
    {&plain_kernels, [] { return true; }},
};

// The first token or segment that has no embedding; -1 if there is none.
long find_unknown(const Encoder& encoder, const Texts& texts) {
    const Embedding& e = encoder.embedding;
    long total = 0;
    for (long t = 0; t < texts.count; ++t) total += texts.lengths[t];
    for (long i = 0; i < total; ++i) {
        if (texts.tokens[i] < 0 || texts.tokens[i] >= e.vocab) return i;
        if (texts.segments && (texts.segments[i] < 0 || texts.segments[i] >= e.segment_types)) return i;
    }
    return -1;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

// The kernels of that name, or the best ones if it is empty; null if there are none that this processor can run.
const void* saccade_find_kernels(const char* name) {
    for (const Choice& choice : CHOICES)
        if ((!*name || !std::strcmp(name, choice.kernels->name)) && choice.is_supported()) return choice.kernels;
    return nullptr;
}

const char* saccade_kernels_name(const void* kernels) { return static_cast<const Kernels*>(kernels)->name; }

// 0, or -1 if there is not enough memory.
long saccade_linear(const void* kernels, const Matrix* matrix, const float* x, long rows, long activation, const float* add, float* out,
                    long threads) {
    return linear(*static_cast<const Kernels*>(kernels), *matrix, x, rows, activation, add, out, threads) ? 0 : -1;
}

void saccade_quantize(const void* kernels, long format, const float* x, long rows, long width, char* levels, long stride, float* scales,
                      int32_t* zeros) {
    Rows to{levels, scales, zeros, stride};
    static_cast<const Kernels*>(kernels)->quantize(format, x, width, rows, width, &to);
}

// How long threads that share a text wait for each other to join before one runs alone, in nanoseconds; 0 is the default.
void saccade_set_join_time(long nanoseconds) { Team::shared().set_join_time(nanoseconds); }

// How many texts have been shared by several threads so far.
long saccade_shared_texts() { return shared_texts; }

// 0, -1 if there is not enough memory, or 1 + the index of a token that has no embedding.
long saccade_encode(const void* kernels, const Encoder* encoder, const Texts* texts, long threads) {
    if (encoder->embedding.words) {
        long unknown = find_unknown(*encoder, *texts);
        if (unknown >= 0) return unknown + 1;
    }
    return encode(*encoder, *texts, *static_cast<const Kernels*>(kernels), threads) ? 0 : -1;
}

#pragma GCC visibility pop
}
