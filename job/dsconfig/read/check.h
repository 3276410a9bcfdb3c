// Checks ds_config against the key table and normalises it: one name per key, numbers as numbers
// (also "5e8"), no nulls. Pure. resolve() calls it; `dsj validate` calls it for a bare file.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/dsconfig/read/resolution.h"

namespace dsj::dsconfig {

struct Checked {
  /// Known keys only, under the table's names. "auto" remains; entries with an error are left out.
  nlohmann::json config = nlohmann::json::object();
  /// The table's path → the user's path, where they differ.
  std::map<std::string, std::string> written;
  std::vector<Finding> findings;

  /// The value at the table's path; null if absent.
  const nlohmann::json* find(const std::string& path) const;
  /// The path as the user wrote it.
  const std::string& written_path(const std::string& path) const;
};

Checked check(const nlohmann::json& ds_config);

/// --strict: makes an unknown key an error.
void make_strict(std::vector<Finding>& findings);

}  // namespace dsj::dsconfig
