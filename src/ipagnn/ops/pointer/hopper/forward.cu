// The packed step as two persistent kernels for Hopper GPUs (compute capability 9.0), in bf16: forward pass.
// common.cuh has what both passes share, backward.cu the backward pass.
//
// A cluster of P / 32 blocks holds all recurrent weights in its shared memory, each block the gates of 32 hidden units,
// for a whole pass over a batch. Programs do not depend on each other, so a cluster runs its own programs from the first
// step to the last without ever waiting for another cluster. In a block, two *groups* of programs take turns: one
// computes while the other waits. A group has a *team* of four warps for each LSTM layer, which run a token apart.
//
// A product is (gates of 32 units) x (rows): weights are the left operand of the tensor core instruction, outputs h of
// up to 32 rows the right one, so a thread ends up with all four gates of one unit, for N / 4 rows. A block's outputs,
// 32 units of all rows, are 64 N contiguous bytes in the layout that the instruction reads: one bulk copy to each of the
// other blocks hands them over and signals their arrival at once.
//
// What a state's units depend on besides the products stays in the block: arriving states are weighed and summed 32
// units at a time (equations 5 and 6), and only the scores of branches (equation 4) are summed over the blocks.

#include "common.cuh"

constexpr int TILE_BYTES = P * 128;  // 64 gate columns (2 gates of 32 units) x P
constexpr int H_BYTES = P * ROWS * 2;
constexpr int EDGES = 64;            // arriving edges that are weighed at a time
constexpr int SHARED_BYTES = 6 * TILE_BYTES + 4 * H_BYTES + 4 * 8 * EDGES + 2 * 8 * ROWS + 96;
static_assert(SHARED_BYTES <= 232448, "too much shared memory");

struct Edge { int source; float weight; };

struct Team : Place {
  u32 h[2];                     // operands: outputs of layers 1 and 2
  u32 full[2], empty[2], step;  // barriers: contents have arrived, have been read by everybody; a step's scores are there
  u32 full_phase[2], empty_phase, step_phase;
  Edge *edges;                  // [EDGES]; also float [4][ROWS] for sums over warps
  ushort4 *tokens;              // [ROWS], of the group

  __device__ __forceinline__ void wait_full(int which) { wait(full[which], full_phase[which]); full_phase[which] ^= 1; }
  // This warp has read the contents.
  __device__ __forceinline__ void release(int which) const { if (lane < BLOCKS) arrive_at(empty[which], lane); }
};

// This block's slice of the weights, as the left operand: [matrix][gates if, go][k / 8][unit / 8][gate][unit % 8][k % 8].
__device__ void load_weights(unsigned char *shared, const u16 *weights, int rank) {
  for (int i = threadIdx.x; i < 3 * P * UNITS; i += THREADS) {
    const int unit = i % UNITS, k = (i / UNITS) % P, m = i / (UNITS * P);
    const u64 four = *(const u64 *)(weights + ((size_t)(m * P + k) * P + rank * UNITS + unit) * 4);
    unsigned char *to = shared + m * 2 * TILE_BYTES + (k >> 3) * 1024 + (unit >> 3) * 256 + (unit & 7) * 16 + (k & 7) * 2;
#pragma unroll
    for (int gate = 0; gate < 4; gate++)
      *(u16 *)(to + (gate >> 1) * TILE_BYTES + (gate & 1) * 128) = (u16)(four >> (16 * gate));
  }
}

// acc (+)= this block's slice of a weight x outputs of N rows.
template <int N> __device__ __forceinline__ void product(float (&acc)[2][N / 2], u32 weight, u32 h, bool add) {
  const Operand a(weight, 1024, 128), b(h, N * 16, 128);
#pragma unroll
  for (int k = 0; k < P / 16; k++)
#pragma unroll
    for (int tile = 0; tile < 2; tile++) multiply(acc[tile], a, (tile * TILE_BYTES + k * 2048) / 16, b, k * 2 * N, add || k);
}

// Hand this block's outputs to all blocks (once they have read the last ones), then write them to memory.
template <int N, int LAYER>
__device__ __forceinline__ void push(Team &team, const float (&h)[N / 4], u16 *memory, int size) {
  u32 two[N / 8];
#pragma unroll
  for (int j = 0; j < N / 8; j++) two[j] = pack(h[2 * j], h[2 * j + 1]);
  const u32 slice = team.h[LAYER] + team.rank * 64 * N;
  wait(team.empty[LAYER], team.empty_phase);
  team.empty_phase ^= 1;
  store_across<N / 8>(two, slice + team.warp * 16 * N, team.lane);
  fence_operands();
  team.sync();
  if (team.lane == 0) {  // copies are issued one after the other, so each warp issues some
    if (team.warp == 3) arrive_expecting(team.full[LAYER], (BLOCKS - 1) * 64 * N);
    for (int i = team.warp; i < BLOCKS - 1; i += 4) copy_to(i + (i >= team.rank), slice, 64 * N, team.full[LAYER]);
  }
  if (const int row = team.thread >> 2; row < size) {
    const int part = team.thread & 3;
    *(uint4 *)(memory + (size_t)row * P + team.rank * UNITS + part * 8) = load_16(slice + part * 16 * N + row * 16);
  }
}

// Equations 4 to 6 for this block's units of the rows of a chunk: from the state proposals of the step before to states.
template <int N, int LAYER>
__device__ __forceinline__ void aggregate(Team &team, const Plan &plan, const State &s, int chunk, int size, bool first, bool begins,
                                          float (&c)[N / 4], float (&h)[N / 4]) {
  const size_t plane = (size_t)plan.capacity * P;
  const float *from_c = s.c + (LAYER * 5 + 4) * plane + team.rank * UNITS + team.unit;
  const u16 *from_h = s.h + (LAYER * 5 + 4) * plane + team.rank * UNITS + team.unit;
  float mass[N / 4];
#pragma unroll
  for (int i = 0; i < N / 4; i++) c[i] = h[i] = 0.f, mass[i] = first ? 1.f : 0.f;
  if (!first) {
    const int begin = common(plan.arrival_offsets[chunk]), end = common(plan.arrival_offsets[chunk + size]);
    int next[N / 4], last[N / 4];
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
      const int row = min(row_of(i, team.lane), size - 1);
      next[i] = plan.arrival_offsets[chunk + row];
      last[i] = row_of(i, team.lane) < size ? plan.arrival_offsets[chunk + row + 1] : next[i];
    }
    for (int window = begin; window < end; window += EDGES) {
      const int e = window + team.thread;
      const bool mine = team.thread < EDGES && e < end;
      const int code = mine ? plan.arrivals[e] : 0, source = code >> 1;
      const bool branching = mine && plan.branches[source];
      float weight = mine ? __ldcg(s.pointer + source) : 0.f;
      if (begins && window == begin) {  // all blocks' scores of the step before are needed from here on
        wait_cluster(team.step, team.step_phase);
        team.step_phase ^= 1;
      }
      team.sync();  // nobody reads the last edges, or sums, any more; what this team has written is seen by all of it
      if (mine) {
        if (branching) {
          float score = *s.branch_bias;
#pragma unroll
          for (int i = 0; i < 2 * BLOCKS; i++) score += __ldcg(s.scores + (size_t)i * plan.capacity + source);
          float taken = 1.f / (1.f + __expf(-score));
          s.decision[source] = taken;
          if (s.hard) taken = taken >= 0.5f ? 1.f : 0.f;
          weight *= code & 1 ? 1.f - taken : taken;
        }
        team.edges[team.thread] = Edge{source, weight};
      }
      team.sync();
      bool more = true;
      while (__any_sync(0xffffffffu, more)) {  // an edge of every row at a time, so that loads overlap
        more = false;
        float got_c[N / 4], got_h[N / 4], weight[N / 4];
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
          const bool here = next[i] < min(last[i], window + EDGES);
          const Edge edge = here ? team.edges[next[i] - window] : Edge{0, 0.f};
          weight[i] = edge.weight;
          got_c[i] = here ? __ldcg(from_c + (size_t)edge.source * P) : 0.f;
          got_h[i] = here ? low(__ldcg(from_h + (size_t)edge.source * P)) : 0.f;
          next[i] += here;
          more |= next[i] < min(last[i], window + EDGES);
        }
#pragma unroll
        for (int i = 0; i < N / 4; i++) mass[i] += weight[i], c[i] += weight[i] * got_c[i], h[i] += weight[i] * got_h[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    const int row = row_of(i, team.lane);
    if (team.thread < 4 && row < size) s.pointer[chunk + row] = mass[i];
    const float scale = s.normalise && mass[i] > 0.f ? 1.f / (mass[i] + s.eps) : 1.f;
    c[i] *= scale;
    h[i] *= scale;
    if (row < size) s.c[LAYER * 5 * plane + (size_t)(chunk + row) * P + team.rank * UNITS + team.unit] = c[i];
  }
}

// This team's share of the branch scores: its units' products with the branch layer.
template <int N, int LAYER>
__device__ __forceinline__ void score(Team &team, const Plan &plan, const State &s, int chunk, int size, const float (&c)[N / 4],
                                      const float (&h)[N / 4]) {
  const float *weight = s.branch_weight + 2 * LAYER * P + team.rank * UNITS + team.unit;
  const float weight_c = weight[0], weight_h = weight[P];
  float *sums = (float *)team.edges;  // [warp][ROWS]
  constexpr int COUNT = N == 24 ? 8 : N / 4;
  float share[COUNT] = {};
#pragma unroll
  for (int i = 0; i < N / 4; i++) share[i] = c[i] * weight_c + low(pack(h[i], 0.f)) * weight_h;  // h as it is kept
  const float sum = sum_units(share, team.lane);
  if (const int i = summed<COUNT>(team.lane); i < N / 4) sums[team.warp * ROWS + row_of(i, team.lane)] = sum;
  team.sync();
  if (team.thread < size)
    s.scores[(size_t)(LAYER * BLOCKS + team.rank) * plan.capacity + chunk + team.thread] =
        sums[team.thread] + sums[ROWS + team.thread] + sums[2 * ROWS + team.thread] + sums[3 * ROWS + team.thread];
}

// The four tokens of at most N rows, for one layer.
template <int N, int LAYER>
__device__ __forceinline__ void run_chunk(Team &team, const Plan &plan, const State &s, u32 weights, int chunk, int size, bool first,
                                          bool begins) {
  const size_t plane = (size_t)plan.capacity * P;
  const int unit = team.rank * UNITS + team.unit;
  float c[N / 4], h[N / 4];
  if (LAYER == 0 && team.thread < size) {
    const int4 four = ((const int4 *)plan.tokens)[chunk + team.thread];
    team.tokens[team.thread] = make_ushort4(four.x, four.y, four.z, four.w);
  }
  aggregate<N, LAYER>(team, plan, s, chunk, size, first, begins, c, h);
  push<N, LAYER>(team, h, s.h + LAYER * 5 * plane + (size_t)chunk * P, size);
  if (LAYER) team.wait_full(0), team.release(0);  // only layer 1 reads its first states
#pragma unroll 1
  for (int token = 0; token < 4; token++) {
    uint2 entry[N / 4];
    if (!LAYER)
#pragma unroll
      for (int i = 0; i < N / 4; i++) {
        const int row = row_of(i, team.lane);
        const u32 word = row < size ? ((const u16 *)(team.tokens + row))[token] : 0;
        entry[i] = __ldg((const uint2 *)(s.table + ((size_t)word * P + unit) * 4));
      }
    float acc[2][N / 2];
    team.wait_full(0);
    if (LAYER) team.wait_full(1);
    fence_products();
    if (LAYER) {
      product<N>(acc, weights + 2 * TILE_BYTES, team.h[0], false);
      product<N>(acc, weights + 4 * TILE_BYTES, team.h[1], true);
    } else {
      product<N>(acc, weights, team.h[0], false);
    }
    finish_products();
    settle(acc[0]);
    settle(acc[1]);
    team.release(0);
    if (LAYER) team.release(1);
    uint2 gates[N / 4];
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
      const int at = i / 2 * 4 + i % 2;
      float in = acc[0][at], forget = acc[0][at + 2], new_ = acc[1][at], out = acc[1][at + 2];
      if (!LAYER) in += low(entry[i].x), forget += high(entry[i].x), new_ += low(entry[i].y), out += high(entry[i].y);
      in = sigmoid(in), forget = sigmoid(forget), new_ = tanh_fast(new_), out = sigmoid(out);
      c[i] = forget * c[i] + in * new_;
      h[i] = unit == P - 1 ? 1.f : out * tanh_fast(c[i]);  // the last padding column carries the bias
      gates[i] = make_uint2(pack(in, forget), pack(new_, out));
    }
    u16 *to_h = s.h + (LAYER * 5 + token + 1) * plane + (size_t)chunk * P;
    if (!LAYER || token < 3) {
      push<N, LAYER>(team, h, to_h, size);
    } else {
#pragma unroll
      for (int i = 0; i < N / 4; i++)
        if (const int row = row_of(i, team.lane); row < size) to_h[(size_t)row * P + unit] = (u16)pack(h[i], 0.f);
    }
#pragma unroll
    for (int i = 0; i < N / 4; i++)
      if (const int row = row_of(i, team.lane); row < size) {
        const size_t at = (size_t)(chunk + row) * P + unit;
        s.c[(LAYER * 5 + token + 1) * plane + at] = c[i];
        *(uint2 *)(s.gates + ((LAYER * 4 + token) * plane + at) * 4) = gates[i];
      }
  }
  score<N, LAYER>(team, plan, s, chunk, size, c, h);
  if (!LAYER) team.wait_full(0), team.release(0);  // only layer 2 reads layer 1's last outputs
}

template <int LAYER> __device__ __forceinline__ void run(Team &team, const Plan &plan, const State &s, u32 weights) {
  if (team.group >= plan.groups) return;
  const int *offsets = plan.offsets + team.group * (plan.steps + 1);
  for (int step = 0; step < plan.steps; step++) {
    const int first = common(offsets[step]), last = common(offsets[step + 1]);
    if (first == last) break;
    for (int chunk = first; chunk < last; chunk += ROWS) {
      const int size = min(ROWS, last - chunk);
      if (size <= 8) run_chunk<8, LAYER>(team, plan, s, weights, chunk, size, !step, chunk == first);
      else if (size <= 16) run_chunk<16, LAYER>(team, plan, s, weights, chunk, size, !step, chunk == first);
      else if (size <= 24 && ROWS > 16) run_chunk<24, LAYER>(team, plan, s, weights, chunk, size, !step, chunk == first);
      else run_chunk<ROWS, LAYER>(team, plan, s, weights, chunk, size, !step, chunk == first);
    }
    if (team.warp == 0) {  // which wrote the scores
      __syncwarp();
      if (team.lane < BLOCKS) publish_at(team.step, team.lane);
    }
  }
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1) packed_forward(Plan plan, State s) {
  extern __shared__ __align__(128) unsigned char memory[];
  Team team;
  team.find();
  load_weights(memory, s.weights, team.rank);
  unsigned char *rest = memory + 6 * TILE_BYTES;
  for (int i = threadIdx.x; i < 4 * H_BYTES / 4; i += THREADS) ((u32 *)rest)[i] = 0;
  for (int layer = 0; layer < 2; layer++) team.h[layer] = shared_address(rest) + (2 * team.half + layer) * H_BYTES;
  rest += 4 * H_BYTES;
  team.edges = (Edge *)(rest + (2 * team.half + team.layer) * 8 * EDGES);
  team.tokens = (ushort4 *)(rest + 4 * 8 * EDGES + team.half * 8 * ROWS);
  const u32 barriers = shared_address(rest) + 4 * 8 * EDGES + 2 * 8 * ROWS + team.half * 40;
  for (int layer = 0; layer < 2; layer++) {
    team.full[layer] = barriers + 8 * layer;
    team.empty[layer] = barriers + 16 + 8 * layer;
    team.full_phase[layer] = 0;
  }
  team.step = barriers + 32;
  team.empty_phase = 1;  // nobody waits before the first contents
  team.step_phase = 0;
  if (team.layer == 0 && team.thread == 0) {
    barrier_init(team.full[0], 1);
    barrier_init(team.full[1], 1);
    barrier_init(team.empty[0], 8 * BLOCKS);
    barrier_init(team.empty[1], 4 * BLOCKS);
    barrier_init(team.step, 2 * BLOCKS);
  }
  begin_cluster();
  const u32 weights = shared_address(memory);
  if (team.layer) run<1>(team, plan, s, weights);
  else run<0>(team, plan, s, weights);
  end_cluster();
}
