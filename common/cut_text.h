// Texts that may be of some length only: cut without breaking a character. Half a character is no UTF-8,
// and what is no UTF-8 does not come back from an API server as it was sent.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dsj::text {

/// The first, or the last, `most` bytes of a UTF-8 text, or up to three fewer: no character is cut in two.
std::string first_bytes(std::string_view text, size_t most);
std::string last_bytes(std::string_view text, size_t most);

}  // namespace dsj::text
