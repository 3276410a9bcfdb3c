#include "engine/gguf/pre_tokenizer_name.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/data/tokenizer/split_pattern.h"

namespace dsj::gguf {
namespace {

using data::CutStep;

// The patterns in the tokenizer.json of the models for which llama.cpp has names.
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Named {
  const char* name;
  bool single_digits;  ///< digits are split off one by one first
  std::string_view pattern;
  bool whole_pieces;  ///< ignore_merges
};

/// Where several of llama.cpp's names are equivalent, one is listed. gpt-2's are for models that
/// split as it does; "dbrx" is the pattern of Llama 3 with merges.
constexpr Named kNames[] = {
    {"gpt-2", false, data::kGpt2Pattern, false},
    {"smollm", true, data::kGpt2Pattern, false},
    {"qwen2", false, data::kQwen2Pattern, false},
    {"llama-bpe", false, data::kLlama3Pattern, true},
    {"dbrx", false, data::kLlama3Pattern, false},
    {"tekken", false, kTekken, true},
    {"gpt-4o", false, kGpt4o, false},
    {"qwen35", false, kQwen35, false},
};

/// Matches and the texts between them are pieces. These patterns match every text completely, so
/// nothing is between, and keeping only the matches is equivalent.
bool isolates(const CutStep& step) {
  using enum CutStep::Behavior;
  return (step.behavior == Isolated && !step.invert) || (step.behavior == Removed && step.invert);
}

bool is_single_digits(const CutStep& step) {
  const bool pattern = step.match == CutStep::Match::Pattern &&
                       (step.pattern == R"(\p{N})" || step.pattern == R"(\d)");
  return (step.match == CutStep::Match::Digit || pattern) && isolates(step);
}

std::unexpected<Error> unnamed(const data::TokenizerSpec& spec, const std::string& what) {
  std::string known;
  for (const Named& one : kNames) known += (known.empty() ? "" : ", ") + std::string(one.name);
  return bad_input(
      what, spec.file,
      "llama.cpp would split texts differently; pre-tokenizers with a known name: " + known);
}

}  // namespace

Result<std::string> pre_tokenizer_name(const data::TokenizerSpec& spec) {
  for (const data::NormalStep& step : spec.normalizer.steps) {
    // llama.cpp does not normalize: texts in decomposed form differ, as with its own converter.
    const bool composes =
        step.kind == data::NormalStep::Kind::Form && step.form == data::NormalForm::Nfc;
    if (!composes) return unnamed(spec, "GGUF cannot represent its normalizer");
  }
  bool digits = false;
  std::string_view pattern;
  for (const CutStep& step : spec.steps) {
    if (step.metaspace || step.in_byte_alphabet || step.add_prefix_space)
      return unnamed(spec, "its pre-tokenizer has a step that GGUF cannot represent");
    if (pattern.empty() && !digits && is_single_digits(step)) {
      digits = true;
    } else if (pattern.empty() && step.match == CutStep::Match::Pattern && isolates(step)) {
      pattern = step.pattern;
    } else {
      return unnamed(spec, "its pre-tokenizer has a step that GGUF cannot represent");
    }
  }
  for (const Named& one : kNames) {
    if (one.single_digits == digits && one.pattern == pattern &&
        one.whole_pieces == spec.whole_pieces)
      return std::string(one.name);
  }
  return unnamed(spec, "llama.cpp has no name for its pre-tokenizer");
}

}  // namespace dsj::gguf
