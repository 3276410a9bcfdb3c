// Resolves ${...} in a configuration tree like OmegaConf: ${a.b[0]}, ${.sibling}, ${..uncle},
// nested ${a.${b}}, inside a longer string, and \${ for literal text. Resolvers
// (${oc.env:HOME}, ${oc.decode:x}) are not called: the environment is not read. They are kept
// as written and reported.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::jobimport {

class Interpolator {
 public:
  /// `root` must outlive the object; `source` is for messages.
  Interpolator(const nlohmann::json& root, std::string source)
      : root_(root), source_(std::move(source)) {}

  /// The value at `path` ("actor_train.training_args"; "" is the root) with everything below it
  /// resolved; null if it does not exist. Errors, with the path: a reference has no target, is
  /// circular, or the value grows beyond 100,000 nodes.
  Result<nlohmann::json> at(const std::string& path);

  /// The absolute paths of all resolved references.
  const std::set<std::string>& followed() const { return followed_; }

  /// "path: ${oc.env:HOME}": the expressions that were kept as written, in order.
  const std::vector<std::string>& left_open() const { return left_open_; }

 private:
  struct Text;
  Result<nlohmann::json> node(const std::string& path, int depth);
  Result<nlohmann::json> resolve(const nlohmann::json& value, const std::string& path, int depth);
  Result<nlohmann::json> text(const std::string& value, const std::string& path, int depth);
  Result<nlohmann::json> reference(const std::string& inner, const std::string& path, int depth);
  const nlohmann::json* find(const std::string& path) const;

  const nlohmann::json& root_;
  std::string source_;
  std::vector<std::string> visiting_;
  std::set<std::string> followed_;
  std::vector<std::string> left_open_;
  size_t nodes_ = 0;
};

}  // namespace dsj::jobimport
