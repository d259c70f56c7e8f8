// Follows simulate.h: GCC and Clang, told -fsanitize=thread, call a function of these names at each
// access to memory. Here they keep those that hit the launch's arguments or shared memory. Told
// -fsanitize-coverage=trace-pc, they call one at each branch, which keeps the jumps back: with
// these trace.py finds out which threads would go in step.

#if __has_attribute(no_sanitize_coverage)
#define UNTRACED __attribute__((no_sanitize("thread"), no_sanitize_coverage, noinline))
#elif defined(__clang__)
#define UNTRACED __attribute__((no_sanitize("thread"), no_sanitize("coverage"), noinline))
#else
#error "the trace needs GCC 12 or later, or Clang"
#endif

namespace simulated::trace {

struct Access {  // trace.py has the same
    uint64_t site;   // the address of the instruction; where to, for a jump back
    uint64_t place;  // where in the kernel: the same, but in a function that it calls
    int64_t offset;  // bytes from the start of the array
    int32_t block, thread, array, bytes, write;
};
enum { kDynamic = -1, kStatic = -2, kBarrier = -3, kBack = -4 };  // in place of an array's number

static struct {
    const uint64_t (*arrays)[2];  // address and bytes of each
    long count;
    Access* kept;
    long room, length;
    Static fixed;
} state;

static struct {
    void* caller;   // the stack frame of the function that calls the kernel
    uint64_t last;  // the branch of the kernel that was taken last
} places[kThreads];

template <auto kernel>
struct Traced;
template <class... A, void (*kernel)(A...)>
struct Traced<kernel> {
    static void run(A... arguments) {
        places[here->current - here->thread] = {__builtin_frame_address(0), 0};
        kernel(arguments...);
    }
};

UNTRACED static void keep(const void* site, uint64_t place, int array, int64_t offset, long bytes,
                          bool write) {
    const Worker& w = *here;
    if (state.length == state.room)
        fault("the trace is full, with %ld accesses and jumps: launch fewer blocks, or pass a "
              "larger `limit`",
              state.room);
    const uint3& b = w.index;
    const int block = b.x + w.grid.x * (b.y + w.grid.y * b.z), thread = w.current - w.thread;
    state.kept[state.length++] = {(uint64_t)site, place, offset, block, thread, array, (int)bytes,
                                  write};
}

UNTRACED static void see(void* site, void* caller, const void* address, long bytes, bool write) {
    // Before a block begins, shared memory is filled with NaN, and `here` lies in it.
    if (address == &here || !here || !here->current) return;
    const auto& p = places[here->current - here->thread];
    const uint64_t place = caller == p.caller ? (uint64_t)site : p.last;
    const uint64_t at = (uint64_t)address, dynamic = at - (uint64_t)here->shared;
    const uint64_t fixed = at - (uint64_t)state.fixed.start;
    for (long i = 0; i < state.count; ++i)
        if (at - state.arrays[i][0] < state.arrays[i][1])
            return keep(site, place, i, at - state.arrays[i][0], bytes, write);
    if (dynamic < here->launch->shared) keep(site, place, kDynamic, dynamic, bytes, write);
    if (fixed < state.fixed.bytes) keep(site, place, kStatic, fixed, bytes, write);
}

UNTRACED static void branch(uint64_t at, void* caller) {
    if (!here || !here->current) return;
    auto& p = places[here->current - here->thread];
    if (caller != p.caller) return;  // not of the kernel
    if (at <= p.last) keep((void*)at, p.last, kBack, 0, 0, false);
    p.last = at;
}

UNTRACED static void pass_barrier() {
    keep(nullptr, places[here->current - here->thread].last, kBarrier, 0, 0, false);
}

}  // namespace simulated::trace

// What follows goes to `kept`, `room` records at most; 0 arrays end it. Returns how many it were.
extern "C" [[gnu::visibility("default")]] UNTRACED long trace_into(
    const uint64_t (*arrays)[2], long count, simulated::trace::Access* kept, long room) {
    const long length = simulated::trace::state.length;
    simulated::Static fixed{};
#ifdef __linux__
    dl_iterate_phdr(simulated::find_static, &fixed);
#endif
    simulated::trace::state = {arrays, count, kept, room, 0, fixed};
    return length;
}

extern "C" {
UNTRACED void __tsan_init() {}
UNTRACED void __tsan_func_entry(void*) {}
UNTRACED void __tsan_func_exit() {}
UNTRACED void __tsan_vptr_update(void**, void*) {}
UNTRACED void __tsan_vptr_read(void**) {}

// Of the function that calls this one: the place, and the frame of its own caller
#define SITE __builtin_return_address(0), __builtin_frame_address(2)
UNTRACED void __sanitizer_cov_trace_pc() {
    simulated::trace::branch((uint64_t)__builtin_return_address(0), __builtin_frame_address(2));
}
#define HOOKS(name, bytes)                                                                      \
    UNTRACED void name##read##bytes(void* p) { simulated::trace::see(SITE, p, bytes, false); }  \
    UNTRACED void name##write##bytes(void* p) { simulated::trace::see(SITE, p, bytes, true); }
HOOKS(__tsan_, 1)
HOOKS(__tsan_, 2)
HOOKS(__tsan_, 4)
HOOKS(__tsan_, 8)
HOOKS(__tsan_, 16)
HOOKS(__tsan_unaligned_, 2)
HOOKS(__tsan_unaligned_, 4)
HOOKS(__tsan_unaligned_, 8)
HOOKS(__tsan_unaligned_, 16)
#undef HOOKS
UNTRACED void __tsan_read_range(void* p, size_t n) { simulated::trace::see(SITE, p, n, false); }
UNTRACED void __tsan_write_range(void* p, size_t n) { simulated::trace::see(SITE, p, n, true); }
UNTRACED void* __tsan_memset(void* p, int value, size_t n) { return memset(p, value, n); }
UNTRACED void* __tsan_memcpy(void* to, const void* from, size_t n) {  // how Clang copies structs
    simulated::trace::see(SITE, from, n, false), simulated::trace::see(SITE, to, n, true);
    return memcpy(to, from, n);
}

// Of the atomic functions those that simulate.h uses, on one worker, which nothing interrupts. The
// two that compare are GCC's and Clang's.
#define ATOMICS(bits, Int)                                                                      \
    UNTRACED Int __tsan_atomic##bits##_load(const volatile Int* p, int) {                       \
        simulated::trace::see(SITE, (void*)p, sizeof *p, false);                                \
        return *p;                                                                              \
    }                                                                                           \
    UNTRACED Int __tsan_atomic##bits##_exchange(volatile Int* p, Int value, int) {              \
        simulated::trace::see(SITE, (void*)p, sizeof *p, true);                                 \
        return std::exchange(*p, value);                                                        \
    }                                                                                           \
    UNTRACED Int __tsan_atomic##bits##_fetch_add(volatile Int* p, Int value, int) {             \
        return std::exchange(*p, *p + value);                                                   \
    }                                                                                           \
    UNTRACED bool __tsan_atomic##bits##_compare_exchange_weak(volatile Int* p, Int*, Int value, \
                                                              int, int) {                       \
        simulated::trace::see(SITE, (void*)p, sizeof *p, true);                                 \
        *p = value;                                                                             \
        return true;                                                                            \
    }                                                                                           \
    UNTRACED Int __tsan_atomic##bits##_compare_exchange_val(volatile Int* p, Int old,           \
                                                            Int value, int, int) {              \
        simulated::trace::see(SITE, (void*)p, sizeof *p, true);                                 \
        *p = value;                                                                             \
        return old;                                                                             \
    }
ATOMICS(32, unsigned)
ATOMICS(64, uint64_t)
#undef ATOMICS
}
#undef SITE
#undef UNTRACED

#define __syncthreads() (simulated::trace::pass_barrier(), __syncthreads())

// GCC does not tell what a call passes and returns, if it is a structure: leave no call.
#undef __device__
#define __device__ __attribute__((always_inline))
