#include "engine/train/inputs/leftovers.h"

#include "engine/checkpoint/retention.h"
#include "engine/comm/agree.h"
#include "engine/weights/export.h"
#include "engine/weights/kept_models.h"
#include "job/contract.h"

namespace dsj::train {

std::vector<std::string> clear_leftovers(Files& files, const JobFile& job,
                                         comm::Collectives& collectives, at::Device device) {
  std::vector<std::string> warnings;
  if (collectives.rank() == 0) {
    warnings = checkpoint::clear_leftovers(
        files, path_join(job.output_dir, contract::kCheckpointsDir), job.attempt);
    const auto more =
        weights::clear_dead_export(files, path_join(job.output_dir, contract::kModelDir));
    warnings.insert(warnings.end(), more.begin(), more.end());
    const auto models =
        weights::clear_dead_models(files, path_join(job.output_dir, contract::kModelsDir));
    warnings.insert(warnings.end(), models.begin(), models.end());
  }
  (void)comm::agree(collectives, device, Status{});
  return warnings;
}

}  // namespace dsj::train
