#include "job/generate_arguments.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/format.h"

namespace dsj {
namespace {

using nlohmann::json;

/// The values that a setting accepts.
struct Range {
  double least, most;
  bool least_too = true;  ///< whether `least` is accepted
};
constexpr Range kTemperature{0, 100}, kShare{0, 1}, kTopP{0, 1, false}, kPenalty{0, 100, false};
constexpr Range kTopK{0, INT32_MAX};

std::optional<std::string> outside(double value, const Range& range) {
  if (std::isfinite(value) && value <= range.most &&
      (value > range.least || (range.least_too && value == range.least)))
    return std::nullopt;
  return text::format("%g is not a number %s %g and at most %g", value,
                      range.least_too ? "of at least" : "above", range.least, range.most);
}

void number(ArgumentParser& parser, const char* name, std::optional<double>& to, const Range& range,
            const char* help) {
  parser.option(
      name,
      [&to, range](const std::string& word) -> std::optional<std::string> {
        double value = 0;
        const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (failed != std::errc() || end != word.data() + word.size())
          return "\"" + word + "\" is not a number";
        if (auto wrong = outside(value, range)) return wrong;
        to = value;
        return std::nullopt;
      },
      help);
}

void add_sampling_arguments(ArgumentParser& parser, SamplingArguments& to, const char* unset) {
  number(parser, "--temperature", to.temperature, kTemperature, unset);
  parser.option("--top-k", to.top_k, "keep the k best tokens; 0 keeps all").non_negative();
  number(parser, "--top-p", to.top_p, kTopP, "keep the best tokens with this share together");
  number(parser, "--min-p", to.min_p, kShare, "drop tokens below this share of the best one");
  number(parser, "--repetition-penalty", to.repetition_penalty, kPenalty,
         "above 1: tokens that have occurred become less likely");
  parser.option("--seed", to.seed, "for sampling; the same seed gives the same answers");
}

void take_over(Sampling& sampling, const SamplingArguments& given) {
  sampling.temperature = given.temperature.value_or(sampling.temperature);
  sampling.top_k = given.top_k.value_or(sampling.top_k);
  sampling.top_p = given.top_p.value_or(sampling.top_p);
  sampling.min_p = given.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = given.repetition_penalty.value_or(sampling.repetition_penalty);
  sampling.seed = given.seed;
}

bool names_a_share(const SamplingArguments& given) {
  return given.top_k || given.top_p || given.min_p;
}

}  // namespace

Sampling resolve_sampling(const SamplingArguments& given) {
  Sampling sampling;
  if (names_a_share(given)) sampling.temperature = 1;
  take_over(sampling, given);
  return sampling;
}

Result<Sampling> resolve_sampling(const SamplingArguments& given, const json& file,
                                  const std::string& where) {
  Sampling sampling;
  Status bad;
  const auto read = [&](const char* key, const Range& range, auto& to) {
    if (!file.is_object() || !file.contains(key) || file[key].is_null()) return;
    const json& value = file[key];
    const auto wrong =
        value.is_number() ? outside(value.get<double>(), range) : value.dump() + " is not a number";
    if (wrong)
      bad = bad_input(*wrong, where + ": " + key, "correct the file, or give the option");
    else
      to = static_cast<std::remove_reference_t<decltype(to)>>(value.get<double>());
  };
  const bool samples = file.is_object() && file.value("do_sample", json()) == true;
  if (samples || names_a_share(given) || given.temperature.value_or(0) > 0) {
    sampling.temperature = 1;
    sampling.top_k = 50;
    read("temperature", kTemperature, sampling.temperature);
    read("top_k", kTopK, sampling.top_k);
    read("top_p", kTopP, sampling.top_p);
    read("min_p", kShare, sampling.min_p);
  }
  read("repetition_penalty", kPenalty, sampling.repetition_penalty);
  DSJ_TRY_STATUS(bad);
  take_over(sampling, given);
  return sampling;
}

namespace {

void add_device(ArgumentParser& parser, std::string& to) {
  parser.option("--device", to, "auto, the default: a GPU if the driver shows one; cpu; cuda")
      .one_of({"auto", "cpu", "cuda"});
}

}  // namespace

void add_generate_arguments(ArgumentParser& parser, GenerateArguments& to) {
  parser
      .option("--model", to.model,
              "a Hugging Face model directory, or an adapter's if its base is a directory here")
      .required();
  const auto data = parser.option(
      "--data", to.data,
      "alpaca or chat rows, JSON or JSONL, - for standard input; each row's last answer "
      "is the expected one");
  parser.option("--prompt", to.prompt, "one question as text, - for standard input").excludes(data);
  parser.flag("--raw", to.raw, "the text as it is: the model continues it").excludes(data);
  parser.option("--chat-template", to.chat_template,
                "as training.chatTemplate; by default the model's own");
  parser.option("--max-new-tokens", to.max_new_tokens, "tokens per completion").positive();
  add_sampling_arguments(parser, to.sampling, "0, the default: always the best token");
  add_device(parser, to.device);
  parser.option("--batch", to.batch, "prompts at a time").positive();
  parser.option("--limit", to.limit, "rows at most").positive();
  parser.option("-o,--output", to.output, "text or json").one_of({"text", "json"});
}

void add_chat_arguments(ArgumentParser& parser, ChatArguments& to) {
  parser
      .option("MODEL", to.model,
              "a Hugging Face model directory, or an adapter's if its base is a directory here")
      .required();
  parser.option("--system", to.system, "the system message");
  parser.option("--chat-template", to.chat_template,
                "as training.chatTemplate; by default the model's own");
  parser.option("--max-new-tokens", to.max_new_tokens, "tokens per answer").positive();
  add_device(parser, to.device);
  add_sampling_arguments(parser, to.sampling, "0: always the best token");
}

}  // namespace dsj
