#include <algorithm>
#include <condition_variable>
#include <set>
#include <thread>

#include "kube/lease.h"
#include "kube/reflector.h"
#include "kube/watch.h"
#include "tests/kube/contract_cases.h"
#include "tests/kube/contract_objects.h"

namespace dsj::kube::testing {
namespace {

using Kind = ApiError::Kind;

void list_in_pages(ContractWorld& w) {
  std::set<std::string> names;
  for (int i = 0; i < 7; ++i) {
    const std::string name = "map-" + std::to_string(i);
    names.insert(name);
    must(w.client.create(kMaps, w.ns, config_map(name, {}, {{"page", "yes"}})));
  }
  std::set<std::string> seen;
  const auto version = w.client.list(
      kMaps, w.ns, {.label_selector = "page=yes", .page = 3},
      [&](const Json& object) { EXPECT_TRUE(seen.insert(object["metadata"]["name"]).second); });
  ASSERT_TRUE(version) << version.error().to_string();
  EXPECT_FALSE(version->empty());
  EXPECT_EQ(seen, names);
}

void list_by_label_and_field(ContractWorld& w) {
  must(w.client.create(kMaps, w.ns, config_map("a", {}, {{"app", "one"}})));
  must(w.client.create(kMaps, w.ns, config_map("b", {}, {{"app", "two"}})));
  auto names = [&](const ListOptions& options) {
    std::set<std::string> seen;
    EXPECT_TRUE(w.client.list(kMaps, w.ns, options, [&](const Json& object) {
      seen.insert(object["metadata"]["name"]);
    }));
    seen.erase("kube-root-ca.crt");  // every real namespace has it
    return seen;
  };
  EXPECT_EQ(names({.label_selector = "app=two"}), (std::set<std::string>{"b"}));
  EXPECT_EQ(names({.label_selector = "app"}), (std::set<std::string>{"a", "b"}));
  EXPECT_EQ(names({.field_selector = "metadata.name=a"}), (std::set<std::string>{"a"}));
}

void watch_in_order_from_a_version(ContractWorld& w) {
  must(w.client.create(kMaps, w.ns, config_map("before")));
  const auto version = w.client.list(kMaps, w.ns, {}, [](const Json&) {});
  ASSERT_TRUE(version);
  must(w.client.create(kMaps, w.ns, config_map("a")));
  must(w.client.merge_patch(kMaps, w.ns, "a", {{"data", {{"key", "new"}}}}));
  EXPECT_TRUE(w.client.remove(kMaps, w.ns, "a"));
  const Cancel cancel;
  auto lines = w.client.watch(kMaps, w.ns, {.resource_version = *version}, kLong, cancel);
  ASSERT_TRUE(lines) << lines.error().to_string();
  for (const auto kind :
       {WatchEvent::Kind::Added, WatchEvent::Kind::Modified, WatchEvent::Kind::Deleted}) {
    const auto line = (*lines)->next(kLong);
    ASSERT_TRUE(line && *line);
    const auto event = parse_watch_event(**line);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->kind, kind);
    EXPECT_EQ(event->object["metadata"]["name"], "a");
  }
}

void watch_sees_what_comes_later(ContractWorld& w) {
  const auto version = w.client.list(kMaps, w.ns, {}, [](const Json&) {});
  ASSERT_TRUE(version);
  const Cancel cancel;
  auto lines = w.client.watch(kMaps, w.ns, {.resource_version = *version}, kLong, cancel);
  ASSERT_TRUE(lines);
  const auto quiet = (*lines)->next(Milliseconds(100));
  ASSERT_FALSE(quiet);
  EXPECT_EQ(quiet.error().kind, NetError::Kind::Timeout);
  must(w.client.create(kMaps, w.ns, config_map("later")));
  const auto line = (*lines)->next(kLong);
  ASSERT_TRUE(line && *line);
  EXPECT_EQ(parse_watch_event(**line)->object["metadata"]["name"], "later");
}

void watch_is_cancelled(ContractWorld& w) {
  const auto version = w.client.list(kMaps, w.ns, {}, [](const Json&) {});
  Cancel cancel;
  auto lines = w.client.watch(kMaps, w.ns, {.resource_version = *version}, kLong, cancel);
  ASSERT_TRUE(lines);
  std::thread other([&] {
    std::this_thread::sleep_for(Milliseconds(100));
    cancel.cancel();
  });
  const auto line = (*lines)->next(kLong);
  other.join();
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().kind, NetError::Kind::Cancelled);
}

/// All events of a watch, until the server ends it.
std::vector<WatchEvent> events_of(LineStream& lines) {
  std::vector<WatchEvent> events;
  for (;;) {
    const auto line = lines.next(kLong);
    EXPECT_TRUE(line) << (line ? "" : line.error().message);
    if (!line || !*line) return events;
    const auto event = parse_watch_event(**line);
    EXPECT_TRUE(event) << **line;
    if (!event) return events;
    events.push_back(*event);
  }
}

/// A bookmark carries the version past what the watch does not select.
void a_watch_ends_in_good_order_after_a_bookmark(ContractWorld& w) {
  const auto version = w.client.list(kMaps, w.ns, {}, [](const Json&) {});
  ASSERT_TRUE(version);
  auto lines =
      w.client.watch(kMaps, w.ns, {.label_selector = "kept=yes", .resource_version = *version},
                     std::chrono::seconds(10), Cancel());
  ASSERT_TRUE(lines) << lines.error().to_string();
  const Json foreign = must(w.client.create(kMaps, w.ns, config_map("foreign")));
  const auto events = events_of(**lines);
  ASSERT_FALSE(events.empty());
  for (const auto& event : events) EXPECT_EQ(event.kind, WatchEvent::Kind::Bookmark);
  EXPECT_GE(std::stoll(version_of(events.back().object)), std::stoll(version_of(foreign)));
}

void a_watch_from_a_forgotten_version(ContractWorld& w) {
  const Json first = must(w.client.create(kMaps, w.ns, config_map("a")));
  must(w.client.create(kMaps, w.ns, config_map("b")));
  w.forget();
  auto lines = w.client.watch(kMaps, w.ns, {.resource_version = version_of(first)},
                              std::chrono::seconds(10), Cancel());
  if (!lines) {
    EXPECT_EQ(lines.error().kind, Kind::Gone);
    return;
  }
  const auto events = events_of(**lines);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, WatchEvent::Kind::Error);
  EXPECT_EQ(from_status_json(events[0].object.dump()).kind, Kind::Gone);
}

void a_continue_token_grows_too_old(ContractWorld& w) {
  for (const char* name : {"a", "b", "c"}) must(w.client.create(kMaps, w.ns, config_map(name)));
  const auto page = w.transport.call({.path = kMaps.collection(w.ns) + "?limit=1"}, Cancel());
  ASSERT_TRUE(page);
  const std::string token = Json::parse(page->body)["metadata"]["continue"];
  w.forget();
  EXPECT_TRUE(soon([&] {
    const auto next = w.transport.call(
        {.path = kMaps.collection(w.ns) + "?limit=1&continue=" + escape(token)}, Cancel());
    EXPECT_TRUE(next);
    if (!next || next->status != 200) {
      EXPECT_EQ(next ? from_response(*next).kind : Kind::Network, Kind::Gone);
      return true;
    }
    std::this_thread::sleep_for(Milliseconds(500));
    return false;
  })) << "the token is good for ever";
}

/// The names that a reflector says are there.
class Names final : public Sink {
 public:
  void list_begin() override { listing_.clear(); }
  void listed(const Json& object) override { listing_.insert(object["metadata"]["name"]); }
  void list_done() override {
    change([&] { names_.swap(listing_); });
  }
  void list_aborted() override {}
  void upserted(const Json& object) override {
    change([&] { names_.insert(object["metadata"]["name"]); });
  }
  void deleted(const Json& object) override {
    change([&] { names_.erase(object["metadata"]["name"].get<std::string>()); });
  }
  bool become(const std::set<std::string>& wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return names_ == wanted; });
  }

 private:
  template <typename F>
  void change(F f) {
    const std::lock_guard lock(mutex_);
    f();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> names_, listing_;
};

void a_reflector_follows(ContractWorld& w) {
  must(w.client.create(kMaps, w.ns, config_map("a", {}, {{"kept", "yes"}})));
  must(w.client.create(kMaps, w.ns, config_map("foreign")));
  Names names;
  Reflector reflector(w.client, system_clock(), kMaps,
                      {.ns = w.ns, .select = {.label_selector = "kept=yes"}}, names);
  Cancel cancel;
  std::thread thread([&] { reflector.run(cancel); });
  EXPECT_TRUE(names.become({"a"}));
  must(w.client.create(kMaps, w.ns, config_map("b", {}, {{"kept", "yes"}})));
  EXPECT_TRUE(names.become({"a", "b"}));
  EXPECT_TRUE(w.client.remove(kMaps, w.ns, "a"));
  EXPECT_TRUE(names.become({"b"}));
  cancel.cancel();
  thread.join();
}

void a_lease_changes_hands(ContractWorld& w) {
  auto options = [&](const char* identity) {
    return LeaseOptions{.ns = w.ns,
                        .name = "leader",
                        .identity = identity,
                        .duration = std::chrono::seconds(30),
                        .renew = std::chrono::seconds(20),
                        .retry = Milliseconds(50)};
  };
  auto leads = [](const LeaseThread& lease) { return soon([&] { return lease.leads(); }); };
  const LeaseThread::Hooks none{.on_change = [](bool) {}};
  auto first = std::make_unique<LeaseThread>(w.transport, system_clock(), options("first"), none);
  ASSERT_TRUE(leads(*first));
  LeaseThread second(w.transport, system_clock(), options("second"), none);
  std::this_thread::sleep_for(Milliseconds(300));
  EXPECT_FALSE(second.leads());
  first.reset();  // releases: the second need not wait 30 s
  EXPECT_TRUE(leads(second));
  const Json lease = must(w.client.get(resources::leases(), w.ns, "leader"));
  EXPECT_EQ(lease["spec"]["holderIdentity"], "second");
  EXPECT_EQ(lease["spec"]["leaseTransitions"], 1);
}

}  // namespace

std::vector<ContractCase> stream_cases() {
  return {
      {"ListInPages", list_in_pages},
      {"ListByLabelAndField", list_by_label_and_field},
      {"AContinueTokenGrowsTooOld", a_continue_token_grows_too_old},
      {"WatchInOrderFromAVersion", watch_in_order_from_a_version},
      {"WatchSeesWhatComesLater", watch_sees_what_comes_later},
      {"WatchIsCancelled", watch_is_cancelled},
      {"AWatchEndsInGoodOrderAfterABookmark", a_watch_ends_in_good_order_after_a_bookmark},
      {"AWatchFromAForgottenVersion", a_watch_from_a_forgotten_version},
      {"AReflectorFollows", a_reflector_follows},
      {"ALeaseChangesHands", a_lease_changes_hands},
  };
}

}  // namespace dsj::kube::testing
