// Addresses of machines as text; the only code that handles IPv6's brackets. A host is a name,
// "10.0.0.1" or "fd00::1", never with brackets; text with a port has them: "[fd00::1]:443".
#pragma once

#include <optional>
#include <string>

namespace dsj {

struct HostPort {
  std::string host;  ///< empty in ":80": all addresses of this machine
  std::optional<int> port;
};

/// "name:80", "10.0.0.1:80", "[fd00::1]:80".
std::string host_port_text(const std::string& host, int port);
/// As the host in a URL or a Host header: "name", "[fd00::1]".
std::string url_host(const std::string& host);

/// Reads "HOST[:PORT]", with an IPv6 address "[HOST][:PORT]", and ":PORT". nullopt for another
/// form, a port above 65535, or an IPv6 address without brackets.
std::optional<HostPort> parse_host_port(const std::string& text);

/// Whether it is an address, not a name.
bool is_ip_address(const std::string& host);

/// The interface of this machine with that address; empty if there is none or it is the loopback.
std::string interface_with(const std::string& address);

}  // namespace dsj
