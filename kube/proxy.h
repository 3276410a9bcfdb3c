// The proxy to an API server, by client-go's rules: a kubeconfig's proxy-url, regardless of NO_PROXY, else HTTPS_PROXY
// or HTTP_PROXY by the server's scheme, unless NO_PROXY matches the server. Upper case wins over lower case.
// Credentials in a proxy's address never appear in messages.
// Tested by: tests/kube/proxy_test.cc
#pragma once

#include <optional>
#include <string>

#include "common/result.h"

namespace dsj::kube {

struct Proxy {
  enum class Kind {
    Http,    ///< CONNECT for https, absolute URIs for http
    Https,   ///< as Http, over TLS
    Socks5,  ///< RFC 1928; the proxy resolves names
  };
  Kind kind = Kind::Http;
  std::string host, port;
  std::optional<std::string> user;  ///< decoded
  std::string password;             ///< decoded

  /// "proxy HOST:PORT", for messages.
  std::string name() const;
  /// The value of Proxy-Authorization; empty without a user.
  std::string basic_authorization() const;
};

/// Reads SCHEME://[USER[:PASSWORD]@]HOST[:PORT] with http, https or socks5. Errors: BadInput at `where`.
Result<Proxy> parse_proxy(const std::string& url, const std::string& where);

struct ProxyVariables {
  std::string http_proxy, https_proxy, no_proxy;
};

ProxyVariables proxy_variables();

/// The proxy for a server like "https://HOST:PORT"; unset if none. An address without a scheme is
/// http. Errors: BadInput if parse_proxy() refuses the variable's address.
Result<std::optional<Proxy>> proxy_from(const ProxyVariables& variables, const std::string& server);

/// Whether NO_PROXY matches the host: a domain and all below it, ".domain" (only those below), an address, a network
/// (10.0.0.0/8), all but the network also with a port, or "*". localhost and loopback addresses always match.
bool without_proxy(const std::string& no_proxy, const std::string& host, const std::string& port);

}  // namespace dsj::kube
