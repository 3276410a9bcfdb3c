#include "engine/data/tokenizer/token_decoder.h"

#include "engine/data/text/unicode.h"
#include "engine/data/tokenizer/normalizer.h"

namespace dsj::data {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::vector<std::string> bytes_joined(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string run;
  const auto close = [&] {
    if (run.empty()) return;
    if (find_invalid_utf8(run)) {
      out.insert(out.end(), run.size(), "\uFFFD");
    } else {
      out.push_back(run);
    }
    run.clear();
  };
  for (const std::string& token : tokens) {
    if (const int byte = fallback_byte(token); byte >= 0) {
      run += static_cast<char>(byte);
      continue;
    }
    close();
    out.push_back(token);
  }
  close();
  return out;
}

std::string stripped(std::string_view token, const DecodeStep& step) {
  const std::string_view mark = step.text;
  for (std::size_t i = 0; i < step.start && token.starts_with(mark); ++i) {
    token.remove_prefix(mark.size());
  }
  for (std::size_t i = 0; i < step.stop && token.ends_with(mark); ++i) {
    token.remove_suffix(mark.size());
  }
  return std::string(token);
}

}  // namespace

int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);  // Rust's parser accepts a sign
  const int low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string decode_tokens(const std::vector<DecodeStep>& steps, std::vector<std::string> tokens) {
  for (const DecodeStep& step : steps) {
    switch (step.kind) {
      case DecodeStep::Kind::Replace:
        for (std::string& token : tokens) token = replace_all(token, step.find, step.text);
        break;
      case DecodeStep::Kind::ByteFallback:
        tokens = bytes_joined(tokens);
        break;
      case DecodeStep::Kind::Fuse: {
        std::string whole;
        for (const std::string& token : tokens) whole += token;
        tokens = {std::move(whole)};
        break;
      }
      case DecodeStep::Kind::Strip:
        for (std::string& token : tokens) token = stripped(token, step);
        break;
      case DecodeStep::Kind::Metaspace:
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          const bool dropped = i == 0 && step.start != 0;
          tokens[i] = replace_all(tokens[i], step.find, dropped ? "" : " ");
        }
        break;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (steps.empty() && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace dsj::data
