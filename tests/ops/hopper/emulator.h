// The functions of ptx.cuh in plain C++, and what CUDA C++ has beyond it: kernels run here without a GPU.
//
// Every thread of a cluster is a fiber; they take turns in a random order, and give way only where they wait. Copies and
// stores between blocks happen some time later, as they do on a GPU. A cluster in which nobody can go on is an error.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __global__
#define __cluster_dims__(...)
#define __launch_bounds__(...)
#define threadIdx (emulator::current->thread_index)
#define blockIdx (emulator::current->block_index)
#define gridDim (emulator::grid)

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct int4 { int x, y, z, w; };
struct ushort4 { u16 x, y, z, w; };
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline ushort4 make_ushort4(int x, int y, int z, int w) { return {(u16)x, (u16)y, (u16)z, (u16)w}; }
using std::max;
using std::min;

namespace emulator {

struct Index { int x; };
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  Index thread_index, block_index;
  int rank;
  bool done;
};
struct Gathering { int arrived = 0, round = 0; };                 // of threads that wait for each other
struct Warp : Gathering { u32 values[2][32]; };
struct Barrier { int count, pending, bytes, phase; };             // an mbarrier
struct Block {
  std::vector<unsigned char> memory;
  Gathering barriers[16];
  std::vector<Warp> warps;
  std::map<u32, Barrier> mbarriers;
};

constexpr u32 RESERVED = 1024, ROOM = 1 << 18;  // bytes that the system takes of shared memory, and what an address reaches
constexpr int STACK = 1 << 17;
inline Fiber *current;
inline Index grid;
inline ucontext_t scheduler;
inline std::vector<Block> blocks;
inline std::vector<std::function<void()>> later;  // copies and stores on their way
inline Gathering cluster;
inline std::mt19937 chance;
inline bool progress, failed;
inline std::function<void()> kernel;

inline void fail(const char *why) {
  if (!failed) std::fprintf(stderr, "emulator: %s (block %d, thread %d)\n", why, current ? current->rank : -1, current ? current->thread_index.x : -1);
  failed = true;
}
inline void give_way() { swapcontext(&current->context, &scheduler); }
template <class Condition> void wait_until(Condition condition) {
  while (!condition()) give_way();
  progress = true;
}
inline Block &mine() { return blocks[current->rank]; }
inline void gather(Gathering &all, int count) {
  const int round = all.round;
  if (++all.arrived == count) all.arrived = 0, all.round++;
  wait_until([&] { return all.round != round; });
}
inline unsigned char *shared() { return mine().memory.data() + RESERVED; }
inline unsigned char *at(u32 address) {
  const u32 rank = address >> 24, offset = address & 0xffffff;
  if (rank >= blocks.size() || offset < RESERVED || offset >= ROOM) { fail("an address outside of shared memory"); return shared(); }
  return blocks[rank].memory.data() + offset;
}
inline Warp &warp() { return mine().warps[current->thread_index.x / 32]; }
// Every lane's value. All 32 take part.
inline const u32 *exchange(u32 value) {
  Warp &w = warp();
  u32 *values = w.values[w.round & 1];
  values[current->thread_index.x & 31] = value;
  gather(w, 32);
  return values;
}
inline Barrier &barrier(u32 address) { return blocks[address >> 24].mbarriers.at(address & 0xffffff); }
inline void check(Barrier &b) {
  if (b.pending < 0) fail("more arrivals at a barrier than it expects");
  if (b.pending == 0 && b.bytes == 0) b.pending = b.count, b.phase ^= 1;
}
inline void start() {
  kernel();
  current->done = true;
  progress = true;
  give_way();
}

// Run a kernel; 0 if all threads came to their end.
inline int launch(std::function<void()> body, int clusters, int size, int threads, u32 seed) {
  chance.seed(seed);
  kernel = body;
  grid.x = clusters * size;
  failed = false;
  std::vector<Fiber> fibers(size * threads);
  for (Fiber &fiber : fibers) fiber.stack.resize(STACK);
  for (int c = 0; c < clusters && !failed; c++) {
    blocks.assign(size, Block());
    cluster = Gathering();
    later.clear();
    for (Block &block : blocks) block.memory.assign(ROOM, 0xff), block.warps.resize(threads / 32);  // 0xffff is not a number
    for (size_t i = 0; i < fibers.size(); i++) {
      Fiber &fiber = fibers[i];
      fiber.rank = i / threads;
      fiber.thread_index.x = i % threads;
      fiber.block_index.x = c * size + fiber.rank;
      fiber.done = false;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, start, 0);
    }
    std::vector<Fiber *> alive;
    for (Fiber &fiber : fibers) alive.push_back(&fiber);
    while (!alive.empty() && !failed) {
      std::shuffle(alive.begin(), alive.end(), chance);
      progress = false;
      for (Fiber *fiber : alive) {
        current = fiber;
        swapcontext(&scheduler, &fiber->context);
        if (failed) break;
      }
      current = nullptr;
      std::shuffle(later.begin(), later.end(), chance);
      for (size_t due = later.empty() ? 0 : 1 + chance() % later.size(); due--; progress = true) {
        const auto event = later.back();
        later.pop_back();
        event();
      }
      alive.erase(std::remove_if(alive.begin(), alive.end(), [](Fiber *fiber) { return fiber->done; }), alive.end());
      if (!progress && !alive.empty()) fail("nobody can go on");
    }
    if (!later.empty()) fail("copies arrive after the end");
  }
  return failed;
}

}  // namespace emulator

inline float __uint_as_float(u32 x) { float y; std::memcpy(&y, &x, 4); return y; }
inline u32 float_as_uint(float x) { u32 y; std::memcpy(&y, &x, 4); return y; }
inline float __expf(float x) { return std::exp(x); }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> T __ldg(const T *p) { return *p; }
inline int __shfl_sync(u32, u32 x, int lane) { return emulator::exchange(x)[lane]; }
inline float __shfl_xor_sync(u32, float x, int mask) {
  return __uint_as_float(emulator::exchange(float_as_uint(x))[(emulator::current->thread_index.x & 31) ^ mask]);
}
inline bool __any_sync(u32, bool x) {
  const u32 *all = emulator::exchange(x);
  return std::any_of(all, all + 32, [](u32 y) { return y; });
}
inline void __syncwarp() { emulator::exchange(0); }
inline void sync_threads(int barrier, int count) { emulator::gather(emulator::mine().barriers[barrier], count); }
inline void __syncthreads() { sync_threads(0, emulator::mine().warps.size() * 32); }

inline float tanh_fast(float x) { return std::tanh(x); }
inline u32 bf16(float x) { const u32 y = float_as_uint(x); return std::isnan(x) ? 0x7fff : (y + 0x7fff + (y >> 16 & 1)) >> 16; }
inline u32 pack(float low, float high) { return bf16(low) | bf16(high) << 16; }
inline int cluster_rank() { return emulator::current->rank; }
inline u32 shared_address(const void *p) {  // the upper bits say whose memory it is
  return (u32)((const unsigned char *)p - emulator::mine().memory.data()) | emulator::current->rank << 24;
}
inline uint4 load_16(u32 at) { uint4 x; std::memcpy(&x, emulator::at(at), 16); return x; }
inline u32 load_4(u32 at) { u32 x; std::memcpy(&x, emulator::at(at), 4); return x; }
inline uint2 load_8(u32 at) { uint2 x; std::memcpy(&x, emulator::at(at), 8); return x; }
inline void fetch_ahead(const void *from, size_t bytes) {
  if ((size_t)from % 16 || bytes % 16) emulator::fail("what is fetched ahead must be aligned");
}
inline void store_8(u32 at, u32 x, u32 y) { const u32 two[2] = {x, y}; std::memcpy(emulator::at(at), two, 8); }
inline void fence_operands() {}

inline void barrier_init(u32 at, int count) { emulator::mine().mbarriers[at & 0xffffff] = {count, count, 0, 0}; }
inline u32 there(u32 at, int rank) { return (at & 0xffffff) | rank << 24; }
inline void arrive(u32 at, int bytes) {
  emulator::Barrier &b = emulator::barrier(at);
  b.bytes += bytes;
  b.pending--;
  emulator::check(b);
}
inline void arrive_at(u32 at, int rank) { arrive(there(at, rank), 0); }
inline void publish_at(u32 at, int rank) { arrive(there(at, rank), 0); }
inline void arrive_expecting(u32 at, int bytes) { arrive(at, bytes); }
inline void wait(u32 at, u32 phase) { emulator::wait_until([=] { return emulator::barrier(at).phase != (int)phase; }); }
inline void wait_cluster(u32 at, u32 phase) { wait(at, phase); }
inline void arrived(u32 barrier, int bytes) {
  emulator::Barrier &b = emulator::barrier(barrier);
  b.bytes -= bytes;
  emulator::check(b);
}
inline void copy_to(int rank, u32 at, int bytes, u32 barrier) {
  emulator::later.push_back([=] {  // reads what is there then
    std::memcpy(emulator::at(there(at, rank)), emulator::at(at), bytes);
    arrived(there(barrier, rank), bytes);
  });
}
template <int COUNT> void send(u32 at, const u32 (&x)[COUNT], u32 barrier) {
  std::vector<u32> kept(x, x + COUNT);
  emulator::later.push_back([=] {
    std::memcpy(emulator::at(at), kept.data(), 4 * COUNT);
    arrived(barrier, 4 * COUNT);
  });
}
inline void end_cluster() {
  __syncthreads();
  emulator::gather(emulator::cluster, emulator::blocks.size() * emulator::mine().warps.size() * 32);
}
inline void begin_cluster() { end_cluster(); }

struct Operand {
  u32 low, high;
  Operand(u32 at, u32 along, u32 down) : low((at & 0x3ffff) >> 4 | (along >> 4) << 16), high(down >> 4) {}
};
// Entry (row, k) of an operand, as the instruction finds it.
inline float entry(const Operand &operand, u32 on, int row, int k) {
  const u32 low = operand.low + on, start = (low & 0x3fff) * 16, along = (low >> 16 & 0x3fff) * 16, down = operand.high * 16;
  u16 x;
  std::memcpy(&x, emulator::mine().memory.data() + start + (k >> 3) * along + (row >> 3) * down + (row & 7) * 16 + (k & 7) * 2, 2);
  return __uint_as_float((u32)x << 16);
}
inline void fence_products() {}
inline void finish_products() { __syncwarp(); }
template <int COUNT> void settle(float (&)[COUNT]) {}
template <int COUNT> void multiply(float (&d)[COUNT], const Operand &a, u32 a_on, const Operand &b, u32 b_on, int add) {
  const int thread = threadIdx.x % 128, lane = thread % 32, first = thread / 32 * 16 + lane / 4;
  for (int i = 0; i < COUNT; i++) {
    const int row = first + (i % 4 / 2) * 8, column = i / 4 * 8 + (lane & 3) * 2 + i % 2;
    float sum = add ? d[i] : 0.f;
    for (int k = 0; k < 16; k++) sum += entry(a, a_on, row, k) * entry(b, b_on, column, k);
    d[i] = sum;
  }
}
template <int COUNT> void store_across(const u32 (&x)[COUNT], u32 at, int lane) {
  for (int j = 0; j < COUNT; j++)
    for (int side = 0; side < 2; side++) {
      const u16 half = (u16)(x[j] >> (16 * side));
      std::memcpy(emulator::at(at + j * 128 + ((lane & 3) * 2 + side) * 16 + (lane >> 2) * 2), &half, 2);
    }
}
