#include "common/random_hex.h"

#include <sys/random.h>

#include <vector>

namespace dsj {

Result<std::string> random_hex(size_t bytes) {
  std::vector<unsigned char> read(bytes);
  if (getrandom(read.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return fail(ErrorKind::Environment, "no random bytes are available", "getrandom");
  }
  std::string digits;
  for (const unsigned char byte : read) {
    constexpr char kDigits[] = "0123456789abcdef";
    digits += kDigits[byte >> 4];
    digits += kDigits[byte & 15];
  }
  return digits;
}

}  // namespace dsj
