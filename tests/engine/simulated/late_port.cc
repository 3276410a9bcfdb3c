#include "tests/engine/simulated/late_port.h"

#include <initializer_list>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/optim/optimizer.h"
#include "tests/engine/simulated/late_queues.h"
#include "tests/engine/simulated/traffic.h"

namespace dsj::simulated {
namespace {

using kernels::Rows;
using kernels::Span;
using kernels::Spans;
using kernels::Stream;

Touch rows(const Rows& x, bool writes) {
  if (x.data == nullptr || x.rows == 0) return {};
  const auto elements = static_cast<size_t>((x.rows - 1) * x.stride + x.width);
  return {x.data, elements * static_cast<size_t>(size_of(x.type)), writes};
}
Touch in(const Rows& x) {
  return rows(x, false);
}
Touch out(const Rows& x) {
  return rows(x, true);
}
template <typename T>
Touch in(const T* x, int64_t n) {
  return {x, x ? static_cast<size_t>(n) * sizeof(T) : 0, false};
}
template <typename T>
Touch out(T* x, int64_t n) {
  return {x, x ? static_cast<size_t>(n) * sizeof(T) : 0, true};
}

/// Spans whose lists of pointers are their own.
struct OwnSpans {
  explicit OwnSpans(Spans all) : spans(all.begin(), all.end()) {
    for (const Span& span : all) states.emplace_back(span.states, span.states + span.state_count);
    for (size_t i = 0; i < spans.size(); ++i) spans[i].states = states[i].data();
  }
  OwnSpans(const OwnSpans& other) : OwnSpans(Spans(other.spans)) {}
  OwnSpans& operator=(const OwnSpans&) = delete;
  std::vector<Touch> touches() const {
    std::vector<Touch> all;
    for (const Span& s : spans) {
      all.push_back(out(s.p, s.n));
      if (s.grad)
        all.push_back({s.grad, size_t(s.n) * static_cast<size_t>(size_of(s.grad_type)), false});
      for (int i = 0; i < s.state_count; ++i) all.push_back(out(s.states[i], s.n));
      if (s.low)
        all.push_back({s.low, size_t(s.n) * static_cast<size_t>(size_of(s.low_type)), true});
      if (s.coefficient) all.push_back(in(s.coefficient, 1));
      if (s.sums) all.push_back(out(s.sums, 2));
      if (s.direction) all.push_back(out(s.direction, s.n));
    }
    return all;
  }
  std::vector<Span> spans;
  std::vector<std::vector<float*>> states;
};

class LatePort final : public kernels::Port {
 public:
  const char* name() const override { return "late"; }
  int64_t partials(int64_t n) const override { return cpu_.partials(n); }

  void rms_norm(Stream s, Rows x, Rows w, Rows y, float* rstd, float eps) override {
    queue("rms_norm", {in(x), in(w), out(y), out(rstd, x.rows)},
          [=, this] { cpu_.rms_norm(s, x, w, y, rstd, eps); });
  }
  void rms_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                         Rows dw) override {
    queue("rms_norm_backward", {in(dy), in(x), in(w), in(rstd, x.rows), out(dx), out(dw)},
          [=, this] { cpu_.rms_norm_backward(s, dy, x, w, rstd, dx, dw); });
  }
  void layer_norm(Stream s, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                  float eps) override {
    queue("layer_norm", {in(x), in(w), in(b), out(y), out(mean, x.rows), out(rstd, x.rows)},
          [=, this] { cpu_.layer_norm(s, x, w, b, y, mean, rstd, eps); });
  }
  void layer_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                           Rows dx, Rows dw, Rows db) override {
    queue("layer_norm_backward",
          {in(dy), in(x), in(w), in(mean, x.rows), in(rstd, x.rows), out(dx), out(dw), out(db)},
          [=, this] { cpu_.layer_norm_backward(s, dy, x, w, mean, rstd, dx, dw, db); });
  }
  void head_norm(Stream s, Rows x, Rows w, int64_t heads, float* rstd, float eps) override {
    queue("head_norm", {out(x), in(w), out(rstd, x.rows * heads)},
          [=, this] { cpu_.head_norm(s, x, w, heads, rstd, eps); });
  }
  void head_norm_backward(Stream s, Rows dy, Rows x, Rows w, int64_t heads, const float* rstd,
                          Rows dw) override {
    queue("head_norm_backward", {out(dy), in(x), in(w), in(rstd, x.rows * heads), out(dw)},
          [=, this] { cpu_.head_norm_backward(s, dy, x, w, heads, rstd, dw); });
  }
  void sum_rows(Stream s, Rows partial, Rows to, bool accumulate) override {
    queue("sum_rows", {in(partial), out(to)},
          [=, this] { cpu_.sum_rows(s, partial, to, accumulate); });
  }
  void rope(Stream s, Rows x, const float* cos, const float* sin, int64_t length,
            const int64_t* positions, int64_t heads, int64_t dim, float sign) override {
    queue("rope",
          {out(x), in(cos, length * dim / 2), in(sin, length * dim / 2), in(positions, x.rows)},
          [=, this] { cpu_.rope(s, x, cos, sin, length, positions, heads, dim, sign); });
  }
  void swiglu(Stream s, Rows gate_up, Rows a) override {
    queue("swiglu", {in(gate_up), out(a)}, [=, this] { cpu_.swiglu(s, gate_up, a); });
  }
  void swiglu_backward(Stream s, Rows da, Rows gate_up) override {
    queue("swiglu_backward", {in(da), out(gate_up)},
          [=, this] { cpu_.swiglu_backward(s, da, gate_up); });
  }
  void gelu_new(Stream s, Rows x, Rows y) override {
    queue("gelu_new", {in(x), out(y)}, [=, this] { cpu_.gelu_new(s, x, y); });
  }
  void gelu_new_backward(Stream s, Rows dy, Rows x) override {
    queue("gelu_new_backward", {in(dy), out(x)}, [=, this] { cpu_.gelu_new_backward(s, dy, x); });
  }
  void cross_entropy(Stream s, Rows logits, const int64_t* labels, float scale,
                     double* loss) override {
    queue("cross_entropy", {out(logits), in(labels, logits.rows), out(loss, 1)},
          [=, this] { cpu_.cross_entropy(s, logits, labels, scale, loss); });
  }
  void scatter_rows(Stream s, Rows x, const int64_t* index, Rows to) override {
    queue("scatter_rows", {in(x), in(index, x.rows), out(to)},
          [=, this] { cpu_.scatter_rows(s, x, index, to); });
  }
  void sum_of_squares(Stream s, Rows x, double* sum) override {
    queue("sum_of_squares", {in(x), out(sum, 1)}, [=, this] { cpu_.sum_of_squares(s, x, sum); });
  }
  void update(Stream s, const optim::Update& update, Spans spans) override {
    const OwnSpans own(spans);
    queue("update", own.touches(), [=, this] { cpu_.update(s, update, own.spans); });
  }
  void lamb_moments(Stream s, const optim::Update& update, Spans spans) override {
    const OwnSpans own(spans);
    queue("lamb_moments", own.touches(), [=, this] { cpu_.lamb_moments(s, update, own.spans); });
  }
  void lamb_coefficients(Stream s, const optim::LambRule& rule, const double* sums,
                         double* coefficients, int64_t n) override {
    queue("lamb_coefficients", {in(sums, 2 * n), out(coefficients, n)},
          [=, this] { cpu_.lamb_coefficients(s, rule, sums, coefficients, n); });
  }

 private:
  template <typename F>
  static void queue(const char* name, std::vector<Touch> touches, F run) {
    LateQueues* const queues = queues_here();
    if (!queues) return run();
    submit(*queues, name, std::move(touches), std::move(run));
  }
  kernels::Port& cpu_ = device::cpu_port();
};

}  // namespace

kernels::Port& late_port() {
  static LatePort port;
  return port;
}

}  // namespace dsj::simulated
