// Thousands of clients at the door of a server that is too slow for all of them within anyone's patience, on a clock
// that is a number.
#include "common/http/doorway.h"

#include <gtest/gtest.h>

#include <deque>
#include <queue>
#include <random>

namespace dsj {
namespace {

using Time = std::chrono::milliseconds;

/// A client, and which of its tries it is.
using Try = std::pair<int, int>;

/// What the door is compared with: whoever came first is next, as in a listen backlog.
struct Backlog {
  std::optional<std::pair<int64_t, Try>> next(Time) {
    if (waiting.empty()) return std::nullopt;
    const std::pair<int64_t, Try> first(0, waiting.front());
    waiting.pop_front();
    return first;
  }
  int64_t came(Try guest, const std::string&) {
    waiting.push_back(guest);
    return 0;
  }
  void left(int64_t) {}
  std::deque<Try> waiting;
};

struct World {
  int clients = 2048;
  Time sign{0}, answer{0};  ///< of the server's CPU per handshake, and of the clients' one CPU
  Time patience{5000}, again{5500};  ///< until a client gives up; at most until it comes again
  Time end{600'000};
  bool sees_who_is_gone = true;
};

struct Told {
  int joined = 0;
  int64_t begun = 0;
  Time took{0};
};

/// Both sides have one CPU each, which does what came first. `Door`: next(), came(), left().
template <typename Door>
Told gather(const World& world, Door door) {
  enum What { Comes, GivesUp, Signed, Answered };
  struct Event {
    Time at;
    int64_t order;
    What what;
    int client, tries;
    bool operator<(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  struct Client {
    int tries = 0;
    bool waits = false, joined = false;
    int64_t ticket = 0;
  };
  std::vector<Client> clients(static_cast<size_t>(world.clients));
  std::priority_queue<Event> events;
  std::deque<Try> answering;
  int64_t order = 0;
  std::mt19937_64 chance(7);
  bool signing = false, answers = false;
  Told told;
  const auto later = [&](Time at, What what, int client, int tries) {
    events.push({at, ++order, what, client, tries});
  };
  const auto lives = [&](int client, int tries) {
    return clients[size_t(client)].waits && clients[size_t(client)].tries == tries;
  };
  // The clients' CPU takes the next who still waits.
  const auto answer_next = [&](Time now) {
    while (!answers && !answering.empty()) {
      const auto [client, tries] = answering.front();
      answering.pop_front();
      if (!lives(client, tries)) continue;
      answers = true;
      later(now + world.answer, Answered, client, tries);
    }
  };
  const auto sign_next = [&](Time now) {
    while (!signing) {
      const auto next = door.next(now);
      if (!next) break;
      const auto [client, tries] = next->second;
      if (lives(client, tries)) {
        clients[size_t(client)].ticket = next->first;
      } else if (world.sees_who_is_gone) {
        door.left(next->first);
        continue;
      }
      signing = true;
      ++told.begun;
      later(now + world.sign, Signed, client, tries);
    }
  };
  for (int i = 0; i < world.clients; ++i) later(Time(i % 100), Comes, i, 1);
  while (!events.empty() && told.joined < world.clients) {
    const Event event = events.top();
    events.pop();
    const Time now = event.at;
    if (now > world.end) break;
    Client& client = clients[size_t(event.client)];
    if (event.what == Comes) {
      client.tries = event.tries;
      client.waits = true;
      door.came({event.client, event.tries}, "one address");
      later(now + world.patience, GivesUp, event.client, event.tries);
    } else if (event.what == GivesUp && lives(event.client, event.tries)) {
      client.waits = false;
      if (client.ticket > 0) door.left(std::exchange(client.ticket, 0));  // the server sees the end
      later(now + world.again / 2 + Time(chance() % uint64_t(world.again.count() / 2)), Comes,
            event.client, event.tries + 1);
    } else if (event.what == Signed) {
      signing = false;
      answering.emplace_back(event.client, event.tries);
    } else if (event.what == Answered) {
      answers = false;
      if (lives(event.client, event.tries)) {
        client.waits = false;
        ++told.joined;
        told.took = now;
        if (client.ticket > 0) door.left(std::exchange(client.ticket, 0));
      }
    }
    answer_next(now);
    sign_next(now);
  }
  return told;
}

// What happened: 2,048 agents did not gather in five minutes on a busy machine, 512 did.
TEST(Doorway, WhoCameFirstIsServedForNothing) {
  const World slow{.sign = Time(25), .sees_who_is_gone = false};
  const Told told = gather(slow, Backlog{});
  EXPECT_LT(told.joined, slow.clients / 4) << "as many as the first five seconds let in";
  EXPECT_GT(told.begun, 10 * told.joined) << "all the rest was signed for nobody";
}

TEST(Doorway, ASlowServerLetsEverybodyInAndSignsOnceForEach) {
  const World slow{.sign = Time(25)};
  const Told told = gather(slow, Doorway<Try>());
  EXPECT_EQ(told.joined, slow.clients);
  EXPECT_LE(told.begun, slow.clients + slow.clients / 50);
  EXPECT_LT(told.took, 2 * slow.clients * slow.sign) << "the server was rarely idle";
}

TEST(Doorway, SlowClientsOfOneMachineAllGetInToo) {
  const World slow{.clients = 1024, .sign = Time(1), .answer = Time(40)};
  const Told unbounded = gather(slow, Doorway<Try>({.at_once = slow.clients}));
  EXPECT_GT(unbounded.begun, 3 * slow.clients) << "all begin, and few end within their patience";
  const Told told = gather(slow, Doorway<Try>());
  EXPECT_EQ(told.joined, slow.clients);
  EXPECT_LE(told.begun, 2 * slow.clients);
  EXPECT_LT(told.took, 2 * slow.clients * slow.answer);
}

std::string all_of(Doorway<std::string>& door, Time now) {
  std::string names;
  while (const auto next = door.next(now)) names += (names.empty() ? "" : " ") + next->second;
  return names;
}

TEST(Doorway, TheNewestIsNextAndFewAreAtItAtOnce) {
  Doorway<std::string> door({.at_once = 2, .turn = Time(100)});
  EXPECT_EQ(all_of(door, Time(0)), "");
  EXPECT_FALSE(door.opens());
  for (const char* name : {"a", "b", "c", "d"}) door.came(name, "x");
  const auto first = door.next(Time(0));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->second, "d");
  EXPECT_EQ(all_of(door, Time(10)), "c");
  EXPECT_EQ(door.opens(), Time(100));
  door.left(first->first);
  door.left(first->first);
  EXPECT_EQ(all_of(door, Time(20)), "b");
}

TEST(Doorway, WhoDawdlesCountsForOneTurn) {
  Doorway<std::string> door({.at_once = 1, .turn = Time(100)});
  for (const char* name : {"a", "b"}) door.came(name, "x");
  const auto dawdler = door.next(Time(0));
  ASSERT_TRUE(dawdler);
  EXPECT_FALSE(door.next(Time(99)));
  EXPECT_EQ(all_of(door, Time(100)), "a");
  door.left(dawdler->first);  // long forgotten
  EXPECT_FALSE(door.opens());
  door.came("c", "x");
  EXPECT_EQ(door.opens(), Time(200));
}

TEST(Doorway, AFloodFromOneAddressDoesNotCloseTheDoor) {
  Doorway<std::string> door({.at_once = 3, .turn = Time(100)});
  const auto old = door.came("old", "worker");
  const auto gone = door.came("gone", "other");
  for (int i = 0; i < 50; ++i) door.came("flood", "attacker");
  door.left(gone);
  EXPECT_EQ(all_of(door, Time(0)), "flood old flood");
  door.left(old);
  EXPECT_EQ(all_of(door, Time(0)), "flood");
  door.came("new", "worker");
  door.came("newer", "worker");
  EXPECT_EQ(all_of(door, Time(100)), "newer flood new") << "one each, then one each again";
}

}  // namespace
}  // namespace dsj
