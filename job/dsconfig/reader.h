// Reads ds_config text as DeepSpeed does (Hjson): JSON plus comments (#, //, /* */), trailing or
// missing commas at line ends, unquoted keys and strings, '''multi-line''' strings, optional braces
// around the whole. Duplicate keys are an error. Every key and value keeps its line and column. The
// command line and the job readers call it; ranks get plain JSON. It recurses to kMaxDepth at most,
// so that a hostile file cannot exhaust the stack.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/result.h"
#include "job/dsconfig/resolution.h"

namespace dsj::dsconfig {

inline constexpr int kMaxDepth = 64;

/// 1-based; 0: unknown. Columns count bytes.
struct Position {
  int line = 0, column = 0;
};

/// For a JSON path ("zero_optimization.stage", "optimizer.params.betas[0]"): where its key and its
/// value begin. An array element has a value only.
struct Entry {
  Position key, value;
};
using Positions = std::map<std::string, Entry, std::less<>>;

struct Document {
  nlohmann::json value;
  Positions positions;
  std::string source;  ///< the file's name, for messages
};

/// Error: where = "SOURCE:LINE:COLUMN".
Result<Document> parse_text(std::string_view text, const std::string& source);
/// The longest text of a ds_config or a manifest, in bytes.
inline constexpr size_t kMaxText = 1 << 20;
/// A file's bytes, one more than kMaxText at most. Error: it cannot be read.
Result<std::string> text_of_file(const std::string& path);
/// Reads the file, then parse_text. Error: the file is over 1 MiB.
Result<Document> read_file(const std::string& path);

/// Fills in line and column of each finding from the position of its path, or of the nearest parent
/// if the path itself is not in the text.
void locate(std::vector<Finding>& findings, const Positions& positions);

}  // namespace dsj::dsconfig
