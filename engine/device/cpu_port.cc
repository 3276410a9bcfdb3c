// The device port on a CPU: the tables of engine/kernels, split over libtorch's threads. Results do
// not depend on the split or on the number of threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <variant>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/kernels.h"
#include "engine/optim/elements.h"

namespace dsj::device {
namespace {

using kernels::Rows;
using kernels::Span;
using kernels::Stream;
using kernels::Type;

/// Elements per task of an update: large enough to amortise the cost of a task, small enough that a
/// tile's temporaries stay in L2.
constexpr int64_t kTile = 1 << 15;
/// Elements per partial sum of squares; a multiple of the kernels' 4096.
constexpr int64_t kBlock = 1 << 16;

/// Rows per task: enough work to amortise the cost of a task.
int64_t grain(int64_t width) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1));
}

/// Row i as Rows with one row.
Rows row_of(const Rows& rows, int64_t i) {
  const int64_t bytes = i * rows.stride * (rows.type == Type::F32 ? 4 : 2);
  return {static_cast<char*>(rows.data) + bytes, rows.type, 1, rows.width, rows.stride};
}
/// The heads of row i as Rows.
Rows heads_of(const Rows& rows, int64_t i, int64_t heads, int64_t dim) {
  return {row_of(rows, i).data, rows.type, heads, dim, dim};
}

/// Runs the kernel on all of `rows`, in parallel.
template <typename Op>
void split(const Op& op, int64_t rows, int64_t width) {
  const kernels::Table& table = kernels::table();
  at::parallel_for(0, rows, grain(width),
                   [&](int64_t begin, int64_t end) { table.run(op, begin, end); });
}

/// Calls f(first row, end row, i) for the i-th share of the rows, in parallel.
template <typename F>
void for_shares(int64_t rows, int64_t shares, F f) {
  const int64_t share = (rows + shares - 1) / shares;
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      f(std::min(i * share, rows), std::min((i + 1) * share, rows), i);
  });
}
/// Row i of partial sums, set to 0.
Rows cleared(const Rows& partial, int64_t i) {
  const Rows row = row_of(partial, i);
  std::fill_n(static_cast<float*>(row.data), row.width, 0.0f);
  return row;
}

/// The span from element `first` on. `states` receives the pointers.
Span tile_of(const Span& span, int64_t first, int64_t n, std::vector<float*>& states) {
  const auto forward = [&](const void* data, Type type) {
    const int64_t bytes = first * (type == Type::F32 ? 4 : 2);
    return static_cast<char*>(const_cast<void*>(data)) + bytes;
  };
  states.assign(span.states, span.states + span.state_count);
  for (float*& state : states) state += first;
  Span tile = span;
  tile.n = n;
  tile.p += first;
  tile.grad = forward(span.grad, span.grad_type);
  tile.states = states.data();
  if (span.low) tile.low = forward(span.low, span.low_type);
  if (span.direction) tile.direction += first;
  return tile;
}

/// Calls f(tile, index) on all threads.
template <typename F>
void for_tiles(const Span& span, F f) {
  at::parallel_for(0, (span.n + kTile - 1) / kTile, 1, [&](int64_t begin, int64_t end) {
    std::vector<float*> states;
    for (int64_t i = begin; i < end; ++i)
      f(tile_of(span, i * kTile, std::min(kTile, span.n - i * kTile), states), i);
  });
}

class CpuPort final : public kernels::PartialPort {
 public:
  CpuPort() : PartialPort(aten_port(at::kCPU)) {}
  const char* name() const override { return kernels::table().isa; }
  using PartialPort::run;

  /// Depends only on the rows, so the result does not depend on the number of threads. It limits
  /// how many threads share the work.
  int64_t partials(int64_t rows) const override { return std::clamp<int64_t>(rows / 16, 1, 128); }

  void run(Stream, const kernels::RmsNorm& op) override { split(op, op.x.rows, op.x.width); }
  void run(Stream, const kernels::LayerNorm& op) override { split(op, op.x.rows, op.x.width); }
  void run(Stream, const kernels::Rope& op) override { split(op, op.x.rows, op.heads * op.dim); }
  void run(Stream, const kernels::Swiglu& op) override { split(op, op.a.rows, op.a.width); }
  void run(Stream, const kernels::SwigluBackward& op) override {
    split(op, op.da.rows, op.da.width);
  }
  void run(Stream, const kernels::GeluNew& op) override { split(op, op.x.rows * op.x.width, 1); }
  void run(Stream, const kernels::GeluNewBackward& op) override {
    split(op, op.x.rows * op.x.width, 1);
  }

  void run(Stream, const kernels::RmsNormBackward& op) override {
    for_shares(op.x.rows, op.dw.rows, [&](int64_t begin, int64_t end, int64_t i) {
      kernels::RmsNormBackward share = op;
      share.dw = cleared(op.dw, i);
      kernels::table().run(share, begin, end);
    });
  }
  void run(Stream, const kernels::LayerNormBackward& op) override {
    for_shares(op.x.rows, op.dw.rows, [&](int64_t begin, int64_t end, int64_t i) {
      kernels::LayerNormBackward share = op;
      share.dw = cleared(op.dw, i);
      share.db = cleared(op.db, i);
      kernels::table().run(share, begin, end);
    });
  }

  void run(Stream, const kernels::HeadNorm& op) override {
    const int64_t heads = op.heads, dim = op.w.width;
    at::parallel_for(0, op.x.rows, grain(heads * dim), [&](int64_t begin, int64_t end) {
      kernels::RmsNorm row{.w = op.w, .eps = op.eps};
      for (int64_t i = begin; i < end; ++i) {
        row.x = row.y = heads_of(op.x, i, heads, dim);
        row.rstd = op.rstd.subspan(i * heads, heads);
        kernels::table().run(row, 0, heads);
      }
    });
  }
  void run(Stream, const kernels::HeadNormBackward& op) override {
    const int64_t heads = op.heads, dim = op.w.width;
    const auto bytes = static_cast<size_t>(heads * dim * (op.x.type == Type::F32 ? 4 : 2));
    for_shares(op.x.rows, op.dw.rows, [&](int64_t begin, int64_t end, int64_t share) {
      std::vector<float> dx(static_cast<size_t>(heads * dim));  // of any type
      kernels::RmsNormBackward row{
          .w = op.w, .dx = {dx.data(), op.x.type, heads, dim, dim}, .dw = cleared(op.dw, share)};
      for (int64_t i = begin; i < end; ++i) {
        row.dy = heads_of(op.dy, i, heads, dim);
        row.x = heads_of(op.x, i, heads, dim);
        row.rstd = op.rstd.subspan(i * heads, heads);
        std::memset(dx.data(), 0, bytes);
        kernels::table().run(row, 0, heads);
        std::memcpy(row.dy.data, dx.data(), bytes);
      }
    });
  }

  void run(Stream, const kernels::CrossEntropy& op) override {
    std::vector<double> losses(static_cast<size_t>(op.logits.rows));
    at::parallel_for(0, op.logits.rows, grain(op.logits.width), [&](int64_t begin, int64_t end) {
      kernels::CrossEntropy row = op;
      for (int64_t i = begin; i < end; ++i) {
        row.loss = &losses[i];
        kernels::table().run(row, i, i + 1);
      }
    });
    *op.loss += std::accumulate(losses.begin(), losses.end(), 0.0);
  }

  void run(Stream, const kernels::ScatterRows& op) override {
    // The rows of x, sorted by index; equal ones in order.
    std::vector<int64_t> order(static_cast<size_t>(op.x.rows));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, {}, [&](int64_t row) { return op.index[row]; });
    std::vector<int64_t> groups;  // positions in `order` where a new row of `out` starts
    for (int64_t i = 0; i < op.x.rows; ++i)
      if (i == 0 || op.index[order[i]] != op.index[order[i - 1]]) groups.push_back(i);
    groups.push_back(op.x.rows);
    at::parallel_for(0, std::ssize(groups) - 1, grain(op.x.width), [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        const std::span<const int64_t> rows(order.data() + groups[g], order.data() + groups[g + 1]);
        kernels::table().run(
            kernels::AddRows{.x = op.x, .rows = rows, .out = row_of(op.out, op.index[rows[0]])}, 0,
            op.x.width);
      }
    });
  }

  void run(Stream, const kernels::SumOfSquares& op) override {
    std::vector<double> sums(static_cast<size_t>((op.x.width + kBlock - 1) / kBlock));
    at::parallel_for(0, std::ssize(sums), 1, [&](int64_t begin, int64_t end) {
      kernels::SumOfSquares block = op;
      for (int64_t i = begin; i < end; ++i) {
        block.sum = &sums[i];
        kernels::table().run(block, i * kBlock, std::min((i + 1) * kBlock, op.x.width));
      }
    });
    *op.sum += std::accumulate(sums.begin(), sums.end(), 0.0);
  }

  void run(Stream, const kernels::UpdateSpans& op) override {
    const auto scale = static_cast<float>(op.update->grad_scale);
    for (const Span& span : op.spans) {
      optim::ElementRule rule = optim::element_rule(*op.update, span.state_count);
      if (auto* lamb = std::get_if<optim::LambElement>(&rule); lamb && span.coefficient)
        lamb->take(*span.coefficient);
      std::visit(
          [&](const auto& one) {
            for_tiles(span, [&](const Span& tile, int64_t) {
              kernels::table().update(rule.index(), &one, scale, tile);
            });
          },
          rule);
    }
  }

  void run(Stream, const kernels::LambMoments& op) override {
    const auto scale = static_cast<float>(op.update->grad_scale);
    const auto rule = optim::lamb_moments(std::get<optim::LambRule>(op.update->rule));
    for (const Span& span : op.spans) {
      // One pair of sums per tile, added in order.
      std::vector<double> tiles(static_cast<size_t>(2 * ((span.n + kTile - 1) / kTile)));
      for_tiles(span, [&](const Span& tile, int64_t i) {
        kernels::table().lamb_moments(rule, scale, tile, tiles.data() + 2 * i);
      });
      double total[2] = {0, 0};
      for (size_t i = 0; i < tiles.size(); ++i) total[i % 2] += tiles[i];
      for (int i = 0; i < 2; ++i) span.sums[i] += total[i];
    }
  }

  void run(Stream, const kernels::LambCoefficients& op) override {
    for (size_t i = 0; i < op.coefficients.size(); ++i)
      op.coefficients[i] = optim::lamb_coefficient(*op.rule, op.sums[2 * i], op.sums[2 * i + 1]);
  }
};

}  // namespace

kernels::Port& cpu_port() {
  static CpuPort port;
  return port;
}

}  // namespace dsj::device
