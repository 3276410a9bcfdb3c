#include "engine/train/answer/generate.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/files/posix_files.h"
#include "engine/data/question.h"
#include "engine/train/answer/answering_model.h"
#include "engine/train/answer/sampling.h"
#include "job/contract.h"
#include "job/generate_arguments.h"

namespace dsj::train {
namespace {

using nlohmann::json;

namespace fs = std::filesystem;

using Options = GenerateArguments;

constexpr char kName[] = "dsj generate";

struct Prompt {
  json row;  ///< null if it is not from a row
  data::Question question;
  std::string completion;
};

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

void print(const std::vector<Prompt>& prompts, const Options& options) {
  int64_t exact = 0, judged = 0;
  for (const auto& prompt : prompts) {
    const auto& answer = prompt.question.answer;
    const bool equal = answer && trimmed(prompt.completion) == trimmed(*answer);
    judged += answer.has_value();
    exact += equal;
    if (options.output == "json") {
      json line = json::object();
      for (const char* field : {"instruction", "input", "messages", "conversations"})
        if (prompt.row.is_object() && prompt.row.contains(field)) line[field] = prompt.row[field];
      if (prompt.row.is_null()) line["prompt"] = prompt.question.asked;
      line["completion"] = prompt.completion;
      if (answer) line["output"] = *answer, line["exact"] = equal;
      std::printf("%s\n", line.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
    } else {
      std::printf("> %s\n%s\n", prompt.question.asked.c_str(), prompt.completion.c_str());
    }
  }
  if (judged == 0 && options.output != "json") return;  // no row has an answer
  const std::string summary =
      json{{"prompts", prompts.size()}, {"judged", judged}, {"exact", exact}}.dump();
  std::printf(options.output == "json" ? "%s\n" : "exact matches: %s\n", summary.c_str());
}

Result<std::string> standard_input() {
  const std::string text{std::istreambuf_iterator<char>(std::cin),
                         std::istreambuf_iterator<char>()};
  if (trimmed(text).empty())
    return bad_input("is empty", "standard input", "give --data or --prompt");
  return text;
}

/// Removes one line end, which the shell adds.
std::string without_line_end(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

Result<std::vector<Prompt>> of_text(const std::string& text, data::Asker& asker, bool raw) {
  DSJ_TRY(auto question, raw ? asker.raw(text) : asker.text(text));
  std::vector<Prompt> prompts;
  prompts.push_back({nullptr, std::move(question), {}});
  return prompts;
}

Result<std::vector<Prompt>> of_rows(const std::vector<json>& rows, const std::string& where,
                                    data::Asker& asker) {
  std::vector<Prompt> prompts;
  for (const json& row : rows) {
    auto question = asker.row(row);
    if (!question) {
      const Error& error = question.error();
      return bad_input("row " + std::to_string(prompts.size()) + ": " + error.message +
                           (error.where.empty() ? "" : " (" + error.where + ")"),
                       where, error.hint);
    }
    prompts.push_back({row, std::move(*question), {}});
  }
  return prompts;
}

/// Reads the prompts of --prompt, --data, or standard input, which contains rows if it begins as
/// JSON.
Result<std::vector<Prompt>> read_prompts(Files& files, const Options& options, data::Asker& asker) {
  constexpr char kStandardInput[] = "standard input", kPipe[] = "the pipe";
  if (!options.prompt.empty() && options.prompt != "-")
    return of_text(options.prompt, asker, options.raw);
  if (std::error_code unknown; fs::is_fifo(options.data, unknown)) {  // data <(command)
    std::ifstream pipe(options.data);
    const std::string text{std::istreambuf_iterator<char>(pipe), std::istreambuf_iterator<char>()};
    DSJ_TRY(const auto rows, data::rows_of(text, kPipe, options.limit));
    return of_rows(rows, kPipe, asker);
  }
  if (!options.data.empty() && options.data != "-") {
    DSJ_TRY(const auto rows, data::read_rows(files, options.data, options.limit));
    return of_rows(rows, options.data, asker);
  }
  DSJ_TRY(const std::string text, standard_input());
  const char first = trimmed(text)[0];
  const bool rows =
      options.data == "-" || (options.prompt != "-" && (first == '{' || first == '['));
  if (!rows) return of_text(without_line_end(text), asker, options.raw);
  DSJ_TRY(const auto read, data::rows_of(text, kStandardInput, options.limit));
  return of_rows(read, kStandardInput, asker);
}

/// Groups prompts of similar length into batches, because attention runs once per length.
std::vector<std::vector<size_t>> batches_of(const std::vector<Prompt>& prompts, int64_t batch,
                                            bool one_length) {
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto length = [&](size_t i) { return prompts[i].question.ids.size(); };
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
  DSJ_TRY(const auto model,
          AnsweringModel::open(files, options.model, options.chat_template, kName));
  DSJ_TRY(auto prompts, read_prompts(files, options, model->asker()));
  for (size_t i = 0; i < prompts.size(); ++i)
    DSJ_TRY_STATUS(model->fits(prompts[i].question.ids, "prompt " + std::to_string(i)));
  DSJ_TRY_STATUS(model->load_weights(options.device));
  const Sampling sampling = resolve_sampling(options.sampling);
  const data::Tokenizer& tokenizer = model->tokenizer();
  for (const auto& members :
       batches_of(prompts, options.batch, Generator::takes_one_length(model->config()))) {
    std::vector<std::vector<int32_t>> ids;
    for (const size_t member : members) ids.push_back(prompts[member].question.ids);
    const auto choose = [&](size_t row, std::span<const float> logits,
                            std::span<const int32_t> completion) {
      return choose_token(sampling, logits, ids[row], completion, members[row]);
    };
    const auto completions =
        model->generator().complete(ids, options.max_new_tokens, tokenizer.stop_ids(), choose);
    for (size_t i = 0; i < members.size(); ++i)
      prompts[members[i]].completion = tokenizer.decode(completions[i], /*skip_special=*/true);
  }
  print(prompts, options);
  return {};
}

}  // namespace

int run_generate(const std::vector<std::string>& args) {
  Options options;
  ArgumentParser parser(kGenerateDescription, kName);
  add_generate_arguments(parser, options);
  if (const auto over = parser.parse(args))
    return *over == 0 ? contract::kExitDone : contract::kExitBadInput;
  return run_answering(kName, [&] { return generate(options); });
}

}  // namespace dsj::train
