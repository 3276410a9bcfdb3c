#include "engine/checkpoint/damage.h"

#include "common/files/file_error.h"

namespace dsj::checkpoint {

constexpr char kDamagedHint[] = "the checkpoint is damaged: use an older one";

std::unexpected<Error> damaged(std::string what, std::string path) {
  return fail(ErrorKind::Environment, std::move(what), std::move(path), kDamagedHint);
}

Error judged(Error error) {
  const bool is_missing = error.kind == ErrorKind::BadInput;
  if (is_missing || is_disk_fault(error)) {
    error.kind = ErrorKind::Environment;
    error.hint = kDamagedHint;
  }
  return error;
}

bool is_damage(const Error& error) {
  return error.hint == kDamagedHint;
}

}  // namespace dsj::checkpoint
