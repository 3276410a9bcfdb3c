// Reads the input of `dsj validate`, `dsj plan` and `dsj run`: a DeepSpeedJob, a bare
// ds_config, or the arguments of a torchrun line, distinguished by content. It checks nothing
// else.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verbs.h"
#include "common/result.h"
#include "job/spec/job.h"

namespace dsj::cli {

struct Input {
  std::optional<jobspec::Job> job;  ///< a DeepSpeedJob; unset for a bare ds_config
  dsconfig::Document ds_config;     ///< the bare ds_config
  /// Set if the text cannot be parsed; this is then the only finding.
  std::optional<Error> syntax;
  /// The job was read by the rules of a cluster.
  bool for_cluster = false;
};

enum class Reading {
  Local,  ///< as a job for this machine
  /// A manifest with fields only for clusters (pod template, policy) is read by a cluster's rules.
  ByContent,
};

/// Errors: the file cannot be read, or is of a known kind that is not supported here.
Result<Input> read_input(const std::string& path, const std::vector<std::string>& overrides = {},
                         Reading reading = Reading::Local);

/// Replaces the path of a ds_config in a manifest at `path` by the file's content, because a
/// cluster does not see this machine.
Status take_in_config(nlohmann::json& manifest, const std::string& path);

/// The arguments of a verb that accepts a job either as a file or as a torchrun line.
struct JobWords {
  std::vector<std::string> own;   ///< the verb's own options with their values
  std::vector<std::string> file;  ///< words that are not options: the file, and excess words
  std::vector<std::string> line;  ///< the torchrun line; empty if there is none
};

/// An option of the verb itself. The first option that matches a word takes it.
struct OwnOption {
  std::string_view name;  ///< "--output"
  bool takes_value = true;
  /// Whether a value is for the verb (null: always); otherwise the option belongs to the line.
  bool (*is_own)(std::string_view value) = nullptr;
};

/// A misspelled option of `own` that no line can contain goes to the verb's parser, to report it.
JobWords split_words(Arguments args, std::initializer_list<OwnOption> own);

/// Like read_input(), for a torchrun line.
Result<Input> read_line(const std::vector<std::string>& line,
                        const std::vector<std::string>& overrides);

}  // namespace dsj::cli
