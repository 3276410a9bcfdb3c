#include "kube/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace dsj::kube {

std::string to_base64(const std::string& bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(size));
  return out;
}

std::optional<std::string> from_base64(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c); });
  std::string out(text.size() / 4 * 3 + 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  const auto padding =
      std::count(text.end() - std::min<ptrdiff_t>(2, text.size()), text.end(), '=');
  out.resize(static_cast<size_t>(size) - static_cast<size_t>(padding));
  return out;
}

}  // namespace dsj::kube
