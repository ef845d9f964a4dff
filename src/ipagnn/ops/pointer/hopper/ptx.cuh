// What the kernels of the packed step take from Hopper GPUs that CUDA C++ has no words for: in PTX. The tests have the same
// functions in plain C++ (tests/models/hopper/emulator.h), and so run the kernels where there is no GPU.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

__device__ __forceinline__ float tanh_fast(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ u32 pack(float low, float high) {
  u32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;
}
__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ uint4 load_16(u32 at) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at) : "memory");
  return x;
}
__device__ __forceinline__ u32 load_4(u32 at) {
  u32 x; asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at) : "memory"); return x;
}
__device__ __forceinline__ uint2 load_8(u32 at) {
  uint2 x; asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at) : "memory"); return x;
}
__device__ __forceinline__ void fetch_ahead(const void *from, size_t bytes) {  // into the cache; both are multiples of 16
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"((u32)bytes) : "memory");
}
__device__ __forceinline__ void store_8(u32 at, u32 x, u32 y) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ int cluster_rank() {
  int rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); return rank;
}
__device__ __forceinline__ void sync_threads(int barrier, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void fence_operands() {  // what this thread wrote may be read by products and copies
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

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
// Store into another block's shared memory, at an address from `there`; its barrier counts the bytes.
__device__ __forceinline__ void send(u32 at, const u32 (&x)[1], u32 barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at), "r"(x[0]), "r"(barrier) : "memory");
}
__device__ __forceinline__ void send(u32 at, const u32 (&x)[2], u32 barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(at), "r"(x[0]), "r"(x[1]),
               "r"(barrier) : "memory");
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
