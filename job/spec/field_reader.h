// Reads a manifest's objects by the rows of the schema. Every error becomes a finding. Internal to jobspec.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/dsconfig/resolve.h"
#include "job/spec/field.h"

namespace dsj::jobspec {

/// "a whole number from 1 to 5", "Required or Preferred".
std::string expected_of(const Field& row);

class FieldReader {
 public:
  using Severity = dsconfig::Finding::Severity;
  explicit FieldReader(std::vector<dsconfig::Finding>& findings) : findings_(findings) {}

  void report(Severity severity, const std::string& path, std::string message,
              std::string hint = {});
  /// Checks the object's fields against the rows and stores their values in `owner`, the struct of
  /// the rows' targets. A wrong value leaves the default. Null counts as missing.
  void read(const Field& row, const nlohmann::json& object, const std::string& path, void* owner);
  /// Whether there is an error at `path` or below.
  bool is_wrong(const std::string& path) const;
  /// The child if it is an object, else null; reports a child of another type.
  const nlohmann::json* object(const nlohmann::json& parent, const char* name,
                               const std::string& path);

  static std::string join(const std::string& path, const std::string& name);
  static std::string shown(const nlohmann::json& value);

 private:
  void read_field(const Field& row, const nlohmann::json& value, const std::string& path,
                  void* owner);
  void read_elements(const Field& row, const nlohmann::json& list, const std::string& path,
                     void* owner);

  std::vector<dsconfig::Finding>& findings_;
};

/// What the container "worker" must contain for the ranks' program.
enum class RankProgram {
  Engine,     ///< neither a command nor args
  Own,        ///< launcher: Command: an image and a command
  OwnInPart,  ///< the same, but an unread DeepSpeedJobTemplate may contain it
};

/// Checks spec.workers.template: it has a container "worker" and sets nothing that the operator
/// sets.
void check_template(const nlohmann::json& pod, const std::string& path, RankProgram program,
                    FieldReader& reader);

}  // namespace dsj::jobspec
