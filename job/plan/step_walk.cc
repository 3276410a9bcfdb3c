#include "job/plan/step_walk.h"

#include <algorithm>
#include <set>
#include <utility>

#include "job/layout/packing.h"
#include "job/wire_blocks.h"

namespace dsj::plan {

using layout::Action;

StepWalk::StepWalk(const MemoryInput& input, const std::vector<layout::UnitSpec>& units,
                   const layout::FlatPlan& plan, const layout::Stage& stage,
                   const layout::Schedule& schedule, bool local)
    : input_(input),
      units_(units),
      plan_(plan),
      stage_(stage),
      groups_(rank_groups(input.config, input.world)),
      local_(local),
      compute_(bytes_of(input.config.precision)),
      accumulate_(bytes_of(input.config.grad_accum_dtype)),
      overlap_(input.config.zero.overlap_comm ? 2 : 0),
      order_(layout::reductions(schedule)),
      kinds_(input.model.layer_kinds()),
      models_(models_of(input)),
      flats_(plan.flats.size()),
      head_(layout::head_of(units)),
      lowest_(layout::lowest_trainable(units)) {
  const layout::OffloadPlan offload = plan_offload(plan, input.config, input.world);
  for (size_t flat = 0; flat < flats_.size(); ++flat)
    flats_[flat] = {.second = groups_.near > 0 && plan.flats[flat].frozen(),
                    .leaves = input.accelerator && offload.states_leave(static_cast<int>(flat))};
  for (Gauge* gauge : {&parameters, &gradients, &optimizer, &buckets, &activations})
    gauge->all = &all;
  activations.add(activation_.step);
  for (const auto& flat : plan.flats)
    types_.push_back(types_of_flat(units, flat, input.config, input.world));
  for (int unit = 0; unit < std::ssize(units); ++unit)
    copies_.push_back(
        weight_copies(units, plan, input.config, input.world, unit) + gradient_piece(unit) +
        (input.accelerator ? layout::unpack_scratch(largest_packed(units, unit)) : 0));
}

std::vector<StepWalk::LayerModels> StepWalk::models_of(const MemoryInput& input) {
  std::vector<LayerModels> models;
  const layout::LayerKinds kinds = input.model.layer_kinds();
  for (const int64_t layer : kinds.first) {
    MemoryInput of_layer = input;
    of_layer.model = input.model.of_layer(layer);
    for (size_t other = 0; other < of_layer.model.windows.size(); ++other)
      if (kinds.of[other] != kinds.of[static_cast<size_t>(layer)])
        of_layer.model.windows[other] = 0;  // of a layer of another kind
    const layout::Mixer mixer = input.model.mixer(layer);
    models.push_back({activation_model(of_layer, mixer), dropping_model(of_layer, mixer)});
  }
  int64_t step = 0;  // the largest rope table
  for (const LayerModels& one : models) step = std::max(step, one.all.step);
  models[0].all.step = step;
  return models;
}

int64_t StepWalk::gradient_piece(int unit) const {
  const int64_t each = bytes_of(product_type(input_.config)) + (input_.accelerator ? 0 : 4);
  return each * std::min(activation_.gradient_piece, largest_gradient(units_, unit));
}

int64_t StepWalk::head_sum(int unit) const {
  const bool tied = units_[unit].uses_embedding;
  const int of = tied ? 0 : unit;
  const size_t weight = tied ? 0 : units_[unit].parameters.size() - 1;  // after the norm
  const int flat = plan_.places[of][weight].flat;
  const bool adds = flats_[flat].grad && !plan_.flats[flat].frozen();
  return activation_.sums_head && adds ? 4 * units_[of].parameters[weight].numel() : 0;
}

/// By a layer's parameter: whether its MLP or experts have it, or what adds the layer's input.
static bool is_of_mlp(const std::string& name) {
  for (const char* part : {".mlp.", ".shared_mlp.", ".feed_forward.", ".block_sparse_moe.", ".fc1.",
                           ".fc2.", ".per_layer_", ".post_per_layer_"})
    if (name.contains(part)) return true;
  return false;
}

int64_t StepWalk::mlp_sums(int unit) const {
  if (unit == 0 || micro_step_ == 0) return 0;
  if (!(unit > head_ ? activation_.sums_inputs : layer(unit).sums_mlp)) return 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < units_[unit].parameters.size(); ++i) {
    const auto& parameter = units_[unit].parameters[i];
    if (parameter.frozen || !is_of_mlp(parameter.name)) continue;
    if (flats_[plan_.places[unit][i].flat].grad) bytes += 4 * parameter.numel();
  }
  return bytes;
}

void StepWalk::visit(const Action& action) {
  if (action.micro_step != micro_step_) {  // a backward that ended early left it
    micro_step_ = action.micro_step;
    given_.clear();
    activations.add(activation_.step - activations.live);
  }
  switch (action.kind) {
    case Action::Kind::Gather:
      return gather(action.flat);
    case Action::Kind::Release:
      return parameters.add(-gathered(action.flat));
    case Action::Kind::Forward:
      return forward(action.unit);
    case Action::Kind::Turn: {
      arrive(action.unit);
      const int64_t sum = head_sum(action.unit);
      write_gradients(action.unit);
      return use(activation_.head, activation_.head_products + sum + copies(action.unit));
    }
    case Action::Kind::Backward:
      return backward(action.unit);
    case Action::Kind::Reduce:
      return reduce(action.flat,
                    action.micro_step + 1 == input_.config.gradient_accumulation_steps);
  }
}

void StepWalk::finish() {
  while (!reducing_.empty()) finish_first();
  keep_leaving(0);
}

int64_t StepWalk::gather_codes(int flat) const {
  return gathers_codes(plan_.flats[flat], stage_of(flat), input_.config)
             ? groups_.shards * wire::message_bytes(shard(flat), wire::kWeightBits)
             : 0;
}

void StepWalk::gather(int flat) {
  FlatState& state = flats_[flat];
  parameters.add(gathered(flat));
  state.codes = state.second ? 0 : gather_codes(flat);
  state.second = groups_.near > 0;
  buckets.add(state.codes);
  if (state.codes > 0) code(flat);
}

void StepWalk::code(int flat) {
  if (input_.accelerator) use(0, wire::scratch_bytes(numel(flat)));
}

void StepWalk::arrive(int unit) {
  const int embedding = units_[unit].uses_embedding ? 0 : unit;
  for (const int flat : {plan_.unit_flat[unit], plan_.unit_frozen[unit], plan_.unit_flat[embedding],
                         plan_.unit_frozen[embedding]})
    if (flat >= 0 && flats_[flat].codes > 0) {
      code(flat);
      buckets.add(-std::exchange(flats_[flat].codes, 0));
    }
}

StepWalk::CodeCost StepWalk::code_cost(int flat) const {
  const auto message = [](int64_t elements) {
    return wire::message_bytes(elements, wire::kGradientBits);
  };
  const int64_t near = groups_.rails ? groups_.near : groups_.shards,
                owners = groups_.shards / near;
  CodeCost cost{.near = (near - 1) * message(owners * shard(flat)),
                .rail = (owners - 1) * message(shard(flat)),
                .messages = 2 * near * message(owners * shard(flat))};
  if (owners == 1) return cost;
  // The fp32 sums exist beside the received messages, then beside those of the second hop.
  const int64_t sums = 4 * owners * shard(flat);
  cost.finishing = std::max<int64_t>(
      {0, sums - cost.messages / 2, sums + 2 * owners * message(shard(flat)) - cost.messages});
  return cost;
}

void StepWalk::use(int64_t activation_bytes, int64_t bucket_bytes) {
  buckets.add(bucket_bytes);
  activations.add(activation_bytes);
  activations.add(-activation_bytes);
  buckets.add(-bucket_bytes);
}

bool StepWalk::drops(int unit) const {
  const auto& ltd = input_.config.data_efficiency.random_ltd;
  return ltd && std::ranges::binary_search(ltd->layers, unit - 1);
}

int64_t StepWalk::kept(int unit) const {
  return gives_targets(unit) ? layer(unit).kept_last : layer(unit).kept;
}

void StepWalk::forward(int unit) {
  arrive(unit);
  if (unit == 0) return activations.add(activation_.boundary);
  if (unit > head_) return forward_before_layers(unit);
  const ActivationModel& a = layer(unit);
  // The input stays, for backward or for recomputation.
  if (!input_.recompute) activations.add(kept(unit));
  use(a.forward, copies(unit));
  activations.add(a.boundary);
  if (input_.inputs_leave()) activations.add(-a.boundary);
  if (input_.model.gives_keys(unit - 1)) activations.add(a.keys);
}

void StepWalk::forward_before_layers(int unit) {
  if (units_[unit].only_rows) {
    activations.add(activation_.inputs);
    return use(activation_.table_forward, 0);
  }
  use(activation_.inputs_forward, copies(unit));
  // Else it is the first layer's input, which stays in memory.
  if (keeps_embedded() && input_.inputs_leave()) activations.add(activation_.boundary);
}

void StepWalk::backward_before_layers(int unit, int64_t sums) {
  if (units_[unit].only_rows) {
    use(activation_.table_backward, 0);
    return activations.add(-activation_.inputs);
  }
  use(activation_.inputs_backward, activation_.inputs_sums + sums + copies(unit));
  activations.add(-activation_.boundary);
}

void StepWalk::share_keys(int unit) {
  const int64_t of = input_.model.key_layer(unit - 1);
  if (of != unit - 1 && given_.insert(of).second)
    activations.add(layer(static_cast<int>(of) + 1).dkeys);
  if (input_.model.gives_keys(unit - 1))
    activations.add(-layer(unit).keys - (given_.erase(unit - 1) > 0 ? layer(unit).dkeys : 0));
}

void StepWalk::backward(int unit) {
  if (unit > 0) arrive(unit);  // the embedding's gather may belong to the next micro-step
  const int64_t sums = mlp_sums(unit);
  write_gradients(unit);
  if (unit == 0) {
    use(activation_.embedding, 0);
    return activations.add(-activation_.boundary);
  }
  if (unit > head_) return backward_before_layers(unit, sums);
  const ActivationModel& a = layer(unit);
  if (input_.recompute) activations.add(kept(unit));
  // The last layer's gradient has only tokens with a target; with dropped tokens it is first
  // expanded to all tokens.
  const int64_t whole = drops(unit) && unit == input_.model.num_layers ? activation_.boundary : 0;
  // An offloaded input is copied back to an accelerator; in host memory it is read in
  // place.
  const int64_t back = input_.inputs_leave() && input_.accelerator ? a.boundary : 0;
  use((gives_targets(unit) ? a.backward_last : a.backward) + whole + back,
      a.piece_sums + sums + copies(unit));
  const bool stays = input_.inputs_leave() || (unit == 1 && keeps_embedded());
  activations.add(-kept(unit) - (stays ? 0 : a.boundary));
  share_keys(unit);
}

void StepWalk::write_gradients(int unit) {
  std::set<int> touched;
  for (const auto& place : plan_.places[unit]) touched.insert(place.flat);
  if (units_[unit].uses_embedding)
    for (const auto& place : plan_.places[0]) touched.insert(place.flat);
  for (const int flat : touched) {
    if (accumulate_ == compute_ && !stage_of(flat).shards_update()) fetch(flat);
    if (flats_[flat].grad || plan_.flats[flat].frozen()) continue;
    flats_[flat].grad = true;
    gradients.add(numel(flat) * compute_);
  }
}

void StepWalk::reduce(int flat, bool last) {
  FlatState& state = flats_[flat];
  const layout::Stage& stage = stage_of(flat);
  const bool every = stage.reduces_every_micro_step();
  if (every || accumulate_ != compute_) fetch(flat);
  if (!every && accumulate_ != compute_) {
    if (!state.whole) gradients.add(numel(flat) * accumulate_);
    state.whole = true;
    gradients.add(-numel(flat) * compute_);
    state.grad = false;
  }
  if (!every && groups_.shards == 1 && state.leaves) {
    leave(flat, numel(flat) * accumulate_);
    state.whole = state.grad = false;
    const int next = layout::flat_to_fetch(order_, flat, last);
    if (next >= 0 && !stage_of(next).shards_update()) fetch(next);
  }
  if (!every && (!last || groups_.shards == 1 || local_)) return;
  if (reduces_codes(flat)) return reduce_as_codes(flat, last);
  const int64_t source = !every && state.whole ? accumulate_ : compute_;
  const int64_t wire = wire_of(flat);
  if (every) {  // freed when the reduction ends
    state.grad = false;
    state.gradient_in_flight = numel(flat) * compute_;
  }
  if (source != wire) {
    state.bucket += numel(flat) * wire;
    if (every) {  // the copy is sent; the gradient is freed at once
      gradients.add(-state.gradient_in_flight);
      state.gradient_in_flight = 0;
    }
  }
  if (stage.shards_update()) {
    if (state.shard)
      state.bucket += shard(flat) * wire;
    else
      gradients.add(shard(flat) * wire);
  }
  if (groups_.shards == 1) {  // nothing to send
    gradients.add(-state.gradient_in_flight);
    state.gradient_in_flight = 0;
  }
  const RowCost rows = rows_of(flat, stage);
  const bool sends_rows = plan::sends_rows(units_, plan_, input_.config, flat);
  if (sends_rows) state.bucket += rows.scratch();
  buckets.add(state.bucket);
  count_wire(rows, sends_rows);
  if (last && groups_.replicas() > 1) count_over_groups(flat);
  start_reduction(flat, last);
}

void StepWalk::start_reduction(int flat, bool last) {
  flats_[flat].last = last;
  reducing_.push_back(flat);
  while (reducing_.size() > overlap_) finish_first();
}

void StepWalk::reduce_as_codes(int flat, bool last) {
  FlatState& state = flats_[flat];
  const CodeCost cost = code_cost(flat);
  const int64_t own = shard(flat) * wire_of(flat);
  if (!state.shard) gradients.add(own);
  state.bucket = cost.messages + (state.shard ? own : 0);
  buckets.add(state.bucket);
  code(flat);
  gradients.add(-numel(flat) * compute_);  // the codes replace it
  state.grad = false;
  reduced_elements += numel(flat) - shard(flat);
  reduced_bytes += cost.near + cost.rail;
  (groups_.rails ? near_bytes : exchanged_bytes) += cost.near;
  bytes_over_groups += cost.rail;
  start_reduction(flat, last);
}

RowCost StepWalk::rows_of(int flat, const layout::Stage& stage) const {
  const int64_t rows =
      input_.config.micro_batch_size *
      (stage.reduces_every_micro_step() ? 1 : input_.config.gradient_accumulation_steps);
  return {plan_.flats[flat], stage.shards_update(), groups_.shards,
          touched_rows(plan_.flats[flat], rows * input_.tokens_per_row, input_.tokens_per_row),
          wire_of(flat)};
}

void StepWalk::count_wire(const RowCost& cost, bool sends_rows) {
  const int64_t others = groups_.shards - 1;
  if (sends_rows) {
    reduced_elements += others;
    reduced_bytes += cost.count_bytes();
  }
  if (sends_rows && cost.pays()) {
    reduced_elements += others * cost.rows * (1 + row_width(cost.flat));
    reduced_bytes += cost.row_bytes();
  } else {
    reduced_elements += cost.dense_bytes() / cost.type;
    reduced_bytes += cost.dense_bytes();
  }
}

void StepWalk::count_over_groups(int flat) {
  const int64_t ranks = groups_.replicas();
  const int64_t elements = 2 * shard(flat) * (ranks - 1) / ranks;
  reduced_elements += elements;
  reduced_bytes += elements * accumulate_;
  bytes_over_groups += elements * accumulate_;
}

void StepWalk::finish_first() {
  const int flat = reducing_.front();
  reducing_.pop_front();
  FlatState& state = flats_[flat];
  const layout::Stage& stage = stage_of(flat);
  const bool every = stage.reduces_every_micro_step();
  if (reduces_codes(flat)) {
    use(0, code_cost(flat).finishing);
    code(flat);
  }
  buckets.add(-state.bucket);
  gradients.add(-state.gradient_in_flight);
  state.bucket = state.gradient_in_flight = 0;
  const int64_t wire = wire_of(flat);
  if (stage.shards_update() && !state.shard && wire != accumulate_) {
    gradients.add(shard(flat) * accumulate_);
    gradients.add(-shard(flat) * wire);
  }
  if (stage.shards_update() && !every) {  // the shard replaces the whole sum
    gradients.add(-(state.whole ? numel(flat) * accumulate_ : numel(flat) * compute_));
    state.whole = state.grad = false;
  }
  state.shard = stage.shards_update();
  if (!state.leaves) return;
  leave(flat, shard(flat) * accumulate_);
  state.shard = false;
}

void StepWalk::fetch(int flat) {
  FlatState& state = flats_[flat];
  const bool sharded = stage_of(flat).shards_update();
  bool& here = sharded ? state.shard : accumulate_ == compute_ ? state.grad : state.whole;
  if (!state.there || here) return;
  here = true;
  gradients.add((sharded ? shard(flat) : numel(flat)) * accumulate_);
}

void StepWalk::leave(int flat, int64_t bytes) {
  keep_leaving(kGradientsLeaving - 1);
  leaving_.push_back(bytes);
  flats_[flat].there = true;
}

void StepWalk::keep_leaving(size_t count) {
  for (; leaving_.size() > count; leaving_.pop_front()) gradients.add(-leaving_.front());
}

}  // namespace dsj::plan
