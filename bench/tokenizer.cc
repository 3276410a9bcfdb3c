// Tokens per second of the tokenizer on an alpaca file's texts, beside the cost of only cutting
// them into pieces (the pattern by PCRE2, in the same run), which no tokenizer of this kind can
// beat. Usage: bench_tokenizer MODEL_DIR ALPACA_FILE
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/data/tokenizer/split_pattern.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::string> texts_of(const char* path) {
  std::vector<std::string> texts;
  dsj::PosixFiles files;
  const auto text = files.read_all(path);
  if (!text) {
    std::fprintf(stderr, "%s\n", text.error().to_string().c_str());
    std::exit(2);
  }
  for (const auto& row : nlohmann::json::parse(*text)) {
    texts.push_back(row["instruction"].get<std::string>() + "\n" +
                    row.value("input", std::string()) + "\n" + row["output"].get<std::string>());
  }
  return texts;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL_DIR ALPACA_FILE\n", argv[0]);
    return 2;
  }
  dsj::Result<std::unique_ptr<dsj::data::Tokenizer>> tokenizer;
  const double load = seconds_of([&] { tokenizer = dsj::data::Tokenizer::load(argv[1]); });
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().to_string().c_str());
    return 2;
  }
  const auto texts = texts_of(argv[2]);
  std::size_t tokens = 0, bytes = 0;
  for (const auto& text : texts) bytes += text.size();
  const auto encode_all = [&] {
    tokens = 0;
    for (const auto& text : texts) tokens += (*tokenizer)->encode(text).value().size();
  };
  const double first = seconds_of(encode_all);
  double best = 1e9;
  for (int round = 0; round < 5; ++round) best = std::min(best, seconds_of(encode_all));
  const auto pattern = dsj::data::SplitPattern::compile(dsj::data::kQwen2Pattern);
  std::vector<dsj::data::Span> spans;
  double cut = 1e9;
  for (int round = 0; round < 5; ++round) {
    cut = std::min(cut, seconds_of([&] {
                     for (const auto& text : texts) {
                       if (!pattern->match(text, spans)) std::exit(1);
                     }
                   }));
  }
  const double n = static_cast<double>(tokens);
  std::printf("tokenizer %s: load %.3f s; %zu texts, %.2f MB, %zu tokens\n",
              (*tokenizer)->file().c_str(), load, texts.size(), static_cast<double>(bytes) / 1e6,
              tokens);
  std::printf("  first pass %.2f M tokens/s, with a warm cache %.2f M tokens/s (%.1f MB/s)\n",
              n / first / 1e6, n / best / 1e6, static_cast<double>(bytes) / best / 1e6);
  std::printf("  time over that of the pattern alone: %.2f first, %.2f warm\n", first / cut,
              best / cut);
}
