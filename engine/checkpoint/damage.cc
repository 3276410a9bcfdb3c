#include "engine/checkpoint/damage.h"

namespace dsj::checkpoint {

constexpr char kDamagedHint[] = "the checkpoint is damaged: use an older one";

std::unexpected<Error> damaged(std::string what, std::string path) {
  return std::unexpected(Error{ErrorKind::Environment, std::move(what), std::move(path),
                               kDamagedHint, Error::Cause::Damage});
}

Error judged(Error error) {
  const bool is_missing = error.kind == ErrorKind::BadInput;
  if (is_missing || error.cause == Error::Cause::Disk) {
    error.kind = ErrorKind::Environment;
    error.hint = kDamagedHint;
    error.cause = Error::Cause::Damage;
  }
  return error;
}

}  // namespace dsj::checkpoint
