#include "common/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace dsj {

bool is_dumb_terminal() {
  const char* const type = std::getenv("TERM");
  return type != nullptr && std::string_view(type) == "dumb";
}

bool draws_over(int fd) {
  return isatty(fd) == 1 && !is_dumb_terminal();
}

}  // namespace dsj
