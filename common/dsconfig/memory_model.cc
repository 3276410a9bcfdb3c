#include "common/dsconfig/memory_model.h"

#include <algorithm>
#include <deque>
#include <set>

#include "common/dsconfig/zero_plan.h"

namespace dsj::dsconfig {
namespace {

using layout::Action;

int64_t bytes_of(Precision precision) {
  return precision == Precision::Fp32 ? 4 : 2;
}

struct Gauge {
  int64_t live = 0, peak = 0;
  void add(int64_t bytes) {
    live += bytes;
    peak = std::max(peak, live);
  }
};

/// What lives of gradients and buckets, action by action.
class GradientWalk {
 public:
  GradientWalk(const MemoryInput& input, const std::vector<layout::UnitSpec>& units,
               const layout::FlatPlan& plan, int stage)
      : input_(input),
        units_(units),
        plan_(plan),
        stage_(stage),
        compute_(bytes_of(input.config.precision)),
        accumulate_(bytes_of(input.config.grad_accum_dtype)),
        wire_(bytes_of(input.config.communication_dtype)),
        overlap_(input.config.zero.overlap_comm ? 2 : 0),
        flats_(plan.flats.size()) {}

  void visit(const Action& action) {
    if (action.kind == Action::Kind::Turn || action.kind == Action::Kind::Backward)
      backward(action.unit);
    else if (action.kind == Action::Kind::Reduce)
      reduce(action.flat, action.micro_step + 1 == input_.config.gradient_accumulation_steps);
  }
  void finish() {
    while (!reducing_.empty()) finish_first();
  }

  Gauge gradients, buckets;
  int64_t reduced_elements = 0;  ///< sent by one rank

 private:
  struct FlatState {
    bool grad = false, whole = false, shard = false;
    int64_t bucket = 0, gradient_in_flight = 0;
    bool last = false;
  };

  int64_t numel(int flat) const { return plan_.flats[flat].numel(); }
  int64_t shard(int flat) const { return plan_.flats[flat].shard_numel(); }

  void backward(int unit) {
    std::set<int> touched;
    for (const auto& place : plan_.places[unit]) touched.insert(place.flat);
    if (units_[unit].uses_embedding)
      for (const auto& place : plan_.places[0]) touched.insert(place.flat);
    for (const int flat : touched) {
      if (flats_[flat].grad || plan_.flats[flat].frozen()) continue;
      flats_[flat].grad = true;
      gradients.add(numel(flat) * compute_);
    }
  }

  void reduce(int flat, bool last) {
    FlatState& state = flats_[flat];
    if (stage_ <= 1 && accumulate_ != compute_) {
      if (!state.whole) gradients.add(numel(flat) * accumulate_);
      state.whole = true;
      gradients.add(-numel(flat) * compute_);
      state.grad = false;
    }
    if (stage_ <= 1 && (!last || input_.world == 1)) return;
    const int64_t source = stage_ <= 1 && state.whole ? accumulate_ : compute_;
    if (stage_ >= 2) {  // freed when the reduction is done
      state.grad = false;
      state.gradient_in_flight = numel(flat) * compute_;
    }
    if (source != wire_) {
      state.bucket += numel(flat) * wire_;
      if (stage_ >= 2) {  // the copy travels; the gradient itself goes at once
        gradients.add(-state.gradient_in_flight);
        state.gradient_in_flight = 0;
      }
    }
    if (stage_ > 0) {
      if (state.shard)
        state.bucket += shard(flat) * wire_;
      else
        gradients.add(shard(flat) * wire_);
    }
    buckets.add(state.bucket);
    state.last = last;
    const int64_t world = input_.world;
    reduced_elements += numel(flat) / world * (world - 1) * (stage_ == 0 ? 2 : 1);
    reducing_.push_back(flat);
    while (reducing_.size() > overlap_) finish_first();
  }

  void finish_first() {
    const int flat = reducing_.front();
    reducing_.pop_front();
    FlatState& state = flats_[flat];
    buckets.add(-state.bucket);
    gradients.add(-state.gradient_in_flight);
    state.bucket = state.gradient_in_flight = 0;
    if (stage_ == 1) {
      gradients.add(-(state.whole ? numel(flat) * accumulate_ : numel(flat) * compute_));
      state.whole = state.grad = false;
    }
    if (stage_ >= 2 && !state.shard && wire_ != accumulate_) {
      gradients.add(shard(flat) * accumulate_);
      gradients.add(-shard(flat) * wire_);
    }
    state.shard = stage_ > 0;
  }

  const MemoryInput& input_;
  const std::vector<layout::UnitSpec>& units_;
  const layout::FlatPlan& plan_;
  const int stage_;
  const int64_t compute_, accumulate_, wire_;
  const size_t overlap_;
  std::vector<FlatState> flats_;
  std::deque<int> reducing_;
};

/// What a layer's backward needs kept, and the scratch of the busiest moment; rows are tokens.
int64_t activation_bytes(const MemoryInput& input) {
  const layout::ModelConfig& m = input.model;
  const int64_t rows = input.config.micro_batch_size * input.tokens_per_row;
  const int64_t element = bytes_of(input.config.precision);
  const int64_t boundary = rows * m.hidden_size * element;
  const int64_t qkv = m.query_size() + 2 * m.kv_size();
  const int64_t saved =
      boundary * 4 +  // the input, the attention's input, the middle, the MLP's input
      rows * (qkv + m.query_size() + 2 * m.intermediate_size) * element +
      rows * (2 + m.num_heads) * 4;  // norms and the attention's sums, fp32
  const int64_t scratch = rows * (2 * m.intermediate_size + 3 * m.hidden_size) * element;
  constexpr int64_t kLogits = int64_t{32} << 20;  // elements alive at a time in the head
  const int64_t logits_rows = std::clamp<int64_t>(kLogits / m.vocab_size, 1, (rows + 1) / 2);
  const int64_t head = logits_rows * m.vocab_size * element + 2 * boundary;
  const int64_t kept = input.recompute ? boundary * m.num_layers + saved : saved * m.num_layers;
  return kept + std::max(scratch, head);
}

}  // namespace

MemoryModel memory_model(const MemoryInput& input) {
  const auto units = layout::units_of(input.model, input.lora);
  const layout::FlatPlan plan = plan_flats(units, input.config, input.world);
  const layout::Schedule schedule =
      layout::make_schedule(units, plan, schedule_limits(input.config, input.world),
                            input.config.gradient_accumulation_steps);
  MemoryModel model{.parameters = layout::total_numel(units),
                    .trainable = layout::trainable_numel(units),
                    .peak_live_parameters = schedule.peak_live,
                    .gathers = schedule.gathers,
                    .stage = effective_stage(input.config, input.world)};
  const int64_t compute = bytes_of(input.config.precision);
  const int64_t others = input.world - 1;
  for (int i = 0; i < static_cast<int>(plan.flats.size()); ++i) {
    const layout::FlatLayout& flat = plan.flats[i];
    const bool sharded = model.stage == 3 && !plan.is_persisted(i);
    if (!sharded)
      model.bytes.parameters += flat.numel() * compute;
    else if (compute != 4 || flat.frozen())
      model.bytes.parameters += flat.shard_numel() * compute;
    if (flat.frozen()) continue;  // loaded once, never updated
    const bool own_master = sharded || compute != 4;
    model.bytes.optimizer += flat.shard_numel() * 4 * (own_master ? 3 : 2);
    if (model.stage > 0 && !sharded)  // the updated copy is gathered once per step
      model.wire.parameter_elements += flat.shard_numel() * others;
  }
  model.bytes.parameters += schedule.peak_live * compute;

  GradientWalk walk(input, units, plan, model.stage);
  for (const Action& action : schedule.actions) {
    walk.visit(action);
    if (action.kind == Action::Kind::Gather)
      model.wire.parameter_elements += plan.flats[action.flat].shard_numel() * others;
  }
  walk.finish();
  model.bytes.gradients = walk.gradients.peak;
  model.bytes.buckets = walk.buckets.peak;
  model.bytes.activations = activation_bytes(input);
  model.wire.gradient_elements = walk.reduced_elements;
  model.wire.gradient_bytes =
      model.wire.gradient_elements * bytes_of(input.config.communication_dtype);
  model.wire.parameter_bytes = model.wire.parameter_elements * compute;
  return model;
}

}  // namespace dsj::dsconfig
