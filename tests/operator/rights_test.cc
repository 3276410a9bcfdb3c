// The chart's rights are those that the operator uses: its requests are recorded and compared with the
// verbs of the templates, both ways.
#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <regex>
#include <set>

#include "operator/act/events.h"
#include "operator/observe/child_content.h"
#include "operator/render/render_config.h"
#include "operator/render/render_gang.h"
#include "operator/serve/metrics_access.h"
#include "test_paths.h"
#include "tests/kube/fake_api_server.h"
#include "tests/operator/reviewing_server.h"
#include "tests/operator/sim/sim_operator.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using kube::testing::FakeApiServer;

/// "GROUP/RESOURCE VERB"
using Rights = std::set<std::string>;

std::vector<std::string> words_in(const std::string& list) {
  std::vector<std::string> words;
  const std::regex word("[^ ,\"]+|\"\"");
  for (std::sregex_iterator at(list.begin(), list.end(), word), end; at != end; ++at) {
    words.push_back(at->str() == "\"\"" ? "" : at->str());
  }
  return words;
}

/// What the templates grant. Rules of one object by its name, and of URLs, are not in it.
Rights rights_of_the_chart() {
  Rights rights;
  for (const char* name : {"_helpers.tpl", "rbac.yaml"}) {
    std::ifstream file(std::string(DSJ_SOURCE_DIR) + "/charts/deepspeedjob/templates/" + name);
    EXPECT_TRUE(file) << name;
    const std::regex field(
        "^ *(?:- )?(apiGroups|resources|resourceNames|nonResourceURLs|verbs): \\[(.*?)\\].*");
    std::vector<std::string> groups, resources;
    for (std::string line; std::getline(file, line);) {
      std::smatch found;
      if (!std::regex_match(line, found, field)) continue;
      const auto words = words_in(found[2]);
      if (found[1] == "apiGroups") groups = words;
      if (found[1] == "resources") resources = words;
      if (found[1] == "resourceNames" || found[1] == "nonResourceURLs") resources.clear();
      if (found[1] != "verbs") continue;
      for (const auto& group : groups) {
        for (const auto& resource : resources) {
          for (const auto& verb : words) rights.insert(group + "/" + resource + " " + verb);
        }
      }
    }
  }
  return rights;
}

std::string right_of(const kube::Request& request) {
  const std::string path = request.path.substr(0, request.path.find('?'));
  const bool watch = request.path.find("watch=") != std::string::npos;
  std::vector<std::string> parts;
  std::istringstream text(path);
  for (std::string part; std::getline(text, part, '/');) {
    if (!part.empty()) parts.push_back(part);
  }
  const std::string group = parts.at(0) == "api" ? "" : parts.at(1);
  size_t at = parts[0] == "api" ? 2 : 3;
  if (parts.at(at) == "namespaces" && parts.size() > at + 2) at += 2;
  const bool named = parts.size() > at + 1;
  std::string resource = parts[at];
  if (parts.size() > at + 2) resource += "/" + parts[at + 2];
  std::string verb = named ? "get" : watch ? "watch" : "list";
  if (request.method == "POST") verb = "create";
  if (request.method == "PUT") verb = "update";
  if (request.method == "PATCH") verb = "patch";
  if (request.method == "DELETE") verb = "delete";
  return group + "/" + resource + " " + verb;
}

class Recorder final : public kube::Transport {
 public:
  explicit Recorder(kube::Transport& inner) : inner_(inner) {}
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    used.insert(right_of(request));
    return inner_.call(request, cancel);
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    used.insert(right_of(request));
    return inner_.open(request, cancel);
  }
  Rights used;

 private:
  kube::Transport& inner_;
};

struct Ignored final : Writes {
  void wrote(const std::string&, const Json&) override {}
};

/// Everything that a plan can ask for, of every kind: make it, find it there, mend it, delete it.
void carry_out_everything(kube::Client& client) {
  Json spec = quick_spec();
  spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "volcano"}};
  World world(spec);
  const Plan plan = reconcile(world.o, world.now);
  ASSERT_TRUE(plan.key);
  std::vector<Create> all = World::made(plan);
  Ignored writes;
  NoEvents events;
  const auto run = [&](const Plan& one) {
    return apply(
               client, world.o, one, [] { return true; }, writes, events)
        .done;
  };
  EXPECT_TRUE(run({.key = plan.key}));
  std::set<std::string> kinds;
  for (const Create& create : all) {
    kinds.insert(create.kind);
    Plan one;
    one.creates = {create};
    EXPECT_TRUE(run(one)) << create.kind;
    EXPECT_TRUE(run(one)) << "the name is ours";
    if (content_of(create.kind, create.object) != 0) {
      Create update = create;
      for (const char* part : {"rules", "subjects"})
        if (update.object.contains(part)) update.object[part] = Json::array();
      if (update.object.contains("spec")) update.object["spec"]["selector"] = "another";
      Plan mend;
      mend.updates = {update};
      (void)run(mend);
    }
    Plan end;
    end.deletes = {{.kind = create.kind, .name = create.name, .uid = "another's"}};
    EXPECT_TRUE(run(end)) << create.kind;
    end.deletes[0].uid.clear();
    EXPECT_THROW(run(end), std::logic_error) << create.kind;
  }
  EXPECT_EQ(kinds.size(), 8u) << "every kind that the operator makes";
  world.o.settings.node_marks = NodeMarks::Taint;
  EXPECT_TRUE(run({.marks = {{.node = "bad", .text = "found unfit"}}}));
  EXPECT_TRUE(run({.releases = {{.pod = "gone", .metadata = {{"uid", "u"}}}}}));
  Plan end;
  end.deletes = {key_deletion("j", 1, "another's")};
  EXPECT_TRUE(run(end));
}

TEST(Rights, OfTheChartAreThoseThatAreUsed) {
  spdlog::set_level(spdlog::level::off);
  FakeApiServer server;
  server.serve(jobs_resource(), true);
  server.serve(pod_groups_resource(), true);
  ReviewingServer reviewing(&server);
  reviewing.known = {"reader"};
  Recorder recorder(reviewing);
  sim::SimClock clock;
  EXPECT_TRUE(MetricsAccess(recorder, clock).refuse("Bearer reader"));
  sim::Chance chance{1};
  kube::Client client(recorder, clock);
  ASSERT_TRUE(
      kube::Client(server, clock)
          .create(kube::resources::nodes(), "",
                  {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "bad"}}}}));
  carry_out_everything(client);
  KubeEvents(client, clock, "operator").tell({.ns = "n", .name = "j"}, {"Normal", "Started", "m"});
  {
    kube::Client user(server, clock);
    Json spec = quick_spec();
    spec["runPolicy"]["ttlSecondsAfterFinished"] = 0;
    spec["runPolicy"]["activeDeadlineSeconds"] = 1;  // it ends, and is deleted
    ASSERT_TRUE(user.create(jobs_resource(), "n",
                            {{"apiVersion", jobspec::kApiVersion},
                             {"kind", jobspec::kKind},
                             {"metadata", {{"name", "k"}, {"namespace", "n"}}},
                             {"spec", spec}}));
    Json templated = quick_spec();
    templated["workers"]["templateRef"] = {{"name", "none"}};  // it is asked for, and missing
    ASSERT_TRUE(user.create(jobs_resource(), "n",
                            {{"apiVersion", jobspec::kApiVersion},
                             {"kind", jobspec::kKind},
                             {"metadata", {{"name", "t"}, {"namespace", "n"}}},
                             {"spec", templated}}));
    sim::SimOperator op(recorder, clock, chance, nullptr);
    for (int i = 0; i < 20; ++i) {
      clock.now += Seconds(10);
      op.turn();
    }
    const auto left = server.objects(jobs_resource());
    ASSERT_EQ(left.size(), 1u);
    EXPECT_EQ(left[0]["status"]["phase"], "Refused");
    // Pods that have a node and do not start: their events are read.
    ASSERT_TRUE(user.create(jobs_resource(), "n",
                            {{"apiVersion", jobspec::kApiVersion},
                             {"kind", jobspec::kKind},
                             {"metadata", {{"name", "s"}, {"namespace", "n"}}},
                             {"spec", quick_spec()}}));
    bool failed = false;  // once: after a failed pass the job is read
    server.set_fault([&](const kube::Request& request) {
      using kube::testing::Fault;
      const bool pod = request.method == "POST" && request.path.ends_with("/pods");
      return pod && !std::exchange(failed, true) ? Fault{.kind = Fault::Kind::Refuse, .status = 500}
                                                 : Fault{};
    });
    for (int i = 0; i < 10; ++i) {
      clock.now += Seconds(10);
      op.turn();
      for (const Json& pod : server.objects(kube::resources::pods()))
        server.edit(kube::resources::pods(), "n", pod["metadata"]["name"],
                    [](Json& object) { object["spec"]["nodeName"] = "bad"; });
    }
  }
  Rights used = recorder.used, granted = rights_of_the_chart();
  // Held for what it grants: a job's Role, owner references that block a deletion, the key policy.
  for (const char* held : {"training.dsj.dev/deepspeedjobs/status get",
                           "training.dsj.dev/deepspeedjobs/finalizers update",
                           "keys.training.dsj.dev/workers create"}) {
    EXPECT_EQ(granted.erase(held), 1u) << held;
  }
  // The election's own thread (tests/kube/lease_test.cc).
  EXPECT_EQ(granted.erase("coordination.k8s.io/leases create"), 1u);
  Rights missing, unused;
  std::ranges::set_difference(used, granted, std::inserter(missing, missing.end()));
  std::ranges::set_difference(granted, used, std::inserter(unused, unused.end()));
  EXPECT_THAT(missing, ::testing::IsEmpty())
      << "the operator asks for what the chart does not grant";
  EXPECT_THAT(unused, ::testing::IsEmpty()) << "the chart grants what the operator never asks for";
  EXPECT_FALSE(granted.contains("/secrets get"));
}

}  // namespace
}  // namespace dsj::op::testing
