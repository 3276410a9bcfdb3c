#include "engine/kernels/cuda/cuda_port.h"

#include <variant>

#include "engine/kernels/cuda/launchers.h"
#include "engine/optim/elements.h"

namespace dsj::kernels::cuda {
namespace {

/// `count` values of scratch, until it goes out of scope.
template <typename T>
class Taken {
 public:
  Taken(Scratch& scratch, Stream stream, int64_t count)
      : scratch_(scratch),
        stream_(stream),
        data_(scratch.take(stream, static_cast<size_t>(count) * sizeof(T))) {}
  ~Taken() { scratch_.give(stream_, data_); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  T* data() const { return static_cast<T*>(data_); }

 private:
  Scratch& scratch_;
  const Stream stream_;
  void* const data_;
};

class CudaPort final : public PartialPort {
 public:
  CudaPort(Port& rest, Scratch& scratch) : PartialPort(rest), scratch_(scratch) {}
  const char* name() const override { return "cuda"; }

  int64_t partials(int64_t rows) const override { return norm_partials(rows); }
  void rms_norm(Stream s, Rows x, Rows w, Rows y, float* rstd, float eps) override {
    cuda::rms_norm(s, x, w, y, rstd, eps);
  }
  void rms_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                         Rows dw) override {
    cuda::rms_norm_backward(s, dy, x, w, rstd, dx, dw);
  }
  void layer_norm(Stream s, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                  float eps) override {
    cuda::layer_norm(s, x, w, b, y, mean, rstd, eps);
  }
  void layer_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                           Rows dx, Rows dw, Rows db) override {
    cuda::layer_norm_backward(s, dy, x, w, mean, rstd, dx, dw, db);
  }
  void head_norm(Stream s, Rows x, Rows w, int64_t heads, float* rstd, float eps) override {
    cuda::head_norm(s, x, w, heads, rstd, eps);
  }
  void head_norm_backward(Stream s, Rows dy, Rows x, Rows w, int64_t heads, const float* rstd,
                          Rows dw) override {
    cuda::head_norm_backward(s, dy, x, w, heads, rstd, dw);
  }
  void sum_rows(Stream s, Rows partial, Rows out, bool accumulate) override {
    cuda::sum_rows(s, partial, out, accumulate);
  }

  void rope(Stream s, Rows x, const float* cos, const float* sin, int64_t, const int64_t* positions,
            int64_t heads, int64_t dim, float sign) override {
    cuda::rope(s, x, cos, sin, positions, heads, dim, sign);
  }
  void swiglu(Stream s, Rows gate_up, Rows a) override { cuda::swiglu(s, gate_up, a); }
  void swiglu_backward(Stream s, Rows da, Rows gate_up) override {
    cuda::swiglu_backward(s, da, gate_up);
  }
  void gelu_new(Stream s, Rows x, Rows y) override { cuda::gelu_new(s, x, y); }
  void gelu_new_backward(Stream s, Rows dy, Rows x) override { cuda::gelu_new_backward(s, dy, x); }

  void cross_entropy(Stream s, Rows logits, const int64_t* labels, float scale,
                     double* loss) override {
    const Taken<double> losses(scratch_, s, logits.rows);
    cuda::cross_entropy(s, logits, labels, scale, loss, losses.data());
  }
  void scatter_rows(Stream s, Rows x, const int64_t* index, Rows out) override {
    const Taken<int64_t> order(scratch_, s, x.rows);
    cuda::scatter_rows(s, x, index, out, order.data());
  }
  void sum_of_squares(Stream s, Rows x, double* sum) override {
    const Taken<double> parts(scratch_, s, square_blocks(x.width));
    cuda::sum_of_squares(s, x, sum, parts.data());
  }

  void update(Stream s, const optim::Update& update, Spans spans) override {
    if (spans.empty()) return;
    const auto scale = static_cast<float>(update.grad_scale);
    const optim::ElementRule rule = optim::element_rule(update, spans[0].state_count);
    std::visit([&](const auto& one) { cuda::update(s, rule.index(), &one, scale, spans); }, rule);
  }
  void lamb_moments(Stream s, const optim::Update& update, Spans spans) override {
    const Taken<double> sums(scratch_, s, 2 * update_blocks(spans));
    cuda::lamb_moments(s, optim::lamb_moments(std::get<optim::LambRule>(update.rule)),
                       static_cast<float>(update.grad_scale), spans, sums.data());
  }
  void lamb_coefficients(Stream s, const optim::LambRule& rule, const double* sums,
                         double* coefficients, int64_t n) override {
    cuda::lamb_coefficients(s, rule.min_coeff, rule.max_coeff, sums, coefficients, n);
  }

 private:
  Scratch& scratch_;
};

}  // namespace

std::unique_ptr<Port> make_cuda_port(Port& rest, Scratch& scratch) {
  return std::make_unique<CudaPort>(rest, scratch);
}

}  // namespace dsj::kernels::cuda
