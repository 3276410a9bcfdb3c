// What the parts of resolve() read and where they write: functions of a row of the key table and
// the arguments. Defaults are the rows' (keys.h). Internal to dsconfig.
#pragma once

#include <optional>
#include <string>

#include "job/dsconfig/check.h"
#include "job/dsconfig/keys.h"
#include "job/dsconfig/resolution.h"
#include "job/training_args.h"

namespace dsj::dsconfig {

/// All that resolve() is given. A path is a row's, never the user's.
struct Source {
  const Checked& checked;
  const TrainingArgs& args;
  const Facts& facts;
  bool alone = false;  ///< the job is not known yet (resolve_alone)

  /// The value; null: absent or "auto".
  const nlohmann::json* literal(const std::string& path) const;
  bool is_auto(const std::string& path) const;
  /// The literal, else the row's default. T: bool, int64_t, double or std::string.
  template <typename T>
  T value(const std::string& path) const {
    const nlohmann::json* found = literal(path);
    return found == nullptr ? default_of(path).get<T>() : found->get<T>();
  }
  /// The same where the row has no default, because it depends on more than the key.
  template <typename T>
  T value(const std::string& path, const T& fallback) const {
    const nlohmann::json* found = literal(path);
    return found == nullptr ? fallback : found->get<T>();
  }
  /// The row's default. The row exists and has one.
  static const nlohmann::json& default_of(const std::string& path);
};

/// Writes into a Resolution; paths become those that the user wrote.
class Report {
 public:
  /// Both outlive it.
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
  /// ds_config and an argument contradict each other.
  void mismatch(const std::string& path, const std::string& here, const std::string& argument_path,
                const std::string& there);
  /// Neither the file nor the job says what `note` is about: an Error, or the note when the job is
  /// not known.
  void absent(Note note, std::string message, std::string hint);
  void note(Note note) { out_.notes.push_back(std::move(note)); }
  void origin(const std::string& path, const std::string& value, const std::string& from);
  /// A fact was missing.
  void incomplete() { out_.complete = false; }
  /// Whether the path has an error already.
  bool has_error(const std::string& path) const;

 private:
  const Source& source_;
  Resolution& out_;
};

inline constexpr char kDeepSpeedDefault[] = "default (DeepSpeed 0.19)";
inline constexpr char kHuggingFaceDefault[] = "default (Hugging Face)";

/// An argument that can stand for a key.
struct Argument {
  std::optional<double> value;
  const char* name;         ///< under "training."
  double hugging_face = 0;  ///< what Hugging Face writes for "auto" when nobody gives it
};

/// ds_config's literal (it must equal the argument, if one is given), else the argument, else the
/// default of whoever would have filled it in: Hugging Face for "auto", DeepSpeed for an absent key
/// (`deepspeed`, else the row's default).
double matched(const Source& in, Report& out, const std::string& path, const Argument& argument,
               std::optional<double> deepspeed = std::nullopt);

/// Writes every literal whose row names its field. The other fields keep their defaults.
void read_fields(const Source& in, ResolvedConfig& config);
/// Writes every "auto" that the hidden size decides, where the key acts at the config's stage.
void apply_hidden_size(const Source& in, ResolvedConfig& config, Report& out);

}  // namespace dsj::dsconfig
