// Converts a failed system call on a file to an Error. PosixFiles and fakes use it, so that a test
// sees the error of a real disk.
// Tested by: tests/common/files/files_test.cc
#pragma once

#include <string>

#include "common/result.h"

namespace dsj {

/// The error of `operation` on `path` that failed with errno `number`. BadInput: the path does not
/// exist. Transient: the reason may vanish (no descriptors or memory left, a file server that does
/// not answer, a stale handle). Environment: everything else. Error::Cause::Disk: the disk cannot
/// read its data back (EIO, a checksum of the file system or of the device).
Error file_error(const std::string& operation, const std::string& path, int number);

}  // namespace dsj
