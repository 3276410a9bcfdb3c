#include "engine/zero/flat.h"

#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/zero/norm.h"

namespace dsj::zero {

using memory::Class;

Flat::Flat(const layout::FlatLayout& layout, const FlatOptions& options,
           comm::Collectives& collectives)
    : layout_(layout),
      options_(options),
      collectives_(collectives),
      owner_(options.stage == 0 ? 0 : collectives.rank()),
      written_(layout.slots().size(), false) {
  DSJ_CHECK(layout.world() == (options.stage == 0 ? 1 : collectives.world()));
  for (const auto& chunk : layout_.chunks()) {
    spans_.push_back({chunk.offset + owner_ * chunk.slice, chunk.shard_offset, chunk.slice});
  }
  if (!sharded_parameters()) {
    working_ = make(layout_.numel(), options_.compute, Class::Parameters).zero_();
  } else if (options_.compute != at::kFloat || frozen()) {
    shard_ = make(layout_.shard_numel(), options_.compute, Class::Parameters).zero_();
  }
  if (!frozen() && !master_in_working()) {
    master_ = make(layout_.shard_numel(), at::kFloat, Class::Optimizer).zero_();
  }
}

at::Tensor Flat::make(int64_t numel, at::ScalarType type, Class klass) const {
  memory::MemoryScope scope(klass);
  return at::empty({numel}, at::TensorOptions().dtype(type).device(options_.device));
}

bool Flat::master_in_working() const {
  return options_.compute == at::kFloat && !sharded_parameters();
}

// ---- parameters

Status Flat::fill_frozen(const Read& read) {
  DSJ_CHECK(frozen());
  constexpr int64_t kPiece = 1 << 20;  // elements staged at a time
  at::Tensor staged;
  for (const auto& range : layout_.ranges(owner_)) {
    const at::Tensor& storage = sharded_parameters() ? shard_ : working_;
    const int64_t first = sharded_parameters() ? range.shard_offset : range.flat_offset;
    for (int64_t done = 0; done < range.numel; done += kPiece) {
      const int64_t count = std::min(kPiece, range.numel - done);
      if (!staged.defined()) {
        memory::MemoryScope scope(Class::Buckets);
        staged = at::empty({kPiece}, at::kFloat);
      }
      DSJ_TRY_STATUS(read(layout_.slots()[range.slot].name, range.offset + done,
                          {staged.data_ptr<float>(), static_cast<size_t>(count)}));
      storage.narrow(0, first + done, count).copy_(staged.narrow(0, 0, count));
    }
  }
  if (sharded_parameters()) return {};
  start_gather();
  finish_gather();
  return {};
}

void Flat::start_gather() {
  if (options_.stage == 0) return;
  DSJ_CHECK(!gather_);
  std::vector<comm::ChunkPair> pairs;
  if (sharded_parameters()) {
    DSJ_CHECK(!working_.defined());
    working_ = make(layout_.numel(), options_.compute, Class::Parameters);
  }
  const at::Tensor& source = shard_.defined() ? shard_ : master_;
  for (const auto& chunk : layout_.chunks()) {
    pairs.push_back({working_.narrow(0, chunk.offset, chunk.numel),
                     sharded_parameters()
                         ? source.narrow(0, chunk.shard_offset, chunk.slice)
                         : working_.narrow(0, chunk.offset + owner_ * chunk.slice, chunk.slice)});
  }
  gather_ = collectives_.all_gather(pairs, {comm::Traffic::Parameters, layout_.name()});
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
  if (options_.stage <= 1) {
    if (options_.grad_accum != options_.compute) {
      if (!grad_whole_.defined()) {
        grad_whole_ = make(layout_.numel(), options_.grad_accum, Class::Gradients).copy_(grad_);
      } else {
        grad_whole_.add_(grad_);
      }
      grad_.reset();
      source = grad_whole_;
    }
    if (!last || collectives_.world() == 1) return;
  } else {
    grad_.reset();
  }
  const comm::Label label{comm::Traffic::Gradients, layout_.name()};
  if (source.scalar_type() != options_.communication) {
    source = make(layout_.numel(), options_.communication, Class::Buckets).copy_(source);
  }
  if (options_.averaging.before != 1) source.mul_(options_.averaging.before);
  if (options_.stage == 0) {
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

void Flat::finish_reduce() {
  if (reduce_.empty()) return;
  for (auto& work : reduce_) work->wait();
  reduce_.clear();
  at::Tensor out = std::move(reduce_out_);
  reduce_out_.reset();
  if (options_.averaging.after != 1) out.mul_(options_.averaging.after);
  // A fp32 sum takes a narrower gradient as it is; any other conversion rounds before the sum.
  if (grad_shard_.defined() && options_.grad_accum == at::kFloat) {
    grad_shard_.add_(out);
    return;
  }
  if (out.scalar_type() != options_.grad_accum)
    out = make(out.numel(), options_.grad_accum, Class::Gradients).copy_(out);
  if (options_.stage == 0) {
    (grad_whole_.defined() ? grad_whole_ : grad_) = out;
  } else if (grad_shard_.defined()) {
    grad_shard_.add_(out);
  } else {
    grad_shard_ = out;
  }
  if (options_.stage == 1) {
    grad_.reset();
    grad_whole_.reset();
  }
}

// ---- update

at::Tensor Flat::gradient() const {
  if (options_.stage != 0) return grad_shard_;
  return grad_whole_.defined() ? grad_whole_ : grad_;
}

double Flat::grad_sum_of_squares() const {
  return sum_of_squares(gradient());
}

std::vector<bool> Flat::bad_gradients() const {
  std::vector<bool> bad(layout_.slots().size(), false);
  if (!gradient().defined()) return bad;  // frozen
  for (const auto& range : layout_.ranges(owner_)) {
    const int64_t offset = gradient_by_flat_offset() ? range.flat_offset : range.shard_offset;
    const at::Tensor part = gradient().narrow(0, offset, range.numel);
    if (!part.isfinite().all().item<bool>()) bad[range.slot] = true;
  }
  return bad;
}

void Flat::ensure_states() {
  if (!states_.empty()) return;
  for (const auto& spec : options_.states) {
    states_.push_back(
        make(layout_.shard_numel(), at::kFloat, Class::Optimizer).fill_(spec.initial));
  }
}

template <typename F>
void Flat::with_tensors(const Span& run, F f) {
  const auto part = [&](const at::Tensor& tensor, bool by_flat) {
    return tensor.narrow(0, by_flat ? run.flat_offset : run.shard_offset, run.numel);
  };
  const auto [master, by_flat] = state_storage(kMaster);
  std::vector<at::Tensor> states;
  for (const auto& state : states_) states.push_back(part(state, false));
  at::Tensor low;
  if (options_.compute != at::kFloat)
    low = shard_.defined() ? part(shard_, false) : part(working_, true);
  f(UpdateSpan{part(master, by_flat), part(gradient(), gradient_by_flat_offset()), states, low});
}

void Flat::lamb_moments(const optim::Update& update, std::span<LambSums> sums) {
  ensure_states();
  for (const auto& range : layout_.ranges(owner_)) {
    with_tensors({range.flat_offset, range.shard_offset, range.numel},
                 [&](const UpdateSpan& tensors) {
                   const LambSums found = zero::lamb_moments(update, tensors);
                   sums[range.slot].parameter += found.parameter;
                   sums[range.slot].update += found.update;
                 });
  }
}

void Flat::step(const optim::Update& update, std::span<const double> coefficients) {
  ensure_states();
  if (coefficients.empty()) {
    for (const Span& span : spans_)
      with_tensors(span, [&](const UpdateSpan& tensors) { update_span(update, tensors); });
    return;
  }
  for (const auto& range : layout_.ranges(owner_)) {
    with_tensors(
        {range.flat_offset, range.shard_offset, range.numel},
        [&](const UpdateSpan& tensors) { update_span(update, tensors, coefficients[range.slot]); });
  }
}

void Flat::clear_grad() {
  grad_.reset();
  grad_whole_.reset();
  grad_shard_.reset();
}

// ---- state

const std::string& Flat::state_name(int state) const {
  static const std::string master = "master";
  return state == kMaster ? master : options_.states[state - 1].name;
}

std::pair<at::Tensor, bool> Flat::state_storage(int state) {
  if (state == kMaster) {
    return master_in_working() ? std::pair{working_, true} : std::pair{master_, false};
  }
  ensure_states();
  return {states_[state - 1], false};
}

Flat::HostState Flat::host_state(int state, bool for_saving) {
  auto [storage, by_flat] = state_storage(state);
  HostState host{{}, storage.to(at::kCPU)};
  float* data = host.storage.data_ptr<float>();
  auto add = [&](const layout::Range& range, int64_t offset) {
    host.ranges.push_back({layout_.slots()[range.slot].name,
                           range.offset,
                           {data + offset, static_cast<size_t>(range.numel)}});
  };
  if (options_.stage == 0) {
    // Nothing is sharded: flat and shard offsets are the same. For saving, deal the flat among the
    // ranks.
    std::vector<layout::Parameter> parameters;
    for (const auto& slot : layout_.slots()) parameters.push_back({slot.name, slot.shape});
    const int world = for_saving ? collectives_.world() : 1;
    const layout::FlatLayout dealt(layout_.name(), parameters, world, layout_.numel());
    for (const auto& range : dealt.ranges(for_saving ? collectives_.rank() : 0))
      add(range, range.flat_offset);
    return host;
  }
  for (const auto& range : layout_.ranges(owner_))
    add(range, by_flat ? range.flat_offset : range.shard_offset);
  return host;
}

void Flat::write_back(int state, const HostState& host) {
  auto [storage, by_flat] = state_storage(state);
  if (!storage.is_same(host.storage) && storage.data_ptr() != host.storage.data_ptr())
    storage.copy_(host.storage);
}

void Flat::publish_master() {
  if (options_.compute != at::kFloat) {
    for (const Span& span : spans_) {
      at::Tensor low = shard_.defined() ? shard_.narrow(0, span.shard_offset, span.numel)
                                        : working_.narrow(0, span.flat_offset, span.numel);
      low.copy_(master_.narrow(0, span.shard_offset, span.numel));
    }
  }
  if (sharded_parameters()) return;
  start_gather();
  finish_gather();
}

}  // namespace dsj::zero
