#include "common/net_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <charconv>
#include <memory>

namespace dsj {

std::string url_host(const std::string& host) {
  return host.contains(':') ? "[" + host + "]" : host;
}

std::string host_port_text(const std::string& host, int port) {
  return url_host(host) + ":" + std::to_string(port);
}

std::optional<HostPort> parse_host_port(const std::string& text) {
  const bool bracket = text.starts_with('[');
  const size_t end = bracket ? text.find(']') : text.find(':');
  if (bracket && end == std::string::npos) return std::nullopt;
  HostPort parts{.host = bracket ? text.substr(1, end - 1) : text.substr(0, end), .port = {}};
  if (bracket && !parts.host.contains(':')) return std::nullopt;
  const std::string rest = bracket                    ? text.substr(end + 1)
                           : end == std::string::npos ? std::string()
                                                      : text.substr(end);
  if (rest.empty()) return parts.host.empty() ? std::nullopt : std::optional(parts);
  int port = -1;
  const char* last = rest.data() + rest.size();
  const auto read = std::from_chars(rest.data() + 1, last, port);
  if (rest[0] != ':' || read.ec != std::errc{} || read.ptr != last || port < 0 || port > 65'535)
    return std::nullopt;
  parts.port = port;
  return parts;
}

bool is_ip_address(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

std::string interface_with(const std::string& address) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const bool six = entry->ifa_addr->sa_family == AF_INET6;
    if (!six && entry->ifa_addr->sa_family != AF_INET) continue;
    char text[NI_MAXHOST];
    const socklen_t length = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (getnameinfo(entry->ifa_addr, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 &&
        address == text)
      return entry->ifa_name;
  }
  return {};
}

}  // namespace dsj
