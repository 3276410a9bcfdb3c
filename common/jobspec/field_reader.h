// Reads fields of a manifest's objects; everything wrong is a finding. Internal.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/dsconfig/resolve.h"
#include "common/jobspec/policies.h"

namespace dsj::jobspec {

class FieldReader {
 public:
  using Severity = dsconfig::Finding::Severity;
  explicit FieldReader(std::vector<dsconfig::Finding>& findings) : findings_(findings) {}

  void report(Severity severity, const std::string& path, std::string message,
              std::string hint = {});
  /// Reports every name that is not in manifest_fields()[table] (`table` empty: [path]).
  void fields(const nlohmann::json& object, const std::string& path, const std::string& table = {});
  /// The child when it is there and an object; reports another type.
  const nlohmann::json* object(const nlohmann::json& parent, const char* name,
                               const std::string& path);
  /// Sets `field` to a whole number from `least` to `most`. False: absent or wrong.
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

/// spec.suspend, runPolicy, failurePolicy, liveness, checkpoint.
Policies read_policies(const nlohmann::json& spec, FieldReader& reader);
/// spec.workers.template: a container "worker", and nothing that the operator sets itself. With
/// `user_program` (launcher: Command) that container names an image and a command, else neither a
/// command nor args.
void check_template(const nlohmann::json& pod, const std::string& path, bool user_program,
                    FieldReader& reader);

}  // namespace dsj::jobspec
