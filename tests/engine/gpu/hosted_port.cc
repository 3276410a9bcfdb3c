#include "tests/engine/gpu/hosted_port.h"

#include <ATen/ATen.h>

#include <deque>
#include <map>
#include <span>
#include <type_traits>
#include <vector>

#include "common/check.h"
#include "engine/device/device.h"
#include "tests/engine/gpu/gpu.h"
#include "tests/engine/support/operands.h"

namespace dsj::gpu {
namespace {

using kernels::Rows;
using kernels::Span;
using kernels::Spans;
using kernels::Stream;
using testing_support::size_of;

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
  /// A member of an operation: memory of the host becomes its mirror.
  void operator()(Rows& rows) {
    if (rows.data == nullptr || rows.rows * rows.width == 0) return;
    rows.data = bytes(rows.data, ((rows.rows - 1) * rows.stride + rows.width) * size_of(rows.type));
  }
  template <typename T>
  void operator()(std::span<T>& values) {
    values = {there(values.data(), std::ssize(values)), values.size()};
  }
  void operator()(double*& number) { number = there(number, 1); }
  void operator()(const optim::LambRule*) {}  // of the host
  template <typename T>
  requires std::is_arithmetic_v<T>
  void operator()(T&) {}
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

class HostedPort final : public kernels::UniformPort<HostedPort> {
 public:
  const char* name() const override { return "gpu"; }
  int64_t partials(int64_t rows) const override { return port().partials(rows); }
  template <typename Op>
  void each(Stream, const Op& op, const char*) const {
    Mirror m;
    if constexpr (requires { op.spans; }) {
      const Mirrored there(m, op.spans);
      port().run(stream(), Op{.update = op.update, .spans = there.spans});
    } else {
      Op there = op;
      testing_support::for_members(there, m);
      port().run(stream(), there);
    }
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
