// What a failed system call on a file means to the program. PosixFiles makes its errors here, and
// so do fakes, so that a test sees what the disk would have told.
// Tested by: tests/common/files/files_test.cc
#pragma once

#include <string>

#include "common/result.h"

namespace dsj {

/// The error of `operation` on `path` that ended with errno `number`. BadInput: the path does not
/// exist. Transient: the reason may pass by itself (no descriptors or memory left, a file server
/// that does not answer, a stale handle). Environment: everything else. Error::Cause::Disk: the disk does
/// not give its bytes back (EIO, a checksum of the file system or of the device).
Error file_error(const std::string& operation, const std::string& path, int number);

}  // namespace dsj
