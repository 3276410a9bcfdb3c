#include "tests/kube/contract_cases.h"

#include <gtest/gtest.h>

#include <set>

#include "kube/reflector.h"
#include "kube/watch.h"

namespace dsj::kube::testing {
namespace {

using Kind = ApiError::Kind;

Json config_map(const std::string& name, Json data = {{"key", "value"}}, Json labels = {}) {
  Json object = {{"apiVersion", "v1"},
                 {"kind", "ConfigMap"},
                 {"metadata", {{"name", name}}},
                 {"data", std::move(data)}};
  if (!labels.empty()) object["metadata"]["labels"] = std::move(labels);
  return object;
}

const Resource kMaps = resources::config_maps();

std::string version_of(const Json& object) {
  return object["metadata"]["resourceVersion"];
}

Json must(ApiResult<Json> result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().to_string());
  return result ? *result : Json::object();
}

void create_then_get(ContractWorld& w) {
  const Json made = must(w.client.create(kMaps, w.ns, config_map("a")));
  EXPECT_FALSE(made["metadata"].value("uid", "").empty());
  const Json read = must(w.client.get(kMaps, w.ns, "a"));
  EXPECT_EQ(read["data"]["key"], "value");
  EXPECT_EQ(version_of(read), version_of(made));
}

void get_of_nothing(ContractWorld& w) {
  const auto answer = w.client.get(kMaps, w.ns, "none");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, Kind::NotFound);
  EXPECT_EQ(answer.error().status, 404);
  EXPECT_EQ(answer.error().reason, "NotFound");
}

void create_twice(ContractWorld& w) {
  must(w.client.create(kMaps, w.ns, config_map("a")));
  const auto again = w.client.create(kMaps, w.ns, config_map("a"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, Kind::AlreadyExists);
}

void replace_of_an_old_version(ContractWorld& w) {
  Json first = must(w.client.create(kMaps, w.ns, config_map("a")));
  Json second = first;
  second["data"]["key"] = "second";
  second = must(w.client.replace(kMaps, w.ns, second));
  EXPECT_NE(version_of(first), version_of(second));
  first["data"]["key"] = "late";
  const auto late = w.client.replace(kMaps, w.ns, first);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, Kind::Conflict);
  EXPECT_EQ(must(w.client.get(kMaps, w.ns, "a"))["data"]["key"], "second");
}

void merge_patch_with_a_version(ContractWorld& w) {
  const Json made = must(w.client.create(kMaps, w.ns, config_map("a")));
  const Json patched =
      must(w.client.merge_patch(kMaps, w.ns, "a", {{"data", {{"key", nullptr}, {"other", "1"}}}}));
  EXPECT_EQ(patched["data"], (Json{{"other", "1"}}));
  const auto late = w.client.merge_patch(
      kMaps, w.ns, "a",
      {{"metadata", {{"resourceVersion", version_of(made)}}}, {"data", {{"key", "x"}}}});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, Kind::Conflict);
}

void an_equal_write_keeps_the_version(ContractWorld& w) {
  must(w.client.apply(kMaps, w.ns, config_map("a"), {.manager = "one"}));
  const Json read = must(w.client.get(kMaps, w.ns, "a"));
  const Json again = must(w.client.apply(kMaps, w.ns, config_map("a"), {.manager = "one"}));
  EXPECT_EQ(version_of(again), version_of(read));
}

void apply_creates_and_removes_its_fields(ContractWorld& w) {
  must(w.client.apply(kMaps, w.ns, config_map("a", {{"x", "1"}, {"y", "2"}}), {.manager = "one"}));
  must(w.client.apply(kMaps, w.ns, config_map("a", {{"z", "3"}}), {.manager = "two"}));
  const Json read =
      must(w.client.apply(kMaps, w.ns, config_map("a", {{"x", "1"}}), {.manager = "one"}));
  EXPECT_EQ(read["data"], (Json{{"x", "1"}, {"z", "3"}}));
}

void apply_of_an_owned_field(ContractWorld& w) {
  must(w.client.apply(kMaps, w.ns, config_map("a", {{"x", "1"}}), {.manager = "one"}));
  const auto refused = w.client.apply(kMaps, w.ns, config_map("a", {{"x", "2"}}),
                                      {.manager = "two", .force = false});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::Conflict);
  const Json taken =
      must(w.client.apply(kMaps, w.ns, config_map("a", {{"x", "2"}}), {.manager = "two"}));
  EXPECT_EQ(taken["data"]["x"], "2");
}

void apply_with_a_foreign_uid(ContractWorld& w) {
  must(w.client.apply(kMaps, w.ns, config_map("a"), {.manager = "one"}));
  Json other = config_map("a", {{"x", "1"}});
  other["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000";
  const auto refused = w.client.apply(kMaps, w.ns, other, {.manager = "one"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::Conflict);
}

void delete_by_uid(ContractWorld& w) {
  const Json made = must(w.client.create(kMaps, w.ns, config_map("a")));
  const auto foreign = w.client.remove(kMaps, w.ns, "a", {.uid = "someone-else"});
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().kind, Kind::Conflict);
  EXPECT_TRUE(w.client.remove(kMaps, w.ns, "a", {.uid = made["metadata"]["uid"]}));
  const auto again = w.client.remove(kMaps, w.ns, "a");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, Kind::NotFound);
}

void a_finalizer_holds_the_object(ContractWorld& w) {
  Json object = config_map("a");
  object["metadata"]["finalizers"] = {"dsj.dev/test"};
  must(w.client.create(kMaps, w.ns, object));
  EXPECT_TRUE(w.client.remove(kMaps, w.ns, "a"));
  EXPECT_TRUE(must(w.client.get(kMaps, w.ns, "a"))["metadata"].contains("deletionTimestamp"));
  must(w.client.merge_patch(kMaps, w.ns, "a", {{"metadata", {{"finalizers", nullptr}}}}));
  EXPECT_FALSE(w.client.get(kMaps, w.ns, "a"));
}

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
  auto lines =
      w.client.watch(kMaps, w.ns, {.resource_version = *version}, std::chrono::seconds(60), cancel);
  ASSERT_TRUE(lines) << lines.error().to_string();
  for (const auto kind :
       {WatchEvent::Kind::Added, WatchEvent::Kind::Modified, WatchEvent::Kind::Deleted}) {
    const auto line = (*lines)->next(std::chrono::seconds(10));
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
  auto lines =
      w.client.watch(kMaps, w.ns, {.resource_version = *version}, std::chrono::seconds(60), cancel);
  ASSERT_TRUE(lines);
  const auto quiet = (*lines)->next(Milliseconds(100));
  ASSERT_FALSE(quiet);
  EXPECT_EQ(quiet.error().kind, NetError::Kind::Timeout);
  must(w.client.create(kMaps, w.ns, config_map("later")));
  const auto line = (*lines)->next(std::chrono::seconds(10));
  ASSERT_TRUE(line && *line);
  EXPECT_EQ(parse_watch_event(**line)->object["metadata"]["name"], "later");
}

void watch_is_cancelled(ContractWorld& w) {
  const auto version = w.client.list(kMaps, w.ns, {}, [](const Json&) {});
  Cancel cancel;
  auto lines =
      w.client.watch(kMaps, w.ns, {.resource_version = *version}, std::chrono::seconds(60), cancel);
  ASSERT_TRUE(lines);
  std::thread other([&] {
    std::this_thread::sleep_for(Milliseconds(100));
    cancel.cancel();
  });
  const auto line = (*lines)->next(std::chrono::seconds(30));
  other.join();
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().kind, NetError::Kind::Cancelled);
}

void a_call_is_cancelled_before_it_starts(ContractWorld& w) {
  Cancel cancel;
  cancel.cancel();
  const auto answer = w.client.get(kMaps, w.ns, "a", cancel);
  ASSERT_FALSE(answer);
  EXPECT_TRUE(answer.error().cancelled());
}

void an_object_without_a_name(ContractWorld& w) {
  Json object = config_map("a");
  object["metadata"].erase("name");
  const auto answer = w.client.create(kMaps, w.ns, object);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, Kind::Invalid);
  EXPECT_FALSE(answer.error().message.empty());
}

void unknown_resource(ContractWorld& w) {
  const auto answer = w.client.get({"none.dsj.dev", "v1", "things", "Thing"}, w.ns, "a");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, Kind::NotFound);
}

void fifty_creates_at_once(ContractWorld& w) {
  std::vector<std::thread> threads;
  std::atomic<int> made = 0;
  for (int t = 0; t < 10; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        made +=
            w.client
                .create(kMaps, w.ns, config_map("p-" + std::to_string(t) + "-" + std::to_string(i)))
                .has_value();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 50);
}

}  // namespace

const std::vector<ContractCase>& contract_cases() {
  static const std::vector<ContractCase> cases = {
      {"CreateThenGet", create_then_get},
      {"GetOfNothing", get_of_nothing},
      {"CreateTwice", create_twice},
      {"ReplaceOfAnOldVersion", replace_of_an_old_version},
      {"MergePatchWithAVersion", merge_patch_with_a_version},
      {"AnEqualWriteKeepsTheVersion", an_equal_write_keeps_the_version},
      {"ApplyCreatesAndRemovesItsFields", apply_creates_and_removes_its_fields},
      {"ApplyOfAnOwnedField", apply_of_an_owned_field},
      {"ApplyWithAForeignUid", apply_with_a_foreign_uid},
      {"DeleteByUid", delete_by_uid},
      {"AFinalizerHoldsTheObject", a_finalizer_holds_the_object},
      {"ListInPages", list_in_pages},
      {"ListByLabelAndField", list_by_label_and_field},
      {"WatchInOrderFromAVersion", watch_in_order_from_a_version},
      {"WatchSeesWhatComesLater", watch_sees_what_comes_later},
      {"WatchIsCancelled", watch_is_cancelled},
      {"ACallIsCancelledBeforeItStarts", a_call_is_cancelled_before_it_starts},
      {"AnObjectWithoutAName", an_object_without_a_name},
      {"UnknownResource", unknown_resource},
      {"FiftyCreatesAtOnce", fifty_creates_at_once},
  };
  return cases;
}

}  // namespace dsj::kube::testing
