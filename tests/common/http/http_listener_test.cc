// The limits of the listener against peers that mean no good.
#include "common/http/http_listener.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <latch>

#include "tests/common/http/raw_http.h"
#include "tests/support/soon.h"

namespace dsj {
namespace {

using Time = std::chrono::milliseconds;

struct Echo final : HttpHandler {
  std::optional<HttpAnswer> refuse(const HttpHead& head) override {
    if (head.authorization != "Bearer good") return HttpAnswer{401, "who"};
    return std::nullopt;
  }
  HttpAnswer answer(const HttpHead& head, const std::string& body) override {
    ++answers;
    return {200, head.method + " " + head.path + " " + body};
  }
  std::atomic<int> answers = 0;
};

std::string post(const std::string& headers, const std::string& body = "") {
  return "POST /x HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + body;
}
std::string first_line(const std::string& text) {
  return text.substr(0, text.find("\r\n"));
}

struct ListenerTest : testing::Test {
  void open(HttpLimits limits) { open_tls(limits, {}); }
  void open_tls(HttpLimits limits, TlsSource tls) {
    auto opened = HttpListener::open("127.0.0.1", 0, limits, echo, std::move(tls));
    ASSERT_TRUE(opened) << opened.error().to_string();
    listener = std::move(*opened);
  }
  /// A peer that has begun to speak.
  int say_hello() const {
    const int fd = raw_connect(listener->port());
    EXPECT_EQ(send(fd, "hello", 5, MSG_NOSIGNAL), 5);
    return fd;
  }
  /// Waits until so many connections are open.
  bool settles(int connections) {
    return soon([&] { return listener->counts().open == connections; });
  }
  std::shared_ptr<Echo> echo = std::make_shared<Echo>();
  std::unique_ptr<HttpListener> listener;
};

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

TEST_F(ListenerTest, AnswersAndKeepsTheConnection) {
  open({.body_bytes = 100, .idle = Time(200)});
  const std::string one = post("Authorization: Bearer good\r\nContent-Length: 2\r\n", "hi");
  const std::string answers = raw_http(listener->port(), one + one);
  EXPECT_EQ(first_line(answers), "HTTP/1.1 200 OK");
  EXPECT_EQ(echo->answers, 2);
  EXPECT_NE(answers.find("POST /x hi"), std::string::npos);
  EXPECT_TRUE(settles(0)) << "idle for too long";
}

TEST_F(ListenerTest, AGigabyteIsRefusedBeforeItIsRead) {
  open({.body_bytes = 256 * 1024});
  const size_t before = resident_bytes();
  for (const std::string& who : {std::string("Authorization: Bearer good\r\n"), std::string()}) {
    const int fd = raw_connect(listener->port());
    const std::string head = post(who + "Content-Length: 1073741824\r\n");
    ASSERT_EQ(send(fd, head.data(), head.size(), MSG_NOSIGNAL), ssize_t(head.size()));
    // It goes on sending: the connection ends under it long before the gigabyte is through.
    const std::string part(1 << 20, 'x');
    const timeval patience{.tv_sec = kLong.count(), .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    size_t sent = 0;
    ssize_t wrote = 0;
    while (sent < (size_t(1) << 30) &&
           (wrote = send(fd, part.data(), part.size(), MSG_NOSIGNAL)) > 0) {
      sent += static_cast<size_t>(wrote);
    }
    EXPECT_LT(sent, size_t(64) << 20);
    close(fd);
  }
  EXPECT_TRUE(settles(0));
  EXPECT_LT(resident_bytes(), before + (8 << 20));
  EXPECT_EQ(echo->answers, 0);
  EXPECT_EQ(
      first_line(raw_http(listener->port(),
                          post("Authorization: Bearer good\r\nContent-Length: 1073741824\r\n"))),
      "HTTP/1.1 413 Payload Too Large");
}

TEST_F(ListenerTest, BodiesWithoutALengthAndHeadsWithoutEndAreRefused) {
  open({.head_bytes = 4096, .body_bytes = 100});
  EXPECT_EQ(first_line(raw_http(listener->port(), post("Authorization: Bearer good\r\n"
                                                       "Transfer-Encoding: chunked\r\n",
                                                       "1\r\nx\r\n0\r\n\r\n"))),
            "HTTP/1.1 411 Length Required");
  EXPECT_EQ(first_line(raw_http(listener->port(), "GET /" + std::string(100'000, 'a'))),
            "HTTP/1.1 431 Request Header Fields Too Large");
  EXPECT_EQ(first_line(raw_http(listener->port(), "\x16\x03\x01 TLS?\r\n\r\n")),
            "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(echo->answers, 0);
}

TEST_F(ListenerTest, SlowPeersAreCutOff) {
  open({.body_bytes = 100, .head = Time(200), .request = Time(200)});
  EXPECT_EQ(raw_http(listener->port(), "POST /x HT"), "") << "a head that never ends";
  EXPECT_EQ(raw_http(listener->port(),
                     post("Authorization: Bearer good\r\nContent-Length: 50\r\n", "only so much")),
            "")
      << "a body that never ends";
  // One byte now and then is no progress: the time is that of the whole head.
  const int fd = raw_connect(listener->port());
  EXPECT_TRUE(soon([&] { return send(fd, "x", 1, MSG_NOSIGNAL) != 1; }));
  close(fd);
  EXPECT_TRUE(settles(0));
}

TEST_F(ListenerTest, IdlersMakeRoomForWhoIsAdmitted) {
  open({.body_bytes = 100, .head = Time(60'000), .connections = 4});
  const int admitted = raw_connect(listener->port());
  const std::string one = post("Authorization: Bearer good\r\nContent-Length: 2\r\n", "hi");
  ASSERT_EQ(send(admitted, one.data(), one.size(), MSG_NOSIGNAL), ssize_t(one.size()));
  EXPECT_NE(raw_answer(admitted), "");
  std::vector<int> idlers;
  for (int i = 0; i < 40; ++i) idlers.push_back(raw_connect(listener->port()));
  EXPECT_TRUE(settles(4));
  EXPECT_EQ(first_line(raw_http(listener->port(), post("Authorization: Bearer good\r\n"
                                                       "Connection: close\r\n"
                                                       "Content-Length: 0\r\n"))),
            "HTTP/1.1 200 OK")
      << "a newcomer is served";
  ASSERT_EQ(send(admitted, one.data(), one.size(), MSG_NOSIGNAL), ssize_t(one.size()));
  EXPECT_NE(raw_answer(admitted), "") << "and who was admitted was not thrown out";
  for (const int fd : idlers) close(fd);
  close(admitted);
}

TEST_F(ListenerTest, WhoIsIdleLongestMakesRoomWhenAllWereAdmitted) {
  open({.body_bytes = 100, .connections = 3});
  const std::string one = post("Authorization: Bearer good\r\nContent-Length: 2\r\n", "hi");
  auto ask = [&](int fd) {
    if (send(fd, one.data(), one.size(), MSG_NOSIGNAL) != ssize_t(one.size())) return std::string();
    return first_line(raw_answer(fd));
  };
  std::vector<int> kept;
  for (int i = 0; i < 3; ++i) {
    kept.push_back(raw_connect(listener->port()));
    EXPECT_EQ(ask(kept.back()), "HTTP/1.1 200 OK");
  }
  EXPECT_EQ(ask(kept[0]), "HTTP/1.1 200 OK");  // the second is now idle longest
  kept.push_back(raw_connect(listener->port()));
  EXPECT_EQ(ask(kept[3]), "HTTP/1.1 200 OK");
  EXPECT_EQ(ask(kept[1]), "");
  EXPECT_EQ(ask(kept[0]), "HTTP/1.1 200 OK");
  EXPECT_EQ(ask(kept[2]), "HTTP/1.1 200 OK");
  for (const int fd : kept) close(fd);
}

// A worker 0 of thousands gets thousands of beats a second. None may cost a look at the others.
TEST_F(ListenerTest, ARequestCostsNoLookAtOtherConnections) {
  constexpr int kPeers = 64, kRounds = 3;
  open({.body_bytes = 100, .connections = kPeers});
  const std::string one = post("Authorization: Bearer good\r\nContent-Length: 2\r\n", "hi");
  std::vector<int> kept;
  for (int i = 0; i < kPeers; ++i) kept.push_back(raw_connect(listener->port()));
  for (int round = 0; round < kRounds; ++round) {
    for (const int fd : kept) {
      ASSERT_EQ(send(fd, one.data(), one.size(), MSG_NOSIGNAL), ssize_t(one.size()));
      ASSERT_NE(raw_answer(fd), "");
    }
  }
  EXPECT_EQ(echo->answers, kPeers * kRounds);
  EXPECT_EQ(listener->counts().looked_at, 0);
  // Room is made by the one that is idle longest, which is the first to be looked at.
  kept.push_back(raw_connect(listener->port()));
  ASSERT_EQ(send(kept.back(), one.data(), one.size(), MSG_NOSIGNAL), ssize_t(one.size()));
  EXPECT_NE(raw_answer(kept.back()), "");
  EXPECT_EQ(listener->counts().looked_at, 1);
  for (const int fd : kept) close(fd);
}

// A server that is too slow for its clients gets to them when they have given up. It signs for none of them.
TEST_F(ListenerTest, WhoHasGoneCostsNoHandshake) {
  constexpr int kGone = 20, kPatient = 3;
  std::atomic<int> asked = 0;
  std::latch all_here(1);
  open_tls({.body_bytes = 100}, [&] {  // on the listener's thread, for each handshake
    if (++asked == 1) all_here.wait();
    return nullptr;
  });
  std::vector<int> stay = {say_hello()};
  EXPECT_TRUE(soon([&] { return asked == 1; }));
  for (int i = 0; i < kGone; ++i) close(say_hello());
  for (int i = 0; i < kPatient; ++i) stay.push_back(say_hello());
  all_here.count_down();
  EXPECT_TRUE(soon([&] { return listener->counts().gone + asked == kGone + kPatient + 1; }));
  EXPECT_EQ(asked, kPatient + 1);
  EXPECT_TRUE(settles(0)) << "there is no certificate, so nobody gets in";
  for (const int fd : stay) close(fd);
}

// Strangers that say nothing have no turn, so they hold up nobody.
TEST_F(ListenerTest, WhoSaysNothingHasNoTurnAtTheDoor) {
  std::atomic<int> asked = 0;
  open_tls({.head = Time(600'000), .door = {.at_once = 1, .turn = Time(600'000)}}, [&] {
    ++asked;
    return nullptr;
  });
  std::vector<int> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(raw_connect(listener->port()));
  EXPECT_TRUE(settles(5));
  EXPECT_EQ(raw_http(listener->port(), "hello"), "");
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(settles(5));
  for (const int fd : silent) close(fd);
}

TEST_F(ListenerTest, APortThatIsTakenIsAnError) {
  open({});
  EXPECT_FALSE(HttpListener::open("127.0.0.1", listener->port(), {}, echo));
  EXPECT_FALSE(HttpListener::open("not an address", 0, {}, echo));
  for (const char* wrong : {"127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", ":80x", ""}) {
    EXPECT_FALSE(HttpListener::open(wrong, {}, echo)) << wrong;
  }
  EXPECT_TRUE(HttpListener::open("127.0.0.1:0", {}, echo));
}

TEST_F(ListenerTest, AnAddressOfIpv6IsOneToo) {
  sockaddr_in6 loopback{.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool there =
      fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
  if (fd >= 0) close(fd);
  if (!there) GTEST_SKIP() << "this machine has no address ::1";
  EXPECT_TRUE(HttpListener::open("[::1]:0", {}, echo));
  // A kubelet probes a pod at its own address, of the family that the cluster has.
  for (const char* all : {":0", "0.0.0.0:0", "[::]:0"}) {
    const auto both = HttpListener::open(all, {}, echo);
    ASSERT_TRUE(both) << all << both.error().to_string();
    for (const char* address : {"127.0.0.1", "::1"}) {
      const std::string answer = raw_http(address, (*both)->port(),
                                          "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
      EXPECT_EQ(first_line(answer), "HTTP/1.1 401 Unauthorized") << all << " " << address;
    }
  }
}

}  // namespace
}  // namespace dsj
