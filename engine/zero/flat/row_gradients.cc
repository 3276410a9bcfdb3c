#include "engine/zero/flat/row_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"
#include "engine/comm/agree.h"
#include "engine/memory/counting_allocator.h"
#include "engine/zero/storage/scalar_type.h"
#include "job/plan/row_plan.h"

namespace dsj::zero {
namespace {

/// A view of a slot as a table [rows, width].
at::Tensor table(const at::Tensor& gradient, const layout::Slot& slot, int64_t width) {
  return gradient.narrow(0, slot.offset, slot.numel).view({-1, width});
}

/// The indices of the rows of `rows` [n, width] with an element that is not 0.
at::Tensor touched(const at::Tensor& rows) {
  const int64_t count = rows.size(0),
                step = std::max<int64_t>(1, plan::kScannedElements / rows.size(1));
  std::vector<at::Tensor> found;
  for (int64_t first = 0; first < count; first += step) {
    const at::Tensor tile = rows.narrow(0, first, std::min(step, count - first));
    found.push_back(tile.ne(0).any(1).nonzero().view(-1).add_(first));
  }
  return at::cat(found);
}

}  // namespace

RowGradients::RowGradients(const layout::FlatLayout& flat) : width_(plan::row_width(flat)) {
  int64_t base = 0;
  for (const auto& slot : flat.slots()) {
    DSJ_CHECK(slot.shape.size() == 2 && slot.shape.back() == width_);
    bases_.push_back(base);
    base += slot.shape.front();
  }
}

std::unique_ptr<RowGradients> RowGradients::start(const layout::FlatLayout& flat,
                                                  const at::Tensor& gradient,
                                                  const Options& options,
                                                  comm::Collectives& collectives,
                                                  comm::Label label) {
  memory::MemoryScope scope(memory::Class::Buckets);
  const int world = collectives.world(), rank = collectives.rank();
  std::unique_ptr<RowGradients> self(new RowGradients(flat));
  std::vector<at::Tensor> own;
  int64_t count = 0;
  for (const auto& slot : flat.slots()) {
    own.push_back(touched(table(gradient, slot, self->width_)));
    count += own.back().numel();
  }
  const auto integers = gradient.options().dtype(at::kLong);
  const at::Tensor counts = at::full({world}, count, integers);
  const auto counted = collectives.all_gather(counts, counts.narrow(0, rank, 1), label);
  const at::Tensor host = comm::on_host(*counted, counts);
  self->counts_.assign(host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + world);
  const int64_t most = std::ranges::max(self->counts_);
  const plan::RowCost cost{flat, options.sharded, world, most,
                           static_cast<int64_t>(c10::elementSize(options.communication))};
  if (!cost.pays()) return nullptr;

  self->numbers_ = at::zeros({world, most}, integers);
  self->values_ =
      at::zeros({world, most, self->width_}, gradient.options().dtype(options.communication));
  const at::Tensor numbers = self->numbers_.select(0, rank), values = self->values_.select(0, rank);
  int64_t at = 0;
  for (size_t s = 0; s < own.size(); ++s) {
    const int64_t n = own[s].numel();
    values.narrow(0, at, n).copy_(
        table(gradient, flat.slots()[s], self->width_).index_select(0, own[s]));
    numbers.narrow(0, at, n).copy_(own[s].add_(self->bases_[s]));
    at += n;
  }
  if (options.factor != 1) values.mul_(options.factor);
  if (most == 0) return self;
  self->works_ = {collectives.all_gather(self->numbers_.view(-1), numbers, label),
                  collectives.all_gather(self->values_.view(-1), values.view(-1), label)};
  return self;
}

RowGradients::Sums RowGradients::add() const {
  std::vector<at::Tensor> numbers;
  for (size_t r = 0; r < counts_.size(); ++r)
    numbers.push_back(numbers_.select(0, static_cast<int64_t>(r)).narrow(0, 0, counts_[r]));
  const auto [rows, place] =
      at::_unique(at::cat(numbers), /*sorted=*/true, /*return_inverse=*/true);
  const at::Tensor sums = at::zeros({rows.numel(), width_}, values_.options().dtype(at::kFloat));
  int64_t first = 0;
  for (size_t r = 0; r < counts_.size(); ++r) {
    // A rank sends each row once, so no two additions hit the same row.
    sums.index_add_(
        0, place.narrow(0, first, counts_[r]),
        values_.select(0, static_cast<int64_t>(r)).narrow(0, 0, counts_[r]).to(at::kFloat));
    first += counts_[r];
  }
  const at::Tensor host = rows.to(at::kCPU);
  return {{host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()},
          rows,
          sums.to(values_.scalar_type())};
}

void RowGradients::place(const Sums& sums, int64_t first, int64_t numel, int64_t base,
                         const at::Tensor& out) const {
  const auto index_of = [&](int64_t row) {  // index of the first number >= row
    return std::ranges::lower_bound(sums.numbers, base + row) - sums.numbers.begin();
  };
  for (int64_t at = first; at < first + numel;) {
    const int64_t row = at / width_, within = at % width_, left = first + numel - at;
    const int64_t found = index_of(row);
    if (within == 0 && left >= width_) {
      const int64_t rows = left / width_, count = index_of(row + rows) - found;
      out.narrow(0, at - first, rows * width_)
          .view({rows, width_})
          .index_copy_(0, sums.rows.narrow(0, found, count).sub(base + row),
                       sums.values.narrow(0, found, count));
      at += rows * width_;
      continue;
    }
    const int64_t part = std::min(width_ - within, left);  // a slice may start or end within a row
    if (index_of(row + 1) > found)
      out.narrow(0, at - first, part).copy_(sums.values.select(0, found).narrow(0, within, part));
    at += part;
  }
}

void RowGradients::read(const std::vector<layout::Range>& ranges, const at::Tensor& out) {
  for (const auto& work : works_) work->wait();
  out.zero_();
  memory::MemoryScope scope(memory::Class::Buckets);
  const Sums sums = add();
  for (const auto& range : ranges)
    place(sums, range.offset, range.numel, bases_[static_cast<size_t>(range.slot)],
          out.narrow(0, range.shard_offset, range.numel));
}

}  // namespace dsj::zero
