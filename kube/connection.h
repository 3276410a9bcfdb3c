// One HTTP/1.1 connection to a server, over TLS or not, by Boost.Beast. Every call blocks its
// thread, until a deadline or until it is cancelled; there are no other threads. Used by one call
// at a time.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <memory>
#include <optional>

#include "kube/certificate_source.h"
#include "kube/http.h"

namespace dsj::kube {

/// Where the server is, taken apart.
struct Endpoint {
  std::string host, port;
  std::string path;  ///< in front of every request's, without a '/' at the end
  bool tls = true;
  bool verify = true;
};

/// Of "https://HOST[:PORT][/PATH]"; nullopt when it is none.
std::optional<Endpoint> parse_endpoint(const std::string& server);

/// Throws boost::system::system_error for what OpenSSL does not read.
std::shared_ptr<boost::asio::ssl::context> tls_context(const Certificates& certificates);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  template <typename T>
  using Expected = std::expected<T, NetError>;
  using WireRequest = boost::beast::http::request<boost::beast::http::string_body>;

  Connection(const Endpoint& endpoint, std::shared_ptr<boost::asio::ssl::context> context);

  /// A name is resolved by the system, in its own time; all else ends at `deadline`. Until it has
  /// returned nothing of a request was sent: its failures are Connect, Tls or Cancelled.
  Expected<void> connect(Time deadline, const Cancel& cancel);
  /// One request and its answer of at most `body_max` bytes.
  Expected<Response> exchange(const WireRequest& request, size_t body_max, Time deadline,
                              const Cancel& cancel);
  /// One request and its answer's head; then read_some() gives the body. With another status than
  /// 200 the body is read here, into the answer.
  Expected<Response> begin(const WireRequest& request, size_t body_max, Time deadline,
                           const Cancel& cancel);
  /// Appends to `out` what comes of the body; true: there is more to come. After a Timeout it may
  /// be called again: nothing is lost.
  Expected<bool> read_some(std::string& out, Time deadline, const Cancel& cancel);

  /// Whether the server, after the last answer, lets this connection be used again and has not
  /// closed it since.
  bool usable();

 private:
  using Problem = boost::system::error_code;
  using Tcp = boost::beast::tcp_stream;
  using Tls = boost::asio::ssl::stream<Tcp&>;

  /// Calls f with the stream that requests go over.
  template <typename F>
  void on_stream(F&& f) {
    if (tls_) {
      f(*tls_);
    } else {
      f(tcp_);
    }
  }
  /// Runs the operation that `pending_` stands for; Timeout leaves it under way.
  Expected<void> wait(Time deadline, const Cancel& cancel);
  /// The handler of an operation: its result goes where wait() finds it.
  auto finish();
  Expected<void> complete(Time deadline, const Cancel& cancel);
  Expected<void> send(const WireRequest& request, Time deadline, const Cancel& cancel);

  const Endpoint endpoint_;
  const std::shared_ptr<boost::asio::ssl::context> context_;
  boost::asio::io_context io_{1};
  Tcp tcp_{io_};
  std::optional<Tls> tls_;
  boost::beast::flat_buffer buffer_;
  bool pending_ = false;
  Problem problem_;
  std::optional<boost::beast::http::response_parser<boost::beast::http::buffer_body>> stream_;
  std::array<char, 16 << 10> chunk_;
  bool reading_ = false;  ///< a read into chunk_ was begun
  bool keep_ = false;
};

}  // namespace dsj::kube
