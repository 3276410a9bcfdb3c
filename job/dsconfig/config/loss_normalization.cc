#include "job/dsconfig/config/loss_normalization.h"

#include "common/check.h"
#include "job/dsconfig/config/objective.h"

namespace dsj::dsconfig {

std::string name_of(LossNormalization normalization) {
  switch (normalization) {
    case LossNormalization::Token:
      return "token";
    case LossNormalization::Rank:
      return "rank";
    case LossNormalization::MicroBatch:
      break;
  }
  return "micro-batch";
}

LossNormalization loss_normalization(const TrainingArgs& args) {
  using enum LossNormalization;
  if (!args.loss_normalization) return objective_of(args).judges() ? MicroBatch : Token;
  for (const auto one : {Token, Rank, MicroBatch})
    if (*args.loss_normalization == name_of(one)) return one;
  DSJ_CHECK(false, "loss normalization %s", args.loss_normalization->c_str());
}

}  // namespace dsj::dsconfig
