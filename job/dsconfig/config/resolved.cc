#include "job/dsconfig/config/resolved.h"

namespace dsj::dsconfig {

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::Fp32:
      return "fp32";
    case Precision::Bf16:
      return "bf16";
    case Precision::Fp16:
      return "fp16";
  }
  return "?";
}

bool Cadence::due(int64_t step, int64_t steps_per_epoch, int64_t total_steps) const {
  switch (kind) {
    case Kind::Never:
      return false;
    case Kind::Steps:
      return step % every == 0;
    case Kind::Epoch:
      return step == total_steps || (steps_per_epoch > 0 && step % steps_per_epoch == 0);
  }
  return false;
}

}  // namespace dsj::dsconfig
