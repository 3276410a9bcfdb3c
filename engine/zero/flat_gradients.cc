// The gradient of a flat: written by backward, reduced, summed over micro-steps. The sum lies on the
// device, or in host memory between its uses.
#include <ATen/ATen.h>

#include <utility>

#include "common/check.h"
#include "engine/zero/flat.h"
#include "engine/zero/norm.h"

namespace dsj::zero {

using memory::Class;

void Flat::ensure_grad() {
  DSJ_CHECK(!frozen(), "flat %s is frozen", layout_.name().c_str());
  if (!stage_.shards_update() && options_.grad_accum == options_.compute) {
    fetch_sum();
    sum_arrived();
  }
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
  return {at_slots(grad_, slot, count), accumulate};
}

void Flat::reduce(bool last) {
  finish_reduce();
  DSJ_CHECK(grad_.defined(), "flat %s has no gradient", layout_.name().c_str());
  at::Tensor source = grad_;
  last_ = last;
  if (stage_.reduces_every_micro_step()) {
    grad_.reset();
    fetch_sum();
  } else {
    if (options_.grad_accum != options_.compute) {
      fetch_sum();
      sum_arrived();
      if (!grad_whole_.defined()) {
        grad_whole_ = make(layout_.numel(), options_.grad_accum, Class::Gradients).copy_(grad_);
      } else {
        grad_whole_.add_(grad_);
      }
      grad_.reset();
      source = grad_whole_;
    }
    if (collectives_.world() == 1) send_sum(last);
    if (!last || collectives_.world() == 1 || local_) return;
  }
  const comm::Label label{comm::Traffic::Gradients, layout_.name()};
  if (options_.rows && start_rows(source, label)) return;
  if (source.scalar_type() != options_.communication) {
    source = make(layout_.numel(), options_.communication, Class::Buckets).copy_(source);
  }
  if (options_.averaging.before != 1) source.mul_(options_.averaging.before);
  if (!stage_.shards_update()) {
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
  const bool sharded = stage_.shards_update();
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
  if (rows_) rows_->read(ranges(), reduce_out_);
  rows_.reset();
  at::Tensor out = std::move(reduce_out_);
  reduce_out_.reset();
  if (options_.averaging.after != 1) out.mul_(options_.averaging.after);
  sum_arrived();
  add_reduced(std::move(out));
  // The whole sum has become a shard. (Elsewhere the next micro-step may have begun in grad_.)
  if (stage_.shards_update() && !stage_.reduces_every_micro_step()) {
    grad_.reset();
    grad_whole_.reset();
  }
  send_sum(last_);
}

void Flat::add_reduced(at::Tensor out) {
  // An fp32 sum takes a narrower gradient as it is. Any other conversion rounds before the sum.
  if (grad_shard_.defined() && options_.grad_accum == at::kFloat) {
    grad_shard_.add_(out);
    return;
  }
  if (out.scalar_type() != options_.grad_accum)
    out = make(out.numel(), options_.grad_accum, Class::Gradients).copy_(out);
  if (!stage_.shards_update()) {
    (grad_whole_.defined() ? grad_whole_ : grad_) = out;
  } else if (grad_shard_.defined()) {
    grad_shard_.add_(out);
  } else {
    grad_shard_ = out;
  }
}

at::Tensor& Flat::sum() {
  if (stage_.shards_update()) return grad_shard_;
  return options_.grad_accum != options_.compute ? grad_whole_ : grad_;
}

void Flat::fetch_gradient() {
  if (!stage_.shards_update()) fetch_sum();
}

void Flat::fetch_sum() {
  if (!away_ || away_->empty() || sum().defined()) return;
  sum() = make(away_->numel(), options_.grad_accum, Class::Gradients);
  away_->fetch(sum());
}

void Flat::send_sum(bool last) {
  if (!away_ || local_) return;
  if (last) {  // while it is here; the update's copy of it is on the host
    squares_ = at::zeros({}, at::TensorOptions(options_.device).dtype(at::kDouble));
    add_sum_of_squares(sum(), squares_);
  }
  away_->send(std::exchange(sum(), {}));
}

at::Tensor Flat::local_gradient() const {
  DSJ_CHECK(local_);
  return gradient();
}

at::Tensor Flat::gradient() const {
  if (away_ && !away_->empty()) return away_->get();
  if (stage_.shards_update() && !local_) return grad_shard_;
  return grad_whole_.defined() ? grad_whole_ : grad_;
}

void Flat::add_grad_squares(const at::Tensor& sum) const {
  if (squares_.defined())
    sum.add_(squares_);
  else
    add_sum_of_squares(gradient(), sum);
}

std::vector<bool> Flat::bad_gradients() const {
  std::vector<bool> bad(layout_.slots().size(), false);
  if (!gradient().defined()) return bad;  // frozen
  for (size_t slot = 0; local_ && slot < bad.size(); ++slot)
    bad[slot] = !at_slot(gradient(), static_cast<int>(slot)).isfinite().all().item<bool>();
  if (local_) return bad;
  for (const auto& range : ranges()) {
    const int64_t offset = gradient_by_flat_offset() ? range.flat_offset : range.shard_offset;
    const at::Tensor part = gradient().narrow(0, offset, range.numel);
    if (!part.isfinite().all().item<bool>()) bad[range.slot] = true;
  }
  return bad;
}

void Flat::clear_grad() {
  if (away_) away_->clear();
  squares_.reset();
  grad_.reset();
  grad_whole_.reset();
  grad_shard_.reset();
}

}  // namespace dsj::zero
