// One contract for every transport, run against the fake and against HTTP; then what only HTTP has.
#include "agent/wire/transport.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>

#include "agent/gang/session.h"
#include "agent/wire/http_transport.h"
#include "job/contract.h"
#include "tests/agent/wire/http_threads.h"
#include "tests/agent/wire/memory_transport.h"
#include "tests/common/http/raw_http.h"
#include "tests/common/http/slow_name.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

/// Waits for an answer as the agent's loop does.
Result<Directive> ask(BeatClient& client, const WorkerReport& report) {
  client.send(report);
  for (;;) {
    if (auto answer = client.receive()) return *answer;
    pollfd entry{client.ready_fd(), POLLIN, 0};
    if (client.ready_fd() < 0 || poll(&entry, 1, Time(kLong).count()) != 1) {
      return fail(ErrorKind::Transient, "no answer");
    }
  }
}

Credentials knowing(const std::string& key) {
  return {[key] { return key; }, {}};
}

Session two_workers() {
  Session session({.workers = 2}, Time(0));
  for (int w : {0, 1}) step(session, Beat{{.worker = w, .sequence = 1, .slots = 2}}, Time(0));
  step(session, Published{1, "127.0.0.1", 4000}, Time(0));
  return session;
}

void contract(BeatServer& server, BeatClient& client) {
  const Session session = two_workers();
  server.publish(board_of(session));
  const WorkerReport report{.worker = 1, .sequence = 2, .slots = 2, .ranks = {{.step = 3}}};
  const auto answer = ask(client, report);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(*answer, directive_for(session, 1, 1));
  EXPECT_EQ(answer->order, Order::Run);
  EXPECT_EQ(answer->first_rank, 2);
  EXPECT_EQ(server.take(), std::vector{report});
  EXPECT_TRUE(server.take().empty());

  WorkerReport stranger = report;
  stranger.worker = 9;
  EXPECT_EQ(ask(client, stranger)->order, Order::Finish);
  WorkerReport successor = report;
  successor.incarnation = 2;
  EXPECT_EQ(ask(client, successor)->order, Order::Idle) << "its predecessor's ranks may run";
  EXPECT_EQ(server.take().size(), 2u);
}

TEST(Transport, BoardRefusesAReplacedLife) {
  Session session = two_workers();
  step(session, Beat{{.worker = 1, .incarnation = 3, .sequence = 1, .slots = 2}}, Time(1));
  const Board board = board_of(session);
  EXPECT_EQ(board.answer(1, 2).order, Order::Finish);
  EXPECT_EQ(board.answer(1, 3), directive_for(session, 1, 3));
  EXPECT_EQ(board.answer(0, 1), directive_for(session, 0, 1));
}

// A deleted pod's successor may ask the old worker 0 before that one is gone. It is not part of the
// gang that stopped: if it is sent away, a second restart follows.
TEST(Transport, BoardLetsTheSuccessorOfAStoppedWorkerWait) {
  Session session = two_workers();
  const RankState saved{.running = false, .exit_code = contract::kExitPreempted, .asked = true};
  for (int w : {0, 1}) {
    step(session,
         Beat{{.worker = w,
               .sequence = 2,
               .slots = 2,
               .attempt = 1,
               .fence = 1,
               .stop_requested = w == 1,
               .ranks = {saved, saved}}},
         Time(1));
  }
  ASSERT_EQ(session.phase, Phase::Finished);
  const Board board = board_of(session);
  EXPECT_EQ(board.answer(1, 1).order, Order::Finish);
  EXPECT_EQ(board.answer(1, 2).order, Order::Idle) << "before its first beat is taken";
  step(session, Beat{{.worker = 1, .incarnation = 2, .sequence = 1, .slots = 2}}, Time(2));
  EXPECT_EQ(board_of(session).answer(1, 2).order, Order::Idle) << "and after it";
}

TEST(Transport, ContractOfTheFake) {
  auto server = std::make_shared<MemoryServer>();
  MemoryClient client(server);
  contract(*server, client);
  server->cut = true;
  EXPECT_FALSE(ask(client, {}));
  EXPECT_TRUE(server->take().empty());
}

struct HttpTest : testing::Test {
  static void SetUpTestSuite() { start_http_threads(); }
  void SetUp() override {
    auto opened = HttpServer::open("127.0.0.1", 0, std::make_shared<KeyGate>("secret"), 2);
    ASSERT_TRUE(opened) << opened.error().to_string();
    server = std::move(*opened);
    ASSERT_TRUE(write_endpoint(file, server->endpoint()));
  }
  void TearDown() override { std::filesystem::remove(file); }

  /// Sends raw text; returns the first line of what comes back.
  std::string raw(const std::string& request) {
    const std::string answer = raw_ask(server->endpoint().port, request);
    return answer.substr(0, answer.find("\r\n"));
  }
  static std::string post(const std::string& headers, const std::string& body = "",
                          const std::string& path = "/v1/beat") {
    return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + body;
  }

  std::string file = testing::TempDir() + "endpoint-" + std::to_string(getpid());
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpTest, Contract) {
  HttpClient client([&] { return read_endpoint(file); }, knowing("secret"), kLong);
  contract(*server, client);
}

TEST_F(HttpTest, AnotherKeyIsRefused) {
  server->publish(board_of(two_workers()));
  HttpClient client([&] { return read_endpoint(file); }, knowing("guess"), kLong);
  const auto answer = ask(client, {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, ErrorKind::BadInput);
  EXPECT_NE(answer.error().message.find("401"), std::string::npos);
  EXPECT_TRUE(server->take().empty());
}

TEST_F(HttpTest, WhatIsNoBeatIsRefused) {
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(raw(post("Content-Length: 2\r\n", "{}")), "HTTP/1.1 401 Unauthorized");
  EXPECT_EQ(raw(post(key + "Content-Length: 2\r\n", "{}")), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(raw(post(key + "Content-Length: 2\r\n", "{}", "/other")), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(raw(post(key + "Transfer-Encoding: chunked\r\n", "0\r\n\r\n")),
            "HTTP/1.1 411 Length Required");
  EXPECT_EQ(raw(post(key + "Content-Length: 300000\r\n", std::string(300'000, 'x'))),
            "HTTP/1.1 413 Payload Too Large");
  EXPECT_EQ(raw("GET /v1/beat HTTP/1.1\r\nHost: x\r\n" + key + "\r\n"),
            "HTTP/1.1 405 Method Not Allowed");
  EXPECT_TRUE(server->take().empty());
}

TEST_F(HttpTest, ClientFindsAServerThatMoved) {
  server->publish(board_of(two_workers()));
  HttpClient client([&] { return read_endpoint(file); }, knowing("secret"), kLong);
  ASSERT_TRUE(ask(client, {.worker = 1}));
  server.reset();
  EXPECT_FALSE(ask(client, {.worker = 1}));
  SetUp();
  server->publish(board_of(two_workers()));
  EXPECT_TRUE(ask(client, {.worker = 1}));
}

/// Cannot judge anybody yet.
struct BusyGate final : JoinGate {
  std::expected<Caller, Denied> admit(std::string_view) override {
    return std::unexpected(Denied{503, "later"});
  }
  std::expected<void, Denied> permit(const Caller&, int, int64_t) override { return {}; }
};

// A server that refuses a head ends the connection: the next beat on it would be lost.
TEST_F(HttpTest, AConnectionThatTheServerEndsIsNotUsedAgain) {
  auto busy = HttpServer::open("127.0.0.1", 0, std::make_shared<BusyGate>(), 2);
  ASSERT_TRUE(busy) << busy.error().to_string();
  HttpClient client([&]() -> Result<Endpoint> { return (*busy)->endpoint(); }, knowing("secret"),
                    kLong);
  for (int i = 0; i < 3; ++i) {
    const auto answer = ask(client, {.worker = 1});
    ASSERT_FALSE(answer);
    EXPECT_NE(answer.error().message.find("503"), std::string::npos) << answer.error().message;
  }
}

// A name is looked up for a new connection. One that works is kept, whatever the answer says about a beat.
TEST_F(HttpTest, AnAnswerKeepsTheConnectionAndItsName) {
  server->publish(board_of(two_workers()));
  int found = 0;
  HttpClient client(
      [&] {
        ++found;
        return read_endpoint(file);
      },
      knowing("secret"), kLong);
  ASSERT_TRUE(ask(client, {.worker = 1, .sequence = 7}));
  ASSERT_FALSE(ask(client, {.worker = 1, .sequence = 3})) << "out of order: 409";
  ASSERT_TRUE(ask(client, {.worker = 1, .sequence = 8}));
  EXPECT_EQ(found, 1);
}

/// Answers every request, or none while it is silent.
struct Moody final : HttpHandler {
  std::optional<HttpAnswer> refuse(const HttpHead&) override { return std::nullopt; }
  HttpAnswer answer(const HttpHead&, const std::string&) override {
    silent.wait(true);
    return {200, to_text(Directive{}), "application/json"};
  }
  void is_silent(bool now) {
    silent = now;
    silent.notify_all();
  }
  std::atomic<bool> silent = false;
};

// Who was patient with a worker 0 that was slow, and was answered, finds out as soon as others when it is gone.
TEST_F(HttpTest, AnAnswerEndsThePatience) {
  constexpr Time kFirst{100};
  const auto moody = std::make_shared<Moody>();
  const auto other = HttpListener::open("127.0.0.1", 0, {.body_bytes = 1 << 20}, moody);
  ASSERT_TRUE(other) << other.error().to_string();
  HttpClient client(
      [&]() -> Result<Endpoint> {
        return Endpoint{"127.0.0.1", (*other)->port()};
      },
      knowing("secret"), kFirst);
  const auto in_vain = [&] {
    moody->is_silent(true);
    const auto sent = std::chrono::steady_clock::now();
    EXPECT_FALSE(ask(client, {}));
    const auto took = std::chrono::steady_clock::now() - sent;
    moody->is_silent(false);
    return took;
  };
  EXPECT_TRUE(soon([&] {
    in_vain();
    return ask(client, {}) && in_vain() < patience(kFirst, 1);
  }));
}

// One thread answers all workers: what it holds is made once per turn, for any number of them.
TEST(Transport, TheBoardOfALargeGangSaysWhatTheSessionSays) {
  constexpr int kWorkers = 300;
  Session session({.workers = kWorkers}, Time(0));
  Beats all;
  for (int w = 0; w < kWorkers; ++w) {
    all.reports.push_back({.worker = w, .sequence = 1, .slots = 1 + w % 3});
  }
  step(session, all, Time(0));
  step(session, Published{1, "127.0.0.1", 4000}, Time(0));
  ASSERT_EQ(session.phase, Phase::Running);
  const Board board = board_of(session);
  int first = 0;
  for (int w = 0; w < kWorkers; ++w) {
    EXPECT_EQ(board.answer(w, 1), directive_for(session, w, 1)) << w;
    EXPECT_EQ(board.answer(w, 1).first_rank, first) << w;
    first += 1 + w % 3;
  }
}

TEST_F(HttpTest, MissingOrOddEndpointFileIsAnError) {
  std::filesystem::remove(file);
  HttpClient client([&] { return read_endpoint(file); }, knowing("secret"), kLong);
  EXPECT_FALSE(ask(client, {}));
  ASSERT_TRUE(write_endpoint(file, {"127.0.0.1", 1}));
  EXPECT_EQ(read_endpoint(file)->port, 1);
}

// Whoever has stolen a token may speak for its worker, for an hour. The worker itself must still be
// heard.
TEST_F(HttpTest, AStolenTokenWithAHugeNumberDoesNotMuteTheWorker) {
  server->publish(board_of(two_workers()));
  const auto steal = [&](int64_t sequence) {
    const std::string body = to_text(WorkerReport{.worker = 1, .sequence = sequence, .slots = 1});
    return raw(post(
        "Authorization: Bearer secret\r\nContent-Length: " + std::to_string(body.size()) + "\r\n",
        body));
  };
  Session session = two_workers();
  HttpClient client([&] { return read_endpoint(file); }, knowing("secret"), kLong);
  int64_t own = 1;
  /// Whether worker 1's next beat reaches the session. `mark`: something to know it by.
  const auto heard = [&](int64_t mark) {
    const WorkerReport report{.worker = 1, .sequence = ++own, .slots = 2, .fence = mark};
    const bool answered = ask(client, report).has_value();
    for (auto& taken : server->take()) step(session, Beat{std::move(taken)}, Time(1));
    return answered && session.workers[1].report.fence == mark;
  };
  EXPECT_TRUE(heard(1));
  for (const int64_t stolen : {INT64_MAX, int64_t{1} << 40, kSequenceStepMax}) {
    SCOPED_TRACE(stolen);
    steal(stolen);
    const bool at_once = heard(stolen);
    EXPECT_TRUE(at_once || heard(stolen)) << "the second beat goes on above the stolen number";
    EXPECT_TRUE(heard(stolen - 1));
  }
}

TEST(HttpClient, ANameThatIsNotFoundInTimeIsAFailureOfThatBeat) {
  start_http_threads();
  const SlowName slow;
  HttpClient client(
      []() -> Result<Endpoint> {
        return Endpoint{SlowName::kName, 1};
      },
      knowing("secret"), Time(5));
  const auto answer = ask(client, {.worker = 1});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, ErrorKind::Transient);
  EXPECT_NE(answer.error().message.find("the name was not found in time"), std::string::npos)
      << answer.error().message;
}

TEST(SameKey, Compares) {
  EXPECT_TRUE(same_key("abc", "abc"));
  EXPECT_FALSE(same_key("abc", "abd"));
  EXPECT_FALSE(same_key("abc", "ab"));
  EXPECT_FALSE(same_key("", "ab"));
  EXPECT_FALSE(same_key("ab", ""));
}

}  // namespace
}  // namespace dsj::agent
