// printf into a std::string of any length. The compiler checks the arguments against the pattern.
#pragma once

#include <string>

namespace dsj::text {

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

}  // namespace dsj::text
