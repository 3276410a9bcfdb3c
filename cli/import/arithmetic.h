// Evaluates a shell's $((...)): integers, names, + - * / % and parentheses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dsj::jobimport {

/// `value_of` resolves names, written NAME, $NAME or ${NAME}. nullopt for an unknown name, another
/// operator, a division by zero, a number beyond 64 bits, or parentheses nested deeper than 64.
std::optional<int64_t> whole_arithmetic(
    std::string_view text,
    const std::function<std::optional<int64_t>(const std::string&)>& value_of);

}  // namespace dsj::jobimport
