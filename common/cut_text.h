// Cuts texts to a maximum length without splitting a character. A split character is not UTF-8, and
// an API server changes text that is not UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dsj::text {

/// The first, or the last, `most` bytes of a UTF-8 text, or up to three fewer to keep characters whole.
std::string first_bytes(std::string_view text, size_t most);
std::string last_bytes(std::string_view text, size_t most);

}  // namespace dsj::text
