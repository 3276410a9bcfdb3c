#include "common/dsconfig/optimizer_states.h"

#include "common/check.h"

namespace dsj::dsconfig {

std::vector<StateSpec> states_of(const OptimizerConfig& c) {
  switch (c.kind) {
    case OptimizerKind::Adam:
    case OptimizerKind::Lamb:
    case OptimizerKind::NAdam:
    case OptimizerKind::RAdam:
      return {{"exp_avg"}, {"exp_avg_sq"}};
    case OptimizerKind::Sgd:
      if (c.momentum == 0) return {};
      return {{"momentum_buffer"}};
    case OptimizerKind::Adagrad:
      return {{"sum", c.initial_accumulator}};
    case OptimizerKind::RMSprop: {
      std::vector<StateSpec> states = {{"square_avg"}};
      if (c.momentum != 0) states.push_back({"momentum_buffer"});
      if (c.centered) states.push_back({"grad_avg"});
      return states;
    }
    case OptimizerKind::Lion:
      return {{"exp_avg"}};
    case OptimizerKind::Adadelta:
      return {{"square_avg"}, {"acc_delta"}};
    case OptimizerKind::Adamax:
      return {{"exp_avg"}, {"exp_inf"}};
    case OptimizerKind::Asgd:
      return {{"ax"}};
    case OptimizerKind::Rprop:
      return {{"prev"}, {"step_size"}};
  }
  DSJ_CHECK(false);
}

}  // namespace dsj::dsconfig
