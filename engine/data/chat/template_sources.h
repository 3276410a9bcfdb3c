// Finds the chat templates of a model directory. It reads files and does not parse the templates.
// Tested by: tests/engine/data/chat/chat_test.cc, tests/engine/gguf/vocabulary_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

inline constexpr int64_t kTemplateBytesMax = 4 << 20;

struct TemplateSources {
  std::string name;         ///< the file with the templates
  std::string source;       ///< the default template; empty if the model has none
  std::string tool_source;  ///< the template named tool_use; empty if the model has none
};

/// chat_template.jinja, else the chat_template of chat_template.json or tokenizer_config.json.
/// Errors: BadInput if there are several and none is named default.
Result<TemplateSources> template_sources(Files& files, const std::string& model_dir);

/// A file's JSON object, empty if the file is missing. Errors: BadInput if it is not an object.
Result<nlohmann::json> json_object_of(Files& files, const std::string& path);

}  // namespace dsj::data
