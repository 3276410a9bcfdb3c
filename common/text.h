// Text helpers that several rooms need: "did you mean", and numbers as users write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dsj::text {

/// Edits (insert, remove, replace, swap neighbours) from `a` to `b`.
int edit_distance(std::string_view a, std::string_view b);

/// Lower case without '_', '-' and spaces, so that "perDevice_Train-batch" and
/// "per_device_train_batch" become the same name.
std::string normalized(std::string_view name);

/// The candidate of which `name` is most likely a misspelling; empty if none is similar. Similar
/// means the same letters in another case or with other separators, the same words in another order
/// ("comm_overlap"), or few edits for its length.
std::string closest(std::string_view name, std::span<const std::string> candidates);

/// `did you mean "x"?`, or empty.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// All of `text` as a finite number ("3", "-1.5", "5e8", ".1"), else nullopt.
std::optional<double> parse_double(std::string_view text);
/// A whole number, also as "5e8" or "32.0"; nullopt if it is fractional or outside int64.
std::optional<int64_t> parse_int(std::string_view text);
/// true/True/yes/on/1 and false/False/no/off/0, as Python command lines accept them.
std::optional<bool> parse_bool(std::string_view text);
/// `value` as a whole number; nullopt if it is fractional or outside int64.
std::optional<int64_t> to_int(double value);

/// Byte offset of the first byte that is not UTF-8; npos if there is none.
size_t invalid_utf8(std::string_view text);

/// The shortest text that reads back as the same double: 0.1, 1e-06, 5.
std::string number(double value);

}  // namespace dsj::text
