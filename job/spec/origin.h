// The source of a manifest, which determines what paths in it mean. Internal to jobspec.
#pragma once

#include <filesystem>
#include <string>

#include "job/spec/job.h"

namespace dsj::jobspec {

struct Origin {
  std::string base;  ///< the directory of relative paths
  Place place = Place::Local;
  std::optional<bool> read_only_root = {};  ///< read_cluster_manifest()'s

  bool in_cluster() const { return place == Place::Cluster; }
  /// An absolute path; empty stays empty.
  std::string absolute(const std::string& path) const {
    if (path.empty()) return path;
    namespace fs = std::filesystem;
    return fs::absolute(fs::path(base) / path).lexically_normal().string();
  }
};

}  // namespace dsj::jobspec
