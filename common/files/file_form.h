// Recognizes a file's format by its first bytes, for messages about files that a reader does not
// expect (a Git LFS pointer instead of weights, a Parquet file instead of rows).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj {

struct FileForm {
  std::string_view name;    ///< "a Parquet file"
  std::string_view remedy;  ///< how to get usable data from it
};

/// The number of bytes that file_form() examines; fewer are examined as far as they go.
inline constexpr size_t kFileFormBytes = 512;

/// nullopt if it is no known format. JSON, safetensors, zip archives and pickles are not reported:
/// their readers recognize them better. `head`: the file's first bytes.
std::optional<FileForm> file_form(std::string_view head);
/// The same for an open file. Errors: if it cannot be read.
Result<std::optional<FileForm>> file_form(const ReadFile& file);

/// Errors: BadInput if file_form() recognizes the file, so it is not `expected` ("weights").
Status refuse_other_form(const ReadFile& file, const std::string& path, const char* expected);

}  // namespace dsj
