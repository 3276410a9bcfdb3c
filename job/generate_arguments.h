// What `dsj generate` takes. dsj-train reads it (engine/train/generate.h); dsj shows it in completions and
// manual pages.
// Tested by: tests/run/completion_check.py
#pragma once

#include <cstdint>
#include <string>

#include "common/argument_parser.h"

namespace dsj {

struct GenerateArguments {
  std::string model, data, prompt, chat_template = "auto", output = "text";
  bool raw = false;
  int64_t max_new_tokens = 64, batch = 64, limit = INT64_MAX;
};

inline constexpr char kGenerateDescription[] =
    "Answers the questions of a data file, of --prompt or of standard input, greedily";

/// Makes `parser` read them into `to`.
void add_generate_arguments(ArgumentParser& parser, GenerateArguments& to);

}  // namespace dsj
