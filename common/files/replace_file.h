// Replaces a small file that only running processes need and that is rewritten before later ones
// need it. Readers see the old or the new content, as with Files::write_atomically, but nothing is
// synced: a power loss may leave either, or an empty file. In exchange, startup does not wait for
// the disk.
#pragma once

#include <string>
#include <string_view>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj {

/// Writes "PATH.tmp" and renames it. One writer at a time.
Status replace_file(Files& files, const std::string& path, std::string_view content);

}  // namespace dsj
