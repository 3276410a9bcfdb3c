// Seeded texts for the tokenizer fixtures; tests/oracle/text_generator.py generates the same.
#pragma once

#include <cstdint>
#include <fstream>
#include <ios>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/text/unicode.h"

namespace dsj::data {

struct Range {
  uint32_t first = 0, count = 0;
};

inline std::vector<Range> read_ranges(const std::string& path) {
  std::ifstream lines(path);
  std::vector<Range> ranges;
  Range range;
  while (lines >> std::hex >> range.first >> std::dec >> range.count) ranges.push_back(range);
  return ranges;
}

class Lcg {
 public:
  explicit Lcg(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint32_t below(std::size_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((state_ >> 33) % limit);
  }
  template <typename Items>
  const auto& pick(const Items& items) {
    return items[below(std::size(items))];
  }

 private:
  uint64_t state_;
};

class TextGenerator {
 public:
  explicit TextGenerator(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
    for (const Range& range : ranges_) total_ += range.count;
  }

  std::string make(uint64_t seed, uint64_t index) const {
    Lcg r(seed * 1000003 + index);
    std::string out;
    const uint32_t parts = 1 + r.below(12);
    for (uint32_t i = 0; i < parts; ++i) part(r, out);
    return out;
  }

 private:
  static constexpr const char* kSpaces[] = {
      " ",      " ",      " ",      "\n",     "\n",     "\r",     "\t",
      "\r\n",   "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b",
      "\u2009", "\x0b",   "\x0c",   "\ufeff", "\u1680", "\x1c",   "\u202f"};
  static constexpr const char* kEmoji[] = {"\U0001F600",
                                           "\U0001F468\u200d\U0001F469\u200d\U0001F467",
                                           "\U0001F44D\U0001F3FD",
                                           "\U0001F1E9\U0001F1EA",
                                           "\u2764\ufe0f",
                                           "1\ufe0f\u20e3",
                                           "\U0001F9D1\u200d\U0001F4BB",
                                           "\U0001F3F4\u200d\u2620\ufe0f",
                                           "\u263a"};
  static constexpr const char* kContractions[] = {"'s",  "'S",  "'\u017f", "'re", "'RE",
                                                  "'ll", "'Ll", "\u2019s", "'d",  "'ve",
                                                  "'M",  "'t",  "'x",      "''s"};
  static constexpr const char* kSpecials[] = {"<|endoftext|>",
                                              "<|im_start|>",
                                              "<|im_end|>",
                                              "<|begin_of_text|>",
                                              "<|end_of_text|>",
                                              "<|extra_7|>",
                                              "<|extra_204|>",
                                              "<|im_",
                                              "<|",
                                              "[W]",
                                              "[W]x",
                                              "x[W]",
                                              "[L]",
                                              " [L]",
                                              "[R] ",
                                              "[R]",
                                              "[N]",
                                              "<pad>",
                                              "caf\u00e9",
                                              "cafe\u0301",
                                              "CAFE\u0301",
                                              "<tool>",
                                              "<tool>s",
                                              "  [L]\n[R]  "};
  static constexpr std::string_view kPunctuation = "!?.,;:-_()[]{}#@&*/\\\"'`~^%$+=<>|";
  static constexpr const char* kWords[] = {
      "the",   "of",     "and",   "to",        "in",       "is",
      "that",  "for",    "model", "training",  "response", "Instruction",
      "input", "output", "write", "a",         "data",     "loss",
      "don't", "we're",  "Below", "describes", "task",     "appropriately"};
  static constexpr Range kBlocks[] = {
      {0xC0, 23},       {0x3B1, 17},  {0x410, 64},  {0x5D0, 27},     {0x621, 26},  {0x904, 54},
      {0xE01, 58},      {0x3041, 86}, {0x30A1, 90}, {0xAC00, 11172}, {0x10D0, 43}, {0x1E00, 256},
      {0x20000, 42720}, {0x660, 10},  {0x2460, 60}, {0x300, 112},    {0x591, 45},  {0x64B, 21},
      {0x1100, 19},     {0x1161, 21}, {0x11A8, 27}, {0x1F100, 64},   {0xFF01, 94}};

  static void from(const Range& range, Lcg& r, std::string& out) {
    append_utf8(range.first + r.below(range.count), out);
  }
  static void several(const Range& range, uint32_t most, Lcg& r, std::string& out) {
    const uint32_t count = 1 + r.below(most);
    for (uint32_t i = 0; i < count; ++i) from(range, r, out);
  }

  void any_code_point(Lcg& r, std::string& out) const {
    uint32_t at = r.below(total_);
    for (const Range& range : ranges_) {
      if (at < range.count) return append_utf8(range.first + at, out);
      at -= range.count;
    }
  }

  static void word(Lcg& r, std::string& out) {
    const bool upper = r.below(4) == 0;
    several({upper ? 0x41u : 0x61u, 26}, 9, r, out);
  }

  void part(Lcg& r, std::string& out) const {
    const uint32_t kind = r.below(16);
    switch (kind) {
      case 0: {
        const uint32_t count = 1 + r.below(3);
        for (uint32_t i = 0; i < count; ++i) from(r.pick(ranges_), r, out);
        return;
      }
      case 1:
        return any_code_point(r, out);
      case 2:
        return word(r, out);
      case 3:
        out.append(" ").append(r.pick(kWords));
        return;
      case 4: {
        const uint32_t count = 1 + r.below(5);
        for (uint32_t i = 0; i < count; ++i) out += r.pick(kSpaces);
        return;
      }
      case 5:
        from({0x61, 26}, r, out);
        return several({0x300, 112}, 4, r, out);
      case 6:
        out += r.pick(kEmoji);
        return;
      case 7:
        return several({0x30, 10}, 8, r, out);
      case 8:
        out += r.pick(kWords);
        out += r.pick(kContractions);
        return;
      case 9:
        out += r.pick(kSpecials);
        return;
      case 10:
        return several({0x4E00, 20902}, 6, r, out);
      case 11:
        from({0x1100, 19}, r, out);
        from({0x1161, 21}, r, out);
        if (r.below(2) == 0) from({0x11A8, 27}, r, out);
        return;
      case 12: {
        const uint32_t count = 1 + r.below(6);
        for (uint32_t i = 0; i < count; ++i) out += r.pick(kPunctuation);
        return;
      }
      case 13:
        return several(r.pick(kBlocks), 6, r, out);
      case 14:
        out += " ";
        return;
      default:
        out.append(r.pick(kWords)).append(" ");
    }
  }

  std::vector<Range> ranges_;
  std::size_t total_ = 0;
};

/// One code point next to letters, digits, spaces and added tokens.
inline std::string sweep_text(uint32_t code_point) {
  std::string c;
  append_utf8(code_point, c);
  return "a" + c + "b " + c + c + " 1" + c + "\n[W]" + c + "[W] [L]" + c + "e\u0301" + c +
         "\u0301 " + c + "'s";
}

/// A hash of lists in order; each list ends with a mark.
class ListHash {
 public:
  void number(uint64_t value) { state_ = (state_ ^ value) * 0x100000001B3u; }
  void end() { number(0xFFFFFFFFu); }
  void list(std::span<const int32_t> ids) {
    for (const int32_t id : ids) number(static_cast<uint64_t>(id));
    end();
  }
  void list(std::string_view bytes) {
    for (const char c : bytes) number(static_cast<uint8_t>(c));
    end();
  }
  std::string hex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[state_ >> shift & 15];
    return text;
  }

 private:
  uint64_t state_ = 0xCBF29CE484222325u;
};

}  // namespace dsj::data
