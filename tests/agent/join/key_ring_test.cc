#include "agent/join/join_gate.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/agent/join/test_tokens.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

using Lookup = FetchGate::Lookup;

TEST(FetchGate, AnUnknownKeyCostsOneFetchAnIntervalAtMost) {
  FetchGate gate(Time(10'000), Time(3'600'000));
  int fetches = 0;
  for (Time now{0}; now < Time(100'000); now += Time(10)) {
    gate.look(false, now);
    if (!gate.begin(now)) continue;
    ++fetches;
    gate.ended(true, now);
  }
  EXPECT_EQ(fetches, 10);
}

TEST(FetchGate, SaysUnknownOnlyAfterAGoodFetch) {
  FetchGate gate(Time(10'000), Time(3'600'000));
  EXPECT_EQ(gate.look(false, Time(0)), Lookup::Pending);
  EXPECT_TRUE(gate.begin(Time(0)));
  EXPECT_EQ(gate.look(false, Time(1)), Lookup::Pending) << "under way";
  EXPECT_FALSE(gate.begin(Time(1)));
  gate.ended(false, Time(2));
  EXPECT_EQ(gate.look(false, Time(3)), Lookup::Pending) << "the API server is away";
  EXPECT_FALSE(gate.begin(Time(9'999)));
  EXPECT_TRUE(gate.begin(Time(10'000)));
  gate.ended(true, Time(10'001));
  EXPECT_EQ(gate.look(false, Time(10'002)), Lookup::Unknown);
  EXPECT_FALSE(gate.begin(Time(20'000))) << "nobody asked since";
}

TEST(FetchGate, KnownKeysNeedNoFetchUntilTheyAreOld) {
  FetchGate gate(Time(10'000), Time(3'600'000));
  EXPECT_EQ(gate.look(true, Time(0)), Lookup::Known);
  EXPECT_FALSE(gate.begin(Time(0)));
  gate.look(false, Time(0));
  ASSERT_TRUE(gate.begin(Time(0)));
  gate.ended(true, Time(0));
  gate.look(true, Time(3'599'999));
  EXPECT_FALSE(gate.begin(Time(3'599'999)));
  EXPECT_EQ(gate.look(true, Time(3'600'000)), Lookup::Known) << "used meanwhile";
  EXPECT_TRUE(gate.begin(Time(3'600'000)));
}

KeyRing::Found wait_for(KeyRing& ring, const std::string& id) {
  KeyRing::Found found;
  EXPECT_TRUE(soon([&] { return (found = ring.find(id)).lookup != Lookup::Pending; }));
  return found;
}

TEST(KeyRing, FetchesAKeyThatCameLaterAndDropsOneThatWent) {
  const TestKey old_key = TestKey::p256("old"), new_key = TestKey::p256("new");
  std::atomic<bool> away = true;
  KeyRing ring(*TokenKeys::from_jwks(jwks_of({old_key}), "mounted"),
               [&]() -> Result<std::string> {
                 if (away) return fail(ErrorKind::Transient, "away");
                 return jwks_of({new_key});
               },
               {.interval = Time(20)});
  EXPECT_EQ(ring.find("old").lookup, Lookup::Known) << "while the API server is away";
  ASSERT_TRUE(soon([&] {
    EXPECT_EQ(ring.find("new").lookup, Lookup::Pending);
    return ring.fetches() > 2;
  }));
  EXPECT_EQ(ring.find("old").lookup, Lookup::Known) << "a fetch that failed takes nothing away";
  away = false;
  EXPECT_EQ(wait_for(ring, "new").lookup, Lookup::Known);
  EXPECT_NE(ring.find("old").lookup, Lookup::Known);
}

}  // namespace
}  // namespace dsj::agent
