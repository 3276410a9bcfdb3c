#include "tests/engine/gpu/hosted_port.h"

#include <ATen/ATen.h>

#include <deque>
#include <map>
#include <vector>

#include "common/check.h"
#include "engine/device/device.h"
#include "tests/engine/gpu/gpu.h"

namespace dsj::gpu {
namespace {

using kernels::Rows;
using kernels::Span;
using kernels::Spans;
using kernels::Stream;

int64_t size_of(kernels::Type type) {
  return type == kernels::Type::F32 ? 4 : 2;
}

/// Memory of the host on the GPU for one call; written back at its end. What is named twice is one.
class Mirror {
 public:
  ~Mirror() {
    for (auto& [host, there] : all_) on_host(host, there.numel()).copy_(there);  // waits
  }
  template <typename T>
  T* there(T* host, int64_t count) {
    return static_cast<T*>(
        bytes(const_cast<std::remove_const_t<T>*>(host), count * static_cast<int64_t>(sizeof(T))));
  }
  Rows there(Rows rows) {
    if (rows.data == nullptr || rows.rows * rows.width == 0) return rows;
    rows.data = bytes(rows.data, ((rows.rows - 1) * rows.stride + rows.width) * size_of(rows.type));
    return rows;
  }
  void* bytes(void* host, int64_t count) {
    if (host == nullptr || count == 0) return host;
    auto [found, is_new] = all_.try_emplace(host);
    if (is_new) found->second = on_host(host, count).to(*gpu().place);
    DSJ_CHECK(found->second.numel() >= count);
    return found->second.data_ptr();
  }

 private:
  static at::Tensor on_host(void* host, int64_t count) {
    return at::from_blob(host, {count}, at::kByte);
  }
  std::map<void*, at::Tensor> all_;
};

class HostedPort final : public kernels::Port {
 public:
  const char* name() const override { return "gpu"; }
  int64_t partials(int64_t rows) const override { return port().partials(rows); }

  void rms_norm(Stream, Rows x, Rows w, Rows y, float* rstd, float eps) override {
    Mirror m;
    port().rms_norm(stream(), m.there(x), m.there(w), m.there(y), m.there(rstd, x.rows), eps);
  }
  void rms_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                         Rows dw) override {
    Mirror m;
    port().rms_norm_backward(stream(), m.there(dy), m.there(x), m.there(w), m.there(rstd, x.rows),
                             m.there(dx), m.there(dw));
  }
  void layer_norm(Stream, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                  float eps) override {
    Mirror m;
    port().layer_norm(stream(), m.there(x), m.there(w), m.there(b), m.there(y),
                      m.there(mean, x.rows), m.there(rstd, x.rows), eps);
  }
  void layer_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                           Rows dx, Rows dw, Rows db) override {
    Mirror m;
    port().layer_norm_backward(stream(), m.there(dy), m.there(x), m.there(w), m.there(mean, x.rows),
                               m.there(rstd, x.rows), m.there(dx), m.there(dw), m.there(db));
  }
  void head_norm(Stream, Rows x, Rows w, int64_t heads, float* rstd, float eps) override {
    Mirror m;
    port().head_norm(stream(), m.there(x), m.there(w), heads, m.there(rstd, x.rows * heads), eps);
  }
  void head_norm_backward(Stream, Rows dy, Rows x, Rows w, int64_t heads, const float* rstd,
                          Rows dw) override {
    Mirror m;
    port().head_norm_backward(stream(), m.there(dy), m.there(x), m.there(w), heads,
                              m.there(rstd, x.rows * heads), m.there(dw));
  }
  void sum_rows(Stream, Rows partial, Rows out, bool accumulate) override {
    Mirror m;
    port().sum_rows(stream(), m.there(partial), m.there(out), accumulate);
  }
  void rope(Stream, Rows x, const float* cos, const float* sin, int64_t length,
            const int64_t* positions, int64_t heads, int64_t dim, float sign) override {
    Mirror m;
    port().rope(stream(), m.there(x), m.there(cos, length * dim / 2),
                m.there(sin, length * dim / 2), length, m.there(positions, x.rows), heads, dim,
                sign);
  }
  void swiglu(Stream, Rows gate_up, Rows a) override {
    Mirror m;
    port().swiglu(stream(), m.there(gate_up), m.there(a));
  }
  void swiglu_backward(Stream, Rows da, Rows gate_up) override {
    Mirror m;
    port().swiglu_backward(stream(), m.there(da), m.there(gate_up));
  }
  void gelu_new(Stream, Rows x, Rows y) override {
    Mirror m;
    port().gelu_new(stream(), m.there(x), m.there(y));
  }
  void gelu_new_backward(Stream, Rows dy, Rows x) override {
    Mirror m;
    port().gelu_new_backward(stream(), m.there(dy), m.there(x));
  }
  void cross_entropy(Stream, Rows logits, const int64_t* labels, float scale,
                     double* loss) override {
    Mirror m;
    port().cross_entropy(stream(), m.there(logits), m.there(labels, logits.rows), scale,
                         m.there(loss, 1));
  }
  void scatter_rows(Stream, Rows x, const int64_t* index, Rows out) override {
    Mirror m;
    port().scatter_rows(stream(), m.there(x), m.there(index, x.rows), m.there(out));
  }
  void sum_of_squares(Stream, Rows x, double* sum) override {
    Mirror m;
    port().sum_of_squares(stream(), m.there(x), m.there(sum, 1));
  }
  void update(Stream, const optim::Update& update, Spans spans) override {
    Mirror m;
    port().update(stream(), update, Mirrored(m, spans).spans);
  }
  void lamb_moments(Stream, const optim::Update& update, Spans spans) override {
    Mirror m;
    port().lamb_moments(stream(), update, Mirrored(m, spans).spans);
  }
  void lamb_coefficients(Stream, const optim::LambRule& rule, const double* sums,
                         double* coefficients, int64_t n) override {
    Mirror m;
    port().lamb_coefficients(stream(), rule, m.there(sums, 2 * n), m.there(coefficients, n), n);
  }

 private:
  struct Mirrored {
    Mirrored(Mirror& m, Spans from) {
      for (Span one : from) {
        auto& list = states.emplace_back();
        for (int i = 0; i < one.state_count; ++i) list.push_back(m.there(one.states[i], one.n));
        one.states = list.data();
        one.p = m.there(one.p, one.n);
        one.grad = m.bytes(const_cast<void*>(one.grad), one.n * size_of(one.grad_type));
        one.low = m.bytes(one.low, one.n * size_of(one.low_type));
        if (one.coefficient != nullptr) one.coefficient = m.there(one.coefficient, 1);
        if (one.sums != nullptr) one.sums = m.there(one.sums, 2);
        if (one.direction != nullptr) one.direction = m.there(one.direction, one.n);
        spans.push_back(one);
      }
    }
    std::deque<std::vector<float*>> states;
    std::vector<Span> spans;
  };
  static kernels::Port& port() { return device::of(*gpu().place).kernels(); }
  static Stream stream() { return device::of(*gpu().place).stream(*gpu().place); }
};

}  // namespace

kernels::Port& hosted_port() {
  static HostedPort port;
  return port;
}

}  // namespace dsj::gpu
