// Parallel loops on PyTorch's OpenMP threads: a second thread pool in the process would compete for the same cores.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>

#pragma GCC visibility push(hidden)  // every loaded copy of the library has its own

// OpenMP's entry points, which library.py looks up in torch; they and the variables below are defined in native.cpp.
using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
extern Parallel parallel;
extern int (*pool_size)();

// Number of calls that run on this thread alone because the pool was slow: on a busy machine a worker that waits for its core
// would delay every product, so after a delay the pool is not used for a while, with exponential backoff.
extern thread_local long alone, patience;

#pragma GCC visibility pop

namespace {

inline long long now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// Run body(0), ..., body(tasks - 1) on the pool. Free threads take the next `grain` tasks, and fewer towards the end, so that all
// finish at about the same time; small loops (not `worth` it) run on the calling thread.
template <class Body>
void spread(long tasks, long grain, bool worth, const Body& body) {
    long threads = worth && parallel && --alone < 0 ? std::min<long>(pool_size(), (tasks + grain - 1) / grain) : 1;
    if (threads < 2) {
        for (long i = 0; i < tasks; ++i) body(i);
        return;
    }
    struct Job {
        const Body& body;
        long tasks, grain, threads;
        std::atomic<long> next{0};
        std::atomic<long long> over{0};  // when the first thread ran out of tasks
    } job{body, tasks, grain, threads};
    auto work = [](void* given) {
        auto& job = *static_cast<Job*>(given);
        for (long i = job.next, end; i < job.tasks; i = job.next) {
            end = i + std::clamp((job.tasks - i) / (2 * job.threads), 1L, job.grain);
            if (!job.next.compare_exchange_strong(i, end)) continue;
            for (long j = i; j < end; ++j) job.body(j);
        }
        long long none = 0;
        job.over.compare_exchange_strong(none, now());
    };
    long long start = now();
    parallel(work, &job, unsigned(threads), 0);
    long long waited = now() - job.over, worked = job.over - start;
    bool late = waited > 300000 && waited > worked;
    patience = late ? std::min(2 * patience, 1024L) : std::max(patience - 1, 8L);
    alone = late ? patience : 0;
}

}  // namespace
