// What the parts of resolve() read and write: lookups by rows of the key table and by arguments.
// Defaults are in the rows (keys.h). Internal to dsconfig.
#pragma once

#include <optional>
#include <string>

#include "job/dsconfig/keys/keys.h"
#include "job/dsconfig/read/check.h"
#include "job/dsconfig/read/resolution.h"
#include "job/training_args.h"

namespace dsj::dsconfig {

/// The inputs of resolve(). A path is a row's path, never the user's alias.
struct Source {
  const Checked& checked;
  const TrainingArgs& args;
  const Facts& facts;
  bool alone = false;  ///< the job is unknown (resolve_alone)

  /// The value; null if absent or "auto".
  const nlohmann::json* literal(const std::string& path) const;
  bool is_auto(const std::string& path) const;
  /// The literal, or the row's default. T: bool, int64_t, double or std::string.
  template <typename T>
  T value(const std::string& path) const {
    const nlohmann::json* found = literal(path);
    return found == nullptr ? default_of(path).get<T>() : found->get<T>();
  }
  /// The same with `fallback`, for rows without a default (it depends on more than the key).
  template <typename T>
  T value(const std::string& path, const T& fallback) const {
    const nlohmann::json* found = literal(path);
    return found == nullptr ? fallback : found->get<T>();
  }
  /// The default of a row. The row must exist and have one.
  static const nlohmann::json& default_of(const std::string& path);
};

/// Writes into a Resolution. Replaces the rows' paths by those that the user wrote.
class Report {
 public:
  /// Both must outlive it.
  Report(const Source& source, Resolution& out) : source_(source), out_(out) {}

  void finding(Finding::Severity severity, const std::string& path, std::string message,
               std::string hint = {});
  void error(const std::string& path, std::string message, std::string hint = {}) {
    finding(Finding::Severity::Error, path, std::move(message), std::move(hint));
  }
  void warning(const std::string& path, std::string message, std::string hint = {}) {
    finding(Finding::Severity::Warning, path, std::move(message), std::move(hint));
  }
  void unsupported(const std::string& path, std::string message, std::string hint = {}) {
    finding(Finding::Severity::Unsupported, path, std::move(message), std::move(hint));
  }
  /// Reports that ds_config and an argument contradict each other.
  void mismatch(const std::string& path, const std::string& here, const std::string& argument_path,
                const std::string& there);
  /// Reports that neither the file nor the job sets the value of `note`: an Error, or the note if
  /// the job is unknown.
  void absent(Note note, std::string message, std::string hint);
  void note(Note note) { out_.notes.push_back(std::move(note)); }
  void origin(const std::string& path, const std::string& value, const std::string& from);
  /// Records that a fact was missing.
  void incomplete() { out_.complete = false; }
  /// Whether the path has an error already.
  bool has_error(const std::string& path) const;

 private:
  const Source& source_;
  Resolution& out_;
};

inline constexpr char kDeepSpeedDefault[] = "default (DeepSpeed 0.19)";
inline constexpr char kHuggingFaceDefault[] = "default (Hugging Face)";

/// A training argument that can set a key.
struct Argument {
  std::optional<double> value;
  const char* name;         ///< under "training."
  double hugging_face = 0;  ///< what Hugging Face writes for "auto" if it is not given
};

/// The literal of ds_config (it must equal the argument, if given), else the argument, else a
/// default: Hugging Face's for "auto", DeepSpeed's for an absent key (`deepspeed`, else the row's
/// default).
double matched(const Source& in, Report& out, const std::string& path, const Argument& argument,
               std::optional<double> deepspeed = std::nullopt);

/// Writes every literal whose row has a field. The other fields keep their defaults.
void read_fields(const Source& in, ResolvedConfig& config);
/// Sets every "auto" that depends on the hidden size, if the key acts at the config's stage.
void apply_hidden_size(const Source& in, ResolvedConfig& config, Report& out);

}  // namespace dsj::dsconfig
