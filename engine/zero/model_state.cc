#include "engine/zero/model_state.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "common/check.h"
#include "engine/comm/agree.h"
#include "engine/device/lanes.h"
#include "engine/weights/adapter.h"
#include "engine/weights/tensor_check.h"
#include "engine/zero/initial_adapter.h"
#include "engine/zero/methods/methods.h"
#include "engine/zero/storage/scalar_type.h"
#include "job/layout/lora.h"
#include "job/plan/autocast_plan.h"
#include "job/plan/lora_plus.h"
#include "job/plan/row_plan.h"
#include "job/plan/safe_modules.h"
#include "job/plan/weight_decay.h"
#include "job/plan/zero_plan.h"

namespace dsj::zero {

// ---- UnitParameters

bool UnitParameters::one_flat(int parameter, int count) const {
  const auto& places = state_->plan_.places[unit_];
  for (int i = parameter; i < parameter + count; ++i) {
    if (places[i].flat != places[parameter].flat ||
        places[i].slot != places[parameter].slot + i - parameter) {
      return false;
    }
  }
  return true;
}

at::Tensor UnitParameters::weight(int parameter) const {
  const auto place = state_->plan_.places[unit_][parameter];
  return state_->flat(place.flat).weight(place.slot);
}

at::Tensor UnitParameters::stacked_weight(int parameter, int count) const {
  if (!one_flat(parameter, count)) return {};
  const auto place = state_->plan_.places[unit_][parameter];
  return state_->flat(place.flat).stacked_weight(place.slot, count);
}

at::ScalarType UnitParameters::product_type() const {
  return state_->products_;
}

at::ScalarType UnitParameters::stream_type() const {
  return state_->compute_;
}

bool UnitParameters::trained(int parameter) const {
  return !state_->units_[unit_].parameters[parameter].frozen;
}

at::Tensor UnitParameters::buffer(int index) const {
  return state_->buffers_.at(static_cast<size_t>(unit_)).at(static_cast<size_t>(index));
}

const layout::Adapter* UnitParameters::adapter(int weight) const {
  const auto& adapters = state_->units_[unit_].adapters;
  const auto found = std::ranges::find(adapters, weight, &layout::Adapter::weight);
  return found == adapters.end() ? nullptr : &*found;
}

const LoraArgs& UnitParameters::lora() const {
  return *state_->lora_;
}

GradView UnitParameters::in_sums(int parameter, int count, const GradView& grad) const {
  if (!sums_) return grad;
  const std::string& name = state_->units_[unit_].parameters[parameter].name;
  return sums_->of(parameter, count, grad,
                   plan::enters_products(name) ? product_type() : stream_type());
}

GradView UnitParameters::grad(int parameter) const {
  if (!trained(parameter)) return {};
  const auto place = state_->plan_.places[unit_][parameter];
  const GradView grad = state_->flat(place.flat).grad(place.slot);
  return in_sums(parameter, 1, grad);
}

GradView UnitParameters::stacked_grad(int parameter, int count) const {
  if (!one_flat(parameter, count)) return {};
  const auto place = state_->plan_.places[unit_][parameter];
  const GradView grad = state_->flat(place.flat).stacked_grad(place.slot, count);
  return in_sums(parameter, count, grad);
}

// ---- ModelState

ModelState::ModelState(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config,
                       at::Device device, const Groups& groups, const std::optional<LoraArgs>& lora,
                       const OffloadHost& host)
    : groups_(groups),
      lora_(lora),
      device_(device),
      compute_(scalar_type(config.precision)),
      products_(scalar_type(dsconfig::product_type(config))),
      units_(layout::units_of(model, lora)),
      plan_(plan::plan_flats(units_, config, groups.world->world())),
      stage_(plan::effective_stage(config, groups.world->world())),
      overlap_(config.zero.overlap_comm ? 2 : 0),
      optimizer_name_(dsconfig::name_of(config.optimizer)),
      tier_(config, plan_, groups.world->world(), groups.world->rank(), device, host),
      run_ahead_(device::streams(device)),
      copies_(device, plan::update_copies(plan_, config, groups.world->world()).host_block) {
  const int world = groups.world->world();
  FlatOptions options{.compute = compute_,
                      .grad_accum = scalar_type(config.grad_accum_dtype),
                      .averaging = optim::averaging(config, world),
                      .device = device};
  for (int i = 0; i < static_cast<int>(plan_.flats.size()); ++i) {
    options.stage = layout::stage_of_flat(stage_, plan_.is_persisted(i));
    const bool frozen = plan_.flats[i].frozen();
    const auto types = plan::types_of_flat(units_, plan_.flats[i], config, world);
    // A packed weight is used only in products.
    options.compute = plan_.flats[i].packing() == layout::Packing::None ? compute_ : products_;
    options.gathered = scalar_type(types.gathered);
    options.communication = scalar_type(types.wire);
    options.rows = plan::sends_rows(units_, plan_, config, i);
    const bool sharded = options.stage.shards_parameters();
    options.coded_shard = plan::keeps_codes(plan_.flats[i], options.stage, config);
    options.coded_gathers = plan::gathers_codes(plan_.flats[i], options.stage, config);
    options.coded_gradients = sharded && config.zero.quantized_gradients;
    options.separate_master = plan::separate_master(config) && !frozen;
    options.states = plan::states_of_flat(plan_.flats[i], config);
    options.decays = plan::decays_of_flat(plan_.flats[i], config);
    options.raised = plan::raised_rates_of_flat(plan_.flats[i], config);
    options.optimizer = tier_.optimizer(i);
    options.parameters = tier_.parameters(i);
    options.copies = device.is_cpu() ? nullptr : &copies_;
    flats_.push_back(std::make_unique<Flat>(plan_.flats[i], options, groups));
    if (!flats_.back()->frozen()) trained_.push_back(flats_.back().get());
  }
  memory::MemoryScope scope(memory::Class::Parameters);
  for (const layout::UnitSpec& unit : units_) {
    auto& buffers = buffers_.emplace_back();
    for (const layout::Parameter& buffer : unit.buffers)
      buffers.push_back(at::zeros({buffer.numel()}, at::TensorOptions(device).dtype(at::kFloat)));
  }
  std::vector<Flat*> all;
  for (const auto& flat : flats_) all.push_back(flat.get());
  method_ = make_update_method({.config = config,
                                .units = units_,
                                .plan = plan_,
                                .flats = std::move(all),
                                .collectives = *groups.shards,
                                .device = device,
                                .sharded = stage_.shards_update()});
}

namespace {

bool all_finite(std::span<const float> values) {
  constexpr int64_t kGrain = 1 << 16;  // elements
  std::atomic<bool> finite = true;
  at::parallel_for(0, static_cast<int64_t>(values.size()), kGrain, [&](int64_t begin, int64_t end) {
    uint32_t bad = 0;
    for (int64_t i = begin; i < end; ++i) {
      const auto bits = std::bit_cast<uint32_t>(values[static_cast<size_t>(i)]);
      bad |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
    }
    if (bad != 0) finite = false;
  });
  return finite;
}

/// Whether the values are also finite in `type`.
bool stays_finite(std::span<float> values, at::ScalarType type) {
  if (!all_finite(values) || type == at::kFloat) return all_finite(values);
  const at::Tensor kept =
      at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kFloat).to(type);
  return kept.isfinite().all().item<bool>();
}

}  // namespace

Status ModelState::read_buffers(const weights::WeightSource& source) {
  std::vector<float> values;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    for (size_t i = 0; i < buffers_[unit].size(); ++i) {
      const layout::Parameter& buffer = units_[unit].buffers[i];
      DSJ_TRY_STATUS(weights::check_buffer(source, buffer));
      values.resize(static_cast<size_t>(buffer.numel()));
      DSJ_TRY_STATUS(source.read(buffer.name, 0, values));
      buffers_[unit][i].copy_(at::from_blob(values.data(), {buffer.numel()}, at::kFloat));
    }
  }
  return {};
}

Status ModelState::read_frozen(const weights::WeightSource& source) {
  DSJ_TRY_STATUS(read_buffers(source));
  for (auto& flat : flats_) {
    if (!flat->frozen()) continue;
    for (const auto& slot : flat->layout().slots())
      DSJ_TRY_STATUS(weights::check_tensor(source, slot.name, slot.shape));
    DSJ_TRY_STATUS(flat->fill_frozen(
        [&](const std::string& name, int64_t offset, std::span<float> out) -> Status {
          DSJ_TRY_STATUS(source.read(name, offset, out));
          if (!stays_finite(out, flat->type())) bad_frozen_.insert(name);
          return {};
        }));
  }
  return {};
}

namespace {

/// Writes the lengths of rows [first, first + out.size()) of a weight, rounded to `type` as the model
/// keeps them. Reads kDoraPiece elements at a time.
Status read_lengths(const weights::WeightSource& source, const layout::Parameter& weight,
                    at::ScalarType type, int64_t first, std::span<float> out) {
  DSJ_TRY_STATUS(weights::check_tensor(source, weight.name, weight.shape));
  const int64_t columns = weight.shape[1];
  const int64_t rows = std::ssize(out), some = std::max<int64_t>(1, layout::kDoraPiece / columns);
  std::vector<float> piece;
  for (int64_t row = 0; row < rows; row += some) {
    const int64_t count = std::min(some, rows - row);
    piece.resize(static_cast<size_t>(count * columns));
    DSJ_TRY_STATUS(source.read(weight.name, (first + row) * columns, piece));
    const at::Tensor kept = at::from_blob(piece.data(), {count, columns}, at::kFloat).to(type);
    const at::Tensor lengths = at::linalg_vector_norm(kept.to(at::kFloat), 2, {1});
    std::copy_n(lengths.const_data_ptr<float>(), count, out.begin() + row);
  }
  return {};
}

}  // namespace

const layout::Parameter* ModelState::weight_of_magnitude(const std::string& name) const {
  for (const layout::UnitSpec& unit : units_)
    for (const layout::Adapter& adapter : unit.adapters)
      if (adapter.magnitude >= 0 && unit.parameters[adapter.magnitude].name == name)
        return &unit.parameters[adapter.weight];
  return nullptr;
}

int64_t ModelState::rank_of(const std::string& name) const {
  for (const layout::UnitSpec& unit : units_)
    for (const layout::Adapter& adapter : unit.adapters)
      if (unit.parameters[adapter.a].name == name || unit.parameters[adapter.b].name == name)
        return adapter.rank;
  DSJ_CHECK(false, "no adapter has %s", name.c_str());
}

Status ModelState::read_trained(const weights::WeightSource& source, const AdapterStart& adapters) {
  for (Flat* flat : trained_) {
    const auto& slots = flat->layout().slots();
    DSJ_TRY_STATUS(flat->load_state(false, [&](int, const Flat::HostRange& range) -> Status {
      const auto slot = std::ranges::find(slots, range.parameter, &layout::Slot::name);
      const bool is_new = !adapters.saved && weights::is_adapter_tensor(slot->name);
      if (is_new) {
        if (const layout::Parameter* weight = weight_of_magnitude(slot->name))
          return read_lengths(source, *weight, compute_, range.offset, range.data);
        initial_adapter(*slot, lora_->init, rank_of(slot->name), adapters.seed, range.offset,
                        range.data);
        return {};
      }
      const auto& head = units_[static_cast<size_t>(layout::head_of(units_))].parameters;
      const auto drawn = std::ranges::find(head, slot->name, &layout::Parameter::name);
      if (drawn != head.end() && drawn->drawn > 0 && !adapters.saved &&
          source.find(slot->name) == nullptr) {
        initial_score(*slot, adapters.seed, drawn->drawn, range.offset, range.data);
        return {};
      }
      const auto& from = adapters.saved ? *adapters.saved : source;
      const std::string name = (adapters.saved ? weights::kAdapterPrefix : "") + slot->name;
      DSJ_TRY_STATUS(weights::check_tensor(from, name, slot->shape));
      return from.read(name, range.offset, range.data);
    }));
  }
  return {};
}

Status ModelState::publish(const Status& read, bool frozen, bool trained) {
  DSJ_TRY_STATUS(comm::agree(collectives(), device_, read));
  for (auto& flat : flats_) {
    if (flat->frozen() ? frozen : trained) flat->publish();
  }
  return {};
}

Status ModelState::load_frozen(const weights::WeightSource& source) {
  return publish(read_frozen(source), true, false);
}

Status ModelState::load(const weights::WeightSource& source, const AdapterStart& adapters) {
  Status read = read_frozen(source);
  if (read) read = read_trained(source, adapters);
  return publish(read, true, true);
}

void ModelState::set_gathers(const std::vector<int>& flats) {
  if (!tier_.parameter_tiles()) return;
  std::vector<int> tiles;
  std::set<int> read;
  for (const int flat : flats) {
    // hpZ: after the first gather the group has a copy, and keeps it if the flat is never updated.
    if (groups_.near && (flats_[flat]->frozen() || !read.insert(flat).second)) continue;
    const auto of_flat = flats_[flat]->gather_tiles();
    tiles.insert(tiles.end(), of_flat.begin(), of_flat.end());
  }
  tier_.parameter_tiles()->set_order(std::move(tiles));
}

void ModelState::begin_step() {
  if (!tier_.parameter_tiles()) return;
  tier_.parameter_tiles()->rewind();
  tier_.parameter_tiles()->read_ahead();
}

void ModelState::wait_for(int unit) {
  const int embedding = units_[unit].uses_embedding ? 0 : unit;
  for (const int flat : {plan_.unit_flat[unit], plan_.unit_frozen[unit], plan_.persisted,
                         plan_.unit_flat[embedding], plan_.unit_frozen[embedding]}) {
    if (flat >= 0) flats_[flat]->finish_gather();
  }
}

void ModelState::reduce(int flat, bool last) {
  flats_[flat]->gradient().reduce(last);
  const int next = layout::flat_to_fetch(reductions_, flat, last);
  if (next >= 0) flats_[next]->gradient().fetch();
  reducing_.push_back(flat);
  while (reducing_.size() > overlap_) {
    GradientSum& first = flats_[reducing_.front()]->gradient();
    reducing_.pop_front();
    first.finish_reduce();
    if (overlap_ == 0) first.finish_groups();
  }
}

void ModelState::finish_reductions() {
  for (const int flat : reducing_) flats_[flat]->gradient().finish_reduce();
  reducing_.clear();
  for (Flat* flat : trained_) flat->gradient().finish_groups();
  copies_.all_left();
}

at::Tensor ModelState::owned_sum_of_squares() const {
  at::Tensor total = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
  for (const Flat* flat : trained_)
    if (local_ || (flat->sharded_update() ? groups_.first() : groups_.world->rank() == 0))
      flat->gradient().add_squares(total);
  return total;
}

std::string ModelState::first_bad_gradient() {
  std::vector<std::vector<bool>> bad;
  for (const auto& flat : flats_) bad.push_back(flat->gradient().bad());
  std::vector<std::string> names;  // in the order of backward
  double first = -1e9;             // negated, so that the maximum over ranks is the first
  for (int unit = static_cast<int>(units_.size()) - 1; unit >= 0; --unit) {
    for (const auto& place : plan_.places[unit]) {
      const double index = static_cast<double>(names.size());
      if (bad[place.flat][place.slot]) first = std::max(first, -index);
      names.push_back(flats_[place.flat]->layout().slots()[place.slot].name);
    }
  }
  const at::Tensor all = at::full({1}, first, at::TensorOptions(device_).dtype(at::kDouble));
  const auto work =
      collectives().all_reduce(all, comm::Op::Max, {comm::Traffic::Control, "bad gradient"});
  const double index = -comm::on_host(*work, all).item<double>();
  return index < static_cast<double>(names.size()) ? names[static_cast<size_t>(index)] : "";
}

std::string ModelState::first_of(const std::vector<std::string>& names,
                                 const std::set<std::string>& bad) {
  double first = 1e9;
  for (size_t i = 0; i < names.size(); ++i)
    if (bad.contains(names[i])) first = std::min(first, static_cast<double>(i));
  const double index = -comm::max_over_ranks(collectives(), device_, {-first})[0];
  return index < static_cast<double>(names.size()) ? names[static_cast<size_t>(index)] : "";
}

std::string ModelState::first_bad_weight() {
  std::vector<std::string> names;
  std::set<std::string> bad;
  for (Flat* flat : trained_) {
    for (const auto& slot : flat->layout().slots()) names.push_back(slot.name);
    (void)flat->visit_masters([&](int, const Flat::HostRange& range) -> Status {
      if (!all_finite(range.data)) bad.insert(std::string(range.parameter));
      return {};
    });
  }
  return first_of(names, bad);
}

std::string ModelState::first_bad_frozen_weight() {
  std::vector<std::string> names;
  for (const auto& flat : flats_)
    if (flat->frozen())
      for (const auto& slot : flat->layout().slots()) names.push_back(slot.name);
  return names.empty() ? "" : first_of(names, bad_frozen_);
}

void ModelState::keep_gradients_local(bool local) {
  local_ = local;
  for (Flat* flat : trained_) flat->gradient().keep_local(local);
}

void ModelState::clear_grad() {
  for (Flat* flat : trained_) flat->gradient().clear();
}

Status ModelState::for_pieces(const checkpoint::EmitPiece& emit) {
  if (!groups_.first()) return {};
  for (Flat* flat : trained_) {
    flat->finish_gather();
    DSJ_TRY_STATUS(flat->save_state([&](int state, const Flat::HostRange& range) {
      return emit(
          {flat->state_name(state), range.parameter, range.offset, range.data, range.stays});
    }));
  }
  return method_->for_pieces(emit);
}

std::vector<checkpoint::Extent> ModelState::extents() const {
  std::vector<checkpoint::Extent> extents;
  for (const Flat* flat : trained_) {
    for (int state = 0; state < flat->state_count(); ++state) {
      for (const auto& slot : flat->layout().slots())
        extents.push_back({flat->state_name(state), slot.name, slot.numel});
    }
  }
  method_->add_extents(extents);
  return extents;
}

Status ModelState::read_checkpoint(checkpoint::SavedRun& saved) {
  const bool states_are_zeros = checkpoint::never_updated(saved);
  const bool whole = method_->restores_whole(saved);
  for (Flat* flat : trained_) {
    flat->own(whole);
    DSJ_TRY_STATUS(flat->load_state(true, [&](int state, const Flat::HostRange& range) -> Status {
      const std::string& name = flat->state_name(state);
      const auto elements = saved.elements(name, range.parameter);
      if (!elements && state != Flat::kMaster) {
        if (states_are_zeros) {
          std::ranges::fill(range.data, 0.0f);
          return {};
        }
        return bad_input(
            "the checkpoint has no state \"" + name + "\", which " + optimizer_name_ + " needs",
            saved.path(),
            "resume with the optimizer that it was made with, or start a run from "
            "the exported model");
      }
      const auto& slots = flat->layout().slots();
      const auto slot = std::ranges::find(slots, range.parameter, &layout::Slot::name);
      if (elements && *elements != slot->numel) {
        return bad_input("\"" + range.parameter + "\" has " + std::to_string(*elements) +
                             " elements, the model " + std::to_string(slot->numel),
                         saved.path(), "resume with the model it was made from");
      }
      return saved.read(name, range.parameter, range.offset, range.data);
    }));
  }
  return method_->restore(saved);
}

Status ModelState::restore(checkpoint::SavedRun& saved) {
  return publish(read_checkpoint(saved), false, true);
}

void ModelState::visit_weights(
    const std::function<void(const layout::Slot&, const at::Tensor&)>& visit, bool trained_only) {
  std::vector<Flat*> flats;
  for (const auto& flat : flats_)
    if (!trained_only || !flat->frozen()) flats.push_back(flat.get());
  const bool first = collectives().rank() == 0;
  zero::visit_weights(
      flats, [&](const auto&) { return first; }, visit);
}

}  // namespace dsj::zero
