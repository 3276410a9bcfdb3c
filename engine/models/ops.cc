#include "engine/models/ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <numeric>

#include "common/check.h"
#include "engine/kernels/kernels.h"

namespace dsj::models::ops {
namespace {

using kernels::Bf16;
using kernels::Half;

/// Rows per task: enough work to hide the cost of a task.
int64_t grain(int64_t width) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1));
}

bool fast(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cpu() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

template <typename T>
T* data(const at::Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.data_ptr());
}

/// Calls f with the kernels of the tensor's type, and a null pointer that carries the element type.
template <typename F>
auto dispatch(const at::Tensor& tensor, F f) {
  if (tensor.scalar_type() == at::kFloat)
    return f(kernels::table().f32, static_cast<float*>(nullptr));
  if (tensor.scalar_type() == at::kHalf)
    return f(kernels::table().half, static_cast<Half*>(nullptr));
  return f(kernels::table().bf16, static_cast<Bf16*>(nullptr));
}

}  // namespace

Normed rms_norm(const at::Tensor& x, const at::Tensor& w, double eps) {
  if (!fast(x)) return reference::rms_norm(x, w, eps);
  DSJ_CHECK(x.is_contiguous() && w.is_contiguous());
  const int64_t rows = x.size(0), width = x.size(1);
  Normed out{at::empty_like(x), at::empty({rows}, x.options().dtype(at::kFloat)), {}};
  dispatch(x, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, rows, grain(width), [&](int64_t begin, int64_t end) {
      k.rms_norm(data<T>(x) + begin * width, data<T>(w), data<T>(out.y) + begin * width,
                 data<float>(out.rstd) + begin, end - begin, width, static_cast<float>(eps));
    });
  });
  return out;
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       const at::Tensor& rstd, at::Tensor dx, at::Tensor dw, bool accumulate_dw) {
  if (!fast(x)) return reference::rms_norm_backward(dy, x, w, rstd, dx, dw, accumulate_dw);
  DSJ_CHECK(dy.is_contiguous() && x.is_contiguous() && dx.is_contiguous());
  const int64_t rows = x.size(0), width = x.size(1);
  // The number of partial sums is fixed, so the result does not depend on the number of threads.
  const int64_t blocks = std::clamp<int64_t>(rows / 16, 1, 8), block = (rows + blocks - 1) / blocks;
  at::Tensor partial = at::zeros({blocks, width}, x.options().dtype(at::kFloat));
  dispatch(x, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const int64_t row = b * block, count = std::min(block, rows - row);
        if (count <= 0) continue;
        k.rms_norm_backward(data<T>(dy) + row * width, data<T>(x) + row * width, data<T>(w),
                            data<float>(rstd) + row, data<T>(dx) + row * width,
                            data<float>(partial) + b * width, count, width);
      }
    });
  });
  if (!dw.defined()) return;
  const at::Tensor gradient = partial.sum(0).to(dw.scalar_type());
  accumulate_dw ? dw.add_(gradient) : dw.copy_(gradient);
}

Normed layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps) {
  if (!fast(x)) return reference::layer_norm(x, w, b, eps);
  DSJ_CHECK(x.is_contiguous() && w.is_contiguous() && b.is_contiguous());
  const int64_t rows = x.size(0), width = x.size(1);
  const auto wide = x.options().dtype(at::kFloat);
  Normed out{at::empty_like(x), at::empty({rows}, wide), at::empty({rows}, wide)};
  dispatch(x, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, rows, grain(width), [&](int64_t begin, int64_t end) {
      k.layer_norm(data<T>(x) + begin * width, data<T>(w), data<T>(b),
                   data<T>(out.y) + begin * width, data<float>(out.mean) + begin,
                   data<float>(out.rstd) + begin, end - begin, width, static_cast<float>(eps));
    });
  });
  return out;
}

void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const Normed& normed, at::Tensor dx, at::Tensor dw, at::Tensor db,
                         bool accumulate) {
  if (!fast(x)) return reference::layer_norm_backward(dy, x, w, normed, dx, dw, db, accumulate);
  DSJ_CHECK(dy.is_contiguous() && x.is_contiguous() && dx.is_contiguous());
  const int64_t rows = x.size(0), width = x.size(1);
  const int64_t blocks = std::clamp<int64_t>(rows / 16, 1, 8), block = (rows + blocks - 1) / blocks;
  at::Tensor partial = at::zeros({2, blocks, width}, x.options().dtype(at::kFloat));
  dispatch(x, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const int64_t row = b * block, count = std::min(block, rows - row);
        if (count <= 0) continue;
        k.layer_norm_backward(data<T>(dy) + row * width, data<T>(x) + row * width, data<T>(w),
                              data<float>(normed.mean) + row, data<float>(normed.rstd) + row,
                              data<T>(dx) + row * width, data<float>(partial) + b * width,
                              data<float>(partial) + (blocks + b) * width, count, width);
      }
    });
  });
  const at::Tensor sums = partial.sum(1).to(x.scalar_type());
  if (dw.defined()) accumulate ? dw.add_(sums[0]) : dw.copy_(sums[0]);
  if (db.defined()) accumulate ? db.add_(sums[1]) : db.copy_(sums[1]);
}

at::Tensor head_norm(at::Tensor x, const at::Tensor& w, int64_t heads, double eps) {
  if (!fast(x)) return reference::head_norm(x, w, heads, eps);
  DSJ_CHECK(x.stride(1) == 1 && w.is_contiguous());
  const int64_t dim = w.size(0), stride = x.stride(0);
  at::Tensor rstd = at::empty({x.size(0), heads}, x.options().dtype(at::kFloat));
  dispatch(x, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, x.size(0), grain(heads * dim), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* values = data<T>(x) + row * stride;
        k.rms_norm(values, data<T>(w), values, data<float>(rstd) + row * heads, heads, dim,
                   static_cast<float>(eps));
      }
    });
  });
  return rstd;
}

void head_norm_backward(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                        const at::Tensor& rstd, at::Tensor dw, bool accumulate_dw) {
  if (!fast(x)) return reference::head_norm_backward(dy, x, w, rstd, dw, accumulate_dw);
  DSJ_CHECK(dy.stride(1) == 1 && x.stride(1) == 1);
  const int64_t rows = x.size(0), heads = rstd.size(1), dim = w.size(0), width = heads * dim;
  const int64_t blocks = std::clamp<int64_t>(rows / 16, 1, 8), block = (rows + blocks - 1) / blocks;
  at::Tensor partial = at::zeros({blocks, dim}, x.options().dtype(at::kFloat));
  at::Tensor scratch = at::empty({blocks, width}, x.options());
  dispatch(x, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        T* dx = data<T>(scratch) + b * width;
        for (int64_t row = b * block; row < std::min(rows, (b + 1) * block); ++row) {
          T* gradient = data<T>(dy) + row * dy.stride(0);
          std::fill_n(dx, width, T{});
          k.rms_norm_backward(gradient, data<T>(x) + row * x.stride(0), data<T>(w),
                              data<float>(rstd) + row * heads, dx, data<float>(partial) + b * dim,
                              heads, dim);
          std::copy_n(dx, width, gradient);
        }
      }
    });
  });
  if (!dw.defined()) return;
  const at::Tensor gradient = partial.sum(0).to(dw.scalar_type());
  accumulate_dw ? dw.add_(gradient) : dw.copy_(gradient);
}

void rope(at::Tensor x, const RopeTable& table, int64_t heads, bool inverse) {
  if (!fast(x)) return reference::rope(x, table, heads, inverse);
  DSJ_CHECK(x.stride(1) == 1);
  const int64_t half = table.cos.size(1), stride = x.stride(0);
  dispatch(x, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, x.size(0), grain(heads * 2 * half), [&](int64_t begin, int64_t end) {
      k.rope(data<T>(x) + begin * stride, stride, data<float>(table.cos), data<float>(table.sin),
             begin, end - begin, table.cos.size(0), heads, 2 * half, inverse ? -1.0f : 1.0f);
    });
  });
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  if (!fast(gate_up)) return reference::swiglu(gate_up);
  const int64_t width = gate_up.size(1) / 2;
  at::Tensor a = at::empty({gate_up.size(0), width}, gate_up.options());
  dispatch(gate_up, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, a.size(0), grain(width), [&](int64_t begin, int64_t end) {
      k.swiglu(data<T>(gate_up) + begin * 2 * width, data<T>(a) + begin * width, end - begin,
               width);
    });
  });
  return a;
}

void swiglu_backward(const at::Tensor& da, at::Tensor gate_up) {
  if (!fast(gate_up)) return reference::swiglu_backward(da, gate_up);
  const int64_t width = da.size(1);
  dispatch(gate_up, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, da.size(0), grain(width), [&](int64_t begin, int64_t end) {
      k.swiglu_backward(data<T>(da) + begin * width, data<T>(gate_up) + begin * 2 * width,
                        end - begin, width);
    });
  });
}

at::Tensor gelu_new(const at::Tensor& x) {
  if (!fast(x)) return reference::gelu_new(x);
  DSJ_CHECK(x.is_contiguous());
  at::Tensor y = at::empty_like(x);
  dispatch(x, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, x.numel(), grain(1), [&](int64_t begin, int64_t end) {
      k.gelu_new(data<T>(x) + begin, data<T>(y) + begin, end - begin);
    });
  });
  return y;
}

void gelu_new_backward(const at::Tensor& dy, at::Tensor x) {
  if (!fast(x)) return reference::gelu_new_backward(dy, x);
  DSJ_CHECK(dy.is_contiguous() && x.is_contiguous());
  dispatch(x, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, x.numel(), grain(1), [&](int64_t begin, int64_t end) {
      k.gelu_new_backward(data<T>(dy) + begin, data<T>(x) + begin, end - begin);
    });
  });
}

double cross_entropy(at::Tensor logits, const at::Tensor& labels, double scale) {
  if (!fast(logits)) return reference::cross_entropy(logits, labels, scale);
  const int64_t rows = logits.size(0), width = logits.size(1);
  std::vector<double> losses(rows);
  dispatch(logits, [&](const auto& k, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, rows, grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        losses[row] = k.cross_entropy(data<T>(logits) + row * width, data<int64_t>(labels) + row, 1,
                                      width, static_cast<float>(scale));
      }
    });
  });
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

}  // namespace dsj::models::ops
