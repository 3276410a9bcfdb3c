#include "tests/kube/contract_cases.h"

#include "tests/kube/contract_objects.h"

#include <gtest/gtest.h>

#include <thread>

namespace dsj::kube::testing {
namespace {

using Kind = ApiError::Kind;

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

void a_try_leaves_nothing(ContractWorld& w) {
  must(w.client.try_create(kMaps, w.ns, config_map("a")));
  EXPECT_FALSE(w.client.get(kMaps, w.ns, "a"));
  must(w.client.create(kMaps, w.ns, config_map("a")));
  const auto again = w.client.try_create(kMaps, w.ns, config_map("a"));
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

constexpr auto kNobody = "00000000-0000-0000-0000-000000000000";

void apply_with_a_foreign_uid(ContractWorld& w) {
  must(w.client.apply(kMaps, w.ns, config_map("a"), {.manager = "one"}));
  Json other = config_map("a", {{"x", "1"}});
  other["metadata"]["uid"] = kNobody;
  const auto refused = w.client.apply(kMaps, w.ns, other, {.manager = "one"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::Invalid);
}

void apply_with_a_uid_makes_nothing(ContractWorld& w) {
  Json other = config_map("a");
  other["metadata"]["uid"] = kNobody;
  const auto refused = w.client.apply(kMaps, w.ns, other, {.manager = "one"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::Conflict);
  EXPECT_FALSE(w.client.get(kMaps, w.ns, "a"));
}

void replace_with_a_foreign_uid(ContractWorld& w) {
  Json object = must(w.client.create(kMaps, w.ns, config_map("a")));
  object["metadata"]["uid"] = kNobody;
  const auto refused = w.client.replace(kMaps, w.ns, object);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::Conflict);
}

void apply_of_an_old_version(ContractWorld& w) {
  const Json made = must(w.client.apply(kMaps, w.ns, config_map("a"), {.manager = "one"}));
  must(w.client.merge_patch(kMaps, w.ns, "a", {{"data", {{"other", "1"}}}}));
  Json late = config_map("a", {{"x", "1"}});
  late["metadata"]["resourceVersion"] = version_of(made);
  const auto refused = w.client.apply(kMaps, w.ns, late, {.manager = "one"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::Conflict);
}

// ---- a custom resource with a status

const Resource kWidgets{"test.dsj.dev", "v1", "widgets", "Widget"};

/// Makes the kind, once per server, and one object.
Json widget(ContractWorld& w, const std::string& name) {
  const Json any = {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
  const Json definition = {
      {"apiVersion", "apiextensions.k8s.io/v1"},
      {"kind", "CustomResourceDefinition"},
      {"metadata", {{"name", "widgets.test.dsj.dev"}}},
      {"spec",
       {{"group", kWidgets.group},
        {"scope", "Namespaced"},
        {"names", {{"plural", "widgets"}, {"singular", "widget"}, {"kind", "Widget"}}},
        {"versions",
         {{{"name", "v1"},
           {"served", true},
           {"storage", true},
           {"subresources", {{"status", Json::object()}}},
           {"schema",
            {{"openAPIV3Schema",
              {{"type", "object"}, {"properties", {{"spec", any}, {"status", any}}}}}}}}}}}}};
  const auto made = w.client.create(resources::custom_resource_definitions(), "", definition);
  EXPECT_TRUE(made || made.error().kind == Kind::AlreadyExists);
  const Json object = {{"apiVersion", kWidgets.api_version()},
                       {"kind", kWidgets.kind},
                       {"metadata", {{"name", name}}},
                       {"spec", {{"size", 1}}},
                       {"status", {{"step", 7}}}};
  ApiResult<Json> widget = std::unexpected(ApiError{});
  EXPECT_TRUE(soon([&] {  // the server begins to serve a new kind some moments later
    widget = w.client.create(kWidgets, w.ns, object);
    return widget || widget.error().kind != Kind::NotFound;
  })) << "the kind is never served";
  EXPECT_TRUE(widget) << (widget ? "" : widget.error().to_string());
  return widget.value_or(Json());
}

Json widget_status(const std::string& name, int step) {
  return {{"apiVersion", kWidgets.api_version()},
          {"kind", kWidgets.kind},
          {"metadata", {{"name", name}}},
          {"status", {{"step", step}}}};
}

const ApplyOptions kStatus{.manager = "agent", .subresource = "status"};

void status_is_a_subresource(ContractWorld& w) {
  const Json made = widget(w, "a");
  EXPECT_FALSE(made.contains("status"));
  EXPECT_EQ(made["metadata"]["generation"], 1);
  Json status = widget_status("a", 1);
  status["spec"] = {{"size", 5}};
  const Json after = must(w.client.apply(kWidgets, w.ns, status, kStatus));
  EXPECT_EQ(after["status"], (Json{{"step", 1}}));
  EXPECT_EQ(after["spec"], (Json{{"size", 1}}));
  EXPECT_EQ(after["metadata"]["generation"], 1);
  const Json grown = must(w.client.merge_patch(
      kWidgets, w.ns, "a", {{"spec", {{"size", 2}}}, {"status", {{"step", 9}}}}));
  EXPECT_EQ(grown["metadata"]["generation"], 2);
  EXPECT_EQ(grown["status"], (Json{{"step", 1}}));
}

void two_managers_of_a_status(ContractWorld& w) {
  widget(w, "a");
  must(w.client.apply(kWidgets, w.ns, widget_status("a", 1), kStatus));
  Json other = widget_status("a", 0);
  other["status"] = {{"phase", "Running"}};
  const Json both =
      must(w.client.apply(kWidgets, w.ns, other, {.manager = "operator", .subresource = "status"}));
  EXPECT_EQ(both["status"], (Json{{"step", 1}, {"phase", "Running"}}));
  Json none = widget_status("a", 0);
  none.erase("status");
  const Json left = must(w.client.apply(kWidgets, w.ns, none, kStatus));
  EXPECT_EQ(left["status"], (Json{{"phase", "Running"}}));
}

void a_status_of_nothing(ContractWorld& w) {
  widget(w, "a");
  const auto refused = w.client.apply(kWidgets, w.ns, widget_status("none", 1), kStatus);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::NotFound);
}

/// A server takes a status whatever uid its body names: only the version keeps a writer from the
/// status of another object of the same name.
void a_status_apply_is_fenced_by_the_version(ContractWorld& w) {
  const Json first = widget(w, "a");
  Json status = widget_status("a", 1);
  status["metadata"]["uid"] = kNobody;
  const Json taken = must(w.client.apply(kWidgets, w.ns, status, kStatus));
  EXPECT_EQ(taken["metadata"]["uid"], first["metadata"]["uid"]);
  EXPECT_TRUE(w.client.remove(kWidgets, w.ns, "a"));
  widget(w, "a");
  Json late = widget_status("a", 2);
  late["metadata"]["resourceVersion"] = version_of(taken);
  const auto refused = w.client.apply(kWidgets, w.ns, late, kStatus);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::Conflict);
  EXPECT_FALSE(must(w.client.get(kWidgets, w.ns, "a")).contains("status"));
}

void delete_by_uid(ContractWorld& w) {
  const Json made = must(w.client.create(kMaps, w.ns, config_map("a")));
  const auto foreign = w.client.remove(kMaps, w.ns, "a", {.uid = "someone-else"});
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().kind, Kind::Conflict);
  const auto stale = w.client.remove(kMaps, w.ns, "a", {.resource_version = "1"});
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().kind, Kind::Conflict);
  EXPECT_TRUE(w.client.remove(
      kMaps, w.ns, "a",
      {.uid = made["metadata"]["uid"], .resource_version = made["metadata"]["resourceVersion"]}));
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

/// As people see it: the columns come from the server, whatever they are.
void a_table(ContractWorld& w) {
  ASSERT_TRUE(w.client.create(kMaps, w.ns, config_map("a")));
  ASSERT_TRUE(w.client.create(kMaps, w.ns, config_map("b")));
  for (const std::string name : {"", "b"}) {
    const auto table = w.client.table(kMaps, w.ns, name);
    ASSERT_TRUE(table) << table.error().to_string();
    EXPECT_EQ((*table)["kind"], "Table");
    EXPECT_EQ((*table)["columnDefinitions"][0]["name"], "Name");
    EXPECT_FALSE((*table)["metadata"].value("resourceVersion", "").empty());
    const Json row = (*table)["rows"].back();
    EXPECT_EQ(row["cells"].size(), (*table)["columnDefinitions"].size());
    EXPECT_EQ(row["object"]["metadata"]["name"], "b");
    EXPECT_EQ(row["cells"][0], "b");
  }
  const auto none = w.client.table(kMaps, w.ns, "nothing");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, Kind::NotFound);
}

void a_table_is_watched(ContractWorld& w) {
  const auto table = w.client.table(kMaps, w.ns);
  ASSERT_TRUE(table);
  Cancel cancel;
  auto lines =
      w.client.watch_table(kMaps, w.ns, "b", (*table)["metadata"]["resourceVersion"], cancel);
  ASSERT_TRUE(lines) << lines.error().to_string();
  ASSERT_TRUE(w.client.create(kMaps, w.ns, config_map("a")));
  ASSERT_TRUE(w.client.create(kMaps, w.ns, config_map("b")));
  const auto line = (*lines)->next(kLong);
  ASSERT_TRUE(line && *line);
  const Json event = Json::parse(**line);
  EXPECT_EQ(event["type"], "ADDED");
  EXPECT_EQ(event["object"]["kind"], "Table");
  EXPECT_EQ(event["object"]["rows"][0]["cells"][0], "b");
}

}  // namespace

std::vector<ContractCase> object_cases() {
  return {
      {"CreateThenGet", create_then_get},
      {"GetOfNothing", get_of_nothing},
      {"CreateTwice", create_twice},
      {"ATryLeavesNothing", a_try_leaves_nothing},
      {"ReplaceOfAnOldVersion", replace_of_an_old_version},
      {"ReplaceWithAForeignUid", replace_with_a_foreign_uid},
      {"MergePatchWithAVersion", merge_patch_with_a_version},
      {"AnEqualWriteKeepsTheVersion", an_equal_write_keeps_the_version},
      {"ApplyCreatesAndRemovesItsFields", apply_creates_and_removes_its_fields},
      {"ApplyOfAnOwnedField", apply_of_an_owned_field},
      {"ApplyOfAnOldVersion", apply_of_an_old_version},
      {"ApplyWithAForeignUid", apply_with_a_foreign_uid},
      {"ApplyWithAUidMakesNothing", apply_with_a_uid_makes_nothing},
      {"StatusIsASubresource", status_is_a_subresource},
      {"TwoManagersOfAStatus", two_managers_of_a_status},
      {"AStatusOfNothing", a_status_of_nothing},
      {"AStatusApplyIsFencedByTheVersion", a_status_apply_is_fenced_by_the_version},
      {"DeleteByUid", delete_by_uid},
      {"AFinalizerHoldsTheObject", a_finalizer_holds_the_object},
      {"ACallIsCancelledBeforeItStarts", a_call_is_cancelled_before_it_starts},
      {"AnObjectWithoutAName", an_object_without_a_name},
      {"UnknownResource", unknown_resource},
      {"FiftyCreatesAtOnce", fifty_creates_at_once},
      {"ATable", a_table},
      {"ATableIsWatched", a_table_is_watched},
  };
}

const std::vector<ContractCase>& contract_cases() {
  static const std::vector<ContractCase> cases = [] {
    auto all = object_cases();
    for (auto& one : stream_cases()) all.push_back(std::move(one));
    return all;
  }();
  return cases;
}

}  // namespace dsj::kube::testing
