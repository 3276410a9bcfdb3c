#include "engine/train/generate.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "engine/data/prompt.h"
#include "engine/data/tokenizer.h"
#include "engine/memory/counting_allocator.h"
#include "engine/train/generator.h"
#include "engine/train/rank_env.h"
#include "engine/weights/adapter.h"
#include "engine/weights/weight_source.h"
#include "job/contract.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"

namespace dsj::train {
namespace {

using nlohmann::json;

struct Options {
  std::string model, data, output = "text";
  int64_t max_new_tokens = 64, batch = 64, limit = INT64_MAX;
};

struct Prompt {
  json row;
  std::vector<int32_t> ids;
  std::string completion;
};

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

Result<std::vector<json>> read_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return bad_input("cannot be read", path);
  std::stringstream text;
  text << file.rdbuf();
  json whole = json::parse(text.str(), nullptr, false);
  std::vector<json> rows;
  if (whole.is_array()) {
    rows.assign(whole.begin(), whole.end());
  } else {
    text.clear();
    text.seekg(0);
    int line_number = 0;
    for (std::string line; std::getline(text, line);) {
      ++line_number;
      if (trimmed(line).empty()) continue;
      json row = json::parse(line, nullptr, false);
      if (row.is_discarded())
        return bad_input("is not JSON", path + ":" + std::to_string(line_number));
      rows.push_back(std::move(row));
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].is_object() || !rows[i].contains("instruction") ||
        !rows[i]["instruction"].is_string()) {
      return bad_input("row " + std::to_string(i) + " has no text \"instruction\"", path);
    }
  }
  return rows;
}

void print(const std::vector<Prompt>& prompts, const Options& options) {
  int64_t exact = 0, judged = 0;
  for (const auto& prompt : prompts) {
    const auto output = prompt.row.find("output");
    const bool known = output != prompt.row.end() && output->is_string();
    const bool equal = known && trimmed(prompt.completion) == trimmed(output->get<std::string>());
    judged += known;
    exact += equal;
    if (options.output == "json") {
      json line{{"instruction", prompt.row["instruction"]}, {"completion", prompt.completion}};
      if (prompt.row.contains("input")) line["input"] = prompt.row["input"];
      if (known) line["output"] = *output, line["exact"] = equal;
      std::printf("%s\n", line.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
    } else {
      std::printf("> %s %s\n%s\n", prompt.row["instruction"].get<std::string>().c_str(),
                  prompt.row.value("input", std::string()).c_str(), prompt.completion.c_str());
    }
  }
  const std::string summary =
      json{{"prompts", prompts.size()}, {"judged", judged}, {"exact", exact}}.dump();
  std::printf(options.output == "json" ? "%s\n" : "exact matches: %s\n", summary.c_str());
}

/// What --model names: a model, or an adapter and its base model.
struct Subject {
  std::string directory;  ///< of the model
  std::optional<weights::AdapterConfig> adapter;
};

Result<Subject> subject_of(Files& files, const std::string& directory) {
  DSJ_TRY(const bool is_adapter, files.exists(path_join(directory, weights::kAdapterConfigFile)));
  if (!is_adapter) return Subject{directory, {}};
  DSJ_TRY(auto config, weights::read_adapter_config(files, directory));
  DSJ_TRY(const bool there, files.exists(path_join(config.base, "config.json")));
  if (!there)
    return bad_input("the base model \"" + config.base + "\" is no directory here", directory,
                     "dsj merge --base DIR --adapter " + directory + " -o OUT makes one model");
  const std::string base = config.base;
  return Subject{base, std::move(config)};
}

Result<std::unique_ptr<Generator>> load_generator(Files& files, const Options& options,
                                                  const Subject& subject,
                                                  const layout::ModelConfig& model,
                                                  comm::Collectives& collectives) {
  DSJ_TRY(const auto source, weights::WeightSource::open(files, subject.directory));
  if (!subject.adapter) {
    auto generator = std::make_unique<Generator>(model, collectives);
    DSJ_TRY_STATUS(generator->load(source));
    return generator;
  }
  DSJ_TRY(const auto lora, layout::resolve_lora(model, subject.adapter->lora));
  DSJ_TRY(const auto adapter, weights::WeightSource::open_file(
                                  files, path_join(options.model, weights::kAdapterWeightsFile)));
  auto generator = std::make_unique<Generator>(model, collectives, lora);
  DSJ_TRY_STATUS(generator->load(source, &adapter));
  return generator;
}

/// Prompts that run together: neighbours in length, because attention runs once for each length.
std::vector<std::vector<size_t>> batches_of(const std::vector<Prompt>& prompts, int64_t batch,
                                            bool one_length) {
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto length = [&](size_t i) { return prompts[i].ids.size(); };
  std::ranges::stable_sort(order, {}, length);
  std::vector<std::vector<size_t>> batches;
  for (const size_t i : order) {
    if (batches.empty() || std::ssize(batches.back()) == batch ||
        (one_length && length(batches.back().back()) != length(i)))
      batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

Status generate(const Options& options) {
  PosixFiles files;
  DSJ_TRY(const Subject subject, subject_of(files, options.model));
  DSJ_TRY(const auto model, layout::read_model_config(subject.directory));
  DSJ_TRY(const auto tokenizer, data::Tokenizer::load(subject.directory));
  DSJ_TRY(const auto rows, read_rows(options.data));
  DSJ_TRY(const auto collectives, comm::make_collectives({}));
  DSJ_TRY(const auto loaded, load_generator(files, options, subject, model, *collectives));
  Generator& generator = *loaded;
  std::vector<Prompt> prompts;
  for (const auto& row : rows) {
    if (static_cast<int64_t>(prompts.size()) == options.limit) break;
    const std::string input = row.value("input", std::string());
    DSJ_TRY(auto ids,
            tokenizer->encode(data::alpaca_prompt(row["instruction"].get<std::string>(), input)));
    if (static_cast<int64_t>(ids.size()) > model.longest_sequence()) {
      return bad_input("row " + std::to_string(prompts.size()) + " has " +
                           std::to_string(ids.size()) + " tokens, the model takes " +
                           std::to_string(model.longest_sequence()),
                       options.data);
    }
    prompts.push_back({row, std::move(ids), {}});
  }
  for (const auto& members :
       batches_of(prompts, options.batch, Generator::takes_one_length(model))) {
    std::vector<std::vector<int32_t>> ids;
    for (const size_t member : members) ids.push_back(prompts[member].ids);
    const auto completions = generator.complete(ids, options.max_new_tokens, tokenizer->stop_ids());
    for (size_t i = 0; i < members.size(); ++i) {
      prompts[members[i]].completion = tokenizer->decode(completions[i], /*skip_special=*/true);
    }
  }
  print(prompts, options);
  return {};
}

}  // namespace

int run_generate(const std::vector<std::string>& args) {
  Options options;
  ArgumentParser parser("Completes the prompts of an alpaca file, greedily", "dsj generate");
  parser
      .option("--model", options.model,
              "a Hugging Face model directory, or an adapter's whose base is a directory here")
      .required();
  parser
      .option("--data", options.data, "alpaca rows, JSON or JSONL; \"output\" is what is expected")
      .required();
  parser.option("--max-new-tokens", options.max_new_tokens, "tokens per completion").positive();
  parser.option("--batch", options.batch, "prompts at a time").positive();
  parser.option("--limit", options.limit, "prompts at most").positive();
  parser.option("-o,--output", options.output, "text or json").one_of({"text", "json"});
  if (const auto over = parser.parse(args)) {
    return *over == 0 ? contract::kExitDone : contract::kExitBadInput;
  }
  if (const auto switches = check_kernel_switches(); !switches) {
    std::fprintf(stderr, "dsj generate: %s\n", switches.error().to_string().c_str());
    return contract::kExitBadInput;
  }
  memory::install();
  c10::AutoGradMode no_autograd(false);
  try {
    if (const auto done = generate(options); !done) {
      std::fprintf(stderr, "dsj generate: %s\n", done.error().to_string().c_str());
      return done.error().kind == ErrorKind::BadInput ? contract::kExitBadInput
                                                      : contract::kExitEnvironment;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dsj generate: %s\n", error.what());
    return contract::kExitFailed;
  }
  return contract::kExitDone;
}

}  // namespace dsj::train
