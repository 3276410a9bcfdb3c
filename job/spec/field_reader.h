// Reads fields of a manifest's objects. Everything wrong becomes a finding. Internal to jobspec.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/dsconfig/resolve.h"

namespace dsj::jobspec {

class FieldReader {
 public:
  using Severity = dsconfig::Finding::Severity;
  explicit FieldReader(std::vector<dsconfig::Finding>& findings) : findings_(findings) {}

  void report(Severity severity, const std::string& path, std::string message,
              std::string hint = {});
  /// Reports every name that manifest_fields()[table] lacks (`table` empty: [path]).
  void fields(const nlohmann::json& object, const std::string& path, const std::string& table = {});
  /// The child if it is there and an object; reports another type.
  const nlohmann::json* object(const nlohmann::json& parent, const char* name,
                               const std::string& path);
  /// Sets `field` to a whole number from `least` to `most`. False: it is missing or wrong.
  bool whole(const nlohmann::json& object, const std::string& path, const char* name, int64_t least,
             int64_t most, int64_t& field);
  void flag(const nlohmann::json& object, const std::string& path, const char* name, bool& field);
  void words(const nlohmann::json& object, const std::string& path, const char* name,
             std::vector<std::string>& field);
  void choice(const nlohmann::json& object, const std::string& path, const char* name,
              const std::vector<std::string>& choices, std::string& field);

  static std::string join(const std::string& path, const std::string& name);
  static std::string shown(const nlohmann::json& value);

 private:
  std::vector<dsconfig::Finding>& findings_;
};

/// What the container "worker" must say of the ranks' program.
enum class RankProgram {
  Engine,     ///< neither a command nor args
  Own,        ///< launcher: Command: an image and a command
  OwnInPart,  ///< the same, and a DeepSpeedJobTemplate that nobody has read yet may say it
};

/// Checks spec.workers.template: it has a container "worker" and sets nothing that the operator
/// sets itself.
void check_template(const nlohmann::json& pod, const std::string& path, RankProgram program,
                    FieldReader& reader);

}  // namespace dsj::jobspec
