// Names of Boost.Asio and Boost.Beast, and helpers for both sides of HTTP. Only files that use
// Beast include it: http_connection.h, agent/wire/http_link.cc and kube/connection.cc.
// Tested by: tests/common/http/http_listener_test.cc, tests/kube/api_transport_test.cc
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <string>

namespace dsj::beast_names {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using tcp = asio::ip::tcp;
using Problem = boost::system::error_code;
using Secured = ssl::stream<beast::tcp_stream>;

/// A message in its wire format. One string, because http::async_write() takes seconds to compile
/// for each kind of stream.
template <bool is_request>
std::string wire_text(const http::message<is_request, http::string_body>& message) {
  std::string wire;
  http::serializer<is_request, http::string_body> parts(message);
  for (Problem problem; !problem && !parts.is_done();) {
    parts.next(problem, [&](Problem&, const auto& buffers) {
      wire += beast::buffers_to_string(buffers);
      parts.consume(beast::buffer_bytes(buffers));
    });
  }
  return wire;
}

}  // namespace dsj::beast_names
