// Reads ds_config text as DeepSpeed does (Hjson): JSON with comments (#, //, /* */), trailing or
// missing commas at line ends, unquoted keys and strings, '''multi-line''' strings, optional outer
// braces. Duplicate keys are an error. Every key and value has its line and column. The command
// line and the job readers call it; ranks get plain JSON. Recursion ends at kMaxDepth, so that a
// hostile file cannot exhaust the stack.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/result.h"
#include "job/dsconfig/read/resolution.h"

namespace dsj::dsconfig {

inline constexpr int kMaxDepth = 64;

/// 1-based; 0 if unknown. Columns count bytes.
struct Position {
  int line = 0, column = 0;
};

/// Where the key and the value of a JSON path ("zero_optimization.stage",
/// "optimizer.params.betas[0]") begin. An array element has no key.
struct Entry {
  Position key, value;
};
using Positions = std::map<std::string, Entry, std::less<>>;

struct Document {
  nlohmann::json value;
  Positions positions;
  std::string source;  ///< the file's name, for messages
};

/// Error: the document is a file of `accelerate config`, which names ds_config's settings otherwise.
Status refuse_accelerates(const nlohmann::json& document, const std::string& source);

/// Errors: BadInput at "SOURCE:LINE:COLUMN".
Result<Document> parse_text(std::string_view text, const std::string& source);
/// The longest text of a ds_config or a manifest, in bytes.
inline constexpr size_t kMaxText = 1 << 20;
/// A file's bytes, at most kMaxText + 1. Errors: if it cannot be read.
Result<std::string> text_of_file(const std::string& path);
/// Reads the file and parses it. Errors: as above, and if the file is over 1 MiB.
Result<Document> read_file(const std::string& path);

/// Sets line and column of each finding to the position of its path, or of the nearest parent that
/// the text contains.
void locate(std::vector<Finding>& findings, const Positions& positions);

}  // namespace dsj::dsconfig
