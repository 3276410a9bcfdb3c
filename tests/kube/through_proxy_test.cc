// The real transport through proxies of each kind, to a server of TLS.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <functional>
#include <mutex>
#include <thread>

#include "common/http/beast.h"
#include "common/http/http_listener.h"
#include "kube/api_transport.h"

namespace dsj::kube {
namespace {

using namespace beast_names;

struct Pair {
  std::string certificate, key;
};

std::string pem_of(const std::function<void(BIO*)>& write) {
  BIO* memory = BIO_new(BIO_s_mem());
  write(memory);
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(memory);
  return text;
}

/// Of 127.0.0.1, signed by itself: its own authority.
Pair own_certificate() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_EXTENSION* names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1,DNS:api.test");
  X509_add_ext(certificate, names, -1);
  X509_sign(certificate, key, EVP_sha256());
  Pair pair{pem_of([&](BIO* memory) { PEM_write_bio_X509(memory, certificate); }),
            pem_of([&](BIO* memory) {
              PEM_write_bio_PrivateKey(memory, key, nullptr, nullptr, 0, nullptr, nullptr);
            })};
  X509_EXTENSION_free(names);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

const Pair& pair() {
  static const Pair made = own_certificate();
  return made;
}

class ApiServer final : public HttpHandler {
 public:
  std::optional<HttpAnswer> refuse(const HttpHead&) override { return std::nullopt; }
  HttpAnswer answer(const HttpHead& head, const std::string&) override {
    return {200, "{\"path\": \"" + head.path + "\"}", "application/json"};
  }
};

std::unique_ptr<HttpListener> listen_with_tls() {
  const auto tls = server_tls(pair().certificate, pair().key);
  EXPECT_TRUE(tls);
  auto listener = HttpListener::open("127.0.0.1", 0, {}, std::make_shared<ApiServer>(),
                                     [context = *tls] { return context; });
  EXPECT_TRUE(listener);
  return std::move(*listener);
}

/// Serves one connection: reads what a client asks of a proxy, gives `reply` (of HTTP) or speaks SOCKS5, and then
/// passes bytes on to `port` of this machine, whatever the name was.
class OneProxy {
 public:
  struct Way {
    bool tls = false;
    std::string reply = "HTTP/1.1 200 Connection established\r\n\r\n";  ///< empty: SOCKS5
    std::string socks_method = std::string("\x05\x00", 2);
    std::string socks_answer = std::string("\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", 10);
  };
  OneProxy(Way way, int port) : way_(std::move(way)), port_(port) {
    thread_ = std::thread([this] { serve(); });
  }
  ~OneProxy() {
    asio::post(io_, [this] {
      Problem ignored;
      client_.close(ignored);
      server_.close(ignored);
    });
    Problem ignored;
    ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
    thread_.join();
  }
  Proxy address(Proxy::Kind kind) const {
    return {.kind = kind,
            .host = "127.0.0.1",
            .port = std::to_string(acceptor_.local_endpoint().port()),
            .user = {},
            .password = {}};
  }
  std::string asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  template <typename Stream>
  std::string read(Stream& stream, size_t size) {
    std::string bytes(size, '\0');
    Problem problem;
    asio::read(stream, asio::buffer(bytes), problem);
    const std::lock_guard lock(mutex_);
    asked_ += bytes;
    return bytes;
  }
  template <typename Stream>
  bool agree(Stream& stream) {
    Problem problem;
    if (!way_.reply.empty()) {
      std::string head;
      while (!head.ends_with("\r\n\r\n") && !(head += read(stream, 1)).ends_with('\0')) {
      }
      asio::write(stream, asio::buffer(way_.reply), problem);
      return way_.reply.contains(" 200 ");
    }
    const size_t methods = static_cast<unsigned char>(read(stream, 2)[1]);
    read(stream, methods);
    asio::write(stream, asio::buffer(way_.socks_method), problem);
    if (way_.socks_method[1] == '\xff') return false;
    if (way_.socks_method[1] == '\x02') {
      read(stream, static_cast<unsigned char>(read(stream, 2)[1]));
      read(stream, static_cast<unsigned char>(read(stream, 1)[0]));
      asio::write(stream, asio::buffer("\x01\x00", 2), problem);
    }
    const std::string ask = read(stream, 5);
    const size_t rest = ask[3] == 1 ? 3 : ask[3] == 4 ? 15 : static_cast<unsigned char>(ask[4]);
    read(stream, rest + 2);
    asio::write(stream, asio::buffer(way_.socks_answer), problem);
    return way_.socks_answer[1] == 0;
  }
  template <typename From, typename To>
  void pass(From& from, To& to, std::array<char, 4096>& buffer) {
    from.async_read_some(asio::buffer(buffer), [&](const Problem& ended, size_t size) {
      if (ended) return stop();
      asio::async_write(to, asio::buffer(buffer.data(), size), [&](const Problem& failed, size_t) {
        if (failed) return stop();
        pass(from, to, buffer);
      });
    });
  }
  void stop() {
    Problem ignored;
    client_.shutdown(tcp::socket::shutdown_both, ignored);
    server_.shutdown(tcp::socket::shutdown_both, ignored);
  }
  template <typename Stream>
  void carry(Stream& stream) {
    if (!agree(stream)) return;
    Problem problem;
    server_.connect({asio::ip::address_v4::loopback(), static_cast<uint16_t>(port_)}, problem);
    pass(stream, server_, up_);
    pass(server_, stream, down_);
    io_.run();
  }
  void serve() {
    Problem problem;
    acceptor_.accept(client_, problem);
    if (problem) return;
    if (way_.tls) {
      const auto context = server_tls(pair().certificate, pair().key);
      ssl::stream<tcp::socket&> secured(client_, **context);
      secured.handshake(ssl::stream_base::server, problem);
      if (!problem) carry(secured);
    } else {
      carry(client_);
    }
    client_.close(problem);
  }

  const Way way_;
  const int port_;
  mutable std::mutex mutex_;
  std::string asked_;
  asio::io_context io_;
  tcp::acceptor acceptor_{io_, {asio::ip::address_v4::loopback(), 0}};
  tcp::socket client_{io_}, server_{io_};
  std::array<char, 4096> up_, down_;
  std::thread thread_;
};

std::expected<Response, NetError> call(const Proxy& proxy, const std::string& server) {
  Access access{.server = server, .ca_pem = pair().certificate};
  access.proxy = proxy;
  const auto transport = make_api_transport(access);
  EXPECT_TRUE(transport) << transport.error().to_string();
  return (*transport)->call({.path = "/api"}, Cancel());
}

TEST(ThroughProxy, EachKindReachesAServerByItsName) {
  const auto server = listen_with_tls();
  const std::string name = "https://api.test:" + std::to_string(server->port());
  for (const auto kind : {Proxy::Kind::Http, Proxy::Kind::Https, Proxy::Kind::Socks5}) {
    OneProxy::Way way{.tls = kind == Proxy::Kind::Https};
    if (kind == Proxy::Kind::Socks5) way.reply.clear();
    OneProxy proxy(way, server->port());
    // No resolver of this machine knows api.test: the proxy is asked for the name.
    const auto answer = call(proxy.address(kind), name);
    ASSERT_TRUE(answer) << static_cast<int>(kind) << answer.error().message;
    EXPECT_EQ(answer->body, "{\"path\": \"/api\"}");
    EXPECT_NE(proxy.asked().find("api.test"), std::string::npos);
  }
}

TEST(ThroughProxy, TheProxyGetsItsCredentialsAndTheServersStayInside) {
  const auto server = listen_with_tls();
  OneProxy proxy({}, server->port());
  Proxy address = proxy.address(Proxy::Kind::Http);
  address.user = "Aladdin";
  address.password = "open sesame";
  const std::string place = "127.0.0.1:" + std::to_string(server->port());
  Access access{.server = "https://" + place, .ca_pem = pair().certificate, .token = "inner"};
  access.proxy = address;
  const auto transport = make_api_transport(access);
  ASSERT_TRUE(transport);
  ASSERT_TRUE((*transport)->call({.path = "/"}, Cancel()));
  EXPECT_EQ(proxy.asked(),
            "CONNECT " + place + " HTTP/1.1\r\nHost: " + place +
                "\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n");
}

TEST(ThroughProxy, Socks5WithAUserSpeaksByTheLetter) {
  const auto server = listen_with_tls();
  OneProxy proxy({.reply = "", .socks_method = "\x05\x02"}, server->port());
  Proxy address = proxy.address(Proxy::Kind::Socks5);
  address.user = "me";
  address.password = "pw";
  const int port = server->port();
  ASSERT_TRUE(call(address, "https://127.0.0.1:" + std::to_string(port)));
  // RFC 1928 and 1929: methods none and user; version 1, user, password; CONNECT to an IPv4 address.
  const std::string wanted = std::string("\x05\x02\x00\x02", 4) + "\x01\x02me\x02pw" +
                             std::string("\x05\x01\x00\x01\x7f\x00\x00\x01", 8) +
                             static_cast<char>(port >> 8) + static_cast<char>(port & 255);
  EXPECT_EQ(proxy.asked(), wanted);
}

TEST(ThroughProxy, ARefusalNamesTheProxyAndItsReason) {
  struct Case {
    OneProxy::Way way;
    Proxy::Kind kind;
    const char* said;
  };
  for (const auto& [way, kind, said] :
       {Case{{.reply = "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"},
             Proxy::Kind::Http,
             "refuses to connect to 127.0.0.1:1: 407 Proxy Authentication Required"},
        Case{{.reply = "", .socks_method = "\x05\xff"},
             Proxy::Kind::Socks5,
             "asks for a user and a password"},
        Case{{.reply = "",
        .socks_answer = std::string("\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", 10)},
             Proxy::Kind::Socks5,
             "not allowed by its rules"},
        Case{{.reply = "", .socks_method = "HT"}, Proxy::Kind::Socks5, "does not speak SOCKS5"}}) {
    OneProxy proxy(way, 1);
    const auto answer = call(proxy.address(kind), "https://127.0.0.1:1");
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().kind, NetError::Kind::Connect);
    EXPECT_NE(answer.error().message.find(said), std::string::npos) << answer.error().message;
    EXPECT_TRUE(answer.error().message.starts_with(proxy.address(kind).name()))
        << answer.error().message;
  }
}

TEST(ThroughProxy, AServerWithAnothersCertificateIsRefusedBehindAProxyToo) {
  const auto server = listen_with_tls();
  OneProxy proxy({}, server->port());
  const auto answer = call(proxy.address(Proxy::Kind::Http), "https://other.test");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, NetError::Kind::Tls) << answer.error().message;
}

}  // namespace
}  // namespace dsj::kube
