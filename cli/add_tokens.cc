// dsj add-tokens: gives a model tokens that it lacks.
#include <cstdio>
#include <string>

#include "cli/check/hub_cache.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "common/path_list.h"
#include "engine/weights/new_tokens.h"

namespace dsj::cli {

int run_add_tokens(Arguments args) {
  ArgumentParser parser{
      "Writes a model directory with new tokens. Each new row of the embedding and of the output "
      "layer is the mean of the old rows. Train the new model with its embeddings (full "
      "fine-tuning, or LoRA with --lora_modules_to_save embed_tokens,lm_head, and "
      "--ensure_weight_tying True for a model that has one weight for both).",
      "dsj add-tokens"};
  weights::AddTokensOptions options;
  std::string tokens, format;
  parser.option("--model", options.model, "the model directory or hub id").required();
  parser.option("--tokens", tokens, "the tokens, separated by commas").required();
  parser.option("--output", options.output, "the new model, a directory that does not exist yet")
      .required();
  parser.flag("--special", options.special, "special tokens: decoded answers leave them out");
  parser
      .option("--pad-to-multiple-of", options.multiple,
              "what the number of rows is a multiple of, if rows are added")
      .positive();
  parser.option("--max-shard-bytes", options.shard_bytes_max, "the largest size of a weight file")
      .positive();
  add_format(parser, format);
  if (const auto over = parser.parse(args)) return *over;
  JsonResult result(format);
  PosixFiles files;
  const auto directory = find_model(options.model, hub_cache_directory());
  if (!directory) return report("add-tokens", directory.error());
  options.model = *directory;
  options.tokens = split_commas(tokens);
  const auto done = weights::add_tokens(files, options);
  if (!done) return report("add-tokens", done.error());
  for (const std::string& name : done->left_out)
    std::fprintf(stderr, "dsj add-tokens: \"%s\" is not a weight and was left out\n", name.c_str());
  nlohmann::json added = nlohmann::json::object();
  for (const auto& token : done->added) {
    added[token.text] = token.id;
    std::printf("%lld  %s\n", static_cast<long long>(token.id), token.text.c_str());
  }
  for (const std::string& token : done->known)
    std::printf("%s is in the tokenizer\n", token.c_str());
  std::printf("%s: %lld rows in the embedding, before %lld\n", options.output.c_str(),
              static_cast<long long>(done->rows), static_cast<long long>(done->rows_before));
  result.print({{"model", options.output},
                {"added", added},
                {"known", done->known},
                {"rowsBefore", done->rows_before},
                {"rows", done->rows},
                {"leftOut", done->left_out}});
  return 0;
}

}  // namespace dsj::cli
