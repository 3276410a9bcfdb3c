// The value of a shell's $((...)): whole numbers, names, + - * / % and parentheses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dsj::jobimport {

/// `value_of` knows the names, written NAME, $NAME or ${NAME}. nullopt: a name is not known, another
/// operator, a division by zero, a number beyond 64 bits, or parentheses deeper than 64.
std::optional<int64_t> whole_arithmetic(
    std::string_view text,
    const std::function<std::optional<int64_t>(const std::string&)>& value_of);

}  // namespace dsj::jobimport
