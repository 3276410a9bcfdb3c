#include "tests/engine/simulated/late_port.h"

#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/optim/optimizer.h"
#include "tests/engine/simulated/late_queues.h"
#include "tests/engine/support/operands.h"

namespace dsj::simulated {
namespace {

using kernels::Rows;
using kernels::Span;
using kernels::Spans;
using kernels::Stream;

using testing_support::size_of;

Touch rows(const Rows& x, bool writes) {
  if (x.data == nullptr || x.rows == 0) return {};
  const auto elements = static_cast<size_t>((x.rows - 1) * x.stride + x.width);
  return {x.data, elements * static_cast<size_t>(size_of(x.type)), writes};
}
template <typename T>
Touch values(T* x, int64_t n) {
  return {x, x ? static_cast<size_t>(n) * sizeof(T) : 0, !std::is_const_v<T>};
}

/// What an operation touches, by the types of its members.
struct Touches {
  void operator()(const Rows& x) { all.push_back(rows(x, true)); }
  void operator()(const kernels::In& x) { all.push_back(rows(x, false)); }
  template <typename T>
  void operator()(std::span<T> x) {
    all.push_back(values(x.data(), std::ssize(x)));
  }
  void operator()(double* number) { all.push_back(values(number, 1)); }
  void operator()(const optim::LambRule*) {}  // of the host
  template <typename T>
  requires std::is_arithmetic_v<T>
  void operator()(T) {}
  std::vector<Touch> all;
};

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
      all.push_back(values(s.p, s.n));
      if (s.grad)
        all.push_back({s.grad, size_t(s.n) * static_cast<size_t>(size_of(s.grad_type)), false});
      for (int i = 0; i < s.state_count; ++i) all.push_back(values(s.states[i], s.n));
      if (s.low)
        all.push_back({s.low, size_t(s.n) * static_cast<size_t>(size_of(s.low_type)), true});
      if (s.coefficient) all.push_back(values(s.coefficient, 1));
      if (s.sums) all.push_back(values(s.sums, 2));
      if (s.direction) all.push_back(values(s.direction, s.n));
    }
    return all;
  }
  std::vector<Span> spans;
  std::vector<std::vector<float*>> states;
};

class LatePort final : public kernels::UniformPort<LatePort> {
 public:
  const char* name() const override { return "late"; }
  int64_t partials(int64_t n) const override { return cpu_.partials(n); }

  /// Queues the operation with copies of what it points to on the host.
  template <typename Op>
  void each(Stream s, const Op& op, const char* name) {
    if constexpr (requires { op.spans; }) {
      const OwnSpans own(op.spans);
      queue(name, own.touches(), [=, this, update = *op.update] {
        cpu_.run(s, Op{.update = &update, .spans = own.spans});
      });
    } else {
      Touches touches;
      testing_support::for_members(op, touches);
      if constexpr (requires { op.rule; }) {
        queue(name, std::move(touches.all), [=, this, rule = *op.rule] {
          Op copy = op;
          copy.rule = &rule;
          cpu_.run(s, copy);
        });
      } else {
        queue(name, std::move(touches.all), [=, this] { cpu_.run(s, op); });
      }
    }
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
