// The round trip of a cache line between two cores: what threads that meet have to wait for at least.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace {

struct alignas(128) Line {
    std::atomic<int> value{0};
};

void pin(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
}

}  // namespace

// Nanoseconds, the mean of `count` round trips between two cores.
extern "C" double round_trip(int first, int second, int count) {
    Line there, back;
    double nanoseconds = 0;
    std::thread caller([&] {
        pin(first);
        auto start = std::chrono::steady_clock::now();
        for (int i = 1; i <= count; ++i) {
            there.value.store(i, std::memory_order_release);
            while (back.value.load(std::memory_order_acquire) != i) {
            }
        }
        nanoseconds = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / count;
    });
    std::thread answerer([&] {
        pin(second);
        for (int i = 1; i <= count; ++i) {
            while (there.value.load(std::memory_order_acquire) != i) {
            }
            back.value.store(i, std::memory_order_release);
        }
    });
    caller.join();
    answerer.join();
    return nanoseconds;
}
