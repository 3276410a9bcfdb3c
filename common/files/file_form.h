// What a file is, by its first bytes: for messages about a file that is not what its reader expects
// (a Git LFS pointer in place of weights, a Parquet file in place of rows).
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
  std::string_view remedy;  ///< how to get at what it holds
};

/// As many bytes as file_form() looks at; fewer are looked at as far as they go.
inline constexpr size_t kFileFormBytes = 512;

/// nullopt: none of the known forms. JSON, safetensors, zip archives and pickles are not told: a
/// reader of those knows them better. `head`: the file's first bytes.
std::optional<FileForm> file_form(std::string_view head);
/// The same of an open file. Error: it cannot be read.
Result<std::optional<FileForm>> file_form(const ReadFile& file);

/// BadInput: the file has a form of file_form(), so it is not what `expected` names ("weights").
Status refuse_other_form(const ReadFile& file, const std::string& path, const char* expected);

}  // namespace dsj
