// How often a rank asks rank 0's store until all have joined, counted by a store that counts; then
// the same over the real store. docs/reports/scale.md has the table.
#include "engine/comm/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "engine/comm/backends.h"
#include "engine/comm/gathered_store.h"
#include "engine/comm/split.h"
#include "job/flight_log.h"
#include "tests/engine/comm/counting_store.h"
#include "tests/engine/comm/ranks.h"
#include "tests/support/ipv6_only.h"

namespace dsj::comm {
namespace {

using namespace std::chrono_literals;
using testing_support::CountingStore;
using testing_support::kNever;
using testing_support::require;
using testing_support::SharedStore;
using testing_support::StoreCount;

/// Runs body(rank) on a thread per rank, all at once. Their stacks are small: there are thousands.
/// Returns what each rank threw, "" = nothing.
std::vector<std::string> run_threads(int world, const std::function<void(int)>& body) {
  struct Rank {
    const std::function<void(int)>* body;
    int rank;
    std::string text;
  };
  std::vector<Rank> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.push_back({&body, rank, {}});
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 512 << 10);
  std::vector<pthread_t> threads;
  for (Rank& rank : ranks) {
    const auto run = [](void* of) -> void* {
      Rank& self = *static_cast<Rank*>(of);
      try {
        (*self.body)(self.rank);
      } catch (const std::exception& error) {
        self.text = error.what();
      }
      return nullptr;
    };
    pthread_t thread{};
    if (pthread_create(&thread, &small, run, &rank) != 0) throw std::runtime_error("no thread");
    threads.push_back(thread);
  }
  std::vector<std::string> texts;
  for (int rank = 0; rank < world; ++rank) {
    pthread_join(threads[static_cast<std::size_t>(rank)], nullptr);
    texts.push_back(ranks[static_cast<std::size_t>(rank)].text);
  }
  return texts;
}

// Pods of a cluster that has IPv6 alone: the store, the ring and Gloo.
TEST(Rendezvous, OverIpv6Alone) {
  const Ipv6Only network;
  if (!network.made()) GTEST_SKIP() << "no network with IPv6 alone can be made here: NOT RUN";
  constexpr int kWorld = 4;
  for (const std::string backend : {"ring", "gloo"}) {
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    socklen_t length = sizeof address;
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    ASSERT_TRUE(bind(fd, where, length) == 0 && listen(fd, 64) == 0 &&
                getsockname(fd, where, &length) == 0);
    std::vector<std::string> texts(kWorld);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kWorld; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          const auto group = testing_support::joined({.rank = rank,
                                                      .world = kWorld,
                                                      .master_addr = "::1",
                                                      .master_port = ntohs(address.sin6_port),
                                                      .store_listen_fd = rank == 0 ? fd : -1,
                                                      .timeout = kNever,
                                                      .backend = backend});
          at::Tensor sum = at::full({1000}, static_cast<double>(rank), at::kFloat);
          group->all_reduce(sum, Op::Sum, {})->wait();
          require(at::equal(sum, at::full({1000}, 6.0, at::kFloat)), "another sum");
          group->barrier({})->wait();
        } catch (const std::exception& error) {
          texts[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_THAT(texts, ::testing::Each("")) << backend;
  }
}

/// It crashed one in a hundred processes whose groups of Gloo began side by side (gloo.cc).
TEST(Rendezvous, TorchsRecorderIsOff) {
  EXPECT_STREQ(std::getenv("TORCH_FR_BUFFER_SIZE"), "0");
}

/// What the ranks asked of the store while each did `join`.
std::vector<StoreCount> counted(int world, const std::string& backend,
                                const std::function<void(Rendezvous&)>& join) {
  SharedStore shared;
  std::vector<c10::intrusive_ptr<CountingStore>> stores;
  for (int rank = 0; rank < world; ++rank)
    stores.push_back(c10::make_intrusive<CountingStore>(shared));
  const auto texts = run_threads(world, [&](int rank) {
    const Options options{.rank = rank,
                          .world = world,
                          .timeout = kNever,
                          .backend = backend,
                          .host = backend == "hierarchical" ? std::to_string(rank / 2) : ""};
    Rendezvous rendezvous(options, stores[static_cast<std::size_t>(rank)], "127.0.0.1");
    join(rendezvous);
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
  std::vector<StoreCount> counts;
  for (const auto& store : stores) counts.push_back(store->count());
  return counts;
}

/// Joins for good, as make_collectives() does. The groups live until all have joined.
std::vector<StoreCount> joined(int world, const std::string& backend) {
  std::vector<std::unique_ptr<Collectives>> groups(static_cast<std::size_t>(world));
  return counted(world, backend, [&](Rendezvous& rendezvous) {
    auto group = join(rendezvous);
    require(group.has_value(), group ? "" : group.error().to_string());
    groups[static_cast<std::size_t>(rendezvous.options().rank)] = std::move(*group);
  });
}

/// What "auto" asks where each rank runs on a host of its own, without its sockets: which backend;
/// who is on which host; the next rank's address; whether all are there.
void ask_as_auto_over_hosts(Rendezvous& rendezvous) {
  const auto [rank, world] = std::pair(rendezvous.options().rank, rendezvous.options().world);
  const std::string word(32, 'a');
  const std::string host = word + "-" + std::to_string(rank) + "/pid:[4026531836]";
  const auto backend = [](const auto&) { return std::string("0 auto "); };
  const auto topology = [](const auto& hosts) { return text_of(topology_of(hosts)); };
  require(rendezvous.settle("backend", "auto", backend).has_value(), "backend");
  require(rendezvous.settle("hosts", host, topology).has_value(), "hosts");
  const auto next = rendezvous.value_of(
      "ring", word + " 40000 10.100.100." + std::to_string(rank % 256), (rank + 1) % world);
  require(next && next->ends_with("." + std::to_string((rank + 1) % world % 256)), "ring");
  require(rendezvous.finish().has_value(), "finish");
}

TEST(Rendezvous, ARankAsksAsOftenWhateverTheWorldSize) {
  for (const std::string backend : {"ring", "shm", "gloo"}) {
    const auto few = joined(3, backend), more = joined(12, backend);
    EXPECT_LE(few[0].operations, 17) << backend;
    EXPECT_LE(few[1].operations, 13) << backend;
    EXPECT_EQ(more[0].operations, few[0].operations) << backend;
    for (std::size_t rank = 1; rank < more.size(); ++rank)
      EXPECT_EQ(more[rank].operations, few[1].operations) << backend;
  }
}

TEST(Rendezvous, TwoLevelsAskAsOftenWhateverTheWorldSize) {
  const auto few = joined(4, "hierarchical"), more = joined(12, "hierarchical");
  EXPECT_EQ(more[0].operations, few[0].operations);
  EXPECT_LE(few[0].operations, 31);
  for (const StoreCount& count : more) EXPECT_LE(count.operations, few[0].operations);
}

TEST(Rendezvous, ASplitIsThreeOperationsAndAFewBytesPerRank) {
  for (const int world : {64, 512, 4096}) {
    const auto counts = counted(world, "ring", [](Rendezvous& rendezvous) {
      const int rank = rendezvous.options().rank;
      const auto rail = split(rendezvous, "split 1", {"rail", rank % 8, rank});
      require(rail && *rail && (*rail)->options().rank == rank / 8, "not my rail");
      require((*rail)->names().back() == rendezvous.options().world - 8 + rank % 8, "names");
    });
    EXPECT_EQ(counts[0].operations, 5);
    for (std::size_t rank = 1; rank < counts.size(); ++rank) {
      EXPECT_EQ(counts[rank].operations, 3);
      EXPECT_LE(counts[rank].sent + counts[rank].received, 150);
    }
  }
}

TEST(Rendezvous, BytesPerRankDoNotGrowWithTheWorld) {
  std::vector<std::int64_t> bytes_per_rank;
  for (const int world : {64, 512, 4096}) {
    const auto counts = counted(world, "auto", ask_as_auto_over_hosts);
    std::int64_t all = 0, most = 0, operations = 0;
    for (const StoreCount& count : counts) {
      all += count.sent + count.received;
      operations += count.operations;
      if (&count == &counts[0]) continue;
      most = std::max(most, count.sent + count.received);
      EXPECT_EQ(count.operations, 13);
    }
    EXPECT_EQ(counts[0].operations, 16);
    EXPECT_LE(most, 1000);  // of a rank other than 0; names get longer with their numbers
    bytes_per_rank.push_back(all / world);
    std::printf(
        "%5d ranks: %ld operations; rank 0: %ld and %ld bytes; another rank: %ld and at "
        "most %ld bytes; all together %ld bytes\n",
        world, operations, counts[0].operations, counts[0].sent + counts[0].received,
        counts[1].operations, most, all);
  }
  // Digits of the ranks' numbers aside, the same at every size.
  EXPECT_LT(bytes_per_rank.back(), bytes_per_rank.front() + 200);
}

TEST(Rendezvous, ValuesArriveInRankOrderWhateverTheyContain) {
  counted(5, "ring", [](Rendezvous& rendezvous) {
    const int rank = rendezvous.options().rank;
    const std::string mine = std::string(1, '\0') + "1 2 " + std::string(rank, 'x');
    const auto all = rendezvous.values_of_all("names", mine);
    require(all && all->size() == 5, "not all");
    for (int other = 0; other < 5; ++other)
      require((*all)[other] == std::string(1, '\0') + "1 2 " + std::string(other, 'x'), "mixed up");
    const auto first = rendezvous.value_of_first("id", rank == 0 ? mine : "");
    require(first && *first == std::string(1, '\0') + "1 2 ", "not rank 0's");
  });
}

TEST(Rendezvous, NamesTheMissingWithoutAskingForEach) {
  SharedStore shared;
  const auto store = c10::make_intrusive<CountingStore>(shared);
  const int world = 1024;
  CountingStore others(shared);
  for (int rank = 1; rank < world; ++rank)
    if (rank != 7 && rank != 800) others.set("dsj/comm/here/" + std::to_string(rank), {});
  Rendezvous rendezvous({.rank = 0, .world = world, .timeout = 1ms}, store, "127.0.0.1");
  const auto none = [](const auto&) { return std::string(); };
  const auto here = rendezvous.settle("here", "", none);
  ASSERT_FALSE(here.has_value());
  EXPECT_THAT(here.error().message, ::testing::StartsWith("rank 0: ranks 7, 800 did not join"));
  EXPECT_LE(store->count().operations, 2 + 2 * 2 * 10 + 2);  // both sides of ten halvings each

  const auto nobody = rendezvous.settle("nobody", "", none);
  ASSERT_FALSE(nobody.has_value());
  EXPECT_THAT(nobody.error().message,
              ::testing::StartsWith("rank 0: ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, "
                                    "15, 16 and others did not join"));
}

TEST(GatheredStore, AnswersFromWhatAllRanksPutAndThenFromTheStore) {
  counted(3, "gloo", [](Rendezvous& rendezvous) {
    const int rank = rendezvous.options().rank;
    GatheredStore store("some", rendezvous);
    store.set("at/" + std::to_string(rank), std::vector<std::uint8_t>(3, std::uint8_t(rank)));
    const auto* real = dynamic_cast<CountingStore*>(rendezvous.store().get());
    store.wait({"at/0", "at/2"});
    const auto asked = real->count().operations;
    for (int other = 0; other < 3; ++other)
      require(store.get("at/" + std::to_string(other)) ==
                  std::vector<std::uint8_t>(3, std::uint8_t(other)),
              "not what the rank put");
    require(store.check({"at/1"}) && real->count().operations == asked, "it asked again");
    store.set("later/" + std::to_string(rank), {std::uint8_t(rank)});
    require(store.get("later/" + std::to_string((rank + 1) % 3)).front() == (rank + 1) % 3,
            "a later value is lost");
  });
}

/// As many descriptors as allowed; how many ranks fit into them.
int ranks_that_fit(int wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(static_cast<rlim_t>(wanted), limit.rlim_max / 10));
}

TEST(Rendezvous, FiveHundredRanksJoinOverTheRealStore) {
  const int world = ranks_that_fit(512);
  testing_support::Listener listener;
  ASSERT_EQ(listen(listener.fd, 1024), 0);  // as the agent does
  std::vector<std::unique_ptr<Collectives>> groups(static_cast<std::size_t>(world));
  const auto begin = std::chrono::steady_clock::now();
  const auto texts = run_threads(world, [&](int rank) {
    auto group = make_collectives({.rank = rank,
                                   .world = world,
                                   .master_port = listener.port,
                                   .store_listen_fd = rank == 0 ? dup(listener.fd) : -1,
                                   .timeout = kNever,
                                   .backend = "ring"});
    require(group.has_value(), group ? "" : group.error().to_string());
    groups[static_cast<std::size_t>(rank)] = std::move(*group);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (const std::string& text : texts) EXPECT_EQ(text, "");
  std::printf("%d ranks joined a ring in %.2f s\n", world, seconds.count());
}

TEST(Rendezvous, OfAFullFlightLogRankZeroAloneWarns) {
  for (const int rank : {0, 1}) {
    SharedStore shared;
    const auto log = FlightLog::open(-1);
    ASSERT_TRUE(log);
    const Options options{.rank = rank, .world = 4, .timeout = kNever, .flight = log->get()};
    const Rendezvous world(options, c10::make_intrusive<CountingStore>(shared), "127.0.0.1");
    std::vector<std::unique_ptr<Rendezvous>> pairs;
    ::testing::internal::CaptureStderr();
    for (std::size_t i = 0; i <= FlightLog::kGroups; ++i) {
      const std::string name = "pair " + std::to_string(i);
      pairs.push_back(world.part(name, {0, 1}, name));
    }
    const std::string said = ::testing::internal::GetCapturedStderr();
    if (rank == 0)
      EXPECT_THAT(said, ::testing::HasSubstr("holds 16 groups: group pair 16 is not in it"));
    else
      EXPECT_EQ(said, "");
  }
}

}  // namespace
}  // namespace dsj::comm
