#include "kube/watch.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <thread>

#include "kube/reflector.h"
#include "tests/kube/fake_api_server.h"
#include "tests/support/soon.h"

namespace dsj::kube::testing {
namespace {

bool lists(WatchMachine& machine) {
  return std::holds_alternative<WatchMachine::List>(machine.next());
}
std::string watches(WatchMachine& machine) {
  const auto next = machine.next();
  const auto* watch = std::get_if<WatchMachine::Watch>(&next);
  return watch ? watch->resource_version : "no watch";
}
int64_t waits(WatchMachine& machine) {
  const auto next = machine.next();
  const auto* wait = std::get_if<WatchMachine::Wait>(&next);
  return wait ? wait->time.count() : 0;
}

TEST(WatchMachine, ListsThenWatchesFromTheListsVersion) {
  WatchMachine machine;
  EXPECT_FALSE(machine.synced());
  EXPECT_TRUE(lists(machine));
  machine.listed("7");
  EXPECT_TRUE(machine.synced());
  EXPECT_EQ(watches(machine), "7");
}

TEST(WatchMachine, ACutStreamIsReopenedFromTheLastVersion) {
  WatchMachine machine;
  machine.listed("7");
  machine.opened();
  machine.saw("9");
  machine.ended(from_net({NetError::Kind::Cut, "cut"}), 0.0);
  EXPECT_EQ(waits(machine), 100);
  EXPECT_EQ(watches(machine), "9");
}

TEST(WatchMachine, TheServersTimeoutIsFollowedAtOnce) {
  WatchMachine machine;
  machine.listed("7");
  machine.opened();
  machine.saw("8");
  machine.ended(std::nullopt, 0.0);
  EXPECT_EQ(watches(machine), "8");
}

TEST(WatchMachine, StreamsThatEndWithoutAWordAreNotReopenedInALoop) {
  WatchMachine machine;
  machine.listed("7");
  int64_t last = 0;
  for (int i = 0; i < 2; ++i) {
    machine.opened();
    machine.ended(std::nullopt, 0.0);
    const int64_t wait = waits(machine);
    EXPECT_GT(wait, last);
    last = wait;
    EXPECT_EQ(watches(machine), "7");
  }
}

/// After a restore a server does not know the version: it refuses it ("Too large resource version"), says nothing until
/// the connection is given up, or ends the stream.
TEST(WatchMachine, WhatFailsWithAnythingButGoneAgainAndAgainListsAgain) {
  const ApiError refused{.kind = ApiError::Kind::Unavailable, .status = 504, .reason = "Timeout"};
  const ApiError odd{.kind = ApiError::Kind::Other, .status = 500};
  const std::vector<std::function<void(WatchMachine&)>> ways = {
      [&](WatchMachine& machine) { machine.open_failed(refused, 0.0); },
      [&](WatchMachine& machine) { machine.opened(), machine.ended(odd, 0.0); },
      [](WatchMachine& machine) {
        machine.opened(), machine.ended(from_net({NetError::Kind::Timeout, "silent"}), 0.0);
      },
      [](WatchMachine& machine) { machine.opened(), machine.ended(std::nullopt, 0.0); }};
  for (size_t way = 0; way < ways.size(); ++way) {
    WatchMachine machine;
    machine.listed("7");
    int64_t last = 0;
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(watches(machine), "7") << way;
        ways[way](machine);
        const int64_t wait = waits(machine);
        EXPECT_TRUE(wait > last || wait >= 15'000) << "lists in between do not hasten it: " << way;
        last = wait;
      }
      ASSERT_TRUE(lists(machine)) << way;
      machine.listed("7");
    }
    machine.opened();
    machine.saw("8");
    ways[way](machine);
    EXPECT_LE(waits(machine), 100) << "it is well again: " << way;
    EXPECT_EQ(watches(machine), "8");
  }
}

TEST(WatchMachine, AServerThatIsAwayOrBusyIsNotListed) {
  for (const ApiError& error : {from_net({NetError::Kind::Connect, "refused"}),
                                ApiError{.kind = ApiError::Kind::TooManyRequests, .status = 429}}) {
    WatchMachine machine;
    machine.listed("7");
    for (int i = 0; i < 20; ++i) {
      machine.open_failed(error, 0.0);
      EXPECT_GT(waits(machine), 0);
      EXPECT_EQ(watches(machine), "7");
    }
  }
}

TEST(WatchMachine, GoneListsAgain) {
  for (const bool in_stream : {true, false}) {
    WatchMachine machine;
    machine.listed("7");
    const ApiError gone{.kind = ApiError::Kind::Gone, .status = 410};
    if (in_stream) {
      machine.opened();
      machine.ended(gone, 0.0);
    } else {
      machine.open_failed(gone, 0.0);
    }
    EXPECT_GT(waits(machine), 0);
    EXPECT_TRUE(lists(machine));
    EXPECT_TRUE(machine.synced());
  }
}

TEST(WatchMachine, RetryAfterIsObeyed) {
  WatchMachine machine;
  machine.list_failed({.kind = ApiError::Kind::TooManyRequests,
                       .status = 429,
                       .retry_after = std::chrono::seconds(12)},
                      0.0);
  EXPECT_EQ(waits(machine), 12'000);
  EXPECT_TRUE(lists(machine));
}

TEST(WatchEventTest, RefusesWhatIsNoEvent) {
  EXPECT_FALSE(parse_watch_event("{"));
  EXPECT_FALSE(parse_watch_event("[]"));
  EXPECT_FALSE(parse_watch_event(R"({"type":"NEW","object":{}})"));
  EXPECT_FALSE(parse_watch_event(R"({"type":"ADDED"})"));
}

/// What a cache would hold.
class Mirror final : public Sink {
 public:
  void list_begin() override { fresh_.clear(); }
  void listed(const Json& object) override { fresh_[name(object)] = version(object); }
  void list_done() override {
    const std::lock_guard lock(mutex_);
    seen_ = fresh_;
    ++lists_;
  }
  void list_aborted() override { fresh_.clear(); }
  void upserted(const Json& object) override {
    const std::lock_guard lock(mutex_);
    seen_[name(object)] = version(object);
  }
  void deleted(const Json& object) override {
    const std::lock_guard lock(mutex_);
    seen_.erase(name(object));
  }
  std::map<std::string, std::string> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  int lists() const {
    const std::lock_guard lock(mutex_);
    return lists_;
  }

 private:
  static std::string name(const Json& object) { return object["metadata"]["name"]; }
  static std::string version(const Json& object) { return object["metadata"]["resourceVersion"]; }
  mutable std::mutex mutex_;
  std::map<std::string, std::string> fresh_, seen_;
  int lists_ = 0;
};

/// Seeded stories: objects come, change and go while streams are cut, history is compacted and
/// requests fail. In the end the mirror shows what the server has.
class ReflectorStory : public ::testing::TestWithParam<int> {};

TEST_P(ReflectorStory, EndsWithWhatTheServerHas) {
  std::minstd_rand random(static_cast<unsigned>(GetParam()));
  auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
  FakeApiServer server;
  const Resource maps = resources::config_maps();
  Client writer(server, system_clock());
  Client reader(server, system_clock(), {.attempts = 1});
  std::minstd_rand faults(static_cast<unsigned>(GetParam()) + 1);
  std::mutex mutex;
  server.set_fault([&](const Request& request) {
    const std::lock_guard lock(mutex);
    if (request.method != "GET" || faults() % 100 >= 20) return Fault{};
    return faults() % 2 ? Fault{Fault::Kind::Refuse, 503} : Fault{Fault::Kind::LoseRequest};
  });
  Mirror mirror;
  Reflector reflector(reader, system_clock(), maps,
                      {.ns = "ns", .select = {.page = 2}, .idle = Milliseconds(2000)}, mirror);
  Cancel cancel;
  std::thread thread([&] { reflector.run(cancel); });
  for (int i = 0; i < 60; ++i) {
    const std::string name = "m" + std::to_string(random() % 6);
    const Json map = {{"apiVersion", "v1"},
                      {"kind", "ConfigMap"},
                      {"metadata", {{"name", name}}},
                      {"data", {{"i", std::to_string(i)}}}};
    if (chance(30)) {
      (void)writer.remove(maps, "ns", name);
    } else {
      ASSERT_TRUE(writer.apply(maps, "ns", map, {.manager = "story"}));
    }
    if (chance(8)) server.cut_watches();
    if (chance(4)) server.compact();
    if (chance(10)) server.send_bookmarks();
    if (chance(20)) std::this_thread::sleep_for(Milliseconds(3));
  }
  server.set_fault(nullptr);
  std::map<std::string, std::string> truth;
  for (const Json& object : server.objects(maps)) {
    truth[object["metadata"]["name"]] = object["metadata"]["resourceVersion"];
  }
  EXPECT_TRUE(soon([&] { return mirror.seen() == truth; }));
  EXPECT_EQ(mirror.seen(), truth);
  EXPECT_GE(mirror.lists(), 1);
  cancel.cancel();
  thread.join();
  EXPECT_EQ(server.watches(), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReflectorStory, ::testing::Range(1, 41));

}  // namespace
}  // namespace dsj::kube::testing
