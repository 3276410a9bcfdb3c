#include "engine/optim/muon.h"

namespace dsj::optim {

MuonUpdate muon_update(const dsconfig::ResolvedConfig& config, const Rates& rates, int64_t updates,
                       double grad_scale) {
  return {.matrices = {.lr = rates.lr,
                       .momentum = config.optimizer.momentum,
                       .weight_decay = config.optimizer.weight_decay,
                       .grad_scale = grad_scale,
                       .method = config.muon.ns_method,
                       .steps = static_cast<int>(config.muon.ns_steps)},
          .others = make_update(config.optimizer, rates, updates, grad_scale)};
}

}  // namespace dsj::optim
