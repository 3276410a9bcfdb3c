#include "engine/kernels/cuda/cuda_port.h"

#include <variant>

#include "engine/optim/elements.h"

namespace dsj::kernels::cuda {
namespace {

void run(Stream s, const UpdateSpans& op, Scratch&) {
  if (op.spans.empty()) return;
  const auto scale = static_cast<float>(op.update->grad_scale);
  const optim::ElementRule rule = optim::element_rule(*op.update, op.spans[0].state_count);
  std::visit([&](const auto& one) { update(s, rule.index(), &one, scale, op.spans); }, rule);
}
void run(Stream s, const LambMoments& op, Scratch& scratch) {
  lamb_moments(s, optim::lamb_moments(std::get<optim::LambRule>(op.update->rule)),
               static_cast<float>(op.update->grad_scale), op.spans, scratch);
}
void run(Stream s, const LambCoefficients& op, Scratch&) {
  lamb_coefficients(s, op.rule->min_coeff, op.rule->max_coeff, op);
}

/// Runs an operation with its kernel, else on `rest`.
template <typename Op>
void run_here(Stream s, const Op& op, Scratch& scratch, Port& rest) {
  if constexpr (requires { run(s, op, scratch); })
    run(s, op, scratch);
  else
    rest.run(s, op);
}

class CudaPort final : public UniformPort<CudaPort, PartialPort> {
 public:
  CudaPort(Port& rest, Scratch& scratch) : UniformPort(rest), scratch_(scratch) {}
  const char* name() const override { return "cuda"; }
  int64_t partials(int64_t rows) const override { return norm_partials(rows); }
  template <typename Op>
  void each(Stream s, const Op& op, const char*) {
    run_here(s, op, scratch_, rest());
  }

 private:
  Scratch& scratch_;
};

}  // namespace

std::unique_ptr<Port> make_cuda_port(Port& rest, Scratch& scratch) {
  return std::make_unique<CudaPort>(rest, scratch);
}

}  // namespace dsj::kernels::cuda
