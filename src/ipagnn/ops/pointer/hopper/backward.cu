// The backward pass of the packed step as one persistent kernel; see forward.cu.
//
// A block has the gates of its 32 units, and so can only compute its share of the gradients of all outputs h. The shares
// go straight from registers into the shared memory of the block whose units they are, which adds them up and runs the
// gates of the token before backwards. Layer 1's team computes all shares for layer 1's outputs, from the gradients of both
// layers' gates; layer 2's team those for layer 2's.

#include "common.cuh"

constexpr int BACK_ROWS = ROWS / 2, TILES = (P + 63) / 64;
constexpr int MATRIX_BYTES = 256 * P;                     // 128 gate columns x P
constexpr int SLOPE_BYTES = 256 * BACK_ROWS;              // 128 gate columns x rows
constexpr int SHARE_BYTES = 2 * UNITS * BACK_ROWS;        // from one block
constexpr int SUM_BYTES = 4 * 8 * BACK_ROWS;              // float [warp][2 rows]
constexpr int EDGE_ROWS = TEAM / 2;                       // whose edges a team weighs at a time
constexpr int SCRATCH_BYTES = 2 * SUM_BYTES + 12 * EDGE_ROWS;
constexpr int SHARED_BYTES = 3 * MATRIX_BYTES + 4 * SLOPE_BYTES + 4 * BLOCKS * SHARE_BYTES + 4 * SCRATCH_BYTES + 96;
static_assert(SHARED_BYTES <= 232448, "too much shared memory");

struct Gradients {
  float *d_state, *d_pointer, *d_score;  // d_state: of c1, h1, c2, h2 [4][row][P]
  float *along;                          // products of rows' states and their gradients, by block and layer
  const float *final_mass, *d_final, *along_final;
};
struct Source { float weight[2], slope; };  // of a row's edges, true and false, and of its score

struct Team : Place {
  u32 slopes[2];           // operands: gradients of the gates of layers 1 and 2
  u32 shares;              // [block][unit][row], in the order of `place`
  u32 full, empty, step;   // barriers: shares have arrived, have been read by everybody; a step's dot products are there
  u32 full_phase, empty_phase, step_phase;
  float *sums;             // [2][warp][2 rows], in turn
  int turn;
  Source *sources;         // [EDGE_ROWS]
};

// This block's slice of the weights, as the left operand: [matrix][gate column / 8][k][gate column % 8].
__device__ void load_weights(unsigned char *shared, const u16 *weights, int rank) {
  for (int i = threadIdx.x; i < 3 * P * 16; i += THREADS) {
    const int part = i % 16, k = (i / 16) % P, m = i / (16 * P);
    *(uint4 *)(shared + m * MATRIX_BYTES + part * 16 * P + k * 16) =
        *(const uint4 *)(weights + ((size_t)(m * P + k) * P + rank * UNITS) * 4 + part * 8);
  }
}

// acc (+)= a weight x slopes of N rows, for all P hidden units.
template <int N> __device__ __forceinline__ void product(float (&acc)[TILES][N / 2], u32 weight, u32 slopes, bool add) {
  const Operand a(weight, 16 * P, 128), b(slopes, N * 16, 128);
#pragma unroll
  for (int k = 0; k < 8; k++)
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) multiply(acc[tile], a, (tile * 1024 + k * 32 * P) / 16, b, k * 2 * N, add || k);
}

// Give every block the shares of its units.
template <int N> __device__ __forceinline__ void scatter(Team &team, const float (&acc)[TILES][N / 2]) {
  wait(team.empty, team.empty_phase);
  team.empty_phase ^= 1;
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    const int block = 2 * tile + (team.warp >> 1);
    if (block >= BLOCKS) continue;
    const u32 barrier = there(team.full, block);
    const u32 at = there(team.shares, block) + team.rank * SHARE_BYTES + (16 * (team.warp & 1) + team.lane / 4) * 2 * N + (team.lane & 3) * (N / 2);
#pragma unroll
    for (int side = 0; side < 2; side++) {
      u32 x[N / 8];
#pragma unroll
      for (int i = 0; i < N / 8; i++) x[i] = pack(acc[tile][i * 4 + 2 * side], acc[tile][i * 4 + 2 * side + 1]);
      send(at + side * 8 * 2 * N, x, barrier);
    }
  }
}

// Add up what has come for this thread's unit.
template <int N> __device__ __forceinline__ void gather(Team &team, float (&d_h)[N / 4]) {
  wait(team.full, team.full_phase);
  team.full_phase ^= 1;
#pragma unroll
  for (int i = 0; i < N / 4; i++) d_h[i] = 0.f;
#pragma unroll
  for (int block = 0; block < BLOCKS; block++) {
    const u32 at = team.shares + block * SHARE_BYTES + team.unit * 2 * N + (team.lane & 3) * (N / 2);
#pragma unroll
    for (int i = 0; i < N / 8; i += 2) {
      const uint2 four = N == 8 ? make_uint2(load_4(at), 0) : load_8(at + 4 * i);
      d_h[2 * i] += low(four.x);
      d_h[2 * i + 1] += high(four.x);
      if (N > 8) d_h[2 * i + 2] += low(four.y), d_h[2 * i + 3] += high(four.y);
    }
  }
  __syncwarp();
  if (team.lane < BLOCKS) arrive_at(team.empty, team.lane);
}

// Where the states of a chunk's rows go, by the true and the false branch, and the gradients there, this thread's unit.
struct Ahead {
  float c[BACK_ROWS / 4][2], h[BACK_ROWS / 4][2];
  __device__ __forceinline__ void load(const Team &team, const Plan &plan, const Gradients &d, int layer, int chunk, int size) {
    const size_t plane = (size_t)plan.capacity * P;
    const int rows = *plan.total, unit = team.rank * UNITS + team.unit;
    int target[BACK_ROWS / 4][2];
#pragma unroll
    for (int i = 0; i < BACK_ROWS / 4; i++) {
      const int row = row_of(i, team.lane);
      target[i][0] = row < size ? plan.row_true[chunk + row] : -1;
      target[i][1] = row < size ? plan.row_false[chunk + row] : -1;
    }
#pragma unroll
    for (int i = 0; i < BACK_ROWS / 4; i++)
#pragma unroll
      for (int side = 0; side < 2; side++) {  // no branches, so that all loads overlap
        const int to = target[i][side];
        const bool exit = to >= rows;
        const float *base = (exit ? d.d_final : d.d_state) + 2 * layer * (exit ? P : plane) + unit;
        const float *from = base + (size_t)(exit ? 4 * (to - rows) : max(to, 0)) * P;
        const float got_c = __ldcg(from), got_h = __ldcg(from + (exit ? P : plane));
        c[i][side] = to < 0 ? 0.f : got_c;
        h[i][side] = to < 0 ? 0.f : got_h;
      }
  }
};

// The sum over a team's units of numbers that its threads hold, SIDES for each row: summed up by thread SIDES * row + side.
template <int SIDES, int COUNT> __device__ __forceinline__ float sum_team(Team &team, const float (&x)[COUNT]) {
  const float sum = sum_units(x, team.lane);
  const int i = summed<COUNT>(team.lane);
  float *all = team.sums + team.turn * (SUM_BYTES / 4);  // of the last ones, some may still be read
  team.turn ^= 1;
  all[team.warp * 2 * BACK_ROWS + SIDES * row_of(i / SIDES, team.lane) + i % SIDES] = sum;
  team.sync();
  const float *sums = all + team.thread % (2 * BACK_ROWS);
  return sums[0] + sums[2 * BACK_ROWS] + sums[4 * BACK_ROWS] + sums[6 * BACK_ROWS];
}

// For each row and branch: the product of the gradient where its state goes with how it differs from the state there. It
// says how the loss changes with the weight of the edge. This team's units of it; see `aggregate_backward` in
// triton/backward.py. Leaves the gradients for the first chunk in `ahead`.
template <int LAYER>
__device__ __forceinline__ void dots(Team &team, const Plan &plan, const State &s, const Gradients &d, int first, int last, Ahead &ahead) {
  const size_t plane = (size_t)plan.capacity * P;
  const int rows = *plan.total, unit = team.rank * UNITS + team.unit;
  const float *c = s.c + (LAYER * 5 + 4) * plane + unit;
  const u16 *h = s.h + (LAYER * 5 + 4) * plane + unit;
  for (int chunk = first + (last - first - 1) / BACK_ROWS * BACK_ROWS; chunk >= first; chunk -= BACK_ROWS) {
    const int size = min(BACK_ROWS, last - chunk);
    ahead.load(team, plan, d, LAYER, chunk, size);
    float sum[BACK_ROWS / 2];
#pragma unroll
    for (int i = 0; i < BACK_ROWS / 4; i++) {
      const size_t at = (size_t)(chunk + min(row_of(i, team.lane), size - 1)) * P;
      const float a_c = __ldcg(c + at), a_h = low(__ldcg(h + at));
      sum[2 * i] = ahead.c[i][0] * a_c + ahead.h[i][0] * a_h;
      sum[2 * i + 1] = ahead.c[i][1] * a_c + ahead.h[i][1] * a_h;
    }
    float dot = sum_team<2>(team, sum);
    if (team.thread < 2 * size) {
      const int target = (team.thread & 1 ? plan.row_false : plan.row_true)[chunk + team.thread / 2];
      if (s.normalise && target >= rows && team.rank == 0 && !LAYER) dot -= d.along_final[target - rows];
      if (s.normalise && target >= 0 && target < rows) dot -= __ldcg(d.along + (size_t)(LAYER * BLOCKS + team.rank) * plan.capacity + target);
      s.scores[(size_t)(LAYER * BLOCKS + team.rank) * 2 * plan.capacity + 2 * chunk + team.thread] = dot;
    }
  }
}

// The edges of up to EDGE_ROWS rows, one a thread: thread 2 row + side.
struct Edges {
  int target;
  float mass, d_mass, p, soft;
  int branching;  // see triton/plan.py
  // What is known before the dot products are.
  __device__ __forceinline__ void load(const Team &team, const Plan &plan, const State &s, const Gradients &d, int first, int last) {
    const int rows = *plan.total, row = min(first + team.thread / 2, last - 1);
    target = first + team.thread / 2 < last ? (team.thread & 1 ? plan.row_false : plan.row_true)[row] : -1;
    const bool exit = target >= rows;
    const int at = max(exit ? target - rows : target, 0);
    mass = __ldcg((exit ? d.final_mass : s.pointer) + at);
    d_mass = exit ? 0.f : __ldcg(d.d_pointer + at);
    p = s.pointer[row];
    branching = plan.branches[row];
    soft = branching ? s.decision[row] : 1.f;
  }
  // Equations 4 to 6 backwards: weights of the edges, and slopes of the scores.
  __device__ __forceinline__ void weigh(const Team &team, const Plan &plan, const State &s, const Gradients &d, int first, int last) const {
    const int row = first + team.thread / 2, side = team.thread & 1;
    const float scale = s.normalise && mass > 0.f ? 1.f / (mass + s.eps) : 1.f;
    float d_weight = 0.f;
    if (target >= 0) {
#pragma unroll
      for (int i = 0; i < 2 * BLOCKS; i++) d_weight += __ldcg(s.scores + (size_t)i * 2 * plan.capacity + 2 * row + side);
      d_weight = scale * d_weight + d_mass;
    }
    const float other = __shfl_xor_sync(0xffffffffu, d_weight, 1);
    team.sync();  // nobody reads the last sources any more
    if (row < last) {
      const float chosen = s.hard ? (soft >= 0.5f ? 1.f : 0.f) : soft;
      const float d_true = side ? other : d_weight, d_false = side ? d_weight : other;
      float slope = branching ? p * soft * (1.f - soft) * (d_true - d_false) : 0.f;
      Source &source = team.sources[team.thread / 2];
      source.weight[side] = scale * p * (side ? 1.f - chosen : chosen);
      if (!side) {
        source.slope = slope;
        d.d_pointer[row] = chosen * d_true + (1.f - chosen) * d_false;
        d.d_score[row] = slope;
      }
    }
    team.sync();
  }
};

// The gradients of the state proposals of a chunk, this block's units.
template <int N, int LAYER>
__device__ __forceinline__ void aggregate(const Team &team, const State &s, const Source *sources, int size, const Ahead &ahead,
                                          float (&out_c)[N / 4], float (&out_h)[N / 4]) {
  const float *weight = s.branch_weight + 2 * LAYER * P + team.rank * UNITS + team.unit;
  const float weight_c = weight[0], weight_h = weight[P];
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    const int row = row_of(i, team.lane);
    const Source source = sources[min(row, size - 1)];
    out_c[i] = source.slope * weight_c + source.weight[0] * ahead.c[i][0] + source.weight[1] * ahead.c[i][1];
    out_h[i] = source.slope * weight_h + source.weight[0] * ahead.h[i][0] + source.weight[1] * ahead.h[i][1];
    if (row >= size) out_c[i] = out_h[i] = 0.f;
  }
}

// What the gates of a token need to be run backwards, fetched ahead; `after` is the memory after the token.
template <int N> struct Saved {
  uint2 gates[N / 4];
  float before[N / 4];
  __device__ __forceinline__ void load(const State &s, int layer, int token, int chunk, int size, int unit, int lane, size_t plane) {
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
      const int row = min(row_of(i, lane), size - 1);
      const size_t at = (size_t)(chunk + row) * P + unit;
      gates[i] = __ldcg((const uint2 *)(s.gates + ((layer * 4 + token) * plane + at) * 4));
      before[i] = __ldcg(s.c + (layer * 5 + token) * plane + at);
    }
  }
};

// From the gradients of a token's output and (in d_c) memory to those of its gates, into memory and the operand.
template <int N>
__device__ __forceinline__ void gates_backward(const Team &team, const State &s, u32 slopes, const Saved<N> &saved, float (&after)[N / 4],
                                               const float (&d_h)[N / 4], float (&d_c)[N / 4], int layer, int token, int chunk, int size,
                                               size_t plane) {
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    const float in = low(saved.gates[i].x), forget = high(saved.gates[i].x), new_ = low(saved.gates[i].y), out = high(saved.gates[i].y);
    const float shape = tanh_fast(after[i]), before = saved.before[i];
    const float d = d_c[i] + d_h[i] * out * (1.f - shape * shape);
    const u32 x = pack(d * new_ * in * (1.f - in), d * before * forget * (1.f - forget));
    const u32 y = pack(d * in * (1.f - new_ * new_), d_h[i] * shape * out * (1.f - out));
    d_c[i] = d * forget;
    after[i] = before;
    const int row = row_of(i, team.lane);
    const bool inside = row < size;
    store_8(slopes + (team.unit >> 1) * 16 * N + row * 16 + (team.unit & 1) * 8, inside ? x : 0u, inside ? y : 0u);
    if (inside)
      *(uint2 *)(s.gates + ((layer * 4 + token) * plane + (size_t)(chunk + row) * P + team.rank * UNITS + team.unit) * 4) = make_uint2(x, y);
  }
  fence_operands();
}

// The four tokens of at most N rows backwards, for one layer. Wave w is token w of layer 1 and token w - 1 of layer 2.
template <int N, int LAYER>
__device__ __forceinline__ void run_chunk(Team &team, const Plan &plan, const State &s, const Gradients &d, u32 weights, int chunk, int size,
                                          const Ahead &ahead, const Source *sources) {
  const size_t plane = (size_t)plan.capacity * P;
  const int unit = team.rank * UNITS + team.unit;
  float d_c[N / 4], d_h[N / 4], direct[N / 4], after[N / 4], first_h[N / 4];
  Saved<N> saved;
  saved.load(s, LAYER, 3, chunk, size, unit, team.lane, plane);
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    const size_t at = (size_t)(chunk + min(row_of(i, team.lane), size - 1)) * P + unit;
    after[i] = __ldcg(s.c + (LAYER * 5 + 4) * plane + at);
    first_h[i] = low(__ldcg(s.h + LAYER * 5 * plane + at));
  }
  aggregate<N, LAYER>(team, s, sources, size, ahead, d_c, direct);
  if (LAYER) {
    gates_backward<N>(team, s, team.slopes[1], saved, after, direct, d_c, 1, 3, chunk, size, plane);
    saved.load(s, 1, 2, chunk, size, unit, team.lane, plane);
  }
  team.sync_group();
#pragma unroll 1
  for (int wave = 3; wave >= (LAYER ? 0 : -1); wave--) {
    if (team.thread == 0) arrive_expecting(team.full, BLOCKS * 2 * UNITS * N);
    float acc[TILES][N / 2];
    fence_products();
    if (LAYER) {
      product<N>(acc, weights + 2 * MATRIX_BYTES, team.slopes[1], false);
    } else {
      if (wave >= 0) product<N>(acc, weights + MATRIX_BYTES, team.slopes[1], false);
      if (wave < 3) product<N>(acc, weights, team.slopes[0], wave >= 0);
    }
    finish_products();
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) settle(acc[tile]);
    scatter<N>(team, acc);
    const int token = wave - LAYER;
    if (wave >= 0) team.sync_group();  // both teams' products have been computed: slopes may change
    gather<N>(team, d_h);
    if (token < 0) break;
    if (!LAYER && wave == 3)
#pragma unroll
      for (int i = 0; i < N / 4; i++) d_h[i] += direct[i];
    gates_backward<N>(team, s, team.slopes[LAYER], saved, after, d_h, d_c, LAYER, token, chunk, size, plane);
    if (token > 0) saved.load(s, LAYER, token - 1, chunk, size, unit, team.lane, plane);
    team.sync_group();
  }
  if (LAYER) team.sync_group();  // layer 1's team has one wave's gates more
  float along[N / 4];
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    along[i] = d_c[i] * after[i] + d_h[i] * first_h[i];
    if (const int row = row_of(i, team.lane); row < size) {
      float *to = d.d_state + 2 * LAYER * plane + (size_t)(chunk + row) * P + unit;
      to[0] = d_c[i];
      to[plane] = d_h[i];
    }
  }
  if (s.normalise) {  // sources were read before the first product
    const float sum = sum_team<1>(team, along);
    if (team.thread < size) d.along[(size_t)(LAYER * BLOCKS + team.rank) * plan.capacity + chunk + team.thread] = sum;
  }
}

// What the forward pass kept of the rows of a step, into the cache before the step is run: it is too much to stay there.
template <int LAYER> __device__ __forceinline__ void fetch_step(const Team &team, const Plan &plan, const State &s, int first, int last) {
  const size_t plane = (size_t)plan.capacity * P, at = (size_t)first * P, count = (size_t)(last - first) * P;
#pragma unroll 1
  for (int part = team.rank; part < 11; part += BLOCKS) {  // blocks share the work
    const int bytes = part < 4 ? 8 : part < 9 ? 4 : 2;
    const int which = part < 4 ? LAYER * 4 + part : LAYER * 5 + (part < 9 ? part - 4 : (part - 9) * 4);
    const char *from = part < 4 ? (const char *)s.gates : part < 9 ? (const char *)s.c : (const char *)s.h;
    fetch_ahead(from + (which * plane + at) * bytes, count * bytes);
  }
}

template <int LAYER> __device__ __forceinline__ void run(Team &team, const Plan &plan, const State &s, const Gradients &d, u32 weights) {
  if (team.group >= plan.groups) return;
  const int *offsets = plan.offsets + team.group * (plan.steps + 1);
  int step = 0;
  while (step < plan.steps && common(offsets[step]) < common(offsets[step + 1])) step++;
  for (step--; step >= 0; step--) {
    const int first = common(offsets[step]), last = common(offsets[step + 1]);
    if (step > 0 && team.thread == TEAM - 1) fetch_step<LAYER>(team, plan, s, offsets[step - 1], first);
    team.sync();  // what this team has written is seen by all of it
    Ahead ahead;
    Edges edges;
    dots<LAYER>(team, plan, s, d, first, last, ahead);
    if (team.warp == 0) {  // which wrote the dot products
      __syncwarp();
      if (team.lane < BLOCKS) publish_at(team.step, team.lane);
    }
    edges.load(team, plan, s, d, first, last);
    wait_cluster(team.step, team.step_phase);
    team.step_phase ^= 1;
    for (int chunk = first; chunk < last; chunk += BACK_ROWS) {
      const int size = min(BACK_ROWS, last - chunk);
      if (chunk > first) ahead.load(team, plan, d, LAYER, chunk, size);
      const int place = (chunk - first) % EDGE_ROWS;
      if (place == 0) {
        if (chunk > first) edges.load(team, plan, s, d, chunk, last);
        edges.weigh(team, plan, s, d, chunk, last);
      }
      if (size <= 8) run_chunk<8, LAYER>(team, plan, s, d, weights, chunk, size, ahead, team.sources + place);
      else run_chunk<BACK_ROWS, LAYER>(team, plan, s, d, weights, chunk, size, ahead, team.sources + place);
    }
  }
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
packed_backward(Plan plan, State s, Gradients d) {
  extern __shared__ __align__(128) unsigned char memory[];
  Team team;
  team.find();
  load_weights(memory, s.weights, team.rank);
  unsigned char *rest = memory + 3 * MATRIX_BYTES;
  for (int layer = 0; layer < 2; layer++) team.slopes[layer] = shared_address(rest) + (2 * team.half + layer) * SLOPE_BYTES;
  rest += 4 * SLOPE_BYTES;
  team.shares = shared_address(rest) + (2 * team.half + team.layer) * BLOCKS * SHARE_BYTES;
  rest += 4 * BLOCKS * SHARE_BYTES;
  team.sums = (float *)(rest + (2 * team.half + team.layer) * SCRATCH_BYTES);
  team.turn = 0;
  team.sources = (Source *)(team.sums + 2 * (SUM_BYTES / 4));
  const u32 barriers = shared_address(rest) + 4 * SCRATCH_BYTES + team.half * 40;
  team.full = barriers + 16 * team.layer;
  team.empty = team.full + 8;
  team.step = barriers + 32;
  team.full_phase = team.step_phase = 0;
  team.empty_phase = 1;  // nobody waits before the first shares
  if (team.thread == 0) {
    barrier_init(team.full, 1);
    barrier_init(team.empty, 4 * BLOCKS);
    if (team.layer == 0) barrier_init(team.step, 2 * BLOCKS);
  }
  begin_cluster();
  const u32 weights = shared_address(memory);
  if (team.layer) run<1>(team, plan, s, d, weights);
  else run<0>(team, plan, s, d, weights);
  end_cluster();
}
