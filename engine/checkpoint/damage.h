// Which errors say that a checkpoint's own bytes are at fault. A resume passes over a damaged
// checkpoint and sets it aside. Every other error ends the run with its reason: no descriptors
// left, no permission, a file server that does not answer, a later version of the format.
// Tested by: tests/engine/checkpoint/damage_test.cc
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::checkpoint {

/// Environment, Error::Cause::Damage: the content of `path` is not what was written.
std::unexpected<Error> damaged(std::string what, std::string path);

/// Judges an error of the file port, met while a checkpoint's file was opened or read. A file
/// that is missing and a disk that does not give its bytes back are Error::Cause::Damage. Others stay as
/// they are.
Error judged(Error error);

}  // namespace dsj::checkpoint
