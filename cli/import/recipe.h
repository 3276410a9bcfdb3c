// Imports the training files of LLaMA-Factory (`llamafactory-cli train FILE.yaml`) and axolotl
// (`axolotl train FILE.yml`). Their keys become command-line arguments, which the table of `dsj
// run` interprets (spec/job.h). Pure, except for LLaMA-Factory's dataset_info.json.
// Tested by: tests/cli/import/recipe_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/import/imported.h"
#include "common/files/files.h"
#include "common/result.h"

namespace dsj::jobimport {

enum class Recipe { LlamaFactory, Axolotl };

/// "llamafactory" or "axolotl": the kind of `dsj import` that reads the document; nullopt if
/// neither does.
std::optional<std::string> recipe_kind(const nlohmann::json& document);

/// `document`: the file's YAML. A file without a ds_config gets ZeRO stage 0 (data
/// parallelism), as in the tool. `source`: for messages. Errors: BadInput if it is not an
/// object, or asks for an objective or adapter that is not built.
Result<Imported> import_recipe(Files& files, Recipe recipe, const nlohmann::json& document,
                               const std::string& source);

}  // namespace dsj::jobimport
