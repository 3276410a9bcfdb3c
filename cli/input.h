// What `dsj validate`, `dsj plan` and `dsj run` are given: a DeepSpeedJob, a bare ds_config, or the
// arguments of a torchrun line. They are told apart by their content. It reads files and decides
// nothing.
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
  std::optional<jobspec::Job> job;  ///< a DeepSpeedJob; unset: a bare ds_config
  dsconfig::Document ds_config;     ///< the bare ds_config
  /// The text could be read but makes no sense: this is the only finding.
  std::optional<Error> syntax;
  /// The job was read as a cluster takes it.
  bool for_cluster = false;
};

enum class Reading {
  Local,  ///< as a job of this machine
  /// A manifest with what only a cluster has (a pod template, a policy) is read as a cluster takes it.
  ByContent,
};

/// Error: the file cannot be read, or is of a known kind that is not read here.
Result<Input> read_input(const std::string& path, const std::vector<std::string>& overrides = {},
                         Reading reading = Reading::Local);

/// Puts the ds_config that a manifest at `path` names by its file into the manifest: a cluster does
/// not see this machine.
Status take_in_config(nlohmann::json& manifest, const std::string& path);

/// The words of a verb that takes a job either as a file or as a torchrun line.
struct JobWords {
  std::vector<std::string> own;   ///< the verb's own options with their values
  std::vector<std::string> file;  ///< words that are no option: the file, and what is too much
  std::vector<std::string> line;  ///< the torchrun line; empty: there is a file, or nothing
};

/// An option of the verb's own. The first that fits a word takes it.
struct OwnOption {
  std::string_view name;  ///< "--output"
  bool takes_value = true;
  /// Whether a value is the verb's; null: each is. Others belong to the line.
  bool (*is_own)(std::string_view value) = nullptr;
};

/// A word that no line has, and that is nearly one of `own`, is the verb's: its parser says so.
JobWords split_words(Arguments args, std::initializer_list<OwnOption> own);

/// The job of a line, as read_input() gives that of a file.
Result<Input> read_line(const std::vector<std::string>& line,
                        const std::vector<std::string>& overrides);

}  // namespace dsj::cli
