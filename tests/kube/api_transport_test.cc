// The real transport on a server that answers what a test tells it to, byte by byte.
#include "kube/api_transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "kube/client.h"
#include "kube/connection.h"
#include "tests/common/http/slow_name.h"
#include "tests/kube/fake_clock.h"
#include "tests/support/soon.h"

namespace dsj::kube {
namespace {

using std::chrono::milliseconds;

/// One request after another: reads a head, sends the next text, and closes or keeps the
/// connection.
class ScriptedServer {
 public:
  struct Answer {
    std::string text;
    bool close = true;
    bool held = false;  ///< until let_go()
  };
  explicit ScriptedServer(std::deque<Answer> answers) : answers_(std::move(answers)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptedServer() {
    let_go();
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::unique_ptr<Transport> transport(const std::string& path = {}) const {
    auto made = make_api_transport({.server = "http://127.0.0.1:" + std::to_string(port_) + path});
    EXPECT_TRUE(made) << made.error().to_string();
    return std::move(*made);
  }
  uint16_t port() const { return port_; }
  void let_go() { released_.test_and_set(), released_.notify_all(); }
  std::atomic<int> connections = 0, asked = 0, closed = 0;
  std::vector<std::string> heads;  ///< read them after the server has gone

 private:
  void run() {
    while (!answers_.empty()) {
      const int peer = ::accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      ++connections;
      serve(peer);
      ::close(peer);
      ++closed;
    }
  }
  void serve(int peer) {
    while (!answers_.empty()) {
      std::string head;
      char byte;
      while (!head.ends_with("\r\n\r\n")) {
        if (::recv(peer, &byte, 1, 0) <= 0) return;
        head += byte;
      }
      heads.push_back(head);
      const Answer answer = answers_.front();
      answers_.pop_front();
      ++asked;
      if (answer.held) released_.wait(false);
      (void)!::send(peer, answer.text.data(), answer.text.size(), MSG_NOSIGNAL);
      if (answer.close) return;
    }
  }
  std::deque<Answer> answers_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic_flag released_;
  std::thread thread_;
};

const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nRetry-After: 7\r\n\r\n{}";
const std::string kStream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

TEST(ApiTransport, SendsWhatWasAskedAndReadsTheAnswer) {
  auto server = std::make_unique<ScriptedServer>(std::deque<ScriptedServer::Answer>{{kOk}});
  const auto answer = server->transport("/proxy/")->call(
      {.method = "PATCH", .path = "/api/v1/pods/a", .content_type = "application/x", .body = "{}"},
      Cancel());
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "{}");
  EXPECT_EQ(answer->headers.at("retry-after"), "7");
  const std::vector<std::string> heads = server->heads;
  ASSERT_EQ(heads.size(), 1u);
  EXPECT_TRUE(heads[0].starts_with("PATCH /proxy/api/v1/pods/a HTTP/1.1\r\n")) << heads[0];
  EXPECT_NE(heads[0].find("Content-Length: 2\r\n"), std::string::npos);
  EXPECT_NE(heads[0].find("Content-Type: application/x\r\n"), std::string::npos);
}

// As Go's net/http writes them.
TEST(ApiTransport, TheHostHeaderHasThePortOfTheAddress) {
  auto server = std::make_unique<ScriptedServer>(std::deque<ScriptedServer::Answer>{{kOk}});
  const std::string port = std::to_string(server->port());
  ASSERT_TRUE(server->transport()->call({.path = "/"}, Cancel()));
  const std::vector<std::string> heads = server->heads;
  EXPECT_NE(heads[0].find("Host: 127.0.0.1:" + port + "\r\n"), std::string::npos) << heads[0];
}

// As Go's net/http writes them: to a proxy, a request of plain http has the whole address in its line.
TEST(ApiTransport, APlainRequestThroughAProxyHasTheWholeAddress) {
  auto server =
      std::make_unique<ScriptedServer>(std::deque<ScriptedServer::Answer>{{kOk, false}, {kOk}});
  Access access{.server = "http://api.test/k8s"};
  access.proxy = Proxy{.kind = Proxy::Kind::Http,
                       .host = "127.0.0.1",
                       .port = std::to_string(server->port()),
                       .user = "Aladdin",
                       .password = "open sesame"};
  const auto transport = make_api_transport(access);
  ASSERT_TRUE(transport);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE((*transport)->call({.path = "/api"}, Cancel()));
  EXPECT_EQ(server->connections, 1);
  const std::vector<std::string> heads = server->heads;
  EXPECT_TRUE(heads[0].starts_with("GET http://api.test/k8s/api HTTP/1.1\r\n")) << heads[0];
  EXPECT_NE(heads[0].find("Host: api.test\r\n"), std::string::npos) << heads[0];
  EXPECT_NE(heads[0].find("Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"),
            std::string::npos)
      << heads[0];
}

TEST(ApiTransport, KeepsAConnection) {
  ScriptedServer server({{kOk, false}, {kOk, false}, {kOk}});
  const auto transport = server.transport();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(transport->call({.path = "/"}, Cancel()));
  EXPECT_EQ(server.connections, 1);
}

TEST(ApiTransport, DoesNotUseAConnectionThatWasClosed) {
  ScriptedServer server({{kOk}, {kOk}, {kOk}});
  const auto transport = server.transport();
  for (int i = 0; i < 3; ++i) {
    const auto answer = transport->call({.path = "/"}, Cancel());
    EXPECT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(soon([&] { return server.closed == i + 1; }));
  }
  EXPECT_EQ(server.connections, 3);
}

TEST(ApiTransport, AnAnswerThatBreaksOffIsCut) {
  ScriptedServer server({{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"}, {"HTT"}, {""}});
  const auto transport = server.transport();
  for (int i = 0; i < 3; ++i) {
    const auto answer = transport->call({.path = "/"}, Cancel());
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().kind, NetError::Kind::Cut) << answer.error().message;
  }
}

TEST(ApiTransport, ALateAnswerIsATimeout) {
  ScriptedServer server({{kOk, true, true}});
  const auto answer =
      server.transport()->call({.path = "/", .timeout = milliseconds(100)}, Cancel());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, NetError::Kind::Timeout);
}

TEST(ApiTransport, ACallIsCancelledWhileItWaits) {
  ScriptedServer server({{kOk, true, true}});
  Cancel cancel;
  std::thread other([&] {
    EXPECT_TRUE(soon([&] { return server.asked == 1; }));
    cancel.cancel();
  });
  const auto answer = server.transport()->call({.path = "/", .timeout = kLong}, cancel);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, NetError::Kind::Cancelled);
  other.join();
}

std::unique_ptr<Transport> to_slow_name() {
  auto made = make_api_transport({.server = std::string("http://") + SlowName::kName});
  EXPECT_TRUE(made) << made.error().to_string();
  return std::move(*made);
}

TEST(ApiTransport, ANameHasNoMoreTimeThanTheCall) {
  const SlowName slow;
  const auto answer = to_slow_name()->call({.path = "/", .timeout = milliseconds(50)}, Cancel());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, NetError::Kind::Connect);
  EXPECT_EQ(answer.error().message, "slow.name.test:80: its address was not found in time");
}

TEST(ApiTransport, ACallIsCancelledWhileItsNameIsLookedUp) {
  const SlowName slow;
  Cancel cancel;
  std::thread other([&] {
    EXPECT_TRUE(soon([&] { return slow.asked() == 1; }));
    cancel.cancel();
  });
  const auto answer = to_slow_name()->call({.path = "/", .timeout = kLong}, cancel);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, NetError::Kind::Cancelled);
  other.join();
}

TEST(ApiTransport, LinesComeAsTheyAre) {
  ScriptedServer server({{kStream + "3\r\none\r\n6\r\n\ntwo\n\n\r\n5\r\nthree\r\n0\r\n\r\n"}});
  auto opened = server.transport()->open({.path = "/"}, Cancel());
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_TRUE(opened->lines);
  for (const char* wanted : {"one", "two", "", "three"}) {
    const auto line = opened->lines->next(kLong);
    ASSERT_TRUE(line && *line);
    EXPECT_EQ(**line, wanted);
  }
  const auto end = opened->lines->next(kLong);
  ASSERT_TRUE(end);
  EXPECT_FALSE(*end);
}

TEST(ApiTransport, AStreamThatBreaksOffIsCut) {
  ScriptedServer server({{kStream + "4\r\none\n\r\n9\r\ntw"}});
  auto opened = server.transport()->open({.path = "/"}, Cancel());
  ASSERT_TRUE(opened && opened->lines);
  EXPECT_EQ(**opened->lines->next(kLong), "one");
  const auto cut = opened->lines->next(kLong);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().kind, NetError::Kind::Cut);
}

TEST(ApiTransport, AnotherStatusThanOkIsReadWhole) {
  ScriptedServer server({{"HTTP/1.1 410 Gone\r\nContent-Length: 5\r\n\r\nstale"}});
  const auto opened = server.transport()->open({.path = "/"}, Cancel());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_FALSE(opened->lines);
  EXPECT_EQ(opened->head.status, 410);
  EXPECT_EQ(opened->head.body, "stale");
}

/// Answers `calls` requests at a time, once all of them are there.
class Together {
 public:
  explicit Together(size_t calls) : calls_(calls) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 128), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Together() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (const auto& entry : open_) ::close(entry.fd);
  }
  uint16_t port = 0;
  std::atomic<int> connections = 0;

 private:
  void run() {
    open_ = {{listener_, POLLIN, 0}};
    std::set<int> asking;
    char head[4096];
    for (;;) {
      ::poll(open_.data(), open_.size(), -1);
      for (size_t i = 1; i < open_.size(); ++i) {
        if (open_[i].revents == 0) continue;
        if (::recv(open_[i].fd, head, sizeof head, 0) > 0) asking.insert(open_[i].fd);
        if (asking.contains(open_[i].fd)) continue;
        ::close(open_[i].fd);
        open_[i].fd = -1;
      }
      if (open_[0].revents != 0) {
        const int peer = ::accept(listener_, nullptr, nullptr);
        if (peer < 0) return;
        ++connections;
        open_.push_back({peer, POLLIN, 0});
      }
      if (asking.size() < calls_) continue;
      for (const int fd : asking) (void)!::send(fd, kOk.data(), kOk.size(), MSG_NOSIGNAL);
      asking.clear();
    }
  }
  const size_t calls_;
  int listener_ = -1;
  std::vector<pollfd> open_;
  std::thread thread_;
};

// A burst of creates that finds fewer connections than it has calls opens the rest, with a TLS handshake
// each, and the next burst does so again.
TEST(ApiTransport, KeepsAsManyConnectionsAsAreUsedAtOnce) {
  constexpr size_t kCalls = 3 * kIdleConnectionsMax / 2;
  Together server(kCalls);
  const auto transport =
      make_api_transport({.server = "http://127.0.0.1:" + std::to_string(server.port)}, kCalls);
  ASSERT_TRUE(transport);
  for (int burst = 0; burst < 3; ++burst) {
    std::vector<std::jthread> calls;
    for (size_t i = 0; i < kCalls; ++i) {
      calls.emplace_back([&] {
        const auto answer = (*transport)->call({.path = "/x"}, {});
        EXPECT_TRUE(answer) << answer.error().message;
      });
    }
  }
  EXPECT_EQ(server.connections, kCalls);
}

/// A plugin that prints "token-1", then "token-2", ...
Access with_plugin(uint16_t port, const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/login") << R"(#!/bin/sh
echo x >> "$0.runs"
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"token-%d"}}' \
  $(wc -l < "$0.runs")
)";
  std::filesystem::permissions(folder + "/login", std::filesystem::perms::owner_all);
  Access access{.server = "http://127.0.0.1:" + std::to_string(port)};
  access.plugin = ExecPlugin{.api_version = "client.authentication.k8s.io/v1",
                             .command = folder + "/login",
                             .args = {},
                             .env = {},
                             .install_hint = {},
                             .cluster_info = {},
                             .where = "config: user \"me\""};
  access.headers = {
      {"Impersonate-User", "jane"}, {"Impersonate-Group", "a"}, {"Impersonate-Group", "b"}};
  return access;
}

TEST(ApiTransport, RunsACredentialPluginOnceAndAgainAfterA401) {
  const std::string refused = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
  auto server = std::make_unique<ScriptedServer>(
      std::deque<ScriptedServer::Answer>{{kOk}, {kOk}, {refused}, {kOk}, {refused}, {kStream}});
  auto made = make_api_transport(with_plugin(server->port(), ::testing::TempDir() + "/plugin"));
  ASSERT_TRUE(made) << made.error().to_string();
  testing::FakeClock clock;
  Client client(**made, clock);
  const Resource pods{"", "v1", "pods", "Pod", true};
  for (int i = 0; i < 3; ++i) {
    const auto got = client.get(pods, "n", "p");
    EXPECT_TRUE(got) << got.error().message;
  }
  EXPECT_TRUE(client.pod_log("n", "p", {}));
  const std::vector<std::string> heads = server->heads;
  ASSERT_EQ(heads.size(), 6u);
  for (const auto& [i, token] :
       {std::pair{0, "1"}, {1, "1"}, {2, "1"}, {3, "2"}, {4, "2"}, {5, "3"}})
    EXPECT_NE(heads[i].find(std::string("Authorization: Bearer token-") + token + "\r\n"),
              std::string::npos)
        << i << heads[i];
  EXPECT_NE(heads[0].find("Impersonate-User: jane\r\n"), std::string::npos);
  EXPECT_NE(heads[0].find("Impersonate-Group: a\r\nImpersonate-Group: b\r\n"), std::string::npos);
}

TEST(ApiTransport, WithoutACredentialNothingIsSent) {
  ScriptedServer server({});
  Access access = with_plugin(server.port(), ::testing::TempDir() + "/no-plugin");
  access.plugin->command = "dsj-no-such-plugin";
  access.plugin->install_hint = "Install it.";
  const auto made = make_api_transport(access);
  ASSERT_TRUE(made);
  testing::FakeClock clock;
  Client client(**made, clock);
  const auto got = client.get({"", "v1", "pods", "Pod", true}, "n", "p");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().net, NetError::Kind::Credentials);
  EXPECT_FALSE(got.error().passing());
  EXPECT_NE(got.error().to_string().find("is not installed"), std::string::npos);
  EXPECT_NE(got.error().to_string().find("Install it."), std::string::npos);
  EXPECT_EQ(server.connections, 0);
}

TEST(Endpoint, IsTakenApart) {
  const auto plain = parse_endpoint("https://10.0.0.1:6443");
  ASSERT_TRUE(plain);
  EXPECT_TRUE(plain->tls);
  EXPECT_EQ(plain->host + "|" + plain->port + "|" + plain->path, "10.0.0.1|6443|");
  EXPECT_EQ(plain->authority, "10.0.0.1:6443");
  const auto six = parse_endpoint("https://[fd00::1]/k8s/clusters/c/");
  ASSERT_TRUE(six);
  EXPECT_EQ(six->host + "|" + six->port + "|" + six->path, "fd00::1|443|/k8s/clusters/c");
  EXPECT_EQ(six->authority, "[fd00::1]");
  const auto http = parse_endpoint("http://localhost");
  ASSERT_TRUE(http);
  EXPECT_FALSE(http->tls);
  EXPECT_EQ(http->port, "80");
  for (const char* none :
       {"", "10.0.0.1", "ftp://a", "https://", "https://a:b", "https://[::1", "https://a:"}) {
    EXPECT_FALSE(parse_endpoint(none)) << none;
  }
}

}  // namespace
}  // namespace dsj::kube
