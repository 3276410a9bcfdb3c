#include "engine/zero/flat/flat.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "common/check.h"
#include "engine/zero/flat/packed_weights.h"

namespace dsj::zero {

using memory::Class;

Flat::Flat(const layout::FlatLayout& layout, const FlatOptions& options, const Groups& groups)
    : layout_(layout),
      options_(options),
      rank_groups_(groups),
      stage_(options.stage),
      owner_(options.stage.shards_update() ? groups.shards->rank() : 0),
      gradient_(layout_,
                {.compute = options.compute,
                 .grad_accum = options.grad_accum,
                 .communication = options.communication,
                 .averaging = options.averaging,
                 .rows = options.rows,
                 .codes = options.coded_gradients,
                 .device = options.device},
                stage_, owner_, groups) {
  DSJ_CHECK(layout.world() == (options.stage.shards_update() ? groups.shards->world() : 1));
  replace_owned(false, make_owned(false));
  DSJ_CHECK(owned_->has_parameters() == (sharded_parameters() && !options_.coded_shard));
  DSJ_CHECK(layout.packing() == layout::Packing::None || !sharded_parameters());
  if (layout.packing() != layout::Packing::None)
    packed_ = std::make_unique<PackedWeights>(layout_, options_.compute, options_.device);
  else if (!sharded_parameters())
    working_ = make(layout_.numel(), options_.compute, Class::Parameters).zero_();
  else if (rank_groups_.near != nullptr)
    second_ =
        make(layout_.numel() / rank_groups_.near->world(), gathered_type(), Class::Parameters);
  if (options_.coded_gathers || options_.coded_shard) codes_.emplace(layout_);
  if (options_.copies && owned_->optimizer_elsewhere()) gradient_.keep_on_host(*options_.copies);
}

Flat::~Flat() = default;

at::Tensor Flat::make(int64_t numel, at::ScalarType type, Class klass) const {
  memory::MemoryScope scope(klass);
  return at::empty({numel}, at::TensorOptions().dtype(type).device(options_.device));
}

// ---- parameters

Status Flat::fill_frozen(const Read& read) {
  DSJ_CHECK(frozen());
  if (packed_) return packed_->fill(read);
  constexpr int64_t kPiece = 1 << 20;  // elements per read
  memory::MemoryScope scope(Class::Buckets);
  const at::Tensor staged = at::empty({std::min(kPiece, layout_.shard_numel())}, at::kFloat);
  Status status;
  const auto fill = [&](const layout::Range& range, const OwnedRun& run) -> Status {
    const auto part = overlap({range.flat_offset, range.shard_offset, range.numel}, run);
    if (!part) return {};
    const at::Tensor to = master(*part, run);
    const int64_t first = range.offset + part->shard_offset - range.shard_offset;
    for (int64_t done = 0; done < part->numel; done += kPiece) {
      const int64_t count = std::min(kPiece, part->numel - done);
      DSJ_TRY_STATUS(read(layout_.slots()[range.slot].name, first + done,
                          {staged.data_ptr<float>(), static_cast<size_t>(count)}));
      to.narrow(0, done, count).copy_(staged.narrow(0, 0, count));
    }
    return {};
  };
  finish_shard_copies();
  const auto fill_run = [&](const OwnedRun& run) {
    for (const auto& range : ranges())
      if (status) status = fill(range, run);
  };
  if (options_.coded_shard) {
    const at::Tensor shard =
        make(layout_.shard_numel(), options_.compute, Class::Parameters).zero_();
    fill_run({0, shard.numel(), {}, shard});
    coded_shard_ = codes_->message_of(shard);
  } else {
    owned_->for_runs(std::nullopt, Access::ReadWrite, fill_run);
  }
  return status;
}

void Flat::start_gather(bool exact) {
  if (stage_.gathered == layout::Gathered::Never || packed_) return;
  DSJ_CHECK(!gathering());
  const comm::Label label{comm::Traffic::Parameters, layout_.name()};
  at::Tensor source;                        // undefined: the working copy's own slices
  std::optional<device::WithLane> copying;  // the gather starts after the copy
  exact_ = exact;
  if (sharded_parameters()) {
    DSJ_CHECK(!working_.defined());
    const auto type = exact ? options_.compute : gathered_type();
    working_ = make(layout_.numel(), type, Class::Parameters);
    if (!exact && second_is_fresh_) {
      gather_ = rank_groups_.near->all_gather(
          even_pairs(layout_, working_, second_, rank_groups_.near->world()), label);
      return;
    }
    if (coded_shard_.defined()) return codes_->start(*rank_groups_.shards, coded_shard_, label);
    source = owned_->whole_parameters();
    if (!source.defined() || source.device() != working_.device() || source.scalar_type() != type) {
      source = at::Tensor();
      if (options_.copies) {
        device::Streams& streams = options_.copies->streams();
        streams.hold(device::Lane::Copy, *streams.record(streams.current()));
        copying.emplace(streams, device::Lane::Copy);
      }
      fill_own_slices();
    }
    if (options_.coded_gathers && !exact) {
      comm::Collectives& shards = *rank_groups_.shards;
      if (!source.defined()) return codes_->start_of_slices(shards, working_, label);
      return codes_->start_of_shard(shards, source, label);
    }
  }
  gather_ = rank_groups_.shards->all_gather(gather_pairs(layout_, working_, owner_, source), label);
}

void Flat::fill_own_slices() {
  owned_->for_parameters([&](int64_t begin, const at::Tensor& part, bool stays) {
    const OwnedRun run{begin, part.numel(), {}, {}};
    for (const Span& span : spans_) {
      if (const auto own = overlap(span, run))
        working_.narrow(0, own->flat_offset, own->numel)
            .copy_(part.narrow(0, own->shard_offset - begin, own->numel), /*non_blocking=*/true);
    }
    if (!options_.copies) return;
    device::Streams& streams = options_.copies->streams();
    shard_copied_ = streams.record(streams.current());
    if (!stays) finish_shard_copies();
  });
}

void Flat::finish_shard_copies() {
  if (shard_copied_) options_.copies->streams().wait(*shard_copied_);
  shard_copied_.reset();
}

void Flat::finish_gather() {
  if (!gathering()) return;
  if (gather_) {
    gather_->wait();
    gather_.reset();
  } else {
    codes_->finish(working_);
  }
  if (second_.defined() && !second_is_fresh_ && !exact_) keep_second();
}

void Flat::keep_second() {
  const int64_t ranks = rank_groups_.near->world(), own = rank_groups_.near->rank();
  for (const auto& chunk : layout_.chunks()) {
    const int64_t part = chunk.numel / ranks;
    second_.narrow(0, chunk.offset / ranks, part)
        .copy_(working_.narrow(0, chunk.offset + own * part, part));
  }
  second_is_fresh_ = true;
}

void Flat::release() {
  DSJ_CHECK(sharded_parameters());
  finish_gather();
  working_.reset();
}

at::Tensor Flat::stacked_weight(int slot, int count) const {
  if (packed_) return packed_->weight(slot, count);
  DSJ_CHECK(working_.defined() && !gathering(), "flat %s is not gathered", layout_.name().c_str());
  return parameters_of(layout_, working_, slot, count);
}

// ---- what this rank owns

std::unique_ptr<OwnedState> Flat::make_owned(bool whole) const {
  ShardStoreOptions optimizer = options_.optimizer;
  if (whole) optimizer.parts = {{.numel = layout_.numel()}};
  return std::make_unique<OwnedState>(whole ? layout_.numel() : layout_.shard_numel(),
                                      std::move(optimizer), options_.parameters);
}

void Flat::replace_owned(bool whole, std::unique_ptr<OwnedState> owned) {
  owned_ = std::move(owned);
  stage_ = whole ? layout::kStages[0] : options_.stage;
  spans_.clear();
  if (whole) {
    spans_.push_back({0, 0, layout_.numel()});
  } else {
    for (const auto& chunk : layout_.chunks())
      spans_.push_back({chunk.offset + owner_ * chunk.slice, chunk.shard_offset, chunk.slice});
  }
  groups_.clear();
  for (const Span& span : spans_)
    std::ranges::copy(split_by_group(span), std::back_inserter(groups_));
}

std::vector<Flat::Span> Flat::split_by_group(const Span& span) const {
  std::vector<Span> runs;
  const auto& slots = layout_.slots();
  const int64_t end = span.flat_offset + span.numel;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    const int64_t next = slot + 1 < slots.size() ? slots[slot + 1].offset : layout_.numel();
    const int64_t from = std::max(span.flat_offset, slots[slot].offset);
    const int64_t numel = std::min(end, next) - from;
    if (numel <= 0) continue;
    const Span here{from, span.shard_offset + from - span.flat_offset, numel,
                    decays(static_cast<int>(slot)), raised(static_cast<int>(slot))};
    if (!runs.empty() && runs.back().decays == here.decays && runs.back().raised == here.raised)
      runs.back().numel += numel;
    else
      runs.push_back(here);
  }
  return runs;
}

void Flat::own(bool whole) {
  if (!options_.stage.shards_update() || whole != stage_.shards_update()) return;
  DSJ_CHECK(!gathering() && !sharded_parameters());
  replace_owned(whole, make_owned(whole));
}

void Flat::take_whole() {
  finish_gather();
  if (!stage_.shards_update()) return;
  DSJ_CHECK(!sharded_parameters());
  auto owned = make_owned(true);
  for (size_t index = 0; index < options_.optimizer.initial.size(); ++index) {
    const at::Tensor values = gather_vector(index);
    owned->for_runs(Access::ReadWrite, std::nullopt, [&](const OwnedRun& run) {
      run.optimizer[index].copy_(values.narrow(0, run.begin, run.numel));
    });
  }
  replace_owned(true, std::move(owned));
}

// ---- update

at::Tensor Flat::gather_state(int state) {
  DSJ_CHECK(state > kMaster && state < state_count());
  return gather_vector(static_cast<size_t>(state - 1 + options_.separate_master));
}

at::Tensor Flat::gather_vector(size_t index) {
  const at::Tensor whole = make(layout_.numel(), at::kFloat, Class::Buckets);
  owned_->for_runs(Access::Read, std::nullopt, [&](const OwnedRun& run) {
    for (const Span& span : spans_) {
      if (const auto part = overlap(span, run))
        whole.narrow(0, part->flat_offset, part->numel)
            .copy_(run.optimizer[index].narrow(0, part->shard_offset - run.begin, part->numel));
    }
  });
  if (!stage_.shards_update()) return whole;
  rank_groups_.shards
      ->all_gather(gather_pairs(layout_, whole, owner_), {comm::Traffic::Moments, layout_.name()})
      ->wait();
  return whole;
}

// ---- state

const std::string& Flat::state_name(int state) const {
  static const std::string master = "master";
  return state == kMaster ? master : options_.states[state - 1].name;
}

Status Flat::visit_state(const std::vector<layout::Range>& ranges, Access access, bool all,
                         const VisitState& visit) {
  if (access != Access::Read) finish_shard_copies();
  Status status;
  const bool separate = options_.separate_master;
  const auto optimizer = all || separate ? std::optional(access) : std::nullopt;
  const auto parameters = separate ? std::nullopt : std::optional(access);
  const auto one = [&](int state, const layout::Range& range, const at::Tensor& tensor,
                       bool in_file) {
    const at::Tensor host = tensor.to(at::kCPU, at::kFloat);  // does not copy a host fp32 tensor
    status = visit(state, {layout_.slots()[range.slot].name,
                           range.offset,
                           {host.data_ptr<float>(), static_cast<size_t>(host.numel())},
                           !in_file && host.is_same(tensor)});
    if (access != Access::Read && !host.is_same(tensor)) tensor.copy_(host);
  };
  owned_->for_runs(optimizer, parameters, [&](const OwnedRun& run) {
    for (int state = 0; state < (all ? state_count() : 1); ++state) {
      for (const auto& range : ranges) {
        const auto part = overlap({range.flat_offset, range.shard_offset, range.numel}, run);
        if (!part || !status) continue;
        const layout::Range piece{range.slot,
                                  range.offset + part->shard_offset - range.shard_offset,
                                  part->numel, part->shard_offset, part->flat_offset};
        one(state, piece,
            state == kMaster ? master(*part, run)
                             : run.optimizer[state - 1 + separate].narrow(
                                   0, part->shard_offset - run.begin, part->numel),
            run.in_file);
      }
    }
  });
  return status;
}

std::vector<layout::Range> Flat::saved_ranges() const {
  if (stage_.shards_update()) return ranges();
  // Nothing is sharded, so flat and shard offsets are equal. Deal the flat among the ranks.
  std::vector<layout::Parameter> parameters;
  for (const auto& slot : layout_.slots()) parameters.push_back({slot.name, slot.shape});
  const layout::FlatLayout dealt =
      options_.stage.shards_update()
          ? layout_
          : layout::FlatLayout(layout_.name(), parameters, rank_groups_.shards->world(),
                               layout_.numel());
  auto ranges = dealt.ranges(rank_groups_.shards->rank());
  // By slots: `dealt` may be aligned in another way.
  for (auto& range : ranges)
    range.shard_offset = range.flat_offset =
        layout_.slots()[static_cast<size_t>(range.slot)].offset + range.offset;
  return ranges;
}

Status Flat::save_state(const VisitState& visit) {
  return visit_state(saved_ranges(), Access::Read, true, visit);
}

Status Flat::visit_masters(const VisitState& visit) {
  return visit_state(saved_ranges(), Access::Read, false, visit);
}

Status Flat::load_state(bool all, const VisitState& visit) {
  return visit_state(ranges(), Access::ReadWrite, all, visit);
}

void Flat::publish() {
  second_is_fresh_ = false;
  finish_shard_copies();
  if (options_.separate_master) {
    owned_->for_runs(Access::Read, Access::Write, [&](const OwnedRun& run) {
      if (sharded_parameters()) {
        run.parameters.copy_(run.optimizer[0]);
        return;
      }
      for (const Span& span : spans_) {
        if (const auto part = overlap(span, run))
          working_.narrow(0, part->flat_offset, part->numel).copy_(master(*part, run));
      }
    });
  }
  if (sharded_parameters()) return;
  start_gather();
  finish_gather();
}

void visit_weights(const std::vector<Flat*>& flats,
                   const std::function<bool(const layout::Slot&)>& here,
                   const std::function<void(const layout::Slot&, const at::Tensor&)>& visit) {
  for (Flat* flat : flats) {
    const bool gather = flat->sharded_parameters() && !flat->gathered();
    if (gather) flat->start_gather(/*exact=*/true);
    flat->finish_gather();
    const auto& slots = flat->layout().slots();
    for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot)
      if (here(slots[slot])) visit(slots[slot], flat->weight(slot).to(at::kCPU));
    if (gather) flat->release();
  }
}

}  // namespace dsj::zero
