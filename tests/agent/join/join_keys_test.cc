// Worker 0 proves itself before it sees a token: the keys that the operator makes, a stranger in its
// place, and a renewal under agents that are connected.
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

#include "agent/wire/http_transport.h"
#include "agent/wire/transport.h"
#include "job/join_keys.h"
#include "operator/webhook/certificate.h"
#include "tests/agent/wire/http_threads.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

using std::chrono::hours;

WallTime now() {
  return std::chrono::system_clock::now();
}

/// As a pod sees them.
struct Mount {
  Mount() { std::filesystem::create_directories(folder); }
  ~Mount() { std::filesystem::remove_all(folder); }
  void write(const std::string& file, const std::string& text) const {
    std::ofstream(folder + "/" + file) << text;
  }
  /// A key by its own authority, which vouches for `host`.
  void add(int slot, WallTime made, const std::string& host = "127.0.0.1") const {
    const auto key =
        op::issue_certificate({host}, "team/tune", made, kKeyLifetime, op::kJobOrganization);
    ASSERT_TRUE(key) << key.error().to_string();
    write(authority_file(slot), key->authority_pem);
    write(chain_file(slot), key->chain_pem);
    write(key_file(slot), key->key_pem);
  }
  std::string folder =
      testing::TempDir() + "keys-" + std::to_string(getpid()) + "-" + std::to_string(++count);
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

  static std::unique_ptr<HttpServer> serve(JoinKeys& keys) {
    auto opened = HttpServer::open("127.0.0.1", 0, std::make_shared<KeyGate>("secret"), 2,
                                   [&keys] { return keys.server(); });
    EXPECT_TRUE(opened) << opened.error().to_string();
    Session session({.workers = 2}, Time(0));
    (*opened)->publish(board_of(session));
    return std::move(*opened);
  }
  static std::unique_ptr<HttpClient> client(int port, JoinKeys& keys,
                                            const std::string& host = "127.0.0.1",
                                            Time timeout = kLong) {
    Credentials credentials{[] { return "secret"; }, {}, [&keys] { return keys.authorities(); }};
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
  /// What a worker of `mount` says to a server that has `its` keys, or none.
  std::string refusal_of(const Mount& mount, const Mount* its,
                         const std::string& host = "127.0.0.1") {
    auto recorder = std::make_shared<Recorder>();
    std::optional<JoinKeys> shown;
    TlsSource tls;
    if (its) tls = [&] { return shown->server(); };
    if (its) shown.emplace(its->folder);
    auto stranger = HttpListener::open("127.0.0.1", 0, {.body_bytes = 1 << 20}, recorder, tls);
    EXPECT_TRUE(stranger) << stranger.error().to_string();
    JoinKeys trusted(mount.folder);
    const auto worker = client((*stranger)->port(), trusted, host);
    const auto answer = ask(*worker);
    EXPECT_FALSE(answer);
    EXPECT_EQ(recorder->tokens, 0) << "the stranger has a token";
    EXPECT_EQ(recorder->heads, 0);
    return answer ? "" : answer.error().message;
  }
};

TEST_F(JoinKeysTest, AWorkerAndItsWorkerZeroSpeak) {
  Mount mount;
  mount.add(0, now());
  JoinKeys keys(mount.folder);
  const auto server = serve(keys);
  const auto worker = client(server->endpoint().port, keys);
  const auto answer = ask(*worker);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->order, Order::Idle);
  EXPECT_EQ(server->take().size(), 1u);
}

TEST_F(JoinKeysTest, AStrangerAsWorkerZeroGetsNoToken) {
  Mount own, other;
  own.add(0, now());
  other.add(0, now());
  const std::string unknown = refusal_of(own, &other);
  EXPECT_NE(unknown.find("did not prove that it is worker 0's agent"), std::string::npos)
      << unknown;
  EXPECT_NE(unknown.find("no token was sent"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("certificate: "), std::string::npos) << unknown;
}

TEST_F(JoinKeysTest, AServerWithoutTlsGetsNoToken) {
  Mount own;
  own.add(0, now());
  const std::string message = refusal_of(own, nullptr);
  EXPECT_NE(message.find("did not prove"), std::string::npos) << message;
}

TEST_F(JoinKeysTest, AKeyForAnotherHostGetsNoToken) {
  Mount own;
  own.add(0, now(), "other-worker-0.other-worker.team.svc");
  const std::string message = refusal_of(own, &own);
  EXPECT_NE(message.find("mismatch"), std::string::npos) << message;
}

// Images have a list of some 150 authorities. To read it takes 25 ms of CPU, for every connection of every worker, and
// none of them is trusted here.
TEST_F(JoinKeysTest, TheImagesListOfAuthoritiesIsNotRead) {
  Mount mount;
  mount.add(0, now());
  JoinKeys keys(mount.folder);
  const auto server = serve(keys);
  const std::string list = mount.folder + "/list";  // who opens it waits for a writer, for ever
  ASSERT_EQ(::mkfifo(list.c_str(), 0600), 0);
  const char* set = std::getenv("SSL_CERT_FILE");
  const std::optional<std::string> before = set ? std::optional<std::string>(set) : std::nullopt;
  ::setenv("SSL_CERT_FILE", list.c_str(), 1);
  const auto answer = ask(*client(server->endpoint().port, keys));
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
  Mount mount;
  mount.add(0, now());
  JoinKeys keys(mount.folder);
  const auto worker = client(ntohs(address.sin_port), keys, "127.0.0.1", kFirst);
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
  Mount mount;
  mount.add(0, now(), name);
  JoinKeys keys(mount.folder);
  const auto server = serve(keys);
  for (const auto& [proved, good] : {std::pair(name, true), {"other.team.svc", false}}) {
    Credentials credentials{[] { return "secret"; }, {}, [&keys] { return keys.authorities(); }};
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
  Mount own;
  own.add(0, now() - kKeyLifetime - hours(1));
  const std::string message = refusal_of(own, &own);
  EXPECT_NE(message.find("expired"), std::string::npos) << message;
}

TEST_F(JoinKeysTest, WithoutAuthoritiesNobodyIsAsked) {
  Mount own, other;
  other.add(0, now());
  EXPECT_NE(refusal_of(own, &other).find("no authority"), std::string::npos);
}

// A Secret that the authorities do not vouch for is as good as none: no worker would believe it.
TEST_F(JoinKeysTest, AKeyThatNobodyVouchesForIsNotShown) {
  Mount mount, other;
  mount.add(0, now());
  other.add(0, now());
  std::filesystem::copy_file(other.folder + "/" + authority_file(0),
                             mount.folder + "/" + authority_file(0),
                             std::filesystem::copy_options::overwrite_existing);
  WallTime wall = now();
  JoinKeys keys(mount.folder, [&] { return wall; });
  EXPECT_EQ(keys.server(), nullptr);
  mount.add(1, now());
  EXPECT_NE(keys.server(), nullptr) << "it came later";
}

TEST_F(JoinKeysTest, ConnectedAgentsOutliveARenewal) {
  Mount mount, first, second;
  mount.add(0, now() - hours(40 * 24));
  WallTime wall = now();
  JoinKeys keys(mount.folder, [&] { return wall; });
  const auto server = serve(keys);
  const int port = server->endpoint().port;
  const auto connected = client(port, keys);
  ASSERT_TRUE(ask(*connected));
  mount.add(1, now());
  for (const int slot : {0, 1}) {
    std::filesystem::copy_file(mount.folder + "/" + authority_file(slot),
                               (slot == 0 ? first : second).folder + "/" + authority_file(slot));
  }
  JoinKeys old(first.folder), later(second.folder);
  wall += std::chrono::minutes(5);
  EXPECT_TRUE(ask(*client(port, old), 2)) << "a pod that has not seen the new authority yet";
  wall += kKeySpread;
  EXPECT_TRUE(ask(*connected, 3)) << "by the connection from before";
  EXPECT_TRUE(ask(*client(port, keys), 4));
  EXPECT_TRUE(ask(*client(port, later), 5)) << "the new key is shown now";
  EXPECT_FALSE(ask(*client(port, old), 6));
  for (const auto& name : {authority_file(0), chain_file(0), key_file(0)}) {
    std::filesystem::remove(mount.folder + "/" + name);
  }
  wall += std::chrono::minutes(5);
  EXPECT_TRUE(ask(*client(port, later), 7));
  EXPECT_TRUE(ask(*connected, 8));
}

TEST(KeyInUse, IsTheNewestThatAllPodsKnow) {
  const WallTime t{};
  const auto key = [&](int made, int ends) {
    return MountedKey{.made = t + hours(made), .ends = t + hours(ends)};
  };
  EXPECT_EQ(key_in_use({}, t), std::nullopt);
  EXPECT_EQ(key_in_use({key(0, 1000)}, t), 0u) << "there is no other";
  const std::vector<MountedKey> both = {key(100, 1100), key(0, 1000)};
  EXPECT_EQ(key_in_use(both, t + hours(101)), 1u) << "too new";
  EXPECT_EQ(key_in_use(both, t + hours(100) + kKeySpread), 0u);
  EXPECT_EQ(key_in_use({key(0, 90), key(80, 1080)}, t + hours(95)), 1u) << "the other has expired";
  EXPECT_EQ(key_in_use({key(0, 10), key(1, 20)}, t + hours(95)), 1u) << "both have";
}

}  // namespace
}  // namespace dsj::agent
