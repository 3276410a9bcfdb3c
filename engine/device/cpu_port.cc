// The device port on a CPU: the tables of engine/kernels, split over libtorch's threads. How work
// is split never changes a result, whatever the number of threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <type_traits>
#include <variant>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/kernels.h"
#include "engine/optim/elements.h"

namespace dsj::device {
namespace {

using kernels::Bf16;
using kernels::Half;
using kernels::Rows;
using kernels::Span;
using kernels::Spans;
using kernels::Stream;
using kernels::Type;

/// Elements per task of an update: large enough to hide the cost of a task, small enough that the
/// temporaries of a tile stay in L2.
constexpr int64_t kTile = 1 << 15;
/// Elements per partial sum of squares; a multiple of the kernels' 4096.
constexpr int64_t kBlock = 1 << 16;

/// Rows per task: enough work to hide the cost of a task.
int64_t grain(int64_t width) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1));
}

/// Calls f with the kernels of a type, and a null pointer that carries the element type.
template <typename F>
void with(Type type, F f) {
  const kernels::Table& table = kernels::table();
  switch (type) {
    case Type::F32:
      return f(table.f32, static_cast<float*>(nullptr));
    case Type::BF16:
      return f(table.bf16, static_cast<Bf16*>(nullptr));
    case Type::F16:
      return f(table.half, static_cast<Half*>(nullptr));
  }
}

template <typename T>
T* at_row(const Rows& rows, int64_t row) {
  return static_cast<T*>(rows.data) + row * rows.stride;
}

/// Sets row i of each of `partial` to 0, then calls f(first row, rows, i) for the i-th share of the
/// rows, in parallel.
template <typename F>
void for_shares(int64_t rows, std::initializer_list<Rows> partial, F f) {
  const int64_t shares = partial.begin()->rows, share = (rows + shares - 1) / shares;
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (const Rows& sums : partial) std::fill_n(at_row<float>(sums, i), sums.width, 0.0f);
      const int64_t first = i * share, count = std::min(share, rows - first);
      if (count > 0) f(first, count, i);
    }
  });
}

/// The span from element `first` on. `states` takes the pointers.
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

/// Calls f(tile, its index) on all threads.
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

  /// Of the rows alone, so the result does not depend on the number of threads. It bounds how many
  /// of them share the work.
  int64_t partials(int64_t rows) const override { return std::clamp<int64_t>(rows / 16, 1, 128); }

  void rms_norm(Stream, Rows x, Rows w, Rows y, float* rstd, float eps) override {
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, x.rows, grain(x.width), [&](int64_t begin, int64_t end) {
        k.rms_norm(at_row<T>(x, begin), at_row<T>(w, 0), at_row<T>(y, begin), rstd + begin,
                   end - begin, x.width, eps);
      });
    });
  }

  void rms_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                         Rows dw) override {
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      for_shares(x.rows, {dw}, [&](int64_t row, int64_t count, int64_t partial) {
        k.rms_norm_backward(at_row<T>(dy, row), at_row<T>(x, row), at_row<T>(w, 0), rstd + row,
                            at_row<T>(dx, row), at_row<float>(dw, partial), count, x.width);
      });
    });
  }

  void layer_norm(Stream, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                  float eps) override {
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, x.rows, grain(x.width), [&](int64_t begin, int64_t end) {
        k.layer_norm(at_row<T>(x, begin), at_row<T>(w, 0), at_row<T>(b, 0), at_row<T>(y, begin),
                     mean + begin, rstd + begin, end - begin, x.width, eps);
      });
    });
  }

  void layer_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                           Rows dx, Rows dw, Rows db) override {
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      for_shares(x.rows, {dw, db}, [&](int64_t row, int64_t count, int64_t partial) {
        k.layer_norm_backward(at_row<T>(dy, row), at_row<T>(x, row), at_row<T>(w, 0), mean + row,
                              rstd + row, at_row<T>(dx, row), at_row<float>(dw, partial),
                              at_row<float>(db, partial), count, x.width);
      });
    });
  }

  void head_norm(Stream, Rows x, Rows w, int64_t heads, float* rstd, float eps) override {
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, x.rows, grain(heads * w.width), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          T* values = at_row<T>(x, row);
          k.rms_norm(values, at_row<T>(w, 0), values, rstd + row * heads, heads, w.width, eps);
        }
      });
    });
  }

  void head_norm_backward(Stream, Rows dy, Rows x, Rows w, int64_t heads, const float* rstd,
                          Rows dw) override {
    const int64_t width = heads * w.width;
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      for_shares(x.rows, {dw}, [&](int64_t first, int64_t count, int64_t partial) {
        std::vector<T> dx(static_cast<size_t>(width));
        for (int64_t row = first; row < first + count; ++row) {
          T* gradient = at_row<T>(dy, row);
          std::ranges::fill(dx, T{});
          k.rms_norm_backward(gradient, at_row<T>(x, row), at_row<T>(w, 0), rstd + row * heads,
                              dx.data(), at_row<float>(dw, partial), heads, w.width);
          std::ranges::copy(dx, gradient);
        }
      });
    });
  }

  void rope(Stream, Rows x, const float* cos, const float* sin, int64_t, const int64_t* positions,
            int64_t heads, int64_t dim, float sign) override {
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, x.rows, grain(heads * dim), [&](int64_t begin, int64_t end) {
        k.rope(at_row<T>(x, begin), x.stride, cos, sin, positions + begin, end - begin, heads, dim,
               sign);
      });
    });
  }

  void swiglu(Stream, Rows gate_up, Rows a) override {
    with(a.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, a.rows, grain(a.width), [&](int64_t begin, int64_t end) {
        k.swiglu(at_row<T>(gate_up, begin), at_row<T>(a, begin), end - begin, a.width);
      });
    });
  }

  void swiglu_backward(Stream, Rows da, Rows gate_up) override {
    with(da.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, da.rows, grain(da.width), [&](int64_t begin, int64_t end) {
        k.swiglu_backward(at_row<T>(da, begin), at_row<T>(gate_up, begin), end - begin, da.width);
      });
    });
  }

  void gelu_new(Stream, Rows x, Rows y) override {
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, x.rows * x.width, grain(1), [&](int64_t begin, int64_t end) {
        k.gelu_new(at_row<T>(x, 0) + begin, at_row<T>(y, 0) + begin, end - begin);
      });
    });
  }

  void gelu_new_backward(Stream, Rows dy, Rows x) override {
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, x.rows * x.width, grain(1), [&](int64_t begin, int64_t end) {
        k.gelu_new_backward(at_row<T>(dy, 0) + begin, at_row<T>(x, 0) + begin, end - begin);
      });
    });
  }

  void cross_entropy(Stream, Rows logits, const int64_t* labels, float scale,
                     double* loss) override {
    std::vector<double> losses(static_cast<size_t>(logits.rows));
    with(logits.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, logits.rows, grain(logits.width), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          losses[row] =
              k.cross_entropy(at_row<T>(logits, row), labels + row, 1, logits.width, scale);
        }
      });
    });
    *loss += std::accumulate(losses.begin(), losses.end(), 0.0);
  }

  void scatter_rows(Stream, Rows x, const int64_t* index, Rows out) override {
    // The rows of x by where they go, in their order.
    std::vector<int64_t> order(static_cast<size_t>(x.rows));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, {}, [&](int64_t row) { return index[row]; });
    std::vector<int64_t> groups;  // where in `order` another row of `out` begins
    for (int64_t i = 0; i < x.rows; ++i)
      if (i == 0 || index[order[i]] != index[order[i - 1]]) groups.push_back(i);
    groups.push_back(x.rows);
    with(x.type, [&](const auto& k, auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, std::ssize(groups) - 1, grain(x.width), [&](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; ++g) {
          const int64_t first = groups[g];
          k.add_rows(at_row<T>(x, 0), x.stride, order.data() + first, groups[g + 1] - first,
                     at_row<T>(out, index[order[first]]), x.width);
        }
      });
    });
  }

  void sum_of_squares(Stream, Rows x, double* sum) override {
    std::vector<double> partial(static_cast<size_t>((x.width + kBlock - 1) / kBlock));
    with(x.type, [&](const auto& k, auto* type) {
      const auto* data = static_cast<const std::remove_pointer_t<decltype(type)>*>(x.data);
      at::parallel_for(0, std::ssize(partial), 1, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t first = block * kBlock;
          partial[block] = k.sum_of_squares(data + first, std::min(kBlock, x.width - first));
        }
      });
    });
    *sum += std::accumulate(partial.begin(), partial.end(), 0.0);
  }

  void update(Stream, const optim::Update& update, Spans spans) override {
    const auto scale = static_cast<float>(update.grad_scale);
    for (const Span& span : spans) {
      optim::ElementRule rule = optim::element_rule(update, span.state_count);
      if (auto* lamb = std::get_if<optim::LambElement>(&rule); lamb && span.coefficient)
        lamb->take(*span.coefficient);
      const kernels::Update kernel = kernels::table().updates[rule.index()];
      std::visit(
          [&](const auto& one) {
            for_tiles(span, [&](const Span& tile, int64_t) { kernel(&one, scale, tile); });
          },
          rule);
    }
  }

  void lamb_moments(Stream, const optim::Update& update, Spans spans) override {
    const auto scale = static_cast<float>(update.grad_scale);
    const auto rule = optim::lamb_moments(std::get<optim::LambRule>(update.rule));
    for (const Span& span : spans) {
      // One pair per tile, added in order.
      std::vector<double> tiles(static_cast<size_t>(2 * ((span.n + kTile - 1) / kTile)));
      for_tiles(span, [&](const Span& tile, int64_t i) {
        kernels::table().lamb_moments(rule, scale, tile, tiles.data() + 2 * i);
      });
      double total[2] = {0, 0};
      for (size_t i = 0; i < tiles.size(); ++i) total[i % 2] += tiles[i];
      for (int i = 0; i < 2; ++i) span.sums[i] += total[i];
    }
  }

  void lamb_coefficients(Stream, const optim::LambRule& rule, const double* sums,
                         double* coefficients, int64_t n) override {
    for (int64_t i = 0; i < n; ++i)
      coefficients[i] = optim::lamb_coefficient(rule, sums[2 * i], sums[2 * i + 1]);
  }
};

}  // namespace

kernels::Port& cpu_port() {
  static CpuPort port;
  return port;
}

}  // namespace dsj::device
