// A GPU on paper: runs CUDA kernels on the CPU, so that everything around them can be tested where there is no GPU.
//
// Each thread of a block is a fiber.  Blocks run one after the other.  A fiber runs until it waits, for its warp (a shuffle)
// or for its block (__syncthreads); waiters go on once all others that are alive have come to the same kind of place.
// A block in which nobody can go on ends the process, as a kernel ends a context that does what it must not.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

namespace paper {

struct Place { unsigned x = 0, y = 0, z = 0; };

enum State { RUNNING, AT_WARP, AT_BLOCK, ENDED };

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  State state = RUNNING;
  Place thread;
};

constexpr size_t kStack = 256 << 10;
constexpr int kWarp = 32;
constexpr int kMostParameters = 24;

inline std::vector<Fiber>& fibers() { static std::vector<Fiber> all; return all; }
inline ucontext_t& home() { static ucontext_t context; return context; }
inline int& current() { static int number = 0; return number; }
inline uint64_t* exchanged() { static uint64_t slots[1024]; return slots; }

typedef void (*Kernel)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                       void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*);
struct Call { Kernel kernel; void* a[kMostParameters]; };
inline Call& call() { static Call one; return one; }

inline void wait(State kind) {
  Fiber& fiber = fibers()[current()];
  fiber.state = kind;
  swapcontext(&fiber.context, &home());
}

inline void run_thread() {
  void** a = call().a;
  call().kernel(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15],
                a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23]);
}

inline void enter() {
  run_thread();
  fibers()[current()].state = ENDED;
}

}  // namespace paper

static paper::Place threadIdx, blockIdx, blockDim, gridDim;

namespace paper {

inline bool release(int first, int last, State kind) {
  bool any = false;
  for (int i = first; i < last; ++i) {
    State state = fibers()[i].state;
    if (state != ENDED && state != kind) return false;
    any |= state == kind;
  }
  for (int i = first; i < last; ++i)
    if (fibers()[i].state == kind) fibers()[i].state = RUNNING;
  return any;
}

inline Place place_of(unsigned i) {
  return {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
}

// Threads that never wait need no fibers.
inline void run_one_after_the_other(int threads) {
  for (int i = 0; i < threads; ++i) {
    threadIdx = place_of(i);
    run_thread();
  }
}

inline void run_block(int threads) {
  std::vector<Fiber>& all = fibers();
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = all[i];
    fiber.state = RUNNING;
    fiber.thread = place_of(i);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &home();
    makecontext(&fiber.context, enter, 0);
  }
  for (;;) {
    for (int i = 0; i < threads; ++i) {
      if (all[i].state != RUNNING) continue;
      current() = i;
      threadIdx = all[i].thread;
      swapcontext(&home(), &all[i].context);
    }
    bool released = false, alive = false;
    for (int warp = 0; warp < threads; warp += kWarp)
      released |= release(warp, std::min(threads, warp + kWarp), AT_WARP);
    if (released) continue;
    for (int i = 0; i < threads; ++i) alive |= all[i].state != ENDED;
    if (!alive) return;
    if (!release(0, threads, AT_BLOCK)) {
      fprintf(stderr, "paper GPU: the threads of a block wait for each other\n");
      abort();
    }
  }
}

inline void launch(
    void* kernel, int parameters, int waits, const unsigned* grid, const unsigned* block, void** values) {
  if (parameters > kMostParameters) abort();
  memset(&call(), 0, sizeof(Call));
  call().kernel = reinterpret_cast<Kernel>(kernel);
  for (int i = 0; i < parameters; ++i) memcpy(&call().a[i], values[i], sizeof(void*));
  int threads = block[0] * block[1] * block[2];
  while (waits && static_cast<int>(fibers().size()) < threads) {
    fibers().emplace_back();
    fibers().back().stack.resize(kStack);
  }
  blockDim = {block[0], block[1], block[2]};
  gridDim = {grid[0], grid[1], grid[2]};
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x) {
        blockIdx = {x, y, z};
        waits ? run_block(threads) : run_one_after_the_other(threads);
      }
}

template <typename T>
inline T shuffle(T value, int lane_of_source) {
  int self = current(), first = self / kWarp * kWarp;
  memcpy(&exchanged()[self], &value, sizeof(T));
  wait(AT_WARP);
  int source = first + (lane_of_source & (kWarp - 1));
  T found;
  memcpy(&found, &exchanged()[source], sizeof(T));
  wait(AT_WARP);
  return found;
}

}  // namespace paper

extern "C" inline __attribute__((used)) void paper_launch(
    void* kernel, int parameters, int waits, const unsigned* grid, const unsigned* block, void** values) {
  paper::launch(kernel, parameters, waits, grid, block, values);
}

inline void __syncthreads() { paper::wait(paper::AT_BLOCK); }
inline void __syncwarp(unsigned = 0) { paper::wait(paper::AT_WARP); }
inline unsigned __activemask() { return 0xffffffffu; }

template <typename T> T __shfl_sync(unsigned, T value, int lane, int = 32) { return paper::shuffle(value, lane); }
template <typename T> T __shfl_down_sync(unsigned, T value, int by, int = 32) {
  int lane = paper::current() % paper::kWarp;
  return paper::shuffle(value, lane + by < paper::kWarp ? lane + by : lane);
}
template <typename T> T __shfl_up_sync(unsigned, T value, int by, int = 32) {
  int lane = paper::current() % paper::kWarp;
  return paper::shuffle(value, lane - by >= 0 ? lane - by : lane);
}
template <typename T> T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
  return paper::shuffle(value, (paper::current() % paper::kWarp) ^ mask);
}

#define PAPER_VECTORS(type, name)                                                                                   \
  struct __align__(2 * sizeof(type)) name##2 { type x, y; };                                                        \
  struct name##3 { type x, y, z; };                                                                                 \
  struct __align__(4 * sizeof(type)) name##4 { type x, y, z, w; };                                                  \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                  \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                       \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
PAPER_VECTORS(float, float)
PAPER_VECTORS(int, int)
PAPER_VECTORS(unsigned, uint)
PAPER_VECTORS(short, short)
PAPER_VECTORS(unsigned char, uchar)
PAPER_VECTORS(signed char, char)
PAPER_VECTORS(double, double)
PAPER_VECTORS(long long, longlong)

template <typename T> inline T max(T a, T b) { return a < b ? b : a; }
template <typename T> inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> inline T __ldg(const T* from) { return *from; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
