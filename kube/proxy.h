// The proxy on the way to an API server, by client-go's rules: a kubeconfig's proxy-url, which NO_PROXY does not change,
// else HTTPS_PROXY or HTTP_PROXY by the server's scheme, unless NO_PROXY names the server. Upper case wins over lower.
// Credentials in a proxy's address are never part of a message.
// Tested by: tests/kube/proxy_test.cc
#pragma once

#include <optional>
#include <string>

#include "common/result.h"

namespace dsj::kube {

struct Proxy {
  enum class Kind {
    Http,    ///< CONNECT for https, the whole address in the request's line for http
    Https,   ///< as Http, over TLS
    Socks5,  ///< RFC 1928; the proxy looks up names
  };
  Kind kind = Kind::Http;
  std::string host, port;
  std::optional<std::string> user;  ///< decoded
  std::string password;             ///< decoded

  /// "proxy HOST:PORT", for messages.
  std::string name() const;
  /// The value of Proxy-Authorization; empty: no user.
  std::string basic_authorization() const;
};

/// Reads SCHEME://[USER[:PASSWORD]@]HOST[:PORT] with http, https or socks5. BadInput at `where`: another form.
Result<Proxy> parse_proxy(const std::string& url, const std::string& where);

struct ProxyVariables {
  std::string http_proxy, https_proxy, no_proxy;
};

ProxyVariables proxy_variables();

/// For a server like "https://HOST:PORT". Unset: none. An address without a scheme is one of http. BadInput: the variable
/// has an address that parse_proxy() refuses.
Result<std::optional<Proxy>> proxy_from(const ProxyVariables& variables, const std::string& server);

/// Whether NO_PROXY names the host: a domain with all below it, ".domain" (only those below), an address, a network
/// (10.0.0.0/8), each but the network also with a port, or "*". localhost and loopback addresses never have a proxy.
bool without_proxy(const std::string& no_proxy, const std::string& host, const std::string& port);

}  // namespace dsj::kube
