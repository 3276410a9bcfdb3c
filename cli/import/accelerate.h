// Reads the settings of `accelerate launch`: its options, and the file of `accelerate config`.
// Tested by: tests/cli/import/launcher_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::jobimport {

/// Merges into one object: the keys of the file in --config_file, including those of its
/// "deepspeed_config" and "parallelism_config", and then the options as text. Removes the options
/// that it used from `options`. Errors: BadInput if the file cannot be read or is not YAML.
Result<nlohmann::json> accelerate_settings(Files& files,
                                           std::map<std::string, std::string>& options);

/// The ds_config that accelerate's DeepSpeedPlugin makes from settings without a ds_config file
/// (accelerate 1.15). Values are converted to their types: "3" becomes 3.
nlohmann::json accelerate_ds_config(const nlohmann::json& settings);
/// Size of DeepSpeed's sequence parallelism (parallelism_config); 1 if it is not used.
int64_t sequence_ranks(const nlohmann::json& settings);
/// Other settings of parallelism_config that are not built, one sentence each.
std::vector<std::string> parallelism_left_out(const nlohmann::json& settings);

}  // namespace dsj::jobimport
