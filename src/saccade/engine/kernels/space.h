// Memory of one thread, which is kept for its next call.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>

struct Release {
    void operator()(char* memory) const { std::free(memory); }
};

class Space {
public:
    // Make room for this many bytes, and start from the beginning; false if there is not enough memory.
    bool reserve(size_t bytes) {
        used_ = 0;
        if (bytes <= size_) return true;
        size_ = 0;
        memory_.reset();  // first, so that both are not held at the same time
        size_t whole = (bytes + 4095) / 4096 * 4096;
        memory_.reset(static_cast<char*>(std::aligned_alloc(4096, whole)));
        if (memory_) size_ = whole;
        return bool(memory_);
    }

    template <class T>
    T* take(size_t count) {
        char* start = memory_.get() + used_;
        used_ += aligned(count * sizeof(T));
        return reinterpret_cast<T*>(start);
    }

    // The bytes that `take` uses; neighbours do not share a cache line.
    static size_t aligned(size_t bytes) { return (bytes + 127) / 64 * 64; }

private:
    std::unique_ptr<char, Release> memory_;
    size_t size_ = 0, used_ = 0;
};
