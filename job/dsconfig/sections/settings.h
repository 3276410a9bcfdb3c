// An object of settings in ds_config with its path, for sections whose keys depend on each other.
// Internal to dsconfig.
// Tested by: tests/job/dsconfig/sections/data_efficiency_test.cc
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/dsconfig/config/data_efficiency_config.h"
#include "job/dsconfig/read/source.h"

namespace dsj::dsconfig {

/// Reports each problem once, at its path.
class Settings {
 public:
  Settings(const nlohmann::json& object, std::string path, Report& out)
      : object_(object), path_(std::move(path)), out_(out) {}

  std::string at(const char* name) const { return path_ + "." + name; }
  bool sound() const { return sound_; }

  /// The value; null if it is missing (need() also reports that).
  const nlohmann::json* find(const char* name) const;
  const nlohmann::json* need(const char* name);
  int64_t whole(const char* name, int64_t least);
  std::vector<int64_t> wholes(const char* name, int64_t least);
  std::string word(const char* name);
  /// A string that is not empty.
  std::string path(const char* name);
  void bad(const char* name, std::string message, std::string hint = {});
  void refuse(const char* name, std::string message, std::string hint);
  /// An inner object. If there is none, reports a problem and returns an empty one.
  Settings inner(const char* name);
  void also(const Settings& other) { sound_ = sound_ && other.sound_; }

 private:
  const nlohmann::json& object_;
  const std::string path_;
  Report& out_;
  bool sound_ = true;
};

/// min_difficulty, max_difficulty, schedule_type and schedule_config of any curriculum.
DifficultySchedule read_schedule(Settings& settings);

}  // namespace dsj::dsconfig
