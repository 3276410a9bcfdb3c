#include "common/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <vector>

namespace dsj::text {
namespace {

/// The sorted words of "stage3_paramPersistence": equal for names that differ only in the order of
/// words.
std::vector<std::string> words(std::string_view name) {
  std::vector<std::string> result;
  std::string word;
  for (char c : name) {
    const bool upper = std::isupper(static_cast<unsigned char>(c));
    if (c == '_' || c == '-' || c == ' ' || upper) {
      if (!word.empty()) result.push_back(std::move(word));
      word.clear();
      if (!upper) continue;
    }
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (!word.empty()) result.push_back(std::move(word));
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Keys are short. The limit bounds the quadratic cost of a hostile megabyte key.
  constexpr size_t kLongest = 256;
  if (a.size() > kLongest || b.size() > kLongest) return a == b ? 0 : static_cast<int>(kLongest);
  std::vector<int> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      current[j] = std::min(
          {previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string normalized(std::string_view name) {
  std::string result;
  for (char c : name) {
    if (c == '_' || c == '-' || c == ' ') continue;
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

std::string closest(std::string_view name, std::span<const std::string> candidates) {
  const std::string wanted = normalized(name);
  if (wanted.size() < 2) return {};
  const auto wanted_words = words(name);
  std::string best;
  int best_distance = INT32_MAX;
  for (const std::string& candidate : candidates) {
    const std::string other = normalized(candidate);
    int distance = edit_distance(wanted, other);
    if (wanted_words.size() > 1 && wanted_words == words(candidate))
      distance = std::min(distance, 1);
    const size_t length = std::max(wanted.size(), other.size());
    const int allowed = length <= 4 ? 1 : length <= 9 ? 2 : 3;
    // If half of a short name differs, it is another name: "msamp" is no misspelling of "amp".
    const bool mostly_equal =
        2 * distance <= static_cast<int>(std::min(wanted.size(), other.size()));
    if (distance <= allowed && mostly_equal && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string best = closest(name, candidates);
  return best.empty() ? "" : "did you mean \"" + best + "\"?";
}

std::optional<double> parse_double(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  // from_chars also accepts "inf", "nan" and "infinity", which a config must not contain.
  if (std::isalpha(
          static_cast<unsigned char>(text.front() == '-' && text.size() > 1 ? text[1] : text[0])))
    return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<int64_t> to_int(double value) {
  if (!std::isfinite(value) || value != std::floor(value)) return std::nullopt;
  if (value < -9.2e18 || value > 9.2e18) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc() && !text.empty() && end == text.data() + text.size()) return whole;
  const auto value = parse_double(text);
  return value ? to_int(*value) : std::nullopt;
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string lower = normalized(text);
  for (const char* yes : {"true", "yes", "on", "1", "t", "y"})
    if (lower == yes) return true;
  for (const char* no : {"false", "no", "off", "0", "f", "n"})
    if (lower == no) return false;
  return std::nullopt;
}

size_t invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) {
      return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0;
    };
    const unsigned char first = byte(0);
    size_t length = 0;
    if (first < 0x80)
      length = 1;
    else if (first >= 0xC2 && first <= 0xDF)
      length = 2;
    else if (first >= 0xE0 && first <= 0xEF)
      length = 3;
    else if (first >= 0xF0 && first <= 0xF4)
      length = 4;
    else
      return i;
    for (size_t k = 1; k < length; ++k)
      if ((byte(k) & 0xC0) != 0x80) return i;
    if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
        (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F))
      return i;
    i += length;
  }
  return std::string_view::npos;
}

std::string number(double value) {
  if (std::isnan(value)) return "nan";  // with either sign
  if (const auto whole = to_int(value); whole && std::abs(value) < 1e15)
    return std::to_string(*whole);
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

}  // namespace dsj::text
