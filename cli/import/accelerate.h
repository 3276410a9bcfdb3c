// The settings of `accelerate launch`: its options, and the file that `accelerate config` writes.
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

/// One object: the keys of the file that --config_file names, those of its "deepspeed_config" and
/// "parallelism_config" among them, and the options over them as text. Takes what it read out of `options`. BadInput: the file
/// cannot be read, or is not YAML.
Result<nlohmann::json> accelerate_settings(Files& files,
                                           std::map<std::string, std::string>& options);

/// The ds_config that accelerate's DeepSpeedPlugin makes of the settings without a file of its own
/// (accelerate 1.15). Values are what they mean: "3" is 3.
nlohmann::json accelerate_ds_config(const nlohmann::json& settings);
/// Ranks that share a row by DeepSpeed's sequence parallelism (parallelism_config); 1: none.
int64_t sequence_ranks(const nlohmann::json& settings);
/// What else parallelism_config asks for that is not built, one a sentence.
std::vector<std::string> parallelism_left_out(const nlohmann::json& settings);

}  // namespace dsj::jobimport
