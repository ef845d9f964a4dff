// What the two kernels of the packed step share; see forward.cu. Compiled at first use with -DP=..., the hidden size
// and at least one more (the column that carries the bias), rounded up to a multiple of 32.
//
// Buffers are those of triton/forward.py:
//   h bf16, c f32 [layer 2][plane 5][row][P]   states before token 0 and after each token
//   gates bf16 [layer 2][token 4][row][P][4]   i f g o; the backward kernel leaves their gradients
//   table bf16 [token][P][4], weights bf16 [hidden_1, input_2, hidden_2][P][P][4]
// Rows are ordered by group, then step: group q computes rows offsets[q][t] : offsets[q][t + 1] at step t.

#include "ptx.cuh"

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

__device__ __forceinline__ float sigmoid(float x) { return fmaf(tanh_fast(0.5f * x), 0.5f, 0.5f); }
__device__ __forceinline__ float low(u32 x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(u32 x) { return __uint_as_float(x & 0xffff0000u); }
// Sums over the 8 units that a warp's lanes 4 u + q hold, of COUNT numbers, a power of 2, for each q. Lanes exchange halves of
// what they have until they have one number, and then sums of it: that of x[summed<COUNT>(lane)].
template <int COUNT> __device__ __forceinline__ float sum_units(const float (&x)[COUNT], int lane, int apart = 16) {
  if constexpr (COUNT == 1) {
    float sum = x[0];
    for (; apart >= 4; apart >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
  } else {
    float kept[COUNT / 2];
    const bool upper = lane & apart;
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++)
      kept[i] = (upper ? x[COUNT / 2 + i] : x[i]) + __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[COUNT / 2 + i], apart);
    return sum_units<COUNT / 2>(kept, lane, apart >> 1);
  }
}
template <int COUNT> __device__ __forceinline__ int summed(int lane) { return lane * COUNT / 32; }
// What all lanes of a warp have, in a way that the compiler sees it. It costs little, and what it does not see costs much:
// shuffles under a condition that may differ among lanes are slow calls.
__device__ __forceinline__ int common(int x) { return __shfl_sync(0xffffffffu, x, 0); }
// The row of a chunk that a lane's i-th number belongs to.
__device__ __forceinline__ int row_of(int i, int lane) { return i / 2 * 8 + (lane & 3) * 2 + i % 2; }

// Where a thread works: a team is one LSTM layer of one group; a thread of it one hidden unit and some rows.
struct Place {
  int rank, half, layer, thread, warp, lane, unit, group;
  __device__ void find() {
    rank = cluster_rank();
    const int team = common(threadIdx.x / TEAM);
    half = team / 2;
    layer = team % 2;
    thread = threadIdx.x % TEAM;
    warp = common(thread / 32);
    lane = thread % 32;
    unit = warp * 8 + lane / 4;
    group = half * (gridDim.x / BLOCKS) + blockIdx.x / BLOCKS;
  }
  __device__ __forceinline__ void sync() const {
    sync_threads(1 + 2 * half + layer, TEAM);
  }
  __device__ __forceinline__ void sync_group() const {
    sync_threads(5 + half, 2 * TEAM);
  }
};
