#include "engine/train/step/best.h"

#include <cmath>

namespace dsj::train {

using nlohmann::json;

bool count_evaluation(const dsconfig::BestConfig& config, int64_t step, double loss, Best& best) {
  if (!config.on()) return false;
  const bool better =
      best.loss ? (config.greater ? loss > *best.loss : loss < *best.loss) : std::isfinite(loss);
  // The first evaluation is never a failure.
  const bool improves = best.evaluations++ == 0 ||
                        (better && (!best.loss || std::abs(loss - *best.loss) > config.threshold));
  best.failures = improves ? 0 : best.failures + 1;
  if (config.patience > 0 && best.failures >= config.patience) best.stopped = true;
  if (!better) return false;
  best.loss = loss;
  best.step = step;
  return true;
}

void count_save(int64_t step, Best& best) {
  if (best.loss && best.step == step) best.checkpoint = step;
}

json to_json(const Best& best) {
  if (best.evaluations == 0) return nullptr;
  return {{"evaluations", best.evaluations},
          {"eval_loss", best.loss ? json(*best.loss) : json()},
          {"step", best.step},
          {"checkpoint", best.checkpoint ? json(*best.checkpoint) : json()},
          {"failures", best.failures},
          {"stopped", best.stopped}};
}

Best best_from_json(const json& saved, const dsconfig::BestConfig& config) {
  Best best;
  if (!config.on() || !saved.is_object()) return best;
  const auto number = [&](const char* name) { return saved.value(name, json()); };
  if (number("eval_loss").is_number()) best.loss = number("eval_loss").get<double>();
  if (number("checkpoint").is_number_integer())
    best.checkpoint = number("checkpoint").get<int64_t>();
  if (number("step").is_number_integer()) best.step = number("step").get<int64_t>();
  if (number("evaluations").is_number_integer())
    best.evaluations = number("evaluations").get<int64_t>();
  if (number("failures").is_number_integer()) best.failures = number("failures").get<int64_t>();
  best.stopped = config.patience > 0 && number("stopped") == true;
  return best;
}

}  // namespace dsj::train
