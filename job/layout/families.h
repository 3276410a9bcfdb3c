// The model families that the engine runs: for each model_type, the reader of its config.json. A
// family whose operations exist is one reader (family_readers.h), its row in the table, and a fixture
// (tests/oracle/family_oracle.py).
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "job/layout/config_fields.h"
#include "job/layout/model_shape.h"

namespace dsj::layout {

struct Family {
  const char* model_type;
  const char* models;  ///< for people: "Llama 2, Llama 3"
  const char* reads;   ///< what config.json decides beyond sizes, as Markdown for docs/models.md
  /// Fills all of `out` but model_type; leaves problems in `fields`.
  void (*read)(const nlohmann::json& config, Fields& fields, ModelConfig& out);
};

std::span<const Family> families();
/// Null: unknown.
const Family* family_of(const std::string& model_type);
/// What a type that people bring and no reader knows would need: "alibi positions". Null: nobody looked.
const char* unbuilt(const std::string& model_type);
/// "known model types: llama (Llama 2, Llama 3), ..."
std::string known_families();

}  // namespace dsj::layout
