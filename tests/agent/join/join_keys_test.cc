// Worker 0 proves itself before it sees a token: the key that the operator makes, and a stranger in its
// place.
#include "agent/join/join_keys.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "agent/wire/http_transport.h"
#include "agent/wire/transport.h"
#include "job/join_keys.h"
#include "operator/webhook/certificate.h"
#include "tests/agent/wire/http_threads.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

using op::WallTime;
using std::chrono::hours;

/// A run's key, as its pods have it.
struct Mount {
  explicit Mount(WallTime made = std::chrono::system_clock::now(),
                 const std::string& host = "127.0.0.1") {
    std::filesystem::create_directories(folder);
    const auto key =
        op::issue_certificate({host}, "team/tune", made, kKeyLifetime, op::kJobOrganization);
    if (!key) throw std::runtime_error(key.error().to_string());
    authority = key->authority_pem;
    write(kJoinChainFile, key->chain_pem);
    write(kJoinKeyFile, key->key_pem);
  }
  ~Mount() { std::filesystem::remove_all(folder); }
  void write(const std::string& file, const std::string& text) const {
    std::ofstream(folder + "/" + file) << text;
  }
  std::string folder =
      testing::TempDir() + "keys-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  std::string authority;
  static inline int count = 0;
};

/// Counts what it gets to read.
struct Recorder final : HttpHandler {
  std::optional<HttpAnswer> refuse(const HttpHead& head) override {
    ++heads;
    if (!head.authorization.empty()) ++tokens;
    return HttpAnswer{200, "{}"};
  }
  HttpAnswer answer(const HttpHead&, const std::string&) override { return {}; }
  std::atomic<int> heads = 0, tokens = 0;
};

struct JoinKeysTest : testing::Test {
  static void SetUpTestSuite() { start_http_threads(); }

  static std::unique_ptr<HttpServer> serve(JoinKey& key) {
    auto opened = HttpServer::open("127.0.0.1", 0, std::make_shared<KeyGate>("secret"), 2,
                                   [&key] { return key.server(); });
    EXPECT_TRUE(opened) << opened.error().to_string();
    Session session({.workers = 2}, Time(0));
    (*opened)->publish(board_of(session));
    return std::move(*opened);
  }
  static std::unique_ptr<HttpClient> client(int port, const std::string& authority,
                                            const std::string& host = "127.0.0.1",
                                            Time timeout = kLong) {
    Credentials credentials{[] { return "secret"; }, {}, authority};
    return std::make_unique<HttpClient>(
        [host, port]() -> Result<Endpoint> {
          return Endpoint{host, port};
        },
        credentials, timeout);
  }
  static Result<Directive> ask(HttpClient& client, int64_t sequence = 1) {
    client.send({.worker = 1, .sequence = sequence});
    for (;;) {
      if (auto answer = client.receive()) return *answer;
      pollfd entry{client.ready_fd(), POLLIN, 0};
      if (poll(&entry, 1, Time(kLong).count()) != 1) return fail(ErrorKind::Internal, "no answer");
    }
  }
  /// What a worker that trusts `authority` says to a server that has `its` key, or none.
  std::string refusal_of(const std::string& authority, const Mount* its) {
    auto recorder = std::make_shared<Recorder>();
    std::optional<JoinKey> shown;
    TlsSource tls;
    if (its) tls = [&] { return shown->server(); };
    if (its) shown.emplace(its->folder, its->authority);
    auto stranger = HttpListener::open("127.0.0.1", 0, {.body_bytes = 1 << 20}, recorder, tls);
    EXPECT_TRUE(stranger) << stranger.error().to_string();
    const auto answer = ask(*client((*stranger)->port(), authority));
    EXPECT_FALSE(answer);
    EXPECT_EQ(recorder->tokens, 0) << "the stranger has a token";
    EXPECT_EQ(recorder->heads, 0);
    return answer ? "" : answer.error().message;
  }
};

TEST_F(JoinKeysTest, AWorkerAndItsWorkerZeroSpeak) {
  const Mount mount;
  JoinKey key(mount.folder, mount.authority);
  const auto server = serve(key);
  const auto worker = client(server->endpoint().port, mount.authority);
  const auto answer = ask(*worker);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->order, Order::Idle);
  EXPECT_EQ(server->take().size(), 1u);
}

TEST_F(JoinKeysTest, AStrangerAsWorkerZeroGetsNoToken) {
  const Mount own, other;
  const std::string unknown = refusal_of(own.authority, &other);
  EXPECT_NE(unknown.find("did not prove that it is worker 0's agent"), std::string::npos)
      << unknown;
  EXPECT_NE(unknown.find("no token was sent"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("certificate: "), std::string::npos) << unknown;
}

TEST_F(JoinKeysTest, AServerWithoutTlsGetsNoToken) {
  const std::string message = refusal_of(Mount().authority, nullptr);
  EXPECT_NE(message.find("did not prove"), std::string::npos) << message;
}

TEST_F(JoinKeysTest, AKeyForAnotherHostGetsNoToken) {
  const Mount own(std::chrono::system_clock::now(), "other-worker-0.other-worker.team.svc");
  const std::string message = refusal_of(own.authority, &own);
  EXPECT_NE(message.find("mismatch"), std::string::npos) << message;
}

// Images have a list of some 150 authorities. To read it takes 25 ms of CPU, for every connection of every worker, and
// none of them is trusted here.
TEST_F(JoinKeysTest, TheImagesListOfAuthoritiesIsNotRead) {
  const Mount mount;
  JoinKey key(mount.folder, mount.authority);
  const auto server = serve(key);
  const std::string list = mount.folder + "/list";  // who opens it waits for a writer, for ever
  ASSERT_EQ(::mkfifo(list.c_str(), 0600), 0);
  const char* set = std::getenv("SSL_CERT_FILE");
  const std::optional<std::string> before = set ? std::optional<std::string>(set) : std::nullopt;
  ::setenv("SSL_CERT_FILE", list.c_str(), 1);
  const auto answer = ask(*client(server->endpoint().port, mount.authority));
  before ? ::setenv("SSL_CERT_FILE", before->c_str(), 1) : ::unsetenv("SSL_CERT_FILE");
  EXPECT_TRUE(answer) << answer.error().to_string();
}

// A worker 0 with too little CPU answers late. Who then comes again with the same patience gives up again, and has
// cost it a handshake each time.
TEST_F(JoinKeysTest, AWorkerWaitsLongerForAWorkerZeroThatWasSlow) {
  constexpr Time kFirst{100};
  const int silent =
      ::socket(AF_INET, SOCK_STREAM, 0);  // its backlog takes connections, and nobody answers
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(silent, 64), 0);
  ::getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size);
  const auto worker = client(ntohs(address.sin_port), Mount().authority, "127.0.0.1", kFirst);
  EXPECT_TRUE(soon([&] {
    const auto sent = std::chrono::steady_clock::now();
    EXPECT_FALSE(ask(*worker));
    return std::chrono::steady_clock::now() - sent >= patience(kFirst, 2);
  }));
  ::close(silent);
}

// A worker connects to an address or to the absolute name; the certificate is for worker 0's own name.
TEST_F(JoinKeysTest, TheNameIsProvedWhateverIsConnectedTo) {
  const std::string name = "tune-worker-0.tune-worker.team.svc";
  const Mount mount(std::chrono::system_clock::now(), name);
  JoinKey key(mount.folder, mount.authority);
  const auto server = serve(key);
  for (const auto& [proved, good] : {std::pair(name, true), {"other.team.svc", false}}) {
    Credentials credentials{[] { return "secret"; }, {}, mount.authority};
    HttpClient worker(
        [&, proved = proved]() -> Result<Endpoint> {
          return Endpoint{"127.0.0.1", server->endpoint().port, proved};
        },
        credentials, kLong);
    const auto answer = ask(worker);
    EXPECT_EQ(answer.has_value(), good) << proved;
  }
}

TEST_F(JoinKeysTest, AnExpiredKeyGetsNoToken) {
  const Mount own(std::chrono::system_clock::now() - kKeyLifetime - hours(1));
  const std::string message = refusal_of(own.authority, &own);
  EXPECT_NE(message.find("expired"), std::string::npos) << message;
}

TEST_F(JoinKeysTest, WithoutAuthoritiesNobodyIsAsked) {
  const Mount other;
  EXPECT_NE(refusal_of("", &other).find("no certificate"), std::string::npos);
}

// A Secret that the authority does not vouch for is as good as none: no worker would believe it.
TEST_F(JoinKeysTest, AKeyThatNobodyVouchesForIsNotShown) {
  const Mount own, other;
  EXPECT_EQ(JoinKey(other.folder, own.authority).server(), nullptr);
}

TEST_F(JoinKeysTest, AKeyThatComesLateIsShown) {
  const Mount own, late;
  std::filesystem::remove_all(late.folder);
  JoinKey key(late.folder, own.authority);
  EXPECT_EQ(key.server(), nullptr);
  std::filesystem::copy(own.folder, late.folder);
  const auto shown = key.server();
  EXPECT_NE(shown, nullptr);
  std::filesystem::remove_all(late.folder);
  EXPECT_EQ(key.server(), shown) << "it is read once";
}

}  // namespace
}  // namespace dsj::agent
