// Python's str on UTF-8: its methods, its repr, and float's repr. Pure. Texts must be valid UTF-8.
// Tested by: tests/common/jinja/template_test.cc, which compares with Jinja2 itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dsj::jinja {

size_t code_points(std::string_view text);
/// Bytes of the character that begins with `first`.
size_t character_bytes(char first);
/// The code point at byte `at`; moves `at` to the next one.
char32_t next_code_point(std::string_view text, size_t& at);
void append_code_point(char32_t c, std::string& out);
/// The byte offset of code point `index`; the end if there are fewer.
size_t byte_of(std::string_view text, size_t index);

/// repr(float): the shortest text that reads back as the same number: "1e+16", "1.0", "nan".
std::string float_repr(double value);
/// repr(str) with the quotes that Python chooses.
std::string text_repr(std::string_view text);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_digit(char32_t c);  ///< str.isdigit, except for the few digits outside category Nd
bool is_upper(char32_t c);
bool is_lower(char32_t c);

struct Sides {
  bool left = true, right = true;
};
/// Strips white space if `characters` is not given.
std::string_view stripped(std::string_view text, Sides sides,
                          std::optional<std::string_view> characters = std::nullopt);
/// str.split and str.rsplit. Without a separator: runs of white space. `max` < 0: no limit.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t max,
                                    bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// `max` < 0: no limit.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t max);
int64_t occurrences(std::string_view text, std::string_view part);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        ///< str.title
std::string to_capitalized(std::string_view text);  ///< str.capitalize
std::string to_swapped(std::string_view text);      ///< str.swapcase

/// Escapes & < > ' " as markupsafe does.
std::string escaped(std::string_view text);

}  // namespace dsj::jinja
