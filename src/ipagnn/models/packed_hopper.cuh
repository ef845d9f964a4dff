// What the two kernels of the packed step share; see packed_hopper.cu. Compiled at first use with -DP=..., the hidden size
// and at least one more (the column that carries the bias), rounded up to a multiple of 32.
//
// Buffers are those of packed_triton.py:
//   h bf16, c f32 [layer 2][plane 5][row][P]   states before token 0 and after each token
//   gates bf16 [layer 2][token 4][row][P][4]   i f g o; the backward kernel leaves their gradients
//   table bf16 [token][P][4], weights bf16 [hidden_1, input_2, hidden_2][P][P][4]
// Rows are ordered by group, then step: group q computes rows offsets[q][t] : offsets[q][t + 1] at step t.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

constexpr int UNITS = 32, BLOCKS = P / UNITS;  // hidden units a block, blocks a cluster
constexpr int TEAM = 128, THREADS = 4 * TEAM;  // threads a team, a block
constexpr int ROWS = P <= 224 ? 32 : 16;       // most rows in flight in a group
static_assert(P % UNITS == 0 && BLOCKS <= 8, "no cluster holds these weights");

struct Plan {
  const int *offsets, *tokens, *arrival_offsets, *arrivals, *row_true, *row_false, *branches;
  const int *total;  // number of rows, all groups together; exits come after them
  int groups, steps, capacity;
};
struct State {
  u16 *h, *gates;
  float *c, *pointer, *decision;
  float *scores;  // [2 BLOCKS][2 capacity], for sums over blocks and layers
  const u16 *table, *weights;
  const float *branch_weight, *branch_bias;
  int normalise, hard;
  float eps;
};

__device__ __forceinline__ float tanh_fast(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ float sigmoid(float x) { return fmaf(tanh_fast(0.5f * x), 0.5f, 0.5f); }
__device__ __forceinline__ u32 pack(float low, float high) {
  u32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;
}
__device__ __forceinline__ float low(u32 x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(u32 x) { return __uint_as_float(x & 0xffff0000u); }
__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ uint4 load_16(u32 at) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at) : "memory");
  return x;
}
// The sum over the 8 units that a warp's lanes 4 u + q hold, for each q.
__device__ __forceinline__ float sum_units(float x) {
  for (int i = 16; i >= 4; i >>= 1) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}
// The row of a chunk that a lane's i-th number belongs to.
__device__ __forceinline__ int row_of(int i, int lane) { return i / 2 * 8 + (lane & 3) * 2 + i % 2; }

// Barriers in shared memory (mbarrier), here or in another block of the cluster.
__device__ __forceinline__ void barrier_init(u32 at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ u32 there(u32 at, int rank) {
  u32 y; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(y) : "r"(at), "r"(rank)); return y;
}
__device__ __forceinline__ void arrive_at(u32 at, int rank) {  // says nothing about what this thread wrote to memory
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there(at, rank)) : "memory");
}
__device__ __forceinline__ void publish_at(u32 at, int rank) {  // waits for this warp's writes to memory, so not for each wave
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there(at, rank)) : "memory");
}
__device__ __forceinline__ void arrive_expecting(u32 at, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(u32 at, u32 phase) {
  asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}" ::"r"(at), "r"(phase) : "memory");
}
__device__ __forceinline__ void wait_cluster(u32 at, u32 phase) {  // sees what other blocks wrote before they arrived
  asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}" ::"r"(at),
               "r"(phase) : "memory");
}
// Copy shared memory to the same place in another block, whose barrier counts the bytes.
__device__ __forceinline__ void copy_to(int rank, u32 at, int bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(there(at, rank)),
               "r"(at), "r"(bytes), "r"(there(barrier, rank)) : "memory");
}
__device__ __forceinline__ void begin_cluster() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");  // operands that were written by hand
  __syncthreads();
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_cluster() {  // nobody leaves while others signal it
  __syncthreads();
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Products on tensor cores (wgmma). Operands are matrices of 8 x 16 bytes, each contiguous; `along` and `down` are the
// distances in bytes of neighbours in the direction of the sum and across it. An operand further on is `low` larger. In a
// cluster, the upper bits of an address say which block's memory it is in; here they must not.
struct Operand {
  u32 low, high;
  __device__ __forceinline__ Operand(u32 at, u32 along, u32 down) : low((at & 0x3ffff) >> 4 | (along >> 4) << 16), high(down >> 4) {}
};
__device__ __forceinline__ void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void finish_products() {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}
template <int COUNT> __device__ __forceinline__ void settle(float (&d)[COUNT]) {  // sums are not read before they are there
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}
__device__ __forceinline__ void multiply(float (&d)[4], const Operand &a, u32 a_on, const Operand &b, u32 b_on, int add) {
  asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %8, 0;\nmov.b64 a, {%4, %5};\nmov.b64 b, {%6, %7};\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, a, b, p, 1, 1, 0, 0;\n}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a.low + a_on), "r"(a.high), "r"(b.low + b_on), "r"(b.high), "r"(add));
}
__device__ __forceinline__ void multiply(float (&d)[8], const Operand &a, u32 a_on, const Operand &b, u32 b_on, int add) {
  asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %12, 0;\nmov.b64 a, {%8, %9};\nmov.b64 b, {%10, %11};\n"
               "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, a, b, p, 1, 1, 0, 0;\n}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
               : "r"(a.low + a_on), "r"(a.high), "r"(b.low + b_on), "r"(b.high), "r"(add));
}
__device__ __forceinline__ void multiply(float (&d)[12], const Operand &a, u32 a_on, const Operand &b, u32 b_on, int add) {
  asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %16, 0;\nmov.b64 a, {%12, %13};\nmov.b64 b, {%14, %15};\n"
               "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11}, a, b, p, 1, 1, 0, 0;\n}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
               : "r"(a.low + a_on), "r"(a.high), "r"(b.low + b_on), "r"(b.high), "r"(add));
}
__device__ __forceinline__ void multiply(float (&d)[16], const Operand &a, u32 a_on, const Operand &b, u32 b_on, int add) {
  asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %20, 0;\nmov.b64 a, {%16, %17};\nmov.b64 b, {%18, %19};\n"
               "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, a, b, p, 1, 1, 0, 0;\n}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
               : "r"(a.low + a_on), "r"(a.high), "r"(b.low + b_on), "r"(b.high), "r"(add));
}

// Write numbers that lie in a warp as [unit 8][row 8 j + ...] to [j][row][unit], 16 bytes a row.
template <int COUNT> __device__ __forceinline__ void store_across(const u32 (&x)[COUNT], u32 at, int lane);
template <> __device__ __forceinline__ void store_across<1>(const u32 (&x)[1], u32 at, int lane) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(at + (lane & 7) * 16), "r"(x[0]) : "memory");
}
template <> __device__ __forceinline__ void store_across<2>(const u32 (&x)[2], u32 at, int lane) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(at + (lane & 15) * 16), "r"(x[0]), "r"(x[1]) : "memory");
}
template <> __device__ __forceinline__ void store_across<3>(const u32 (&x)[3], u32 at, int lane) {
  store_across<2>({x[0], x[1]}, at, lane);
  store_across<1>({x[2]}, at + 256, lane);
}
template <> __device__ __forceinline__ void store_across<4>(const u32 (&x)[4], u32 at, int lane) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at + lane * 16), "r"(x[0]), "r"(x[1]), "r"(x[2]),
               "r"(x[3]) : "memory");
}

// Where a thread works: a team is one LSTM layer of one group; a thread of it one hidden unit and some rows.
struct Place {
  int rank, half, layer, thread, warp, lane, unit, group;
  __device__ void find() {
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    // What a warp has in common is read from its first lane, so that the compiler sees that it is common.
    const int team = __shfl_sync(0xffffffffu, threadIdx.x / TEAM, 0);
    half = team / 2;
    layer = team % 2;
    thread = threadIdx.x % TEAM;
    warp = __shfl_sync(0xffffffffu, thread / 32, 0);
    lane = thread % 32;
    unit = warp * 8 + lane / 4;
    group = half * (gridDim.x / BLOCKS) + blockIdx.x / BLOCKS;
  }
  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + 2 * half + layer), "r"(TEAM) : "memory");
  }
  __device__ __forceinline__ void sync_group() const {
    asm volatile("bar.sync %0, %1;" ::"r"(5 + half), "r"(2 * TEAM) : "memory");
  }
};
