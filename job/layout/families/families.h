// The model families that the engine runs: the reader of config.json for each model_type. A family
// whose operations exist needs a reader (family_readers.h), a row in the table, and a fixture
// (tests/oracle/family_oracle.py).
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "job/layout/shape/config_fields.h"
#include "job/layout/shape/model_shape.h"

namespace dsj::layout {

struct Family {
  const char* model_type;
  const char* models;  ///< for people: "Llama 2, Llama 3"
  const char* reads;   ///< what config.json sets besides sizes, as Markdown for docs/models.md
  /// Sets everything in `out` except model_type; reports problems to `fields`.
  void (*read)(const nlohmann::json& config, Fields& fields, ModelConfig& out);
};

std::span<const Family> families();
/// Null if unknown.
const Family* family_of(const std::string& model_type);
/// What a common type without a reader would need: "alibi positions". Null if not examined.
const char* unbuilt(const std::string& model_type);
/// "known model types: llama (Llama 2, Llama 3), ..."
std::string known_families();

}  // namespace dsj::layout
