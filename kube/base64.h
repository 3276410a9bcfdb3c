// Encodes and decodes base64 (RFC 4648, with padding), by OpenSSL.
// Tested by: tests/kube/kubeconfig_test.cc, tests/kube/proxy_test.cc
#pragma once

#include <optional>
#include <string>

namespace dsj::kube {

std::string to_base64(const std::string& bytes);
/// Skips white space. nullopt if it is not base64.
std::optional<std::string> from_base64(std::string text);

}  // namespace dsj::kube
