// dsj-make-model --output DIR --vocabulary N --hidden N ...: a model directory with random
// weights, for trials at a real vocabulary when no trained model is at hand. The tokenizer's files
// are copied beside it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "tools/random_model.h"

int main(int argc, char** argv) {
  CLI::App app("Makes a model directory with random weights.");
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
  app.add_option("--output", output, "directory to write")->required();
  app.add_option("--family", shape.family, "model_type of its config.json")
      ->check(CLI::IsMember({"llama", "mistral", "qwen2", "qwen3", "gpt2"}))
      ->capture_default_str();
  app.add_option("--hidden", shape.hidden, "hidden size")->capture_default_str();
  app.add_option("--layers", shape.layers, "decoder layers")->capture_default_str();
  app.add_option("--heads", shape.heads, "query heads")->capture_default_str();
  app.add_option("--kv-heads", shape.kv_heads, "key and value heads")->capture_default_str();
  app.add_option("--inner", shape.inner, "intermediate size")->capture_default_str();
  app.add_option("--vocabulary", shape.vocabulary, "rows of the embedding")->capture_default_str();
  app.add_option("--positions", shape.positions, "longest sequence")->capture_default_str();
  app.add_option("--end-of-text", shape.end_of_text, "id of the end-of-text token")
      ->capture_default_str();
  app.add_flag("--tied,!--untied", shape.tied, "share embedding and head (tied)");
  app.add_option("--tokenizer", tokenizer, "files to copy beside the model");
  app.add_option("--seed", seed, "of the weights")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
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
