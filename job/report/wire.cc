#include "job/report/wire.h"

#include <cctype>
#include <limits>

namespace dsj::report {
namespace {

/// The line with quotes around NaN, Infinity and -Infinity where these are values.
std::string with_quoted_words(const std::string& line) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < line.size();) {
    if (in_string) {
      const size_t length = line[i] == '\\' ? 2 : 1;
      in_string = line[i] != '"';
      out += line.substr(i, length);
      i += length;
      continue;
    }
    std::string_view found;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
      if (line.compare(i, word.size(), word) == 0) found = word;
    if (found.empty()) {
      in_string = line[i] == '"';
      out += line[i++];
      continue;
    }
    out += '"' + std::string(found) + '"';
    i += found.size();
  }
  return out;
}

}  // namespace

std::optional<double> number_of_word(std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string word;
  for (const char c : text.substr(negative ? 1 : 0))
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf" || word == "infinity") return negative ? -kInfinity : kInfinity;
  return std::nullopt;
}

nlohmann::json parse_line(const std::string& line) {
  nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_discarded()) return object;
  return nlohmann::json::parse(with_quoted_words(line), nullptr, false);
}

}  // namespace dsj::report
