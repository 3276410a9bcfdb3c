#include "engine/zero/flat.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"
#include "engine/zero/norm.h"

namespace dsj::zero {

using memory::Class;

Flat::Flat(const layout::FlatLayout& layout, const FlatOptions& options,
           comm::Collectives& collectives)
    : layout_(layout),
      options_(options),
      collectives_(collectives),
      owner_(options.stage.shards_update() ? collectives.rank() : 0),
      owned_(layout.shard_numel(), options.optimizer, options.parameters),
      written_(layout.slots().size(), false) {
  DSJ_CHECK(layout.world() == (options.stage.shards_update() ? collectives.world() : 1));
  for (const auto& chunk : layout_.chunks()) {
    spans_.push_back({chunk.offset + owner_ * chunk.slice, chunk.shard_offset, chunk.slice});
  }
  DSJ_CHECK(owned_.has_parameters() == sharded_parameters());
  if (!sharded_parameters())
    working_ = make(layout_.numel(), options_.compute, Class::Parameters).zero_();
}

at::Tensor Flat::make(int64_t numel, at::ScalarType type, Class klass) const {
  memory::MemoryScope scope(klass);
  return at::empty({numel}, at::TensorOptions().dtype(type).device(options_.device));
}

// ---- parameters

Status Flat::fill_frozen(const Read& read) {
  DSJ_CHECK(frozen());
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
  owned_.for_runs(std::nullopt, Access::ReadWrite, [&](const OwnedRun& run) {
    for (const auto& range : layout_.ranges(owner_))
      if (status) status = fill(range, run);
  });
  return status;
}

void Flat::start_gather(bool exact) {
  if (options_.stage.gathered == layout::Gathered::Never) return;
  DSJ_CHECK(!gather_);
  at::Tensor source;                        // undefined: the working copy's own slices
  std::optional<device::WithLane> copying;  // the gather begins after it
  if (sharded_parameters()) {
    DSJ_CHECK(!working_.defined());
    const auto type = exact ? options_.compute : options_.gathered.value_or(options_.compute);
    working_ = make(layout_.numel(), type, Class::Parameters);
    source = owned_.whole_parameters();
    if (!source.defined() || source.device() != working_.device() || source.scalar_type() != type) {
      source = at::Tensor();
      if (options_.copies) {
        device::Streams& streams = options_.copies->streams();
        streams.hold(device::Lane::Copy, *streams.record(streams.current()));
        copying.emplace(streams, device::Lane::Copy);
      }
      fill_own_slices();
    }
  }
  std::vector<comm::ChunkPair> pairs;
  for (const auto& chunk : layout_.chunks()) {
    pairs.push_back({working_.narrow(0, chunk.offset, chunk.numel),
                     source.defined()
                         ? source.narrow(0, chunk.shard_offset, chunk.slice)
                         : working_.narrow(0, chunk.offset + owner_ * chunk.slice, chunk.slice)});
  }
  gather_ = collectives_.all_gather(pairs, {comm::Traffic::Parameters, layout_.name()});
}

void Flat::fill_own_slices() {
  owned_.for_parameters([&](int64_t begin, const at::Tensor& part, bool stays) {
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
  if (!gather_) return;
  gather_->wait();
  gather_.reset();
}

void Flat::release() {
  DSJ_CHECK(sharded_parameters());
  finish_gather();
  working_.reset();
}

at::Tensor Flat::at_slot(const at::Tensor& whole, int slot) const {
  const auto& s = layout_.slots()[slot];
  return whole.narrow(0, s.offset, s.numel).view(s.shape);
}

bool Flat::contiguous(int slot, int count) const {
  const auto& slots = layout_.slots();
  if (slot < 0 || slot + count > static_cast<int>(slots.size())) return false;
  for (int i = slot; i + 1 < slot + count; ++i) {
    if (slots[i].offset + slots[i].numel != slots[i + 1].offset) return false;
  }
  return true;
}

namespace {

/// `count` neighbours as one tensor: rows stacked on the first dimension.
at::Tensor stack_view(const at::Tensor& whole, const std::vector<layout::Slot>& slots, int first,
                      int count) {
  std::vector<int64_t> shape = slots[first].shape;
  int64_t numel = 0, rows = 0;
  for (int i = first; i < first + count; ++i) {
    numel += slots[i].numel;
    rows += slots[i].shape[0];
  }
  shape[0] = rows;
  return whole.narrow(0, slots[first].offset, numel).view(shape);
}

}  // namespace

at::Tensor Flat::weight(int slot) const {
  DSJ_CHECK(working_.defined() && !gather_, "flat %s is not gathered", layout_.name().c_str());
  return at_slot(working_, slot);
}

at::Tensor Flat::stacked_weight(int slot, int count) const {
  if (!contiguous(slot, count)) return {};
  DSJ_CHECK(working_.defined() && !gather_);
  return stack_view(working_, layout_.slots(), slot, count);
}

// ---- gradients

void Flat::ensure_grad() {
  DSJ_CHECK(!frozen(), "flat %s is frozen", layout_.name().c_str());
  if (grad_.defined()) return;
  grad_ = make(layout_.numel(), options_.compute, Class::Gradients);
  for (const auto& gap : layout_.gaps()) grad_.narrow(0, gap.offset, gap.numel).zero_();
  written_.assign(written_.size(), false);
}

GradView Flat::grad(int slot) {
  ensure_grad();
  const bool accumulate = written_[slot];
  written_[slot] = true;
  return {at_slot(grad_, slot), accumulate};
}

GradView Flat::stacked_grad(int slot, int count) {
  if (!contiguous(slot, count)) return {};
  ensure_grad();
  const bool accumulate = written_[slot];
  for (int i = slot; i < slot + count; ++i) written_[i] = true;
  return {stack_view(grad_, layout_.slots(), slot, count), accumulate};
}

void Flat::reduce(bool last) {
  finish_reduce();
  DSJ_CHECK(grad_.defined(), "flat %s has no gradient", layout_.name().c_str());
  at::Tensor source = grad_;
  if (options_.stage.reduces_every_micro_step()) {
    grad_.reset();
  } else {
    if (options_.grad_accum != options_.compute) {
      if (!grad_whole_.defined()) {
        grad_whole_ = make(layout_.numel(), options_.grad_accum, Class::Gradients).copy_(grad_);
      } else {
        grad_whole_.add_(grad_);
      }
      grad_.reset();
      source = grad_whole_;
    }
    if (!last || collectives_.world() == 1 || local_) return;
  }
  const comm::Label label{comm::Traffic::Gradients, layout_.name()};
  if (options_.rows && start_rows(source, label)) return;
  if (source.scalar_type() != options_.communication) {
    source = make(layout_.numel(), options_.communication, Class::Buckets).copy_(source);
  }
  if (options_.averaging.before != 1) source.mul_(options_.averaging.before);
  if (!options_.stage.shards_update()) {
    for (const auto& chunk : layout_.chunks()) {
      reduce_.push_back(collectives_.all_reduce(source.narrow(0, chunk.offset, chunk.numel),
                                                comm::Op::Sum, label));
    }
    reduce_out_ = source;
    return;
  }
  reduce_out_ = make(layout_.shard_numel(), options_.communication,
                     grad_shard_.defined() ? Class::Buckets : Class::Gradients);
  std::vector<comm::ChunkPair> pairs;
  for (const auto& chunk : layout_.chunks()) {
    pairs.push_back({reduce_out_.narrow(0, chunk.shard_offset, chunk.slice),
                     source.narrow(0, chunk.offset, chunk.numel)});
  }
  reduce_.push_back(collectives_.reduce_scatter(pairs, comm::Op::Sum, label));
}

bool Flat::start_rows(const at::Tensor& source, comm::Label label) {
  const bool sharded = options_.stage.shards_update();
  rows_ = RowGradients::start(layout_, source,
                              {.communication = options_.communication,
                               .factor = options_.averaging.before,
                               .sharded = sharded},
                              collectives_, label);
  if (!rows_) return false;
  if (sharded)
    reduce_out_ = make(layout_.shard_numel(), options_.communication,
                       grad_shard_.defined() ? Class::Buckets : Class::Gradients);
  else
    reduce_out_ = source.scalar_type() == options_.communication
                      ? source
                      : make(layout_.numel(), options_.communication, Class::Buckets);
  return true;
}

void Flat::finish_reduce() {
  if (reduce_.empty() && !rows_) return;
  for (auto& work : reduce_) work->wait();
  reduce_.clear();
  if (rows_) rows_->read(layout_.ranges(owner_), reduce_out_);
  rows_.reset();
  at::Tensor out = std::move(reduce_out_);
  reduce_out_.reset();
  if (options_.averaging.after != 1) out.mul_(options_.averaging.after);
  // An fp32 sum takes a narrower gradient as it is. Any other conversion rounds before the sum.
  if (grad_shard_.defined() && options_.grad_accum == at::kFloat) {
    grad_shard_.add_(out);
    return;
  }
  if (out.scalar_type() != options_.grad_accum)
    out = make(out.numel(), options_.grad_accum, Class::Gradients).copy_(out);
  if (!options_.stage.shards_update()) {
    (grad_whole_.defined() ? grad_whole_ : grad_) = out;
  } else if (grad_shard_.defined()) {
    grad_shard_.add_(out);
  } else {
    grad_shard_ = out;
  }
  // The whole sum has become a shard. (Elsewhere the next micro-step may have begun in grad_.)
  if (options_.stage.shards_update() && !options_.stage.reduces_every_micro_step()) {
    grad_.reset();
    grad_whole_.reset();
  }
}

// ---- update

at::Tensor Flat::local_gradient() const {
  DSJ_CHECK(local_);
  return gradient();
}

at::Tensor Flat::gradient() const {
  if (options_.stage.shards_update() && !local_) return grad_shard_;
  return grad_whole_.defined() ? grad_whole_ : grad_;
}

void Flat::add_grad_squares(const at::Tensor& sum) const {
  add_sum_of_squares(gradient(), sum);
}

std::vector<bool> Flat::bad_gradients() const {
  std::vector<bool> bad(layout_.slots().size(), false);
  if (!gradient().defined()) return bad;  // frozen
  for (size_t slot = 0; local_ && slot < bad.size(); ++slot)
    bad[slot] = !at_slot(gradient(), static_cast<int>(slot)).isfinite().all().item<bool>();
  if (local_) return bad;
  for (const auto& range : layout_.ranges(owner_)) {
    const int64_t offset = gradient_by_flat_offset() ? range.flat_offset : range.shard_offset;
    const at::Tensor part = gradient().narrow(0, offset, range.numel);
    if (!part.isfinite().all().item<bool>()) bad[range.slot] = true;
  }
  return bad;
}

at::Tensor Flat::gather_state(int state) {
  DSJ_CHECK(state > kMaster && state < state_count());
  const auto index = static_cast<size_t>(state - 1 + options_.separate_master);
  const at::Tensor whole = make(layout_.numel(), at::kFloat, Class::Buckets);
  owned_.for_runs(Access::Read, std::nullopt, [&](const OwnedRun& run) {
    for (const Span& span : spans_) {
      if (const auto part = overlap(span, run))
        whole.narrow(0, part->flat_offset, part->numel)
            .copy_(run.optimizer[index].narrow(0, part->shard_offset - run.begin, part->numel));
    }
  });
  if (!options_.stage.shards_update()) return whole;
  std::vector<comm::ChunkPair> pairs;
  for (const auto& chunk : layout_.chunks()) {
    pairs.push_back({whole.narrow(0, chunk.offset, chunk.numel),
                     whole.narrow(0, chunk.offset + owner_ * chunk.slice, chunk.slice)});
  }
  collectives_.all_gather(pairs, {comm::Traffic::Moments, layout_.name()})->wait();
  return whole;
}

void Flat::clear_grad() {
  if (staged_) options_.copies->wait(*staged_);
  staged_.reset();
  grad_.reset();
  grad_whole_.reset();
  grad_shard_.reset();
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
  const auto one = [&](int state, const layout::Range& range, const at::Tensor& tensor) {
    const at::Tensor host = tensor.to(at::kCPU, at::kFloat);  // no copy if it is that already
    status = visit(state, {layout_.slots()[range.slot].name,
                           range.offset,
                           {host.data_ptr<float>(), static_cast<size_t>(host.numel())}});
    if (access != Access::Read && !host.is_same(tensor)) tensor.copy_(host);
  };
  owned_.for_runs(optimizer, parameters, [&](const OwnedRun& run) {
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
                                   0, part->shard_offset - run.begin, part->numel));
      }
    }
  });
  return status;
}

Status Flat::save_state(const VisitState& visit) {
  if (options_.stage.shards_update())
    return visit_state(layout_.ranges(owner_), Access::Read, true, visit);
  // Nothing is sharded, so flat and shard offsets are equal. Deal the flat among the ranks.
  std::vector<layout::Parameter> parameters;
  for (const auto& slot : layout_.slots()) parameters.push_back({slot.name, slot.shape});
  const layout::FlatLayout dealt(layout_.name(), parameters, collectives_.world(), layout_.numel());
  auto ranges = dealt.ranges(collectives_.rank());
  for (auto& range : ranges) range.shard_offset = range.flat_offset;
  return visit_state(ranges, Access::Read, true, visit);
}

Status Flat::load_state(bool all, const VisitState& visit) {
  return visit_state(layout_.ranges(owner_), Access::ReadWrite, all, visit);
}

void Flat::publish() {
  finish_shard_copies();
  if (options_.separate_master) {
    owned_.for_runs(Access::Read, Access::Write, [&](const OwnedRun& run) {
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

}  // namespace dsj::zero
