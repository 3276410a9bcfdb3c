#include "common/http/http_listener.h"

#include <boost/asio/io_context.hpp>
#include <charconv>
#include <thread>

#include "common/http/http_connection.h"

namespace dsj {

using namespace http_listener;

namespace {

/// Ends one connection. False: every peer is in the middle of a request.
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
    if (problem) {  // most likely out of descriptors: wait until others end
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
    return fail(ErrorKind::Internal, std::string("OpenSSL does not take a key: ") + error.what());
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
    const tcp::endpoint endpoint(asio::ip::make_address(address), static_cast<uint16_t>(port));
    state->acceptor.open(endpoint.protocol());
    state->acceptor.set_option(asio::socket_base::reuse_address(true));
    state->acceptor.bind(endpoint);
    state->acceptor.listen();
  } catch (const std::exception& error) {
    return fail(ErrorKind::Environment, std::string("cannot listen: ") + error.what(),
                address + ":" + std::to_string(port));
  }
  state->accept();
  state->thread = std::thread([own = state.get()] { own->io.run(); });
  return std::unique_ptr<HttpListener>(new HttpListener(std::move(state)));
}

Result<std::unique_ptr<HttpListener>> HttpListener::open(const std::string& address_and_port,
                                                         HttpLimits limits,
                                                         std::shared_ptr<HttpHandler> handler,
                                                         TlsSource tls) {
  const size_t colon = address_and_port.rfind(':');
  std::string address = address_and_port.substr(0, colon);
  if (address.starts_with('[') && address.ends_with(']')) {
    address = address.substr(1, address.size() - 2);
  }
  int port = -1;
  if (colon != std::string::npos) {
    const char* end = address_and_port.data() + address_and_port.size();
    const auto read = std::from_chars(address_and_port.data() + colon + 1, end, port);
    if (read.ptr != end || port > 65'535) port = -1;
  }
  if (port < 0) {
    return bad_input("found \"" + address_and_port + "\", expected ADDRESS:PORT", "",
                     "0.0.0.0:29402");
  }
  return open(address, port, limits, std::move(handler), std::move(tls));
}

HttpListener::HttpListener(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpListener::~HttpListener() {
  state_->io.stop();
  state_->thread.join();
  state_->shared->door =
      Doorway<std::shared_ptr<Guest>>();  // who waits there holds what it shares with others
}

int HttpListener::port() const {
  return state_->acceptor.local_endpoint().port();
}

const HttpCounts& HttpListener::counts() const {
  return state_->counts;
}

}  // namespace dsj
