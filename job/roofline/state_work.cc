#include "job/roofline/state_work.h"

#include <algorithm>

#include "job/plan/row_plan.h"

namespace dsj::roofline {
namespace {

using dsconfig::Precision;

constexpr int64_t kCompute = 2;  // bytes per element

int64_t bytes_of(Precision precision) {
  return precision == Precision::Fp32 ? 4 : 2;
}

/// Spans per launch of an update (engine/kernels/cuda/updates.cu).
constexpr int64_t kSpansAtOnce = 44;
/// Elements per partial sum of squares (engine/kernels/cuda/sums.cu).
constexpr int64_t kSquares = 1 << 16;

Op pass(int64_t bytes) {
  return {Kind::Pass, 0, bytes, 1};
}

/// When averaging needs a pass over the gradient (engine/optim/averaging.h).
struct Scaled {
  bool before = false, after = false;
};
Scaled scaled(const dsconfig::ResolvedConfig& config, int world) {
  const auto& averaging = config.averaging;
  if (world == 1 || !averaging.mean) return {};
  if (averaging.prescale) return {.before = true};
  if (averaging.predivide != 1) return {true, true};
  const auto is_half = [](Precision p) { return p == Precision::Fp16; };
  return {.before = is_half(config.precision) || is_half(config.communication_dtype) ||
                    is_half(config.grad_accum_dtype)};
}

/// The number of gradient elements that the update reads.
int64_t gradient_elements(const FlatState& state) {
  return state.stage.shards_update() ? state.flat.shard_numel() : state.flat.numel();
}

/// The number of pieces of a shard that are on one device and in one chunk.
int64_t spans(const layout::FlatLayout& flat, const std::vector<layout::Part>& parts) {
  int64_t count = 0;
  for (const layout::Part& part : parts) {
    if (part.place != layout::Place::Device) continue;
    for (const layout::Chunk& chunk : flat.chunks())
      count += std::max(part.begin, chunk.shard_offset) <
               std::min(part.begin + part.numel, chunk.shard_offset + chunk.slice);
  }
  return count;
}

}  // namespace

Reduction reduction(const FlatState& state, bool first, bool last) {
  const int64_t accumulate = bytes_of(state.config.grad_accum_dtype);
  const int64_t wire = bytes_of(state.config.communication_dtype);
  const int64_t numel = state.flat.numel(), shard = state.flat.shard_numel();
  const bool every = state.stage.reduces_every_micro_step(), sharded = state.stage.shards_update();
  const bool widens = !every && state.config.grad_accum_dtype != state.config.precision;
  Reduction out{.gone = every || widens};
  if (widens) out.before.push_back(pass(numel * ((first ? 1 : 2) * accumulate + kCompute)));
  if (state.leaves && (every || state.world == 1 || last)) {
    out.down = gradient_elements(state) * accumulate;
    if (!first && (every || state.world == 1)) out.up = out.down;
  }
  if (!every && (!last || state.world == 1)) return out;
  const Precision source = widens ? state.config.grad_accum_dtype : state.config.precision;
  if (source != state.config.communication_dtype)
    out.before.push_back(pass(numel * (bytes_of(source) + wire)));
  const Scaled scales = scaled(state.config, state.world);
  if (scales.before) out.before.push_back(pass(2 * numel * wire));
  out.sent = plan::RowCost{state.flat, sharded, state.world, 0, wire}.dense_bytes();
  out.collectives = sharded ? 1 : static_cast<int64_t>(state.flat.chunks().size());
  const int64_t left = sharded ? shard : numel;
  if (scales.after) out.after.push_back(pass(2 * left * wire));
  const bool adds = every && !first;  // to the shard of earlier micro-steps
  const bool converts = state.config.grad_accum_dtype != state.config.communication_dtype;
  if (adds && state.config.grad_accum_dtype == Precision::Fp32) {
    out.after.push_back(pass(left * (2 * accumulate + wire)));
  } else {
    if (converts) out.after.push_back(pass(left * (wire + accumulate)));
    if (adds) out.after.push_back(pass(3 * left * accumulate));
  }
  out.gone = out.gone || sharded;
  return out;
}

Ops norm_work(const FlatState& state) {
  const int64_t n = gradient_elements(state), parts = (n + kSquares - 1) / kSquares;
  Ops work = {{Kind::Ours, 0, n * bytes_of(state.config.grad_accum_dtype) + 16 * parts, 2}};
  if (state.leaves) work.insert(work.end(), {pass(8), pass(24)});  // its own sum, then the addition
  return work;
}

Updated update_work(const FlatState& state, const std::vector<layout::Part>& optimizer,
                    const std::vector<layout::Part>& parameters) {
  const int64_t gradient = bytes_of(state.config.grad_accum_dtype);
  int64_t device = 0, host = 0, kept_in_host = 0;
  for (const layout::Part& part : optimizer)
    (part.place == layout::Place::Device ? device : host) += part.numel;
  for (const layout::Part& part : parameters)
    kept_in_host += part.place == layout::Place::Device ? 0 : part.numel;
  // Reads and writes master and states, reads the gradient, writes the 16-bit copy.
  const int64_t element = 8 * (1 + state.states) + gradient + kCompute;
  Updated out;
  if (device > 0) {
    const int64_t launches = (spans(state.flat, optimizer) + kSpansAtOnce - 1) / kSpansAtOnce;
    out.device.push_back({Kind::Ours, 0, device * element, launches});
  }
  out.host = host * element;
  out.up = std::max<int64_t>(0, host - kept_in_host) * kCompute;
  if (state.leaves) out.up += device * gradient;
  return out;
}

int64_t gathered_bytes(const layout::FlatLayout& flat, int ranks) {
  return flat.numel() / ranks * (ranks - 1) * kCompute;
}

}  // namespace dsj::roofline
