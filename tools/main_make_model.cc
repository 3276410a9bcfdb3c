// dsj-make-model --output DIR --vocabulary N --hidden N ...: makes a model directory with random
// weights, for trials with a real vocabulary without a trained model. It also copies the
// tokenizer's files.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "tools/random_model.h"

int main(int argc, char** argv) {
  dsj::ArgumentParser parser("Makes a model directory with random weights.");
  std::string output;
  std::vector<std::string> tokenizer;
  dsj::tools::ModelShape shape{.hidden = 256,
                               .layers = 4,
                               .heads = 4,
                               .kv_heads = 2,
                               .inner = 704,
                               .vocabulary = 151936,
                               .positions = 2048,
                               .end_of_text = 151643};
  uint64_t seed = 1;
  parser.option("--output", output, "directory to write").required();
  parser.option("--family", shape.family, "model_type of its config.json")
      .one_of({"llama", "mistral", "qwen2", "qwen3", "gpt2"})
      .show_default();
  parser.option("--hidden", shape.hidden, "hidden size").show_default();
  parser.option("--layers", shape.layers, "decoder layers").show_default();
  parser.option("--heads", shape.heads, "query heads").show_default();
  parser.option("--kv-heads", shape.kv_heads, "key and value heads").show_default();
  parser.option("--inner", shape.inner, "intermediate size").show_default();
  parser.option("--vocabulary", shape.vocabulary, "rows of the embedding").show_default();
  parser.option("--positions", shape.positions, "longest sequence").show_default();
  parser.option("--end-of-text", shape.end_of_text, "id of the end-of-text token").show_default();
  parser.flag("--tied,!--untied", shape.tied, "share embedding and head (tied)");
  parser.option("--tokenizer", tokenizer, "files to copy beside the model");
  parser.option("--seed", seed, "of the weights").show_default();
  if (const auto over = parser.parse(argc, argv)) return *over;
  std::error_code error;
  std::filesystem::create_directories(output, error);
  for (const auto& file : tokenizer) {
    std::filesystem::copy(file, output, std::filesystem::copy_options::overwrite_existing, error);
    if (error) {
      std::fprintf(stderr, "dsj-make-model: %s: %s\n", file.c_str(), error.message().c_str());
      return 2;
    }
  }
  dsj::PosixFiles files;
  if (const auto written = dsj::tools::write_random_model(files, output, shape, seed); !written) {
    std::fprintf(stderr, "dsj-make-model: %s\n", written.error().to_string().c_str());
    return 3;
  }
  std::printf("%s: %.1f M parameters\n", output.c_str(),
              static_cast<double>(dsj::tools::parameter_count(shape)) / 1e6);
  return 0;
}
