// Worker threads of the encoder engine: they spin for a fifth of a millisecond after a call, since the next one often follows
// at once, and then sleep. A worker that is late because another program has its core is left out for a while.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "kernels.h"

struct alignas(64) Counter {
    std::atomic<uint64_t> value{0};
};

// A function that several threads run: member 0 is the calling thread.
struct Job {
    void (*run)(void* data, long member);
    void* data;
};

class Team {
public:
    static Team& shared();

    // Run the job on this thread and on up to threads - 1 workers, which join when they are awake; returns when all that joined
    // are done. Where `together`, the job needs all threads at once: it runs on all or on none, and false means none.
    bool run(const Job& job, long threads, bool together);

    // How long a job that needs all threads waits for them before it runs on one; 0 is the default. A longer time also keeps late
    // workers in the team: tests run on busy machines.
    void set_join_time(long long nanoseconds);

    // Wait until all members of a job that runs together are here.
    void meet(long member, long threads, uint64_t& phase);

private:
    struct Worker {
        Counter state;  // call * 4 + one of Stage
        std::mutex mutex;
        std::condition_variable awake;
        std::atomic<bool> asleep{false};
        bool started = false;
    };
    enum Stage : uint64_t { OFFERED, TAKEN, WITHDRAWN, DONE };

    void offer(long threads);
    void withdraw(long threads);        // from the workers that have not taken the job yet
    void wait_until_done(long threads);
    bool gather(long threads);          // whether all workers joined in time
    void work(long member);
    void judge(long long waited, long long worked);

    std::mutex busy_;
    uint64_t call_ = 0;
    Job job_{};
    enum Signal : int { WAIT, GO, CALLED_OFF };
    std::atomic<int> signal_{GO};  // to workers that have taken a job
    Worker workers_[MAX_THREADS];  // the first stands for the calling thread
    Counter arrived_[MAX_THREADS];
    long long waited_ = 0;           // nanoseconds that the calling thread has waited for others in this call
    long long join_time_ = 0;
    long alone_ = 0, patience_ = 8;     // calls that run without workers because one was late
};
