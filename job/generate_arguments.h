// The arguments of `dsj generate` and `dsj chat`. dsj-train reads them (engine/train/answer/generate.h,
// chat.h); dsj shows them in completions and manual pages.
// Tested by: tests/run/completion_check.py, tests/run/chat_check.py
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/argument_parser.h"
#include "common/result.h"

namespace dsj {

/// How a token is chosen (engine/train/answer/sampling.h).
struct Sampling {
  double temperature = 0;  ///< 0: the most probable token
  int64_t top_k = 0;       ///< 0: all
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  uint64_t seed = 0;
};

/// The sampling options of the command line; unset if not given.
struct SamplingArguments {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  uint64_t seed = 0;
};

/// The options over the defaults. Without options the most probable token is chosen; --top-k,
/// --top-p or --min-p without --temperature sample at temperature 1.
Sampling resolve_sampling(const SamplingArguments& given);
/// The options over a model's generation_config.json (null if missing), with transformers' defaults
/// for the rest. Errors: BadInput with the file's path (`where`) and the wrong value.
Result<Sampling> resolve_sampling(const SamplingArguments& given, const nlohmann::json& file,
                                  const std::string& where);

struct GenerateArguments {
  std::string model, data, prompt, chat_template = "auto", device = "auto", output = "text";
  bool raw = false;
  int64_t max_new_tokens = 64, batch = 64, limit = INT64_MAX;
  SamplingArguments sampling;
};

struct ChatArguments {
  std::string model, system, chat_template = "auto", device = "auto";
  int64_t max_new_tokens = 1024;
  SamplingArguments sampling;
};

inline constexpr char kGenerateDescription[] =
    "Answers the questions of a data file, of --prompt or of standard input";
inline constexpr char kChatDescription[] =
    "Talks with a model: a line is a turn, /help lists commands, Ctrl-C stops an answer, Ctrl-D "
    "ends.\n"
    "Sampling follows the model's generation_config.json; options override it.";

/// Declares the options; `parser` reads them into `to`.
void add_generate_arguments(ArgumentParser& parser, GenerateArguments& to);
void add_chat_arguments(ArgumentParser& parser, ChatArguments& to);

}  // namespace dsj
