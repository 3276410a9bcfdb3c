// Replaces a small file that only running processes need, and that is written again before the next
// ones need it. A reader sees the old content or the new one, as with Files::write_atomically, but
// nothing is synced: a power loss may leave either, or an empty file. A start does not wait for the
// disk.
#pragma once

#include <string>
#include <string_view>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj {

/// By way of "PATH.tmp". One writer at a time.
Status replace_file(Files& files, const std::string& path, std::string_view content);

}  // namespace dsj
