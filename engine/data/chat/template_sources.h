// Where a model directory has its chat templates. It reads files and does not parse the templates.
// Tested by: tests/engine/data/chat/chat_test.cc, tests/engine/gguf/vocabulary_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

inline constexpr int64_t kTemplateBytesMax = 4 << 20;

struct TemplateSources {
  std::string name;         ///< the file that has them
  std::string source;       ///< the default one; empty: the model has none
  std::string tool_source;  ///< the one named tool_use; empty: there is none
};

/// chat_template.jinja, else the chat_template of chat_template.json or tokenizer_config.json.
/// BadInput: of several templates none is named default.
Result<TemplateSources> template_sources(Files& files, const std::string& model_dir);

/// A file's JSON object; an empty one if the file is not there. BadInput: it has no object.
Result<nlohmann::json> json_object_of(Files& files, const std::string& path);

}  // namespace dsj::data
