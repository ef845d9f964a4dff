// The packed step as two persistent kernels for GPUs with thread block clusters (compute capability 9.0).
//
// A cluster of 8 blocks holds all recurrent weights in its shared memory, each block the gates of P / 8 hidden units, and
// keeps them for a whole pass over a batch. Programs do not depend on each other, so every cluster runs its own programs from
// the first step to the last without ever waiting for another cluster; two groups of 8 warps in a block run the two halves of
// them, and one computes while the other waits. What a group's 8 blocks tell each other goes through the L2 cache, between
// barriers in distributed shared memory.
//
// The arithmetic and the buffers are those of packed_triton.py, but for the gates, which lie side by side here:
//   h bf16, c f32 [layer 2][plane 5][row][P]   states before token 0 and after each token
//   gates bf16 [layer 2][token 4][row][P][4]   i f g o; the backward kernel leaves their gradients
//   table bf16 [token][P][4], weights bf16 [hidden_1, input_2, hidden_2][P][P][4]
// Rows are ordered by group, then step: group q computes rows offsets[q][t] : offsets[q][t + 1] at step t.
//
// Compiled at first use (NVRTC) with -DP=...; P is a multiple of 16 and larger than the hidden size, see packed_triton.py.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

constexpr int BLOCKS = 8, WARPS = 8, GROUP = WARPS * 32;  // blocks a cluster; warps and threads a group
constexpr int U = P / BLOCKS;                             // hidden units a block
constexpr int G = 4 * U;                                  // gate columns a block
constexpr int TILES = G / 8;                              // tensor core tiles of 8 gate columns: 2 units each
constexpr int ROWS = 32, M_TILES = ROWS / 16;             // rows in flight in a group
constexpr int STRIDE = P + 8;                             // of a shared memory row, in elements: no bank conflicts
constexpr int G_STRIDE = G + 16;
constexpr int WEIGHTS = 3 * G * STRIDE;                   // elements
constexpr int DOUBLE = TILES > WARPS ? TILES - WARPS : 0; // warps that take two tiles of layer 2, the dearer one
constexpr int SHARE = (TILES - DOUBLE + WARPS - DOUBLE - 1) / (WARPS - DOUBLE);  // most tiles of layer 1 of the others
constexpr int N_TILES = P / 8, N_SHARE = (N_TILES + WARPS - 1) / WARPS;  // backwards: tiles of 8 hidden units
constexpr int ITEMS = (ROWS * U / 2 + GROUP - 1) / GROUP;                // backwards: (row, pair of units) a thread
constexpr int PAIRS = P / 2, LANE_PAIRS = (PAIRS + 31) / 32;

struct Plan {
  const int *offsets;
  const ushort4 *tokens;
  const int *arrival_offsets, *arrivals, *row_true, *row_false;
  const signed char *branches;
  const int *total;  // number of rows, all groups together; exits come after them
  int steps, capacity;
};
struct State {
  u16 *h, *gates;
  float *c, *pointer, *decision;
  const u16 *table, *weights;
  const float *branch_weight, *branch_bias;
};
struct Gradients {
  float *d_state, *d_pointer, *d_score;
  const float *final_state, *final_mass, *d_final;
  u16 *partial;
};

__device__ __forceinline__ float tanh_fast(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ float sigmoid(float x) { return fmaf(tanh_fast(0.5f * x), 0.5f, 0.5f); }
__device__ __forceinline__ u32 pack(float low, float high) {
  u32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;
}
__device__ __forceinline__ float low(u32 x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(u32 x) { return __uint_as_float(x & 0xffff0000u); }
__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(u32 to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory"); }
// Loads of matrix fragments. They are not volatile, so that the compiler may overlap them; `epoch`, a number that a barrier
// hands out, is what keeps it from moving them across that barrier or taking an old one for a new one.
__device__ __forceinline__ void load_4(u32 (&x)[4], u32 at, u32 epoch) {
  asm("{ // %5\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n}"
      : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at), "r"(epoch));
}
__device__ __forceinline__ void load_2(u32 (&x)[2], u32 at, u32 epoch) {
  asm("{ // %3\nldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n}" : "=r"(x[0]), "=r"(x[1]) : "r"(at), "r"(epoch));
}
__device__ __forceinline__ void load_2_across(u32 (&x)[2], u32 at, u32 epoch) {
  asm("{ // %3\nldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n}" : "=r"(x[0]), "=r"(x[1]) : "r"(at), "r"(epoch));
}
__device__ __forceinline__ void load_1_across(u32 &x, u32 at, u32 epoch) {
  asm("{ // %2\nldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];\n}" : "=r"(x) : "r"(at), "r"(epoch));
}
__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_half(float (&d)[4], u32 a0, u32 a1, u32 b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ float sum_warp(float x) {
  for (int i = 16; i; i >>= 1) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}

// One of the two halves of a cluster's warps: who it is, and its barrier over all 8 blocks.
struct Group {
  int rank, half, warp, lane, thread, index;
  u32 barrier, phase;

  __device__ void begin(u64 *barriers) {
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    half = threadIdx.x / GROUP;
    thread = threadIdx.x % GROUP;
    warp = thread / 32;
    lane = thread % 32;
    index = (blockIdx.x / BLOCKS) * 2 + half;
    barrier = shared_address(barriers + half);
    phase = 0;
    if (thread == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(BLOCKS) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  }
  __device__ __forceinline__ u32 sync_block() {  // returns an epoch, see load_4
    u32 epoch;
    asm volatile("bar.sync %1, %2;\nmov.u32 %0, %3;" : "=r"(epoch) : "r"(half + 1), "r"(GROUP), "r"(phase) : "memory");
    return epoch;
  }
  // Everything that any thread of the group has written, in any of the 8 blocks, is seen by all of them after this.
  __device__ __forceinline__ void sync() {
    sync_block();
    if (thread < BLOCKS) {
      u32 there;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(barrier), "r"(thread));
      asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
    }
    u32 done = 0;
    while (!done)
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done) : "r"(barrier), "r"(phase) : "memory");
    phase ^= 1;
  }
};

// This block's slice of the weights: [3][gate column = 4 * unit + gate][k].
__device__ void load_weights(u16 *shared, const u16 *weights, int rank) {
  for (int i = threadIdx.x; i < 3 * P * U; i += 2 * GROUP) {
    int unit = i % U, k = (i / U) % P, m = i / (U * P);
    u64 four = *(const u64 *)(weights + ((size_t)(m * P + k) * P + rank * U + unit) * 4);
    for (int gate = 0; gate < 4; gate++) shared[(m * G + 4 * unit + gate) * STRIDE + k] = (u16)(four >> (16 * gate));
  }
}

// Four parts (c1, h1, c2, h2) of one row's state, two columns a lane at a time.
struct RowState {
  float2 v[4][LANE_PAIRS];
  __device__ __forceinline__ void clear() {
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < LANE_PAIRS; j++) v[i][j] = make_float2(0.f, 0.f);
  }
  __device__ __forceinline__ void load(const State &s, size_t at, size_t plane, int lane) {
    for (int j = 0; j < LANE_PAIRS; j++) {
      int pair = lane + 32 * j;
      bool inside = pair < PAIRS;
      for (int layer = 0; layer < 2; layer++) {
        size_t place = at + layer * 5 * plane + 2 * pair;
        v[2 * layer][j] = inside ? __ldcg((const float2 *)(s.c + place)) : make_float2(0.f, 0.f);
        u32 two = inside ? __ldcg((const u32 *)(s.h + place)) : 0u;
        v[2 * layer + 1][j] = make_float2(low(two), high(two));
      }
    }
  }
  __device__ __forceinline__ void store(const State &s, size_t at, size_t plane, int lane, float scale) const {
    for (int j = 0; j < LANE_PAIRS; j++) {
      int pair = lane + 32 * j;
      if (pair >= PAIRS) continue;
      for (int layer = 0; layer < 2; layer++) {
        size_t place = at + layer * 5 * plane + 2 * pair;
        *(float2 *)(s.c + place) = make_float2(v[2 * layer][j].x * scale, v[2 * layer][j].y * scale);
        *(u32 *)(s.h + place) = pack(v[2 * layer + 1][j].x * scale, v[2 * layer + 1][j].y * scale);
      }
    }
  }
  // From f32 [part][stride].
  __device__ __forceinline__ void load_parts(const float *from, size_t stride, int lane) {
    for (int j = 0; j < LANE_PAIRS; j++) {
      int pair = lane + 32 * j;
      for (int i = 0; i < 4; i++)
        v[i][j] = pair < PAIRS ? __ldcg((const float2 *)(from + i * stride + 2 * pair)) : make_float2(0.f, 0.f);
    }
  }
  // Products with another row's state, and with f32 parts: read as they are used, which keeps registers free.
  __device__ __forceinline__ float dot(const State &s, size_t at, size_t plane, int lane) const {
    float sum = 0.f;
    for (int j = 0; j < LANE_PAIRS; j++) {
      int pair = lane + 32 * j;
      if (pair >= PAIRS) continue;
      for (int layer = 0; layer < 2; layer++) {
        size_t place = at + layer * 5 * plane + 2 * pair;
        float2 c = __ldcg((const float2 *)(s.c + place));
        u32 h = __ldcg((const u32 *)(s.h + place));
        sum += v[2 * layer][j].x * c.x + v[2 * layer][j].y * c.y + v[2 * layer + 1][j].x * low(h) + v[2 * layer + 1][j].y * high(h);
      }
    }
    return sum_warp(sum);
  }
  __device__ __forceinline__ float dot_parts(const float *with, size_t stride, int lane) const {
    float sum = 0.f;
    for (int j = 0; j < LANE_PAIRS; j++) {
      int pair = lane + 32 * j;
      if (pair >= PAIRS) continue;
      for (int i = 0; i < 4; i++) {
        float2 x = __ldcg((const float2 *)(with + i * stride + 2 * pair));
        sum += v[i][j].x * x.x + v[i][j].y * x.y;
      }
    }
    return sum_warp(sum);
  }
  __device__ __forceinline__ void add(float weight, const RowState &o) {
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < LANE_PAIRS; j++) v[i][j].x += weight * o.v[i][j].x, v[i][j].y += weight * o.v[i][j].y;
  }
};

// Equations 4 to 6 for the row `row`: one warp. See `aggregate` in packed_triton.py.
__device__ void aggregate(const Plan &plan, const State &s, int row, int lane, bool first, bool normalise, bool hard, float eps) {
  size_t plane = (size_t)plan.capacity * P;
  RowState sum;
  sum.clear();
  float mass = 0.f;
  if (first) {
    mass = 1.f;
  } else {
    RowState a;
    float bias = *s.branch_bias;
    for (int e = plan.arrival_offsets[row]; e < plan.arrival_offsets[row + 1]; e++) {
      int code = plan.arrivals[e], source = code >> 1;
      a.load(s, 4 * plane + (size_t)source * P, plane, lane);
      float weight = __ldcg(s.pointer + source);
      if (plan.branches[source]) {
        float taken = 1.f / (1.f + __expf(-(a.dot_parts(s.branch_weight, P, lane) + bias)));
        if (lane == 0) s.decision[source] = taken;
        if (hard) taken = taken >= 0.5f ? 1.f : 0.f;
        weight *= code & 1 ? 1.f - taken : taken;
      }
      mass += weight;
      sum.add(weight, a);
    }
  }
  if (lane == 0) s.pointer[row] = mass;
  sum.store(s, (size_t)row * P, plane, lane, normalise && mass > 0.f ? 1.f / (mass + eps) : 1.f);
}

// Layer 2 costs twice as much as layer 1, so the first DOUBLE warps take two tiles (of 8 gate columns) of layer 2 and one of
// layer 1, and the others one of layer 2 and SHARE of layer 1. Where there are not enough, the last one is computed again.
template <int TWO> struct Slots {
  static constexpr int COUNT = TWO == 2 ? 3 : 1 + SHARE;
  static __device__ __forceinline__ int layer(int slot) { return slot < TWO; }
  static __device__ __forceinline__ int tile(int warp, int slot) {
    if (TWO == 2) return slot == 1 ? warp + WARPS : warp;
    return min(slot ? warp + (slot - 1) * (WARPS - DOUBLE) : warp, TILES - 1);
  }
};

// acc += states @ weights: h1 for layer 1 and layer 2, then h2 for layer 2. B fragments come for two k-steps at a time.
template <int TWO, int M, bool LAYER_1, bool LAYER_2>
__device__ __forceinline__ void products(float (&acc)[Slots<TWO>::COUNT][M_TILES][4], u32 a_at, u32 b_at, int warp, u32 epoch) {
  using S = Slots<TWO>;
#pragma unroll
  for (int source = 0; source < (LAYER_2 ? 2 : 1); source++) {
#pragma unroll
    for (int k = 0; k < P; k += 32) {
      u32 a[2][M][4];
#pragma unroll
      for (int m = 0; m < M; m++) {
        load_4(a[0][m], a_at + 2 * ((source * ROWS + m * 16) * STRIDE + k), epoch);
        if (k + 16 < P) load_4(a[1][m], a_at + 2 * ((source * ROWS + m * 16) * STRIDE + k + 16), epoch);
      }
#pragma unroll
      for (int slot = 0; slot < S::COUNT; slot++) {
        if (S::layer(slot) ? !LAYER_2 : !LAYER_1 || source) continue;
        const u32 at = b_at + 2 * (((S::layer(slot) + source) * G + S::tile(warp, slot) * 8) * STRIDE + k);
        if (k + 16 < P) {
          u32 b[4];
          load_4(b, at, 0);
#pragma unroll
          for (int m = 0; m < M; m++) multiply(acc[slot][m], a[0][m], b[0], b[1]), multiply(acc[slot][m], a[1][m], b[2], b[3]);
        } else {
          u32 b[2];
          load_2(b, at, 0);
#pragma unroll
          for (int m = 0; m < M; m++) multiply(acc[slot][m], a[0][m], b[0], b[1]);
        }
      }
    }
  }
}

// The gates' arithmetic of one 16 x 8 tile. A thread holds two gates of one unit for two rows; neighbours swap, so that each
// ends up with all four gates of one (row, unit).
__device__ __forceinline__ void finish(float (&acc)[4], float &c, const State &s, int layer, int token, int row, int unit,
                                       bool odd, bool inside, size_t plane) {
  float send0 = odd ? acc[0] : acc[2], send1 = odd ? acc[1] : acc[3];
  float got0 = __shfl_xor_sync(0xffffffffu, send0, 1), got1 = __shfl_xor_sync(0xffffffffu, send1, 1);
  float i = sigmoid(odd ? got0 : acc[0]), f = sigmoid(odd ? got1 : acc[1]);
  float g = tanh_fast(odd ? acc[2] : got0), o = sigmoid(odd ? acc[3] : got1);
  c = f * c + i * g;
  float h = unit == P - 1 ? 1.f : o * tanh_fast(c);  // the last padding column carries the bias
  float other = __shfl_xor_sync(0xffffffffu, h, 2);
  if (!inside) return;
  size_t at = (size_t)row * P + unit, after = (layer * 5 + token + 1) * plane + at;
  s.c[after] = c;
  if (!(unit & 1)) *(u32 *)(s.h + after) = pack(h, other);
  *(uint2 *)(s.gates + ((layer * 4 + token) * plane + at) * 4) = make_uint2(pack(i, f), pack(g, o));
}

// The four tokens of at most ROWS rows, by a warp that takes TWO tiles of layer 2.
template <int TWO>
__device__ __forceinline__ void run_chunk(const Plan &plan, const State &s, Group &group, u16 *states, u32 a_at, u32 b_at, int chunk, int size) {
  using S = Slots<TWO>;
  const int lane = group.lane, in_row = lane >> 2;
  const bool odd = lane & 1;
  const int my_unit = group.rank * U + ((lane & 3) >> 1);
  const size_t plane = (size_t)plan.capacity * P;
  float c[S::COUNT][M_TILES];  // stays in registers over the four tokens
  ushort4 tokens[M_TILES][2];
#pragma unroll
  for (int m = 0; m < M_TILES; m++) {
#pragma unroll
    for (int side = 0; side < 2; side++) {
      const int row = m * 16 + in_row + 8 * side;
      tokens[m][side] = row < size ? plan.tokens[chunk + row] : make_ushort4(0, 0, 0, 0);
    }
    const int own = m * 16 + in_row + 8 * odd;
#pragma unroll
    for (int slot = 0; slot < S::COUNT; slot++)
      c[slot][m] = own < size ? __ldcg(s.c + S::layer(slot) * 5 * plane + (size_t)(chunk + own) * P + my_unit + 2 * S::tile(group.warp, slot)) : 0.f;
  }
#pragma unroll 1
  for (int wave = 0; wave < 5; wave++) {  // token `wave` of layer 1 beside token `wave - 1` of layer 2
    // 1. Fetch everybody's outputs of the last wave: h1 after `wave` tokens, h2 after one less.
    const int pieces = size * (P / 8);
    for (int i = group.thread; i < (wave ? 2 : 1) * pieces; i += GROUP) {
      int layer = i >= pieces, rest = i - layer * pieces, row = rest / (P / 8), k = 8 * (rest % (P / 8));
      copy16(shared_address(states) + 2 * ((layer * ROWS + row) * STRIDE + k),
             s.h + (layer ? 4 + wave : wave) * plane + (size_t)(chunk + row) * P + k);
    }
    // 2. Meanwhile: layer 1 starts from the token table, layer 2 from 0.
    float acc[S::COUNT][M_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
      for (int side = 0; side < 2; side++) {
        const ushort4 four = tokens[m][side];
        const u32 token = wave == 0 ? four.x : wave == 1 ? four.y : wave == 2 ? four.z : four.w;
#pragma unroll
        for (int slot = 0; slot < S::COUNT; slot++) {
          u32 two = 0;
          if (!S::layer(slot) && m * 16 < size && wave < 4)
            two = *(const u32 *)(s.table + ((size_t)token * P + my_unit + 2 * S::tile(group.warp, slot)) * 4 + 2 * odd);
          acc[slot][m][2 * side] = low(two);
          acc[slot][m][2 * side + 1] = high(two);
        }
      }
    copies_done();
    const u32 epoch = group.sync_block();
    // 3. The products.
    if (size > 16) {
      if (wave == 0) products<TWO, 2, true, false>(acc, a_at, b_at, group.warp, epoch);
      else if (wave < 4) products<TWO, 2, true, true>(acc, a_at, b_at, group.warp, epoch);
      else products<TWO, 2, false, true>(acc, a_at, b_at, group.warp, epoch);
    } else {
      if (wave == 0) products<TWO, 1, true, false>(acc, a_at, b_at, group.warp, epoch);
      else if (wave < 4) products<TWO, 1, true, true>(acc, a_at, b_at, group.warp, epoch);
      else products<TWO, 1, false, true>(acc, a_at, b_at, group.warp, epoch);
    }
    // 4. The gates' arithmetic.
#pragma unroll
    for (int m = 0; m < M_TILES; m++) {
      if (m * 16 >= size) continue;
      const int own = m * 16 + in_row + 8 * odd;
#pragma unroll
      for (int slot = 0; slot < S::COUNT; slot++) {
        const int layer = S::layer(slot);
        if (layer ? wave == 0 : wave == 4) continue;
        finish(acc[slot][m], c[slot][m], s, layer, wave - layer, chunk + own, my_unit + 2 * S::tile(group.warp, slot), odd, own < size, plane);
      }
    }
    group.sync();
  }
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(2 * GROUP, 1)
packed_forward(Plan plan, State s, int normalise, int hard, float eps) {
  extern __shared__ __align__(16) unsigned char memory[];
  u16 *weights = (u16 *)memory;
  Group group;
  group.begin((u64 *)(memory + 2 * (WEIGHTS + 4 * ROWS * STRIDE)));
  load_weights(weights, s.weights, group.rank);
  u16 *states = weights + WEIGHTS + group.half * 2 * ROWS * STRIDE;  // [layer][row][k]
  for (int i = group.thread; i < ROWS * STRIDE; i += GROUP) ((u32 *)states)[i] = 0;  // rows beyond a chunk stay finite
  __syncthreads();
  const int lane = group.lane;
  const u32 a_at = shared_address(states) + 2 * ((lane & 15) * STRIDE + 8 * (lane >> 4));
  const u32 b_at = shared_address(weights) + 2 * ((lane & 7) * STRIDE + 8 * (lane >> 3));
  const int *offsets = plan.offsets + group.index * (plan.steps + 1);

  for (int step = 0; step < plan.steps; step++) {
    const int first = offsets[step], last = offsets[step + 1];
    if (first == last) break;
    for (int row = first + group.rank * WARPS + group.warp; row < last; row += BLOCKS * WARPS)
      aggregate(plan, s, row, lane, step == 0, normalise, hard, eps);
    group.sync();
    for (int chunk = first; chunk < last; chunk += ROWS) {
      if (group.warp < DOUBLE) run_chunk<2>(plan, s, group, states, a_at, b_at, chunk, min(ROWS, last - chunk));
      else run_chunk<1>(plan, s, group, states, a_at, b_at, chunk, min(ROWS, last - chunk));
    }
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");  // nobody leaves while others signal it
}

// The reverse of `aggregate` for one row: what its successors' gradients make of its state proposal's. One warp.
__device__ void aggregate_backward(const Plan &plan, const State &s, const Gradients &d, int row, int lane, bool normalise,
                                   bool hard, float eps) {
  const size_t plane = (size_t)plan.capacity * P;
  RowState out, gradient;
  out.clear();
  const int rows = *plan.total;
  const float p = s.pointer[row];
  const bool branching = plan.branches[row];
  const float soft = branching ? s.decision[row] : 1.f;
  const float chosen = hard ? (soft >= 0.5f ? 1.f : 0.f) : soft;
  float d_weight[2] = {0.f, 0.f};
#pragma unroll 1
  for (int side = 0; side < 2; side++) {
    const int target = side ? plan.row_false[row] : plan.row_true[row];
    if (target < 0) continue;
    float mass, d_mass = 0.f, along;
    if (target >= rows) {
      const int program = target - rows;
      mass = d.final_mass[program];
      gradient.load_parts(d.d_final + (size_t)program * 4 * P, P, lane);
      along = gradient.dot_parts(d.final_state + (size_t)program * 4 * P, P, lane);
    } else {
      mass = s.pointer[target];
      d_mass = __ldcg(d.d_pointer + target);
      gradient.load_parts(d.d_state + (size_t)target * P, plane, lane);
      along = gradient.dot(s, (size_t)target * P, plane, lane);
    }
    const float scale = normalise && mass > 0.f ? 1.f / (mass + eps) : 1.f;
    if (normalise) d_mass -= scale * along;
    out.add(scale * p * (side ? 1.f - chosen : chosen), gradient);
    d_weight[side] = d_mass + scale * gradient.dot(s, 4 * plane + (size_t)row * P, plane, lane);
  }
  const float slope = branching ? p * soft * (1.f - soft) * (d_weight[0] - d_weight[1]) : 0.f;
  if (branching) {
    gradient.load_parts(s.branch_weight, P, lane);
    out.add(slope, gradient);
  }
  if (lane == 0) {
    d.d_pointer[row] = chosen * d_weight[0] + (1.f - chosen) * d_weight[1];
    d.d_score[row] = slope;
  }
  for (int j = 0; j < LANE_PAIRS; j++) {
    const int pair = lane + 32 * j;
    if (pair >= PAIRS) continue;
    for (int i = 0; i < 4; i++) *(float2 *)(d.d_state + i * plane + (size_t)row * P + 2 * pair) = out.v[i][j];
  }
}

// One unit's gates backwards: from the gradients of its output and (in d_c) its memory to those of its pre-activations.
__device__ __forceinline__ uint2 gate_gradients(uint2 gates, float d_h, float &d_c, float before, float after) {
  const float i = low(gates.x), f = high(gates.x), g = low(gates.y), o = high(gates.y), shape = tanh_fast(after);
  d_c += d_h * o * (1.f - shape * shape);
  const float d_i = d_c * g * i * (1.f - i), d_f = d_c * before * f * (1.f - f), d_g = d_c * i * (1.f - g * g);
  d_c *= f;
  return make_uint2(pack(d_i, d_f), pack(d_g, d_h * shape * o * (1.f - o)));
}

// What the gates of a pair of units need to be run backwards; fetched ahead of the barrier that what else they need waits for.
struct PairGates {
  uint4 gates;
  float2 before, after;
  __device__ __forceinline__ void load(const State &s, int layer, int token, size_t at, size_t plane) {
    gates = __ldcg((const uint4 *)(s.gates + ((layer * 4 + token) * plane + at) * 4));
    before = __ldcg((const float2 *)(s.c + (layer * 5 + token) * plane + at));
    after = __ldcg((const float2 *)(s.c + (layer * 5 + token + 1) * plane + at));
  }
  // Replaces the gates by their gradients, in memory and in shared memory for the next product.
  __device__ __forceinline__ void backward(const State &s, u16 *shared, int layer, int token, size_t at, float2 d_h, float2 &d_c, size_t plane) {
    const uint2 x = gate_gradients(make_uint2(gates.x, gates.y), d_h.x, d_c.x, before.x, after.x);
    const uint2 y = gate_gradients(make_uint2(gates.z, gates.w), d_h.y, d_c.y, before.y, after.y);
    const uint4 both = make_uint4(x.x, x.y, y.x, y.y);
    *(uint4 *)(s.gates + ((layer * 4 + token) * plane + at) * 4) = both;
    *(uint4 *)shared = both;
  }
};

// acc += slopes [row][gate column] @ this block's slice of a weight, read across: for two tiles of 8 hidden units.
template <int M>
__device__ __forceinline__ void back_product(float (&acc)[2][M][4], u32 a_at, const u32 (&b_at)[2], u32 epoch) {
#pragma unroll
  for (int k = 0; k < G; k += 16) {
    u32 a[M][4], b[2][2];
#pragma unroll
    for (int m = 0; m < M; m++) load_4(a[m], a_at + 2 * (m * 16 * G_STRIDE + k), epoch);
#pragma unroll
    for (int n = 0; n < 2; n++) {
      if (k + 16 <= G) load_2_across(b[n], b_at[n] + 2 * k * STRIDE, 0);
      else load_1_across(b[n][0], b_at[n] + 2 * k * STRIDE, 0);  // G is a multiple of 8
#pragma unroll
      for (int m = 0; m < M; m++) {
        if (k + 16 <= G) multiply(acc[n][m], a[m], b[n][0], b[n][1]);
        else multiply_half(acc[n][m], a[m][0], a[m][1], b[n][0]);
      }
    }
  }
}

template <int M> __device__ __forceinline__ void store_partial(const float (&acc)[M][4], u16 *mine, int output, int tile, int lane) {
#pragma unroll
  for (int m = 0; m < M; m++) {
    u16 *to = mine + ((m * 16 + (lane >> 2)) * 2 + output) * P + tile * 8 + 2 * (lane & 3);
    *(u32 *)to = pack(acc[m][0], acc[m][1]);
    *(u32 *)(to + 16 * P) = pack(acc[m][2], acc[m][3]);
  }
}

// This block's share of the gradients of all outputs h2 (from layer 2) and h1 (from both layers), for the others to add up.
template <int M>
__device__ __forceinline__ void back_products(u16 *mine, u32 a_at, u32 b_at, int wave, int warp, int lane, u32 epoch) {
  const u32 upper = a_at + 2 * ROWS * G_STRIDE;  // slopes of layer 2
#pragma unroll 1
  for (int output = wave < 0 ? 0 : 1; output >= 0; output--)
#pragma unroll 1
    for (int n = 0; n < N_SHARE; n += 2) {
      const int first = (output ? warp : WARPS - 1 - warp) + n * WARPS, second = min(first + WARPS, N_TILES - 1);
      if (first >= N_TILES) continue;
      const u32 at[2] = {b_at + 16 * first, b_at + 16 * second};
      float acc[2][M][4] = {};
      if (wave >= 0) {
        const u32 there[2] = {at[0] + 2 * (1 + output) * G * STRIDE, at[1] + 2 * (1 + output) * G * STRIDE};
        back_product<M>(acc, upper, there, epoch);
      }
      if (!output && wave < 3) back_product<M>(acc, a_at, at, epoch);
      store_partial<M>(acc[0], mine, output, first, lane);
      if (first + WARPS < N_TILES) store_partial<M>(acc[1], mine, output, second, lane);
    }
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(2 * GROUP, 1)
packed_backward(Plan plan, State s, Gradients d, int normalise, int hard, float eps) {
  extern __shared__ __align__(16) unsigned char memory[];
  u16 *weights = (u16 *)memory;
  Group group;
  group.begin((u64 *)(memory + 2 * (WEIGHTS + 4 * ROWS * G_STRIDE)));
  load_weights(weights, s.weights, group.rank);
  u16 *slopes = weights + WEIGHTS + group.half * 2 * ROWS * G_STRIDE;  // [layer][row][gate column]
  for (int i = group.thread; i < ROWS * G_STRIDE; i += GROUP) ((u32 *)slopes)[i] = 0;  // rows beyond a chunk stay finite
  __syncthreads();
  const int lane = group.lane;
  const size_t plane = (size_t)plan.capacity * P;
  const u32 a_at = shared_address(slopes) + 2 * ((lane & 15) * G_STRIDE + 8 * (lane >> 4));
  const u32 b_at = shared_address(weights) + 2 * (lane & 15) * STRIDE;
  const int *offsets = plan.offsets + group.index * (plan.steps + 1);
  u16 *partial = d.partial + (size_t)group.index * 2 * BLOCKS * ROWS * 2 * P;  // [parity][block][row][h1, h2][P]
  int parity = 0, step = 0;
  while (step < plan.steps && offsets[step] < offsets[step + 1]) step++;

  for (step--; step >= 0; step--) {
    const int first = offsets[step], last = offsets[step + 1];
    for (int row = first + group.rank * WARPS + group.warp; row < last; row += BLOCKS * WARPS)
      aggregate_backward(plan, s, d, row, lane, normalise, hard, eps);
    group.sync();
    for (int chunk = first; chunk < last; chunk += ROWS) {
      const int size = min(ROWS, last - chunk);
      float2 d_c1[ITEMS], d_c2[ITEMS];
#pragma unroll
      for (int i = 0; i < ITEMS; i++) {
        const int item = group.thread + i * GROUP, row = item / (U / 2), pair = item % (U / 2);
        if (row >= size) continue;
        const size_t at = (size_t)(chunk + row) * P + group.rank * U + 2 * pair;
        d_c1[i] = __ldcg((const float2 *)(d.d_state + at));
        d_c2[i] = __ldcg((const float2 *)(d.d_state + 2 * plane + at));
        const float2 d_h2 = __ldcg((const float2 *)(d.d_state + 3 * plane + at));
        PairGates pair_gates;
        pair_gates.load(s, 1, 3, at, plane);
        pair_gates.backward(s, slopes + (ROWS + row) * G_STRIDE + 8 * pair, 1, 3, at, d_h2, d_c2[i], plane);
      }
#pragma unroll 1
      for (int wave = 3; wave >= -1; wave--) {  // token `wave` of layer 1 beside token `wave - 1` of layer 2
        const u32 epoch = group.sync_block();
        u16 *mine = partial + (size_t)(parity * BLOCKS + group.rank) * ROWS * 2 * P;
        if (size > 16) back_products<2>(mine, a_at, b_at, wave, group.warp, lane, epoch);
        else back_products<1>(mine, a_at, b_at, wave, group.warp, lane, epoch);
        PairGates gates_1[ITEMS], gates_2[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
          const int item = group.thread + i * GROUP, row = item / (U / 2), pair = item % (U / 2);
          if (row >= size) continue;
          const size_t at = (size_t)(chunk + row) * P + group.rank * U + 2 * pair;
          if (wave >= 0) gates_1[i].load(s, 0, wave, at, plane);
          if (wave >= 1) gates_2[i].load(s, 1, wave - 1, at, plane);
        }
        group.sync();
        const u16 *theirs = partial + (size_t)parity * BLOCKS * ROWS * 2 * P;
        parity ^= 1;  // others may still be reading this half when the next wave writes
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
          const int item = group.thread + i * GROUP, row = item / (U / 2), pair = item % (U / 2);
          if (row >= size) continue;
          const int unit = group.rank * U + 2 * pair;
          const size_t at = (size_t)(chunk + row) * P + unit;
          float2 d_h[2] = {make_float2(0.f, 0.f), make_float2(0.f, 0.f)};
#pragma unroll
          for (int block = 0; block < BLOCKS; block++)
#pragma unroll
            for (int output = 0; output < 2; output++) {
              if (output && wave < 0) continue;
              const u32 two = __ldcg((const u32 *)(theirs + ((size_t)(block * ROWS + row) * 2 + output) * P + unit));
              d_h[output].x += low(two);
              d_h[output].y += high(two);
            }
          if (wave < 0) {
            *(float2 *)(d.d_state + at) = d_c1[i];
            *(float2 *)(d.d_state + plane + at) = d_h[0];
            *(float2 *)(d.d_state + 2 * plane + at) = d_c2[i];
            continue;
          }
          if (wave == 3) {
            const float2 direct = __ldcg((const float2 *)(d.d_state + plane + at));
            d_h[0].x += direct.x;
            d_h[0].y += direct.y;
          }
          gates_1[i].backward(s, slopes + row * G_STRIDE + 8 * pair, 0, wave, at, d_h[0], d_c1[i], plane);
          if (wave) gates_2[i].backward(s, slopes + (ROWS + row) * G_STRIDE + 8 * pair, 1, wave - 1, at, d_h[1], d_c2[i], plane);
          else *(float2 *)(d.d_state + 3 * plane + at) = d_h[1];
        }
      }
    }
    group.sync();
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
