// Checks ds_config against the key table and brings it to one form: one name per key, numbers as
// numbers, "5e8" read, nulls gone. Pure. Called by resolve(), and by `dsj validate` for a bare
// file.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/dsconfig/resolve.h"

namespace dsj::dsconfig {

struct Checked {
  /// Known keys only, under the table's names; "auto" stays; what had an error is left out.
  nlohmann::json config = nlohmann::json::object();
  /// The table's path → the path the user wrote, where they differ.
  std::map<std::string, std::string> written;
  std::vector<Finding> findings;

  /// The value at the table's path; null when absent.
  const nlohmann::json* find(const std::string& path) const;
  /// The path as the user wrote it.
  const std::string& written_path(const std::string& path) const;
};

Checked check(const nlohmann::json& ds_config);

/// --strict: a key nobody reads becomes an error.
void make_strict(std::vector<Finding>& findings);

}  // namespace dsj::dsconfig
