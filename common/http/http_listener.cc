#include "common/http/http_listener.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <thread>

#include "common/http/http_connection.h"
#include "common/net_address.h"

namespace dsj {

using namespace http_listener;

namespace {

/// Closes one connection. False if every peer is in the middle of a request.
bool make_room(Shared& shared) {
  const auto ends = [&](Peer* peer) {
    ++shared.counts.looked_at;
    peer->end();
    return true;
  };
  if (!shared.strangers.empty()) return ends(shared.strangers.front());
  for (Peer* peer : shared.known) {
    if (peer->idle()) return ends(peer);
    ++shared.counts.looked_at;
  }
  return false;
}

/// Throws boost::system::system_error.
void listen_at(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
  acceptor.open(endpoint.protocol());
  acceptor.set_option(asio::socket_base::reuse_address(true));
  if (endpoint.protocol() == tcp::v6() && endpoint.address().is_unspecified())
    acceptor.set_option(asio::ip::v6_only(false));
  acceptor.bind(endpoint);
  acceptor.listen();
}

/// Whether the kernel has IPv6 enabled (ipv6.disable=1 disables it).
bool has_ipv6() {
  asio::io_context io;
  Problem problem;
  tcp::acceptor(io).open(tcp::v6(), problem);
  return !problem;
}

tcp::endpoint endpoint_of(const std::string& address, int port) {
  const auto number = static_cast<uint16_t>(port);
  const auto at = address.empty() ? asio::ip::address() : asio::ip::make_address(address);
  if (!at.is_unspecified()) return {at, number};
  return {has_ipv6() ? tcp::v6() : tcp::v4(), number};
}

}  // namespace

struct HttpListener::State {
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io}, turn{io};
  HttpCounts counts;
  std::shared_ptr<Shared> shared;
  std::thread thread;

  void accept();
  void take(tcp::socket socket);
};

void HttpListener::State::accept() {
  acceptor.async_accept([this](Problem problem, tcp::socket socket) {
    if (problem == asio::error::operation_aborted) return;
    if (problem) {  // probably out of descriptors: wait until others close
      pause.expires_after(milliseconds(100));
      pause.async_wait([this](Problem stopped) {
        if (!stopped) accept();
      });
      return;
    }
    take(std::move(socket));
    accept();
  });
}

void HttpListener::State::take(tcp::socket socket) {
  const size_t open = shared->strangers.size() + shared->known.size();
  if (open >= static_cast<size_t>(shared->limits.connections) && !make_room(*shared)) {
    return;  // closes the socket
  }
  Problem ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  beast::tcp_stream stream(std::move(socket));
  if (shared->tls) return std::make_shared<Guest>(shared, std::move(stream))->begin();
  std::make_shared<Connection<beast::tcp_stream>>(shared, nullptr, std::move(stream))->begin();
}

Result<std::shared_ptr<ssl::context>> server_tls(const std::string& chain_pem,
                                                 const std::string& key_pem) {
  try {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                         ssl::context::no_sslv3 | ssl::context::no_tlsv1 |
                         ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(context->native_handle(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);  // of idle connections
    context->use_certificate_chain(asio::buffer(chain_pem));
    context->use_private_key(asio::buffer(key_pem), ssl::context::pem);
    return context;
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, std::string("OpenSSL does not accept a key: ") + error.what());
  }
}

Result<std::unique_ptr<HttpListener>> HttpListener::open(const std::string& address, int port,
                                                         HttpLimits limits,
                                                         std::shared_ptr<HttpHandler> handler,
                                                         TlsSource tls) {
  auto state = std::make_unique<State>();
  state->shared = std::shared_ptr<Shared>(
      new Shared{limits, std::move(handler), std::move(tls), state->counts, state->turn});
  try {
    listen_at(state->acceptor, endpoint_of(address, port));
  } catch (const std::exception& error) {
    return fail(ErrorKind::Environment, std::string("cannot listen: ") + error.what(),
                host_port_text(address, port));
  }
  state->accept();
  state->thread = std::thread([own = state.get()] { own->io.run(); });
  return std::unique_ptr<HttpListener>(new HttpListener(std::move(state)));
}

Result<std::unique_ptr<HttpListener>> HttpListener::open(const std::string& address_and_port,
                                                         HttpLimits limits,
                                                         std::shared_ptr<HttpHandler> handler,
                                                         TlsSource tls) {
  const auto at = parse_host_port(address_and_port);
  if (!at || !at->port) {
    return bad_input("found \"" + address_and_port + "\", expected ADDRESS:PORT", "",
                     ":29402 for all addresses, [fd00::1]:29402 for one of IPv6");
  }
  return open(at->host, *at->port, limits, std::move(handler), std::move(tls));
}

HttpListener::HttpListener(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpListener::~HttpListener() {
  state_->io.stop();
  state_->thread.join();
  state_->shared->door =
      Doorway<std::shared_ptr<Guest>>();  // the waiting peers own the state that they share
}

int HttpListener::port() const {
  return state_->acceptor.local_endpoint().port();
}

const HttpCounts& HttpListener::counts() const {
  return state_->counts;
}

}  // namespace dsj
