// CUDA C++ on the CPU: simulator.py compiles this file followed by the source of a kernel.
//
// A block runs on one OS thread, so __shared__ memory is thread_local. A CUDA thread runs until it
// has to wait for others, at a barrier or a shuffle; then its stack stays as it is (a fiber) and
// the next thread goes on. A fiber whose thread has ended takes a thread that has not yet begun:
// a kernel that never waits needs one fiber, and no switch. What CUDA leaves undefined is a fault.

#define SIMULATED 1
#ifdef __APPLE__  // its ucontext asks for these
#define _XOPEN_SOURCE 700
#define _DARWIN_C_SOURCE
#endif
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <compare>
#include <type_traits>
#include <utility>
#ifdef __linux__
#include <link.h>
#endif

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace simulated {

constexpr unsigned kWarp = 32, kThreads = 1024, kErrorBytes = 1024;
constexpr int64_t kForward = -1, kBackward = -2;  // any other order is the seed of a shuffle
// Twice what -Werror=frame-larger-than allows a kernel. The odd number of cache lines keeps the
// stacks' tops from falling into the same sets of the caches.
constexpr size_t kStack = 256 * 1024 + 17 * 64;

struct Launch {  // simulator.py has the same
    unsigned grid[3], block[3], shared, workers;
    int64_t order;
    const char* arguments;  // 16 bytes each
    char* error;
    uint64_t next;    // block
    unsigned failed;  // the first fault is the one reported
};

struct Where {
    const char* file;
    int line;
};

struct Fiber {
    jmp_buf saved;
    char* stack;
    bool started;
};

struct Thread {
    uint3 index;
    unsigned lane, warp;
    enum { kReady, kBarrier, kWarp, kDone } state;
    const char* waits_at;
    Where where;
    unsigned mask;  // the lanes it waits for
    Fiber* fiber;   // none before it begins
};

struct Worker {  // one OS thread, and the block that it runs; pointers, as arrays would be checked
    Launch* launch;
    void (*body)();
    dim3 grid, block;
    uint3 index;
    unsigned threads, ready, head, done, at_barrier, fibers, idle;
    Thread *thread, *current;
    Thread** queue;  // a ring; `ready` threads from `head` on
    Fiber *fiber, **idle_fiber;
    char *stacks, *shared;
    uint64_t *offered, *received;  // by the lanes of a warp, a value each
    unsigned* waiting;             // lanes of each warp at a warp's function
    uint64_t random;
    ucontext_t context;
    jmp_buf home;
};
static constinit thread_local Worker* here = nullptr;

[[noreturn, gnu::cold, gnu::noinline, gnu::format(printf, 1, 2)]] static void fault(
    const char* format, ...) {
    Worker& w = *here;
    if (!__atomic_exchange_n(&w.launch->failed, 1, __ATOMIC_SEQ_CST)) {
        va_list values;
        va_start(values, format);
        int length = snprintf(w.launch->error, kErrorBytes, "block (%u, %u, %u): ", w.index.x,
                              w.index.y, w.index.z);
        vsnprintf(w.launch->error + length, kErrorBytes - length, format, values);
        va_end(values);
    }
    _longjmp(w.home, 1);
}

struct Text {
    char text[200];
};

static Text describe(const Thread& t) {  // which thread, and where it is
    Text out;
    char* to = out.text;
    size_t room = sizeof out.text;
    int length = snprintf(to, room, "thread (%u, %u, %u)", t.index.x, t.index.y, t.index.z);
    if (t.state == Thread::kDone)
        snprintf(to + length, room - length, " has returned from the kernel");
    else if (t.state != Thread::kReady)
        snprintf(to + length, room - length, " waits at %s(), %s:%d", t.waits_at, t.where.file,
                 t.where.line);
    return out;
}

// Lets `count` threads run next, in the order asked for; in a shuffle, after all that are ready, so
// that warps take turns and one shows what it does to another's memory.
static void line_up(Worker& w, Thread** list, unsigned count) {
    const int64_t order = w.launch->order;
    for (unsigned i = order >= 0 ? count : 0; i > 1; --i) {
        w.random ^= w.random << 13, w.random ^= w.random >> 7, w.random ^= w.random << 17;
        std::swap(list[i - 1], list[w.random % i]);
    }
    for (unsigned i = 0; i < count; ++i) {  // else each in front of the one before
        Thread* t = list[order == kForward ? count - 1 - i : i];
        t->state = Thread::kReady;
        if (order < 0) w.head = (w.head - 1) % kThreads;
        w.queue[order < 0 ? w.head : (w.head + w.ready + i) % kThreads] = t;
    }
    w.ready += count;
}

static void line_up_all(Worker& w) {
    Thread* list[kThreads];
    Thread** to = list;
    for (unsigned i = 0; i < w.threads; ++i) to[i] = &w.thread[i];
    line_up(w, to, w.threads);
}

[[noreturn, gnu::cold]] static void explain_deadlock(Worker& w) {
    for (Thread* t = w.thread; t < w.thread + w.threads; ++t) {
        if (t->state != Thread::kWarp) continue;
        unsigned lane = __builtin_ctz(t->mask & ~w.waiting[t->warp]);
        fault("%s and its mask %08x names lane %u, but %s. All threads that a mask names must call "
              "the function",
              describe(*t).text, t->mask, lane, describe(w.thread[t->warp * kWarp + lane]).text);
    }
    const Thread *waits = w.thread, *gone = w.thread;
    while (waits->state != Thread::kBarrier) ++waits;
    while (gone->state != Thread::kDone) ++gone;
    fault("%s, but %s. Every thread of the block must reach the barrier (a GPU lets those that "
          "have returned pass; count on it nowhere)",
          describe(*waits).text, describe(*gone).text);
}

static void open_barrier(Worker& w) {
    for (Thread* t = w.thread; t < w.thread + w.threads; ++t)
        if (t->where.line != w.thread->where.line || strcmp(t->where.file, w.thread->where.file))
            fault("%s, but %s. All threads of a block must reach the same barrier",
                  describe(*w.thread).text, describe(*t).text);
    w.at_barrier = 0;
    line_up_all(w);
}

// The next thread that can run; none at the end of the block.
static Thread* take(Worker& w) {
    if (!w.ready) {
        if (w.done == w.threads) return nullptr;
        if (w.at_barrier < w.threads) explain_deadlock(w);
        open_barrier(w);
    }
    Thread* next = w.queue[w.head];
    w.head = (w.head + 1) % kThreads;
    --w.ready;
    return next;
}

// Leaves `from` as it is, and goes on with the thread `next`; back home without one. Never inlined:
// what calls setjmp is hardly optimized.
[[gnu::noinline]] static void go(Worker& w, jmp_buf& from, Thread* next) {
    if (_setjmp(from)) return;
    w.current = next;
    if (!next) _longjmp(w.home, 1);
    if (!next->fiber) next->fiber = w.idle ? w.idle_fiber[--w.idle] : &w.fiber[w.fibers++];
    Fiber* to = next->fiber;
    if (to->started) _longjmp(to->saved, 1);
    to->started = true;
    ucontext_t& context = w.context;  // setjmp switches, but cannot give a new stack
    getcontext(&context);
    context.uc_stack.ss_sp = w.stacks + (to - w.fiber) * kStack;
    context.uc_stack.ss_size = kStack;
    context.uc_link = nullptr;
    makecontext(&context, w.body, 0);
    setcontext(&context);
}

static void wait(Worker& w) {
    Thread* self = w.current;
    Thread* next = take(w);
    if (next != self) go(w, self->fiber->saved, next);
}

[[gnu::noinline]] static void barrier(Where where) {
    Worker& w = *here;
    Thread& t = *w.current;
    t.state = Thread::kBarrier, t.waits_at = "__syncthreads", t.where = where;
    ++w.at_barrier;
    wait(w);
}

// Offers a value to the lanes of `mask`; when all have come, returns what all offered. With `finish`
// they must come from one place, and the last to come calls it with all values.
[[gnu::noinline]] static const uint64_t* exchange(const char* function, unsigned mask,
                                                  uint64_t value, Where where,
                                                  void (*finish)(uint64_t*) = nullptr) {
    Worker& w = *here;
    Thread& t = *w.current;
    const unsigned first = t.warp * kWarp, existing = w.threads - first;
    if (!(mask >> t.lane & 1))
        fault("thread (%u, %u, %u) calls %s(), %s:%d, with the mask %08x, which lacks its own lane "
              "%u",
              t.index.x, t.index.y, t.index.z, function, where.file, where.line, mask, t.lane);
    if (existing < kWarp) mask &= (1u << existing) - 1;
    t.state = Thread::kWarp, t.waits_at = function, t.where = where, t.mask = mask;
    w.offered[first + t.lane] = value;
    w.waiting[t.warp] |= 1u << t.lane;
    if (!(mask & ~w.waiting[t.warp])) {
        Thread* list[kWarp];
        Thread** to = list;
        for (unsigned rest = mask; rest; rest &= rest - 1) {
            const unsigned i = first + __builtin_ctz(rest);
            Thread* other = *to++ = &w.thread[i];
            if (other->mask != mask || strcmp(other->waits_at, function) ||
                (finish && other->where.line != where.line))
                fault("%s with mask %08x, but %s with mask %08x. The threads that a mask names "
                      "must call the same function with the same mask%s",
                      describe(t).text, mask, describe(*other).text, other->mask,
                      finish ? ", at the same place" : "");
            w.received[i] = w.offered[i];
        }
        if (finish) finish(w.received + first);
        w.waiting[t.warp] &= ~mask;
        line_up(w, list, to - list);
    }
    wait(w);
    return w.received + first;
}

struct Static {  // what all thread_local variables, __shared__ ones and `here`, take together
    char* start;
    size_t bytes;
};
#ifdef __linux__
extern "C" void* __tls_get_addr(size_t*);
static int find_static(dl_phdr_info* info, size_t, void* out) {
    const uintptr_t self = (uintptr_t)&find_static - info->dlpi_addr;
    const ElfW(Phdr) *first = info->dlpi_phdr, *end = first + info->dlpi_phnum, *found = nullptr;
    bool ours = false;
    for (const auto* p = first; p < end; ++p) {
        ours |= p->p_type == PT_LOAD && self - p->p_vaddr < p->p_memsz;
        if (p->p_type == PT_TLS) found = p;
    }
    if (!ours || !found) return ours;
    size_t module_and_offset[2] = {info->dlpi_tls_modid, 0};
    *(Static*)out = {(char*)__tls_get_addr(module_and_offset), found->p_memsz};
    return true;
}
#endif

static void run_blocks(Worker& w) {
    const uint64_t x = w.grid.x, y = w.grid.y, blocks = x * y * w.grid.z;
    Static fixed{(char*)&w, 0};
#ifdef __linux__
    dl_iterate_phdr(find_static, &fixed);
    if ((size_t)((char*)&here - fixed.start) >= fixed.bytes) fixed.bytes = 0;  // not as expected
#endif
    uint64_t i;
    while ((i = __atomic_fetch_add(&w.launch->next, 1, __ATOMIC_RELAXED)) < blocks) {
        if (__atomic_load_n(&w.launch->failed, __ATOMIC_RELAXED)) return;
        w.index = {unsigned(i % x), unsigned(i / x % y), unsigned(i / x / y)};
        w.random = (w.launch->order + 1) * 0x9E3779B97F4A7C15u ^ (i + 1) * 0xBF58476D1CE4E5B9u;
        w.random |= !w.random;
        memset(fixed.start, 0xFF, fixed.bytes);  // NaN: nobody has set it yet
        here = &w;
        memset(w.shared, 0xFF, w.launch->shared);
        w.done = 0;
        for (unsigned t = 0; t < w.threads; ++t) w.thread[t].fiber = nullptr;
        line_up_all(w);
        jmp_buf unused;
        if (!_setjmp(w.home)) go(w, unused, take(w));
    }
}

static void* work(Launch* launch, void (*body)()) {
    const unsigned *g = launch->grid, *b = launch->block, n = b[0] * b[1] * b[2];
    Worker w{launch, body, {g[0], g[1], g[2]}, {b[0], b[1], b[2]}};
    w.threads = n;
    const size_t bytes = kThreads * (sizeof(Thread) + sizeof(Fiber) + 5 * 8) + launch->shared + 256;
    const size_t all = bytes + n * kStack;  // pages that nobody touches cost nothing
    void* memory =
        mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        if (!__atomic_exchange_n(&launch->failed, 1, __ATOMIC_SEQ_CST))
            snprintf(launch->error, kErrorBytes, "no memory for the stacks of %u threads", n);
        return nullptr;
    }
    char* next = (char*)memory;
    auto allot = [&]<class T>(T*& pointer, size_t count) {
        pointer = (T*)next;
        next += count * sizeof(T);
    };
    allot(w.shared, (launch->shared + 127) / 128 * 128);  // first: page-aligned, as on a GPU
    allot(w.fiber, kThreads), allot(w.thread, kThreads), allot(w.queue, kThreads);
    allot(w.idle_fiber, kThreads), allot(w.offered, kThreads), allot(w.received, kThreads);
    allot(w.waiting, kWarp), w.stacks = (char*)memory + bytes;
    memset(w.received, 0xFF, kThreads * sizeof *w.received);  // what missing lanes offer
    for (unsigned i = 0; i < n; ++i) {
        Thread& t = w.thread[i];
        t.index = {i % b[0], i / b[0] % b[1], i / b[0] / b[1]};
        t.lane = i % kWarp, t.warp = i / kWarp;
    }
    run_blocks(w);
    here = nullptr;
    munmap(memory, all);
    return nullptr;
}

template <auto kernel, class... A, size_t... I>
void call(void (*)(A...), std::index_sequence<I...>) {
    auto value = []<class T>(const char* bytes, T*) {
        static_assert(sizeof(T) <= 16, "a kernel's parameter may have 16 bytes at most");
        T copy;
        memcpy(&copy, bytes, sizeof copy);
        return copy;
    };
    [[maybe_unused]] const char* arguments = here->launch->arguments;
    kernel(value(arguments + 16 * I, (std::remove_cv_t<A>*)nullptr)...);
}

template <auto kernel, class... A>
void fiber_main() {
    Worker& w = *here;
    for (;;) {
        call<kernel>(kernel, std::index_sequence_for<A...>());
        Thread& ended = *w.current;
        Fiber* self = ended.fiber;
        ended.state = Thread::kDone;
        ++w.done;
        Thread* next = take(w);
        if (next && !next->fiber) {
            next->fiber = self;
            w.current = next;
            continue;
        }
        w.idle_fiber[w.idle++] = self;
        go(w, self->saved, next);
    }
}

template <auto kernel, class... A>
void launch(Launch* launch, void (*)(A...)) {
    void (*body)() = fiber_main<kernel, A...>;
    auto start = [](void* p) {
        auto* both = (std::pair<Launch*, void (*)()>*)p;
        return work(both->first, both->second);
    };
    std::pair<Launch*, void (*)()> both{launch, body};
    auto* helpers = (pthread_t*)calloc(launch->workers, sizeof(pthread_t));
    unsigned started = 0;
    while (started + 1 < launch->workers)
        if (pthread_create(helpers + started, nullptr, start, &both)) break;
        else ++started;
    work(launch, body);
    while (started) pthread_join(helpers[--started], nullptr);
    free(helpers);
}

// What each parameter is, as simulator.py reads it: p8 for a pointer, i4 for an int.
template <class... A>
void describe(char* text, size_t room, void (*)(A...)) {
    auto one = [&]<class T>(T*) {
        char kind = std::is_pointer_v<T>          ? 'p'
                    : std::is_floating_point_v<T> ? 'f'
                    : std::is_integral_v<T>       ? 'i'
                                                  : 'o';
        int length = snprintf(text, room, "%c%zu ", kind, sizeof(T));
        text += length, room -= length;
    };
    (one((std::remove_cv_t<A>*)nullptr), ...);
}

[[noreturn, gnu::cold, gnu::noinline]] static void outside(long first, long size, long alignment,
                                                           long bytes) {
    const uint3 t = here->current->index;
    if (first < 0 || first + size > bytes)
        fault("thread (%u, %u, %u) uses bytes %ld to %ld of the dynamic shared memory, as element "
              "%ld of %ld bytes; the launch gave it shared_mem=%ld bytes",
              t.x, t.y, t.z, first, first + size - 1, first / size - (first % size < 0), size,
              bytes);
    fault("thread (%u, %u, %u) uses %ld bytes at once from byte %ld of the dynamic shared memory, "
          "which is no multiple of their alignment, %ld: a misaligned access",
          t.x, t.y, t.z, size, first, alignment);
}

// A pointer into the block's dynamic shared memory that checks each access.
template <class T>
struct Shared {
    char* base;
    long bytes, at;  // locals that stay in registers, whatever the kernel stores

    T* check(long first) const {
        const long size = sizeof(T), alignment = alignof(T);
        if (first < 0 || first > bytes - size || first % alignment) [[unlikely]]
            outside(first, size, alignment, bytes);
        return (T*)(base + first);
    }
    T& operator[](long i) const { return *check(at + i * (long)sizeof(T)); }
    T& operator*() const { return *check(at); }
    T* operator->() const { return check(at); }
    Shared operator+(long i) const { return {base, bytes, at + i * (long)sizeof(T)}; }
    Shared operator-(long i) const { return *this + -i; }
    friend Shared operator+(long i, Shared p) { return p + i; }
    long operator-(Shared p) const { return (at - p.at) / (long)sizeof(T); }
    Shared& operator+=(long i) { return *this = *this + i; }
    Shared& operator-=(long i) { return *this = *this - i; }
    Shared& operator++() { return *this += 1; }
    Shared& operator--() { return *this -= 1; }
    Shared operator++(int) { return std::exchange(*this, *this + 1); }
    Shared operator--(int) { return std::exchange(*this, *this - 1); }
    auto operator<=>(const Shared&) const = default;
    operator Shared<const T>() const requires(!std::is_const_v<T>) { return {base, bytes, at}; }
};

// The compiler's own checks of arrays with a known size (-fsanitize=bounds) end up here.
struct Type {
    uint16_t kind, info;
    char name[1];
};
struct OutOfBounds {
    const char* file;
    uint32_t line, column;
    const Type *array, *index;
};
[[noreturn]] static void out_of_bounds(void* data, void* value) {
    const OutOfBounds& d = *(OutOfBounds*)data;
    const uint3 t = here->current->index;
    const int unused = 64 - (1 << (d.index->info >> 1));  // info: log2 of the bits, then the sign
    long index = (long)((unsigned long)value << unused) >> unused;
    if (!(d.index->info & 1)) index = (long)((unsigned long)value << unused >> unused);
    fault("thread (%u, %u, %u) uses index %ld of an array of type %s, %s:%u", t.x, t.y, t.z, index,
          (const char*)d.array->name, d.file, d.line);
}

template <class To, class From>
To bits(From value) {
    To out{};
    memcpy(&out, &value, sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
    return out;
}

// For the shuffles: the value of lane `source`. It is undefined, here NaN, outside the mask.
template <class T>
T shuffle(const char* function, unsigned mask, T value, int width, Where where, auto source) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle takes values of 4 or 8 bytes");
    if (width < 1 || width > 32 || width & (width - 1))
        fault("%s(), %s:%d, with width %d: it must be a power of two up to 32", function,
              where.file, where.line, width);
    const uint64_t* values = exchange(function, mask, bits<uint64_t>(value), where);
    const int lane = here->current->lane, from = source(lane, lane & -width);
    if (from < 0) return value;
    return bits<T>(mask >> from & 1 ? values[from] : ~uint64_t(0));
}

// For the instructions that a whole warp executes at one place (.sync.aligned): each lane offers the
// address of its part.
template <class Part>
void together(const char* function, Part& part, Where where, void (*finish)(uint64_t*)) {
    Worker& w = *here;
    const Thread& t = *w.current;
    if (w.threads < (t.warp + 1) * kWarp)
        fault("thread (%u, %u, %u) calls %s(), %s:%d, in a warp of %u lanes: it takes all 32",
              t.index.x, t.index.y, t.index.z, function, where.file, where.line,
              w.threads - t.warp * kWarp);
    exchange(function, ~0u, (uint64_t)&part, where, finish);
}

struct Product {  // a lane's part of a matrix product: two numbers a word, the left one below
    float* c;
    const unsigned *a, *b;
};

// c += a b. Lane g * 4 + q has two neighbours in a row of a, q of eight, in each of its words: in
// rows g, g + 8, g, g + 8, the last two words 8 columns further right. Of b it has two neighbours in
// column g, the second word 8 rows further down, and of c two in rows g and g + 8.
template <class Number>
void multiply(uint64_t* parts) {
    float a[16][16], b[16][8];
    auto number = [](const unsigned* word, int i) {
        return widen(Number{(unsigned short)(word[i / 2] >> i % 2 * 16)});
    };
    for (int lane = 0; lane < 32; ++lane) {
        const Product& part = *(const Product*)parts[lane];
        const int g = lane / 4, q = lane % 4 * 2;
        for (int i = 0; i < 8; ++i) a[g + i / 2 % 2 * 8][q + i % 2 + i / 4 * 8] = number(part.a, i);
        for (int i = 0; i < 4; ++i) b[q + i % 2 + i / 2 * 8][g] = number(part.b, i);
    }
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float& sum = ((const Product*)parts[lane])->c[i];
            for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];  // in what order, is open
        }
}

struct alignas(16) Row {  // of a matrix of 8 x 8 numbers of two bytes
    unsigned word[4];
};
struct RowAndWords {
    Row read;
    unsigned* words;  // that the lane gets
};

// Lane 8 m + i has read row i of matrix m. Lane g * 4 + q gets of each matrix word q of row g.
inline void spread(uint64_t* rows) {
    for (int lane = 0; lane < 32; ++lane)
        for (int m = 0; m < 4; ++m)
            ((const RowAndWords*)rows[lane])->words[m] =
                ((const RowAndWords*)rows[8 * m + lane / 4])->read.word[lane % 4];
}

// Lane g * 4 + q has of a matrix word q of row g, and gets word q of row g of its transpose.
inline void transpose(uint64_t* words) {
    unsigned short number[8][8];
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 2; ++i)
            number[lane / 4][lane % 4 * 2 + i] = *(const unsigned*)words[lane] >> i * 16;
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, q = lane % 4 * 2;
        *(unsigned*)words[lane] = number[q][g] | (unsigned)number[q + 1][g] << 16;
    }
}

template <class T>
T change(T* target, auto how) {  // atomically; returns the old value
    T old, wanted;
    __atomic_load(target, &old, __ATOMIC_RELAXED);
    do wanted = how(old);
    while (!__atomic_compare_exchange(target, &old, &wanted, true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED));
    return old;
}

}  // namespace simulated

extern "C" {  // in place of libubsan
[[gnu::used]] void __ubsan_handle_out_of_bounds(void* data, void* index) {
    simulated::out_of_bounds(data, index);
}
[[gnu::used]] void __ubsan_handle_out_of_bounds_abort(void* data, void* index) {
    simulated::out_of_bounds(data, index);
}
}

// The language. A macro of CUDA is one here, too.

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static thread_local
#define __constant__ static const
#define DYNAMIC_SHARED(type, name)                                                  \
    simulated::Shared<type> name {                                                  \
        simulated::here->shared, (long)simulated::here->launch->shared, 0           \
    }
#define threadIdx (simulated::here->current->index)
#define blockIdx (simulated::here->index)
#define blockDim (simulated::here->block)
#define gridDim (simulated::here->grid)
constexpr int warpSize = 32;

template <class U, class T>
simulated::Shared<U> shared_cast(simulated::Shared<T> p) {
    return {p.base, p.bytes, p.at};
}

#define SIMULATED_VECTORS(type, name)                                                    \
    struct alignas(2 * sizeof(type)) name##2 {                                           \
        type x, y;                                                                       \
    };                                                                                   \
    struct alignas(16) name##4 {                                                         \
        type x, y, z, w;                                                                 \
    };                                                                                   \
    __forceinline__ name##2 make_##name##2(type x, type y) { return {x, y}; }            \
    __forceinline__ name##4 make_##name##4(type x, type y, type z, type w) {             \
        return {x, y, z, w};                                                             \
    }
SIMULATED_VECTORS(float, float)
SIMULATED_VECTORS(double, double)
SIMULATED_VECTORS(int, int)
SIMULATED_VECTORS(unsigned, uint)
#undef SIMULATED_VECTORS

// Where a function is called from, as its last parameters
#define SIMULATED_FROM const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(SIMULATED_FROM) { simulated::barrier({file, line}); }
inline void __syncwarp(unsigned mask = ~0u, SIMULATED_FROM) {
    simulated::exchange("__syncwarp", mask, 0, {file, line});
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, SIMULATED_FROM) {
    return simulated::shuffle("__shfl_sync", mask, value, width, {file, line},
                              [=](int, int first) { return first + (lane & (width - 1)); });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, SIMULATED_FROM) {
    return simulated::shuffle("__shfl_up_sync", mask, value, width, {file, line},
                              [=](int self, int first) {
                                  return self - first < (int)by ? -1 : self - (int)by;
                              });
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, SIMULATED_FROM) {
    return simulated::shuffle("__shfl_down_sync", mask, value, width, {file, line},
                              [=](int self, int first) {
                                  int from = self + (int)by;
                                  return from < first + width ? from : -1;
                              });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, SIMULATED_FROM) {
    return simulated::shuffle("__shfl_xor_sync", mask, value, width, {file, line},
                              [=](int self, int first) {
                                  int from = self ^ with;
                                  return from < first + width ? from : -1;
                              });
}
inline unsigned __ballot_sync(unsigned mask, int predicate, SIMULATED_FROM) {
    const uint64_t* votes =
        simulated::exchange("__ballot_sync", mask, predicate != 0, {file, line});
    unsigned out = 0;
    for (unsigned rest = mask; rest; rest &= rest - 1)
        out |= (unsigned)(votes[__builtin_ctz(rest)] == 1) << __builtin_ctz(rest);
    return out;
}
inline int __any_sync(unsigned mask, int predicate, SIMULATED_FROM) {
    return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, SIMULATED_FROM) {
    return __ballot_sync(mask, !predicate, file, line) == 0;
}
// mma.sync.aligned.m16n8k16.row.col, of 16-bit numbers, ldmatrix.sync.aligned.m8n8.x4 and
// movmatrix.sync.aligned.m8n8.trans
template <class Number>
void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], SIMULATED_FROM) {
    simulated::Product part{c, a, b};
    simulated::together("mma_m16n8k16", part, {file, line}, simulated::multiply<Number>);
}
template <class T>
void ldmatrix_x4(unsigned (&words)[4], simulated::Shared<T> row, SIMULATED_FROM) {
    simulated::RowAndWords part{*shared_cast<const simulated::Row>(row), words};
    simulated::together("ldmatrix_x4", part, {file, line}, simulated::spread);
}
inline unsigned movmatrix_trans(unsigned word, SIMULATED_FROM) {
    simulated::together("movmatrix_trans", word, {file, line}, simulated::transpose);
    return word;
}
#undef SIMULATED_FROM

template <class A, class B>
    requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
constexpr auto max(A first, B second) {  // of a number and NaN the number, as on a GPU
    const std::common_type_t<A, B> a = first, b = second;
    return a > b || b != b ? a : b;
}
template <class A, class B>
    requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
constexpr auto min(A first, B second) {
    const std::common_type_t<A, B> a = first, b = second;
    return a < b || b != b ? a : b;
}
template <class T>
T atomicAdd(T* target, std::type_identity_t<T> value) {
    return simulated::change(target, [=](T old) { return old + value; });
}
template <class T>
T atomicMax(T* target, std::type_identity_t<T> value) {
    return simulated::change(target, [=](T old) { return old < value ? value : old; });
}
template <class T>
T atomicMin(T* target, std::type_identity_t<T> value) {
    return simulated::change(target, [=](T old) { return value < old ? value : old; });
}
template <class T>
__forceinline__ T __ldg(const T* p) {
    return *p;
}
inline unsigned __float_as_uint(float x) { return simulated::bits<unsigned>(x); }
inline int __float_as_int(float x) { return simulated::bits<int>(x); }
inline float __uint_as_float(unsigned x) { return simulated::bits<float>(x); }
inline float __int_as_float(int x) { return simulated::bits<float>(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline void __threadfence() {}
inline void __threadfence_block() {}
#define __expf expf  // glibc declares these names for itself
#define __logf logf
