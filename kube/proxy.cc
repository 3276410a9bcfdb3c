#include "kube/proxy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/net_address.h"
#include "kube/base64.h"

namespace dsj::kube {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string first_variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value && *value) return value;
  return {};
}

/// Decodes %XX; nullopt if a '%' lacks two digits.
std::optional<std::string> decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    const char* begin = text.data() + i + 1;
    if (i + 2 >= text.size() || std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2) {
      return std::nullopt;
    }
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

/// 4 bytes, or 16 of an IPv6 address that does not map an IPv4 one. Empty for a name.
std::vector<unsigned char> address_bytes(const std::string& host) {
  std::array<unsigned char, 16> bytes;
  if (::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1) {
    return {bytes.begin(), bytes.begin() + 4};
  }
  if (::inet_pton(AF_INET6, host.c_str(), bytes.data()) != 1) return {};
  static constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool mapped = std::memcmp(bytes.data(), kMapped, sizeof kMapped) == 0;
  return {bytes.begin() + (mapped ? 12 : 0), bytes.end()};
}

bool is_loopback(const std::vector<unsigned char>& address) {
  if (address.size() == 4) return address[0] == 127;
  return address.size() == 16 && address[15] == 1 &&
         std::all_of(address.begin(), address.end() - 1, [](unsigned char c) { return c == 0; });
}

/// Whether `entry`, a network ADDRESS/BITS, contains the address; nullopt if it is no network.
std::optional<bool> in_network(const std::string& entry,
                               const std::vector<unsigned char>& address) {
  const size_t slash = entry.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto network = address_bytes(entry.substr(0, slash));
  size_t bits = 0;
  const char* end = entry.data() + entry.size();
  if (network.empty() ||
      std::from_chars(entry.data() + slash + 1, end, bits) != std::from_chars_result{end, {}} ||
      bits > network.size() * 8) {
    return std::nullopt;
  }
  if (network.size() != address.size()) return false;
  for (size_t i = 0; i < bits; ++i) {
    const int shift = 7 - static_cast<int>(i % 8);
    if ((network[i / 8] >> shift & 1) != (address[i / 8] >> shift & 1)) return false;
  }
  return true;
}

/// Splits "HOST:PORT" or "[HOST]:PORT"; another form is a host.
std::pair<std::string, std::string> host_and_port(const std::string& entry) {
  const size_t colon = entry.rfind(':');
  if (colon == std::string::npos) return {entry, ""};
  std::string host = entry.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.contains(':')) {
    return {entry, ""};  // an IPv6 address
  }
  return {host, entry.substr(colon + 1)};
}

bool names(const std::string& entry, const std::string& host,
           const std::vector<unsigned char>& address, const std::string& port) {
  if (const auto network = in_network(entry, address)) return *network;
  auto [named, named_port] = host_and_port(entry);
  if (named.empty()) return false;
  const bool port_fits = named_port.empty() || named_port == port;
  if (const auto one = address_bytes(named); !one.empty()) return one == address && port_fits;
  if (!address.empty()) return false;
  if (named.starts_with("*.")) named.erase(0, 1);
  const bool itself = !named.starts_with('.');
  if (itself) named.insert(0, ".");
  return port_fits && (host.ends_with(named) || (itself && host == named.substr(1)));
}

}  // namespace

std::string Proxy::name() const {
  return "proxy " + url_host(host) + ":" + port;
}

std::string Proxy::basic_authorization() const {
  return user ? "Basic " + to_base64(*user + ":" + password) : "";
}

Result<Proxy> parse_proxy(const std::string& url, const std::string& where) {
  static constexpr char kForm[] = "expected SCHEME://[USER:PASSWORD@]HOST[:PORT]";
  const size_t end = url.find("://");
  const std::string scheme = end == std::string::npos ? "" : lower(url.substr(0, end));
  Proxy proxy;
  int port = 80;
  if (scheme == "https") {
    proxy.kind = Proxy::Kind::Https;
    port = 443;
  } else if (scheme == "socks5") {
    proxy.kind = Proxy::Kind::Socks5;
    port = 1080;
  } else if (scheme != "http") {
    return bad_input("a proxy's scheme is \"" + scheme + "\", expected http, https or socks5",
                     where);
  }
  std::string rest = url.substr(end + 3);
  rest.resize(std::min(rest.find_first_of("/?#"), rest.size()));
  if (const size_t at = rest.rfind('@'); at != std::string::npos) {
    const std::string account = rest.substr(0, at);
    const size_t colon = std::min(account.find(':'), account.size());
    proxy.user = decoded(account.substr(0, colon));
    const auto password = decoded(account.substr(std::min(colon + 1, account.size())));
    if (!proxy.user || !password) {
      return bad_input("the user or the password of a proxy has a '%' without two digits", where,
                       "write a '%' as %25");
    }
    proxy.password = *password;
    rest.erase(0, at + 1);
  }
  if (rest.ends_with(':')) rest.pop_back();
  const auto place = parse_host_port(rest);
  if (!place || place->host.empty()) {
    return bad_input("is not the address of a proxy, " + std::string(kForm), where);
  }
  proxy.host = place->host;
  proxy.port = std::to_string(place->port.value_or(port));
  return proxy;
}

ProxyVariables proxy_variables() {
  return {.http_proxy = first_variable({"HTTP_PROXY", "http_proxy"}),
          .https_proxy = first_variable({"HTTPS_PROXY", "https_proxy"}),
          .no_proxy = first_variable({"NO_PROXY", "no_proxy"})};
}

bool without_proxy(const std::string& no_proxy, const std::string& host, const std::string& port) {
  const std::string wanted = lower(host);
  const auto address = address_bytes(host);
  if (host == "localhost" || is_loopback(address)) return true;
  for (size_t begin = 0; begin <= no_proxy.size();) {
    const size_t end = std::min(no_proxy.find(',', begin), no_proxy.size());
    const std::string entry = lower(trimmed(no_proxy.substr(begin, end - begin)));
    begin = end + 1;
    if (entry == "*" || (!entry.empty() && names(entry, wanted, address, port))) return true;
  }
  return false;
}

Result<std::optional<Proxy>> proxy_from(const ProxyVariables& variables,
                                        const std::string& server) {
  const bool tls = server.starts_with("https://");
  std::string url = tls ? variables.https_proxy : variables.http_proxy;
  std::string place = server.substr(std::min(server.size(), size_t{tls ? 8u : 7u}));
  place.resize(std::min(place.find('/'), place.size()));
  const auto at = parse_host_port(place);
  if (url.empty() || !at ||
      without_proxy(variables.no_proxy, at->host,
                    std::to_string(at->port.value_or(tls ? 443 : 80))))
    return std::optional<Proxy>();
  if (!url.contains("://")) url = "http://" + url;
  DSJ_TRY(Proxy proxy, parse_proxy(url, tls ? "HTTPS_PROXY" : "HTTP_PROXY"));
  return std::optional(std::move(proxy));
}

}  // namespace dsj::kube
