// Work shared among the threads that torch has already started: a second pool in the process would fight for the same cores.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>

#pragma GCC visibility push(hidden)  // every copy of the library has its own

// OpenMP's entry points, as loading.py finds them in torch; native.cpp has these and those below.
using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
extern Parallel parallel;
extern int (*pool_size)();

// Calls that this thread makes alone because the pool came late: on a busy machine a thread that waits for its core would
// hold up every product, so after a wait the pool is left alone for a while, twice as long after each further one.
extern thread_local long alone, patience;

#pragma GCC visibility pop

namespace {

inline long long now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// Run body(0), ..., body(tasks - 1) on the pool, whoever is free taking the next `grain` tasks, and fewer towards the end, so that
// nobody waits long for the last; small work stays here.
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
        std::atomic<long long> over{0};  // when the first thread found nothing left to do
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
