// GPT-2's alphabet: it writes each of the 256 bytes as a printable character, so that a
// vocabulary of byte strings can be text. Internal to engine/data.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dsj::data {

/// Bytes as alphabet characters (UTF-8).
std::string to_byte_alphabet(std::string_view bytes);
/// The reverse. nullopt if a character is not in the alphabet. `text` must be well-formed UTF-8.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace dsj::data
