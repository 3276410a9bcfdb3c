// The standard streams of a program: closed ones, and output that could not be written.
// Tested by: tests/common/standard_streams_test.cc
#pragma once

#include <string>

namespace dsj {

/// Opens /dev/null in place of each of the descriptors 0 to 2 that is closed. Otherwise the next
/// file that the program opens has that number, and what is printed goes into that file. The first
/// call of main().
void open_standard_streams();

/// Flushes stdout. Why a part of what was printed is lost ("No space left on device"), else "".
std::string lost_output();

/// `code`, the exit code of `who`; `lost_code` in place of 0 if a part of its output is lost. It
/// says so on stderr.
int code_after_output(const std::string& who, int code, int lost_code);

}  // namespace dsj
