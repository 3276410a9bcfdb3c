// Classifies errors that mean that a checkpoint's own bytes are damaged. A resume skips a damaged
// checkpoint and renames it. Every other error ends the run with its reason: no file descriptors
// left, no permission, an unresponsive file server, a later version of the format.
// Tested by: tests/engine/checkpoint/damage_test.cc
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::checkpoint {

/// Environment, Error::Cause::Damage: the content of `path` differs from what was written.
std::unexpected<Error> damaged(std::string what, std::string path);

/// Classifies an error of the file port from opening or reading a checkpoint's file. A missing
/// file, and a disk that does not return its bytes, become Error::Cause::Damage. Other errors are
/// unchanged.
Error judged(Error error);

}  // namespace dsj::checkpoint
