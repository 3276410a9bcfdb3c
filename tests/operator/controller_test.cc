// The controller's own care: what one job's objects do to the passes of the others.
#include "operator/controller.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/sim_operator.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

/// An operator over an API server in memory that decides with `decide`, a second a turn.
class Passes {
 public:
  explicit Passes(std::function<Plan(const Observed&, Time)> decide)
      : bug_{.name = "another decision", .decide = std::move(decide)} {
    server_.serve(jobs_resource(), true);
    server_.serve(pod_groups_resource(), true);
  }

  void submit(const std::string& name) {
    kube::Client user(server_, clock_);
    ASSERT_TRUE(user.create(jobs_resource(), "n",
                            {{"apiVersion", jobspec::kApiVersion},
                             {"kind", jobspec::kKind},
                             {"metadata", {{"name", name}, {"namespace", "n"}}},
                             {"spec", quick_spec(2)}}));
  }

  void turns(int count) {
    for (int i = 0; i < count; ++i) {
      clock_.now += Seconds(1);
      operator_.turn();
    }
  }

  int64_t pods_of(const std::string& name) const {
    return std::ranges::count_if(server_.objects(kube::resources::pods()), [&](const Json& pod) {
      return label_of(pod, contract::kLabelJobName) == name;
    });
  }

 private:
  kube::testing::FakeApiServer server_;
  sim::SimClock clock_;
  sim::Chance chance_{1};
  const sim::Bug bug_;
  sim::SimOperator operator_{server_, clock_, chance_, &bug_};
};

/// Readers of objects ask before they take. One that forgets it throws, and the guard is for that one.
TEST(Controller, APassThatThrowsCostsItsOwnJobAlone) {
  spdlog::set_level(spdlog::level::off);
  bool odd = true;
  int thrown = 0;
  Passes passes([&](const Observed& observed, Time now) {
    if (odd && observed.name == "a-odd") {
      ++thrown;
      (void)Json(5).at("metadata");
    }
    return reconcile(observed, now);
  });
  passes.submit("a-odd");
  passes.submit("b-good");
  passes.turns(10);
  EXPECT_EQ(passes.pods_of("b-good"), 2);
  EXPECT_EQ(passes.pods_of("a-odd"), 0);
  EXPECT_EQ(thrown, 1) << "it rests before it is tried again";
  passes.turns(10);
  EXPECT_EQ(thrown, 2);
  odd = false;
  passes.turns(30);
  EXPECT_EQ(passes.pods_of("a-odd"), 2) << "it is forgotten by nobody";
}

}  // namespace
}  // namespace dsj::op::testing
