#include "kube/lease.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/kube/fake_api_server.h"
#include "tests/kube/fake_clock.h"
#include "tests/support/soon.h"

namespace dsj::kube::testing {
namespace {

using Move = Election::Move;
using std::chrono::seconds;

LeaseOptions options(const std::string& identity) {
  return {.ns = "ns", .name = "operator", .identity = identity};
}

LeaseRecord held(const std::string& holder, const std::string& renewed) {
  return {.holder = holder, .transitions = 3, .renew_time = renewed, .resource_version = "5"};
}

TEST(Election, ALeaseThatIsNotThereIsCreated) {
  Election election(options("me"));
  EXPECT_EQ(election.decide(std::nullopt, seconds(0)), Move::Create);
}

TEST(Election, AnotherHoldersLeaseIsWaitedOutByOurOwnClock) {
  Election election(options("me"));
  EXPECT_EQ(election.decide(held("other", "1"), seconds(100)), Move::Wait);
  EXPECT_EQ(election.decide(held("other", "1"), seconds(114)), Move::Wait);
  EXPECT_EQ(election.decide(held("other", "2"), seconds(115)), Move::Wait);  // it lives
  EXPECT_EQ(election.decide(held("other", "2"), seconds(129)), Move::Wait);
  EXPECT_EQ(election.decide(held("other", "2"), seconds(130)), Move::Take);
}

TEST(Election, AReleasedLeaseIsTakenAtOnce) {
  Election election(options("me"));
  EXPECT_EQ(election.decide(held("", "9"), seconds(1)), Move::Take);
}

TEST(Election, ALeaderThatCannotRenewStopsBeforeAnotherMayTakeOver) {
  Election election(options("me"));
  election.decide(held("me", "1"), seconds(10));
  election.wrote(seconds(10));
  EXPECT_TRUE(election.leads(seconds(19)));
  EXPECT_FALSE(election.leads(seconds(20)));
  // Another process saw our record of 10 s at the earliest then: it takes over at 25 s.
  Election other(options("other"));
  other.decide(held("me", "1"), seconds(10));
  EXPECT_EQ(other.decide(held("me", "1"), seconds(24)), Move::Wait);
  EXPECT_EQ(other.decide(held("me", "1"), seconds(25)), Move::Take);
}

TEST(Election, ALeaseTakenByAnotherEndsOurs) {
  Election election(options("me"));
  election.decide(held("me", "1"), seconds(10));
  election.wrote(seconds(10));
  EXPECT_EQ(election.decide(held("other", "2"), seconds(12)), Move::Wait);
  EXPECT_FALSE(election.leads(seconds(12)));
}

TEST(Election, ADeletedLeaseIsMadeAgainByItsHolderAndByOthersAfterIt) {
  Election holder(options("me")), other(options("other"));
  holder.decide(held("me", "1"), seconds(10));
  holder.wrote(seconds(10));
  other.decide(held("me", "1"), seconds(10));
  EXPECT_EQ(holder.decide(std::nullopt, seconds(12)), Move::Create);
  EXPECT_EQ(other.decide(std::nullopt, seconds(12)), Move::Wait) << "the holder may still write";
  EXPECT_EQ(other.decide(std::nullopt, seconds(24)), Move::Wait);
  EXPECT_EQ(other.decide(std::nullopt, seconds(25)), Move::Create);
}

TEST(Election, TakingCountsATransitionRenewingDoesNot) {
  Election election(options("me"));
  const auto record = held("other", "1");
  EXPECT_EQ(election.object(Move::Take, record, "t")["spec"]["leaseTransitions"], 4);
  EXPECT_EQ(election.object(Move::Renew, record, "t")["spec"]["leaseTransitions"], 3);
  EXPECT_EQ(election.object(Move::Take, record, "t")["metadata"]["resourceVersion"], "5");
}

TEST(MicroTime, IsRfc3339WithMicroseconds) {
  using std::chrono::microseconds;
  EXPECT_EQ(micro_time(std::chrono::system_clock::time_point(microseconds(1'767'225'600'000'042))),
            "2026-01-01T00:00:00.000042Z");
}

/// Candidates in turns on one fake server, with the time moved by hand: never two leaders, and one
/// again within duration + 2 x retry after the leader dies.
TEST(Election, NeverTwoLeadersOverManySeeds) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::minstd_rand random(seed);
    FakeApiServer server;
    FakeClock clock;
    Client client(server, clock, {.attempts = 1});
    struct Candidate {
      std::string name;
      Election election;
      bool dead = false;
    };
    std::vector<Candidate> all;
    for (const char* name : {"a", "b", "c"}) all.push_back({name, Election(options(name))});
    Milliseconds led_last{0};
    for (int tick = 0; tick < 120; ++tick) {
      clock.now += Milliseconds(500 + random() % 1500);
      Candidate& who = all[random() % all.size()];
      if (random() % 100 < 2) who.dead = !who.dead;
      if (random() % 100 < 10) {
        server.set_fault([](const Request&) { return Fault{Fault::Kind::LoseAnswer}; });
      }
      if (!who.dead) {
        const Milliseconds asked = clock.now;
        const auto lease = client.get(resources::leases(), "ns", "operator");
        const bool none = !lease && lease.error().kind == ApiError::Kind::NotFound;
        if (lease || none) {
          const auto record = lease ? lease_record(*lease) : std::nullopt;
          const Move move = who.election.decide(record, clock.now);
          if (move != Move::Wait) {
            const Json object = who.election.object(move, record, micro_time(clock.wall()));
            const auto written = move == Move::Create
                                     ? client.create(resources::leases(), "ns", object)
                                     : client.replace(resources::leases(), "ns", object);
            if (written) {
              who.election.decide(lease_record(*written), clock.now);
              who.election.wrote(asked);
            }
          }
        }
      }
      server.set_fault(nullptr);
      int leaders = 0;
      for (const auto& candidate : all) leaders += candidate.election.leads(clock.now);
      ASSERT_LE(leaders, 1) << "seed " << seed << " tick " << tick;
      if (leaders) led_last = clock.now;
    }
    EXPECT_GT(led_last.count(), 0) << "seed " << seed;
  }
}

TEST(LeaseThread, LeadsAndReleasesOnItsWayOut) {
  FakeApiServer server;
  std::atomic<int> changes = 0;
  LeaseOptions first = options("first");
  first.retry = Milliseconds(20);
  {
    LeaseThread lease(server, system_clock(), first, {.on_change = [&](bool) { ++changes; }});
    EXPECT_TRUE(soon([&] { return lease.leads(); }));
    EXPECT_EQ(server.objects(resources::leases())[0]["spec"]["holderIdentity"], "first");
  }
  EXPECT_EQ(changes, 2);
  EXPECT_EQ(server.objects(resources::leases())[0]["spec"]["holderIdentity"], "");
}

/// Requests hang until the test says so, whatever their timeout.
class Hanging final : public Transport {
 public:
  explicit Hanging(Transport& inner) : inner_(inner) {}
  ~Hanging() override { hang = false; }
  std::expected<Response, NetError> call(const Request& request, const Cancel& cancel) override {
    timeout = request.timeout;
    while (hang && !cancel.wait_for(Milliseconds(1))) ++waits;
    if (hang) return std::unexpected(NetError{NetError::Kind::Timeout, "no answer"});
    return inner_.call(request, cancel);
  }
  std::expected<StreamResponse, NetError> open(const Request& request,
                                               const Cancel& cancel) override {
    return inner_.open(request, cancel);
  }
  std::atomic<bool> hang = false;
  std::atomic<int> waits = 0;
  std::atomic<Milliseconds> timeout{};

 private:
  Transport& inner_;
};

LeaseOptions quick(const std::string& identity) {
  LeaseOptions made = options(identity);
  made.duration = Milliseconds(450);
  made.renew = Milliseconds(300);
  made.retry = Milliseconds(20);
  return made;
}

TEST(LeaseThread, ARequestThatHangsHoldsNoLeadership) {
  FakeApiServer server;
  Hanging network(server);
  std::atomic<int> stopped = 0;
  LeaseThread lease(network, system_clock(), quick("first"), {.on_change = [&](bool leads) {
                      if (!leads) ++stopped;
                    }});
  ASSERT_TRUE(soon([&] { return lease.leads(); }));
  EXPECT_LE(network.timeout.load(), Milliseconds(100)) << "below the renewal, twice";
  network.hang = true;
  ASSERT_TRUE(soon([&] { return network.waits > 0; }));
  const int before = stopped;
  EXPECT_TRUE(soon([&] { return !lease.leads(); }));
  EXPECT_EQ(stopped, before) << "the lease's thread still waits for its request";
  network.hang = false;
  EXPECT_TRUE(soon([&] { return lease.leads(); }));
}

TEST(LeaseThread, FailuresAreToldAndADeletedLeaseIsMadeAgain) {
  FakeApiServer server;
  std::atomic<int> failures = 0, changes = 0;
  std::atomic<bool> refuse = true;
  server.set_fault([&](const Request&) {
    return refuse ? Fault{.kind = Fault::Kind::Refuse, .status = 403} : Fault{};
  });
  LeaseOptions patient = options("first");
  patient.retry = Milliseconds(20);
  LeaseThread lease(server, system_clock(), patient,
                    {.on_change = [&](bool) { ++changes; },
                     .on_failure =
                         [&](const ApiError& error) {
                           EXPECT_EQ(error.kind, ApiError::Kind::Forbidden);
                           ++failures;
                         }});
  EXPECT_TRUE(soon([&] { return failures > 1; }));
  EXPECT_TRUE(soon([&] { return lease.silence() > Milliseconds(20); }));
  EXPECT_FALSE(lease.leads());
  refuse = false;
  EXPECT_TRUE(soon([&] { return lease.leads(); }));
  Client user(server, system_clock());
  ASSERT_TRUE(user.remove(resources::leases(), "ns", "operator"));
  EXPECT_TRUE(soon([&] { return server.objects(resources::leases()).size() == 1; }));
  EXPECT_TRUE(lease.leads());
  EXPECT_EQ(changes, 1);
}

}  // namespace
}  // namespace dsj::kube::testing
