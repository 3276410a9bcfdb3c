// The messages of `dsj run` about reports, in addition to the progress (run_progress.h). Pure.
#pragma once

#include <optional>
#include <string>

#include "cli/run/run_status.h"

namespace dsj::cli {

struct Sentence {
  std::string text;
  bool is_problem = false;  ///< for stderr
};

/// nullopt if the report is progress or the last one. `status` already includes the report.
std::optional<Sentence> sentence_of(const report::Report& told, const RunStatus& status,
                                    const std::string& output_dir);

/// "  | " before every line.
std::string quoted(const std::string& text);

}  // namespace dsj::cli
