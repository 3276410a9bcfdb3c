// Reads ds_config text as DeepSpeed does (Hjson): JSON plus comments (#, //, /* */), trailing or
// missing commas at line ends, unquoted keys and strings, '''multi-line''' strings, optional braces
// around the whole. Duplicate keys are an error. Every key and value keeps its line and column.
// Called by the command line and the job readers; ranks get plain JSON. No recursion beyond
// kMaxDepth, so that a hostile file cannot exhaust the stack.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/dsconfig/resolve.h"
#include "common/result.h"

namespace dsj::dsconfig {

inline constexpr int kMaxDepth = 64;

/// 1-based; 0: unknown. Columns count bytes.
struct Position {
  int line = 0, column = 0;
};

/// JSON path ("zero_optimization.stage", "optimizer.params.betas[0]") → where its key and its value
/// begin (an array element has a value only).
struct Entry {
  Position key, value;
};
using Positions = std::map<std::string, Entry, std::less<>>;

struct Document {
  nlohmann::json value;
  Positions positions;
  std::string source;  ///< the file's name, for messages
};

/// Errors: where = "SOURCE:LINE:COLUMN".
Result<Document> parse_text(std::string_view text, const std::string& source);
/// Reads the file, then parse_text. A file over 1 MiB is refused.
Result<Document> read_file(const std::string& path);

/// Fills line and column of findings from the positions of their paths (the nearest parent's when
/// the path itself is not in the text).
void locate(std::vector<Finding>& findings, const Positions& positions);

}  // namespace dsj::dsconfig
