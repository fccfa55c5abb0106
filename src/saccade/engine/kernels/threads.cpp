#include "threads.h"

#include <pthread.h>

#include <chrono>
#include <thread>

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() std::this_thread::yield()
#endif

namespace {

constexpr long long SPIN = 200000;       // nanoseconds that an idle worker spins before it sleeps
constexpr long long JOIN = 5000;         // nanoseconds that a job that needs all threads waits for them
constexpr long long LATE = 300000;       // nanoseconds of waiting from which on a worker counts as late
constexpr long MAX_PATIENCE = 1024;      // calls that run alone after one that was late, at most

long long now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// Spin until `ready`; yields now and then, in case both threads share a core.
template <class Ready>
void spin(const Ready& ready) {
    for (long turns = 0; !ready(); ++turns) {
        RELAX();
        if (turns > 20000) std::this_thread::yield(), turns = 0;
    }
}

Team* team = nullptr;

}  // namespace

// Neither the team nor its threads ever end: a condition variable that is destroyed while a thread waits hangs the process. A
// forked process has no workers, and makes a team of its own.
Team& Team::shared() {
    static std::once_flag once;
    std::call_once(once, [] {
        team = new Team;
        pthread_atfork(nullptr, nullptr, [] { team = new Team; });
    });
    return *team;
}

void Team::set_join_time(long long nanoseconds) {
    std::lock_guard<std::mutex> lock(busy_);
    join_time_ = nanoseconds;
    alone_ = 0;
}

bool Team::run(const Job& job, long threads, bool together) {
    std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    if (threads < 2 || !lock.owns_lock() || alone_ > 0) {
        if (lock.owns_lock() && alone_ > 0) --alone_;
        if (!together) job.run(job.data, 0);
        return !together;
    }
    job_ = job;
    waited_ = 0;
    for (Counter& counter : arrived_) counter.value.store(0, std::memory_order_relaxed);
    signal_ = together ? WAIT : GO;
    offer(threads);
    if (together && !gather(threads)) return false;
    long long started = now();
    job.run(job.data, 0);
    withdraw(threads);
    long long finished = now();
    wait_until_done(threads);
    long long ended = now();
    judge(waited_ + ended - finished, finished - started - waited_);
    return true;
}

void Team::offer(long threads) {
    ++call_;
    for (long i = 1; i < threads; ++i) {
        Worker& worker = workers_[i];
        worker.state.value = call_ * 4 + OFFERED;
        if (!worker.started) {
            worker.started = true;
            std::thread([this, i] { work(i); }).detach();
        } else if (worker.asleep) {
            std::lock_guard<std::mutex> guard(worker.mutex);
            worker.awake.notify_one();
        }
    }
}

void Team::withdraw(long threads) {
    for (long i = 1; i < threads; ++i) {
        uint64_t offered = call_ * 4 + OFFERED;
        workers_[i].state.value.compare_exchange_strong(offered, call_ * 4 + WITHDRAWN);
    }
}

void Team::wait_until_done(long threads) {
    for (long i = 1; i < threads; ++i) {
        auto& state = workers_[i].state.value;
        spin([&] { return state.load(std::memory_order_acquire) % 4 != TAKEN; });
    }
}

bool Team::gather(long threads) {
    long long limit = now() + (join_time_ ? join_time_ : JOIN);
    for (long i = 1; i < threads; ++i) {
        auto& state = workers_[i].state.value;
        while (state.load(std::memory_order_acquire) % 4 == OFFERED) {
            RELAX();
            if (now() < limit) continue;
            withdraw(threads);
            signal_ = CALLED_OFF;
            wait_until_done(threads);
            return false;
        }
    }
    signal_ = GO;
    return true;
}

void Team::work(long member) {
    Worker& worker = workers_[member];
    auto& state = worker.state.value;
    for (uint64_t seen = 0;;) {
        auto is_offered = [&] {
            uint64_t found = state.load(std::memory_order_seq_cst);
            return found % 4 == OFFERED && found != seen;
        };
        long long limit = now() + SPIN;
        for (long turns = 0; !is_offered(); ++turns) {
            RELAX();
            if (turns % 64 || now() < limit) continue;
            std::unique_lock<std::mutex> guard(worker.mutex);
            worker.asleep = true;
            worker.awake.wait(guard, is_offered);
            worker.asleep = false;
            break;
        }
        uint64_t offered = state.load();
        if (offered % 4 != OFFERED) continue;
        seen = offered;
        if (!state.compare_exchange_strong(offered, offered - OFFERED + TAKEN)) continue;
        spin([&] { return signal_.load(std::memory_order_acquire) != WAIT; });
        if (signal_ == GO) job_.run(job_.data, member);
        state.store(seen - OFFERED + DONE, std::memory_order_release);
    }
}

void Team::meet(long member, long threads, uint64_t& phase) {
    arrived_[member].value.store(++phase, std::memory_order_release);
    long long from = member ? 0 : now();
    for (long i = 0; i < threads; ++i)
        if (i != member) spin([&] { return arrived_[i].value.load(std::memory_order_acquire) >= phase; });
    if (!member) waited_ += now() - from;
}

// A worker that another program keeps from its core would delay every call: after a late one, the next calls run without workers,
// twice as many after each.
void Team::judge(long long waited, long long worked) {
    bool late = waited > LATE && waited > worked && !join_time_;
    patience_ = late ? (2 * patience_ < MAX_PATIENCE ? 2 * patience_ : MAX_PATIENCE) : (patience_ > 9 ? patience_ - 1 : 8);
    alone_ = late ? patience_ : 0;
}
