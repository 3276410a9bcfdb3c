// What `dsj run` says about a report, beside its progress (run_progress.h). Pure.
#pragma once

#include <optional>
#include <string>

#include "cli/run/run_status.h"

namespace dsj::cli {

struct Sentence {
  std::string text;
  bool is_problem = false;  ///< for stderr
};

/// nullopt: the report is shown as progress, or is the last one. `status` has taken the report.
std::optional<Sentence> sentence_of(const report::Report& told, const RunStatus& status,
                                    const std::string& output_dir);

/// "  | " before every line.
std::string quoted(const std::string& text);

}  // namespace dsj::cli
