#include "job/plan/memory_model.h"

#include <algorithm>
#include <deque>
#include <set>

#include "job/plan/activation_model.h"
#include "job/plan/autocast_plan.h"
#include "job/plan/muon_plan.h"
#include "job/plan/one_bit_plan.h"
#include "job/plan/row_plan.h"
#include "job/plan/zero_plan.h"

namespace dsj::plan {
namespace {

using dsconfig::Precision;
using layout::Action;

struct Gauge {
  int64_t live = 0, peak = 0;
  Gauge* all = nullptr;  ///< the total that includes this one
  void add(int64_t bytes) {
    live += bytes;
    peak = std::max(peak, live);
    if (all) all->add(bytes);
  }
};

/// What lives at each action of a step, by class.
class StepWalk {
 public:
  StepWalk(const MemoryInput& input, const std::vector<layout::UnitSpec>& units,
           const layout::FlatPlan& plan, const layout::Stage& stage, bool local = false)
      : input_(input),
        units_(units),
        plan_(plan),
        stage_(stage),
        local_(local),
        compute_(bytes_of(input.config.precision)),
        accumulate_(bytes_of(input.config.grad_accum_dtype)),
        overlap_(input.config.zero.overlap_comm ? 2 : 0),
        activation_(activation_model(input)),
        dropping_(dropping_model(input)),
        flats_(plan.flats.size()) {
    for (Gauge* gauge : {&parameters, &gradients, &optimizer, &buckets, &activations})
      gauge->all = &all;
    activations.add(activation_.step);
    for (const auto& flat : plan.flats)
      types_.push_back(types_of_flat(units, flat, input.config, input.world));
    for (int unit = 0; unit < std::ssize(units); ++unit)
      copies_.push_back(weight_copies(units, plan, input.config, input.world, unit) +
                        gradient_piece(unit));
  }

  void visit(const Action& action) {
    if (action.micro_step != micro_step_) {  // left by a backward that ended early
      micro_step_ = action.micro_step;
      activations.add(activation_.step - activations.live);
    }
    switch (action.kind) {
      case Action::Kind::Gather:
        return parameters.add(gathered(action.flat));
      case Action::Kind::Release:
        return parameters.add(-gathered(action.flat));
      case Action::Kind::Forward:
        return forward(action.unit);
      case Action::Kind::Turn:
        write_gradients(action.unit);
        return use(activation_.head, activation_.head_products + copies(action.unit));
      case Action::Kind::Backward:
        return backward(action.unit);
      case Action::Kind::Reduce:
        return reduce(action.flat,
                      action.micro_step + 1 == input_.config.gradient_accumulation_steps);
    }
  }
  void finish() {
    while (!reducing_.empty()) finish_first();
  }
  /// The update's own scratch.
  void update(int64_t bucket_bytes) { use(0, bucket_bytes); }

  Gauge parameters, gradients, optimizer, buckets, activations, all;
  int64_t reduced_elements = 0, reduced_bytes = 0;  ///< that one rank sends

 private:
  struct FlatState {
    bool grad = false, whole = false, shard = false;
    int64_t bucket = 0, gradient_in_flight = 0;
    bool last = false;
  };

  const layout::Stage& stage_of(int flat) const {
    return layout::stage_of_flat(stage_, plan_.is_persisted(flat));
  }
  int64_t numel(int flat) const { return plan_.flats[flat].numel(); }
  int64_t shard(int flat) const { return plan_.flats[flat].shard_numel(); }
  /// Bytes of a gathered copy.
  int64_t gathered(int flat) const { return numel(flat) * bytes_of(types_[flat].gathered); }
  int64_t wire_of(int flat) const { return bytes_of(types_[flat].wire); }
  /// What the unit's products copy of its weights, or a piece of a weight's gradient before it is
  /// widened.
  int64_t copies(int unit) const { return copies_[unit]; }
  int64_t gradient_piece(int unit) const {
    int64_t largest = units_[unit].uses_embedding ? units_[0].parameters[0].numel() : 0;
    for (const auto& parameter : units_[unit].parameters)
      if (!parameter.frozen) largest = std::max(largest, parameter.numel());
    return std::min(activation_.gradient_piece, bytes_of(product_type(input_.config)) * largest);
  }

  /// Counts bytes that live during one action.
  void use(int64_t activation_bytes, int64_t bucket_bytes) {
    buckets.add(bucket_bytes);
    activations.add(activation_bytes);
    activations.add(-activation_bytes);
    buckets.add(-bucket_bytes);
  }

  bool drops(int unit) const {
    const auto& ltd = input_.config.data_efficiency.random_ltd;
    return ltd && std::ranges::binary_search(ltd->layers, unit - 1);
  }
  /// What the layer of this unit takes.
  const ActivationModel& layer(int unit) const { return drops(unit) ? dropping_ : activation_; }
  /// Whether it gives the outputs of the tokens with a target alone.
  bool gives_targets(int unit) const { return unit == input_.model.num_layers && !drops(unit); }
  int64_t kept(int unit) const {
    return gives_targets(unit) ? layer(unit).kept_last : layer(unit).kept;
  }

  void forward(int unit) {
    if (unit == 0) return activations.add(activation_.boundary);
    const ActivationModel& a = layer(unit);
    // The input stays, for backward or to recompute from.
    if (!input_.recompute) activations.add(kept(unit));
    use(a.forward, copies(unit));
    activations.add(a.boundary);
    if (input_.inputs_leave()) activations.add(-a.boundary);
  }

  void backward(int unit) {
    write_gradients(unit);
    if (unit == 0) {
      use(activation_.embedding, 0);
      return activations.add(-activation_.boundary);
    }
    const ActivationModel& a = layer(unit);
    if (input_.recompute) activations.add(kept(unit));
    // The last layer's gradient comes for the tokens with a target; where tokens are dropped it is
    // first made whole.
    const int64_t whole = drops(unit) && unit == input_.model.num_layers ? activation_.boundary : 0;
    // An input that left the device comes back to an accelerator; in host memory it is read where
    // it was brought.
    const int64_t back = input_.inputs_leave() && input_.accelerator ? a.boundary : 0;
    use((gives_targets(unit) ? a.backward_last : a.backward) + whole + back,
        a.piece_sums + copies(unit));
    activations.add(-kept(unit) - (input_.inputs_leave() ? 0 : a.boundary));
  }

  void write_gradients(int unit) {
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
    const layout::Stage& stage = stage_of(flat);
    const bool every = stage.reduces_every_micro_step();
    if (!every && accumulate_ != compute_) {
      if (!state.whole) gradients.add(numel(flat) * accumulate_);
      state.whole = true;
      gradients.add(-numel(flat) * compute_);
      state.grad = false;
    }
    if (!every && (!last || input_.world == 1 || local_)) return;
    const int64_t source = !every && state.whole ? accumulate_ : compute_;
    const int64_t wire = wire_of(flat);
    if (every) {  // freed once the reduction is done
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
    const RowCost rows = rows_of(flat, stage);
    const bool sends_rows = plan::sends_rows(units_, plan_, input_.config, flat);
    if (sends_rows) state.bucket += rows.scratch();
    buckets.add(state.bucket);
    state.last = last;
    count_wire(rows, sends_rows);
    reducing_.push_back(flat);
    while (reducing_.size() > overlap_) finish_first();
  }

  /// A reduction of a flat by rows: the most that its tokens can touch.
  RowCost rows_of(int flat, const layout::Stage& stage) const {
    const int64_t rows =
        input_.config.micro_batch_size *
        (stage.reduces_every_micro_step() ? 1 : input_.config.gradient_accumulation_steps);
    return {plan_.flats[flat], stage.shards_update(), input_.world,
            touched_rows(plan_.flats[flat], rows * input_.tokens_per_row, input_.tokens_per_row),
            wire_of(flat)};
  }

  void count_wire(const RowCost& cost, bool sends_rows) {
    const int64_t others = input_.world - 1;
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

  void finish_first() {
    const int flat = reducing_.front();
    reducing_.pop_front();
    FlatState& state = flats_[flat];
    const layout::Stage& stage = stage_of(flat);
    const bool every = stage.reduces_every_micro_step();
    buckets.add(-state.bucket);
    gradients.add(-state.gradient_in_flight);
    state.bucket = state.gradient_in_flight = 0;
    const int64_t wire = wire_of(flat);
    if (stage.shards_update() && !state.shard && wire != accumulate_) {
      gradients.add(shard(flat) * accumulate_);
      gradients.add(-shard(flat) * wire);
    }
    if (stage.shards_update() && !every) {  // the whole sum has become a shard
      gradients.add(-(state.whole ? numel(flat) * accumulate_ : numel(flat) * compute_));
      state.whole = state.grad = false;
    }
    state.shard = stage.shards_update();
  }

  const MemoryInput& input_;
  const std::vector<layout::UnitSpec>& units_;
  const layout::FlatPlan& plan_;
  const layout::Stage& stage_;
  const bool local_;  ///< gradients stay on their ranks
  const int64_t compute_, accumulate_;
  std::vector<FlatTypes> types_;  ///< [flat]
  std::vector<int64_t> copies_;   ///< [unit] bytes
  const size_t overlap_;
  const ActivationModel activation_, dropping_;
  std::vector<FlatState> flats_;
  std::deque<int> reducing_;
  int64_t micro_step_ = 0;
};

/// What this rank owns of a flat: master, states and, where parameters are sharded, the shard that
/// gathers read, which in fp32 is the master.
void count_owned(const layout::OffloadPlan& plan, const layout::FlatLayout& layout, int flat,
                 const dsconfig::ResolvedConfig& config, StepWalk& walk, MemoryClasses& bytes) {
  const int64_t vectors = optimizer_vectors(layout, config) * bytes_of(vector_type(config));
  const int64_t compute = bytes_of(config.precision);
  for (const layout::Part& part : plan.optimizer[flat]) {
    if (part.place == layout::Place::Device) walk.optimizer.add(part.numel * vectors);
    if (part.place == layout::Place::Host) bytes.host += part.numel * vectors;
  }
  for (const layout::Part& part : plan.parameters[flat]) {
    const bool is_master = !separate_master(config) && !layout.frozen();
    auto& device = is_master ? walk.optimizer : walk.parameters;
    if (part.place == layout::Place::Device) device.add(part.numel * compute);
    if (part.place == layout::Place::Host) bytes.host += part.numel * compute;
  }
}

/// The steps of a 1-bit optimizer after its freeze: raises what is higher than before it.
void add_compressed_steps(const MemoryInput& input, const layout::FlatPlan& plan,
                          const OneBitPlan& one_bit, StepWalk& walk, MemoryModel& model,
                          const layout::Schedule& schedule) {
  walk.optimizer.add(4 * one_bit_elements(one_bit, plan, input.config, input.world));
  for (const Action& action : schedule.actions) walk.visit(action);
  walk.finish();
  walk.update(one_bit_scratch(one_bit, plan, input.world));
  const auto raise = [](int64_t& bytes, const Gauge& gauge) {
    bytes = std::max(bytes, gauge.peak);
  };
  raise(model.bytes.parameters, walk.parameters);
  raise(model.bytes.gradients, walk.gradients);
  raise(model.bytes.optimizer, walk.optimizer);
  raise(model.bytes.buckets, walk.buckets);
  raise(model.bytes.activations, walk.activations);
  raise(model.bytes.peak, walk.all);
  if (input.world == 1) return;
  model.wire.momentum_elements = 2 * (input.world - 1) * one_bit.server_elements();
  model.wire.momentum_bytes = one_bit.wire_bytes(input.world);
}

/// The inputs of layers that leave the device (engine/zero/layer_inputs.h): all in host memory, or
/// in a file, of which two are in memory.
void count_inputs(const MemoryInput& input, MemoryClasses& elsewhere) {
  if (!input.inputs_leave()) return;
  const int64_t layers = input.model.num_layers, align = layout::kFileAlign;
  const int64_t one = activation_model(input).boundary;
  const auto place = [&](int64_t bytes) { return (bytes + align - 1) / align * align; };
  if (input.accelerator) {
    elsewhere.host += layers * one;
    return;
  }
  elsewhere.host += std::min<int64_t>(2, layers) * (place(one) + align);
  const int64_t longest = input.config.micro_batch_size * input.tokens_per_row *
                          input.model.hidden_size * bytes_of(input.config.precision);
  elsewhere.nvme += layers * place(longest);
}

/// What lies on this rank between two steps.
void count_kept(const MemoryInput& input, const layout::FlatPlan& plan, const layout::Stage& stage,
                const layout::OffloadPlan& offload, StepWalk& walk, MemoryClasses& elsewhere) {
  for (int i = 0; i < static_cast<int>(plan.flats.size()); ++i) {
    const layout::FlatLayout& flat = plan.flats[i];
    if (!layout::stage_of_flat(stage, plan.is_persisted(i)).shards_parameters())
      walk.parameters.add(flat.numel() * bytes_of(input.config.precision));
    count_owned(offload, flat, i, input.config, walk, elsewhere);
  }
}

}  // namespace

MemoryModel memory_model(const MemoryInput& input) {
  const layout::Stage& stage = effective_stage(input.config, input.world);
  const auto units = layout::units_of(input.model, input.lora);
  const layout::FlatPlan plan = plan_flats(units, input.config, input.world);
  const layout::Schedule schedule =
      layout::make_schedule(units, plan, schedule_limits(input.config, input.world),
                            input.config.gradient_accumulation_steps);
  MemoryModel model{.parameters = layout::total_numel(units),
                    .trainable = layout::trainable_numel(units),
                    .peak_live_parameters = schedule.peak_live,
                    .gathers = schedule.gathers,
                    .stage = stage.number};
  const int64_t compute = bytes_of(input.config.precision);
  const layout::OffloadPlan offload = plan_offload(plan, input.config, input.world);
  MemoryClasses elsewhere{.host = offload.staging_bytes(),
                          .nvme = offload.optimizer_file_bytes + offload.parameter_file_bytes};
  count_inputs(input, elsewhere);
  const int64_t others = input.world - 1;
  model.parameter_file = offload.parameter_file_bytes;
  const auto count = [&](int64_t elements, int64_t type) {
    model.wire.parameter_elements += elements;
    model.wire.parameter_bytes += elements * type;
  };
  StepWalk walk(input, units, plan, stage);
  count_kept(input, plan, stage, offload, walk, elsewhere);
  for (int i = 0; i < static_cast<int>(plan.flats.size()); ++i) {
    const layout::FlatLayout& flat = plan.flats[i];
    const layout::Stage& of_flat = layout::stage_of_flat(stage, plan.is_persisted(i));
    if (flat.frozen()) continue;  // loaded once, never updated
    if (of_flat.gathered == layout::Gathered::AfterUpdate)
      count(flat.shard_numel() * others, compute);
  }

  for (const Action& action : schedule.actions) {
    walk.visit(action);
    if (action.kind != Action::Kind::Gather) continue;
    const layout::FlatLayout& flat = plan.flats[action.flat];
    count(flat.shard_numel() * others,
          bytes_of(types_of_flat(units, flat, input.config, input.world).gathered));
  }
  walk.finish();
  walk.update(muon_scratch(plan, input.config) + update_scratch(plan, input.config, input.world));
  model.wire.matrix_elements = muon_elements(plan, input.config);
  model.wire.matrix_bytes = 4 * model.wire.matrix_elements;
  model.bytes = {.parameters = walk.parameters.peak,
                 .gradients = walk.gradients.peak,
                 .optimizer = walk.optimizer.peak,
                 .buckets = walk.buckets.peak,
                 .activations = walk.activations.peak,
                 .peak = walk.all.peak,
                 .host = elsewhere.host,
                 .nvme = elsewhere.nvme};
  model.wire.gradient_elements = walk.reduced_elements;
  model.wire.gradient_bytes = walk.reduced_bytes;
  if (keeps_gradients_local(input.config, input.world)) {
    StepWalk after(input, units, plan, stage, true);
    MemoryClasses counted_already;
    count_kept(input, plan, stage, offload, after, counted_already);
    add_compressed_steps(input, plan, one_bit_plan(units, plan, input.config, input.world), after,
                         model, schedule);
  }
  return model;
}

int64_t elements_apart(const MemoryInput& input) {
  if (!keeps_gradients_local(input.config, input.world)) return 0;
  const auto units = layout::units_of(input.model, input.lora);
  const auto plan = plan_flats(units, input.config, input.world);
  const auto one_bit = one_bit_plan(units, plan, input.config, input.world);
  const int64_t own = one_bit_elements(one_bit, plan, input.config, input.world);
  // Between two meetings of ZeroOneAdam's ranks also their masters and momenta.
  const bool local_steps = input.config.optimizer.kind == dsconfig::OptimizerKind::ZeroOneAdam;
  return own + (local_steps ? 2 * layout::trainable_numel(units) : 0);
}

DiskUse disk_use(const MemoryInput& input) {
  const auto units = layout::units_of(input.model, input.lora);
  // fp32 master and states of what is trained. Frozen parameters are not saved again.
  int64_t saved = elements_apart(input) * input.world;
  for (const auto& flat : plan_flats(units, input.config, 1).flats) {
    const auto states = static_cast<int64_t>(states_of_flat(flat, input.config).size());
    if (!flat.frozen()) saved += flat.parameter_numel() * (1 + states);
  }
  return {.checkpoint = 4 * saved,
          .model = layout::total_numel(units) * bytes_of(input.config.precision)};
}

DeepSpeedEstimate deepspeed_estimate(const MemoryInput& input) {
  const auto units = layout::units_of(input.model);
  const int64_t all = layout::total_numel(units), world = input.world;
  int64_t largest = 0;
  for (const auto& unit : units)
    for (const auto& parameter : unit.parameters) largest = std::max(largest, parameter.numel());
  const dsconfig::ZeroConfig& zero = input.config.zero;
  DeepSpeedEstimate estimate;
  switch (zero.stage) {
    case 0:  // no formula
      break;
    case 3:
      estimate.model_states = 18 * all / world + 4 * largest;
      break;
    default:
      estimate.model_states = 4 * all + 16 * all / world;
  }
  if (zero.overlap_comm) {
    const double buckets = 4.5 * 2 *
                           (static_cast<double>(zero.reduce_bucket_size) +
                            static_cast<double>(zero.allgather_bucket_size));
    estimate.overlap_buckets = static_cast<int64_t>(std::min(buckets, 9e18));
  }
  return estimate;
}

}  // namespace dsj::plan
