#include "engine/zero/flat/gradient_sum.h"

#include <ATen/ATen.h>

#include <utility>

#include "common/check.h"
#include "engine/zero/flat/flat_views.h"
#include "engine/zero/flat/update.h"

namespace dsj::zero {

using memory::Class;

GradientSum::GradientSum(const layout::FlatLayout& layout, const GradientOptions& options,
                         const layout::Stage& stage, int rank, const Groups& groups)
    : layout_(layout),
      options_(options),
      stage_(stage),
      rank_(rank),
      groups_(groups),
      written_(layout.slots().size(), false) {}

void GradientSum::keep_on_host(HostCopies& copies) {
  away_ = std::make_unique<HostSum>(layout_.shard_numel(), options_.grad_accum, copies);
}

at::Tensor GradientSum::make(int64_t numel, at::ScalarType type, Class klass) const {
  memory::MemoryScope scope(klass);
  return at::empty({numel}, at::TensorOptions().dtype(type).device(options_.device));
}

bool GradientSum::writes_apart() const {
  return stage_.reduces_every_micro_step() || options_.grad_accum != options_.compute;
}

at::Tensor& GradientSum::written_to() {
  DSJ_CHECK(!layout_.frozen(), "flat %s is frozen", layout_.name().c_str());
  if (!writes_apart()) {
    fetch_sum();
    sum_arrived();
    if (!sum_.defined()) state_ = State::Own;
  }
  at::Tensor& to = writes_apart() ? fresh_ : sum_;
  if (to.defined()) return to;
  to = make(layout_.numel(), options_.compute, Class::Gradients);
  for (const auto& gap : layout_.gaps()) to.narrow(0, gap.offset, gap.numel).zero_();
  written_.assign(written_.size(), false);
  return to;
}

GradView GradientSum::view(int first, int count) {
  if (!are_neighbours(layout_, first, count)) return {};
  const at::Tensor tensor = parameters_of(layout_, written_to(), first, count);
  const bool accumulate = written_[first];
  for (int i = first; i < first + count; ++i) written_[i] = true;
  return {tensor, accumulate};
}

void GradientSum::reduce(bool last) {
  finish_reduce();
  DSJ_CHECK((writes_apart() ? fresh_ : sum_).defined(), "flat %s has no gradient",
            layout_.name().c_str());
  if (stage_.reduces_every_micro_step()) {
    fetch_sum();
    return start_reduce(std::exchange(fresh_, {}), last);
  }
  if (writes_apart()) add_fresh();
  const bool alone = groups_.shards->world() == 1;
  if (alone) send_sum(last);
  if (last && !alone && !local_) start_reduce(sum_, last);
}

void GradientSum::add_fresh() {
  fetch_sum();
  sum_arrived();
  if (state_ == State::None) {
    sum_ = make(layout_.numel(), options_.grad_accum, Class::Gradients).copy_(fresh_);
    state_ = State::Own;
  } else {
    sum_.add_(fresh_);
  }
  fresh_.reset();
}

void GradientSum::start_reduce(at::Tensor source, bool last) {
  const comm::Label label{comm::Traffic::Gradients, layout_.name()};
  const bool sharded = stage_.shards_update();
  const auto communicated = [&](int64_t numel, Class klass) {
    return make(numel, options_.communication, klass);
  };
  const auto shard = [&] {  // the first gradient becomes the sum
    return communicated(layout_.shard_numel(),
                        state_ == State::Reduced ? Class::Buckets : Class::Gradients);
  };
  const bool narrows = source.scalar_type() != options_.communication;
  Reduction& reduction = reduction_.emplace();
  reduction.last = last;
  if (options_.rows)
    reduction.rows = RowGradients::start(layout_, source,
                                         {.communication = options_.communication,
                                          .factor = options_.averaging.before,
                                          .sharded = sharded},
                                         *groups_.shards, label);
  if (reduction.rows) {
    reduction.out = sharded   ? shard()
                    : narrows ? communicated(layout_.numel(), Class::Buckets)
                              : source;
    return;
  }
  if (options_.codes) {
    if (options_.averaging.before != 1) source.mul_(options_.averaging.before);
    reduction.out = shard();
    reduction.codes.emplace(layout_, source, groups_, label);
    return;
  }
  if (narrows) source = communicated(layout_.numel(), Class::Buckets).copy_(source);
  if (options_.averaging.before != 1) source.mul_(options_.averaging.before);
  if (sharded) {
    reduction.out = shard();
    reduction.works.push_back(groups_.shards->reduce_scatter(
        scatter_pairs(layout_, reduction.out, source), comm::Op::Sum, label));
    return;
  }
  for (const auto& chunk : layout_.chunks())
    reduction.works.push_back(groups_.shards->all_reduce(
        source.narrow(0, chunk.offset, chunk.numel), comm::Op::Sum, label));
  reduction.out = source;
}

void GradientSum::finish_reduce() {
  if (!reduction_) return;
  for (auto& work : reduction_->works) work->wait();
  reduction_->works.clear();
  at::Tensor out = std::move(reduction_->out);
  if (reduction_->codes) reduction_->codes->finish(out);
  if (reduction_->rows)
    reduction_->rows->read(update_ranges(layout_, stage_.shards_update(), rank_), out);
  const bool last = reduction_->last;
  reduction_.reset();
  if (options_.averaging.after != 1) out.mul_(options_.averaging.after);
  sum_arrived();
  add_reduced(std::move(out));
  if (last && groups_.replicas != nullptr) {
    over_groups_ = groups_.replicas->all_reduce(sum_, comm::Op::Sum,
                                                {comm::Traffic::Gradients, layout_.name()});
    if (away_) finish_groups();  // before the sum leaves the device
  }
  send_sum(last);
}

void GradientSum::finish_groups() {
  if (!over_groups_) return;
  over_groups_->wait();
  over_groups_.reset();
}

void GradientSum::add_reduced(at::Tensor out) {
  const bool adds = state_ == State::Reduced;
  // An fp32 sum takes a narrower gradient as it is. Any other conversion rounds before the sum.
  if (out.scalar_type() != options_.grad_accum && !(adds && options_.grad_accum == at::kFloat))
    out = make(out.numel(), options_.grad_accum, Class::Gradients).copy_(out);
  if (adds)
    sum_.add_(out);
  else
    sum_ = std::move(out);  // replaces this rank's own sum
  state_ = State::Reduced;
}

void GradientSum::fetch() {
  if (!stage_.shards_update()) fetch_sum();
}

void GradientSum::fetch_sum() {
  if (!away_ || away_->empty() || sum_.defined()) return;
  sum_ = make(away_->numel(), options_.grad_accum, Class::Gradients);
  away_->fetch(sum_);
}

void GradientSum::sum_arrived() {
  if (away_) away_->arrived();
}

void GradientSum::send_sum(bool last) {
  if (!away_ || local_) return;
  if (last) {  // while it is on the device; the update uses the host's copy
    squares_ = at::zeros({}, at::TensorOptions(options_.device).dtype(at::kDouble));
    add_sum_of_squares(sum_, squares_);
  }
  away_->send(std::exchange(sum_, {}));
}

at::Tensor GradientSum::value() const {
  return away_ && !away_->empty() ? away_->get() : sum_;
}

void GradientSum::add_squares(const at::Tensor& sum) const {
  if (squares_.defined())
    sum.add_(squares_);
  else
    add_sum_of_squares(value(), sum);
}

std::vector<bool> GradientSum::bad() const {
  std::vector<bool> bad(layout_.slots().size(), false);
  if (state_ == State::None) return bad;  // frozen
  const bool shard = !whole();
  for (const auto& range : update_ranges(layout_, shard, rank_)) {
    const at::Tensor part =
        value().narrow(0, shard ? range.shard_offset : range.flat_offset, range.numel);
    if (!part.isfinite().all().item<bool>()) bad[range.slot] = true;
  }
  return bad;
}

void GradientSum::clear() {
  state_ = State::None;
  if (away_) away_->clear();
  squares_.reset();
  fresh_.reset();
  sum_.reset();
}

}  // namespace dsj::zero
