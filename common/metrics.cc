#include "common/metrics.h"

#include <cmath>

namespace dsj {
namespace {
nlohmann::json finite(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}
}  // namespace

nlohmann::json to_json(const StepMetrics& m) {
  return {{"step", m.step},
          {"loss", finite(m.loss)},
          {"lr", finite(m.lr)},
          {"grad_norm", finite(m.grad_norm)},
          {"loss_scale", finite(m.loss_scale)},
          {"skipped", m.skipped},
          {"tokens", m.tokens},
          {"tokens_per_second", finite(m.tokens_per_second)},
          {"step_seconds", finite(m.step_seconds)},
          {"wire_bytes", m.wire_bytes},
          {"host_rss_bytes", m.host_rss_bytes}};
}

}  // namespace dsj
