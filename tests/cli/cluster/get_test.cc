#include <atomic>
#include <thread>

#include "tests/cli/cluster/world.h"
#include "tests/support/soon.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Get : public testing::World {};

TEST_F(Get, TheColumnsAreThoseOfTheCrd) {
  add_job("quick");
  set_status("quick", {{"phase", "Running"},
                       {"reason", "Stragglers"},
                       {"workers", "2/2"},
                       {"worldSize", 4},
                       {"training", {{"step", 42}, {"loss", "1.93"}, {"progressPercentage", 84}}},
                       {"checkpoint", {{"lastSaved", {{"step", 40}}}}}});
  ASSERT_EQ(run(run_get, {}), 0) << err_;
  EXPECT_EQ(out_,
            "NAME    STATE     REASON       WORKERS   STEP   PROGRESS   RESTARTS   CKPT   AGE\n"
            "quick   Running   Stragglers   2/2       42     84         <none>     40     0s\n");
  ASSERT_EQ(run(run_get, {"quick", "-o", "wide"}), 0);
  EXPECT_THAT(out_, HasSubstr("WORLD   ZERO     LOSS   TOK/S    ETA"));
  EXPECT_THAT(out_, HasSubstr("4       <none>   1.93"));
}

TEST_F(Get, ListsAllNamespacesAndReportsNoJobs) {
  add_job("quick");
  ASSERT_EQ(run(run_get, {"-A"}, "elsewhere"), 0);
  EXPECT_THAT(out_, HasSubstr("NAMESPACE   NAME"));
  EXPECT_THAT(out_, HasSubstr("team        quick"));
  ASSERT_EQ(run(run_get, {}, "elsewhere"), 0);
  EXPECT_EQ(out_, "");
  EXPECT_THAT(err_, HasSubstr("No DeepSpeedJobs in namespace elsewhere."));
  EXPECT_EQ(run(run_get, {"quick", "-A"}), 2);
}

TEST_F(Get, ObjectsAsJsonAndYaml) {
  add_job("quick");
  ASSERT_EQ(run(run_get, {"quick", "-o", "json"}), 0);
  EXPECT_EQ(Json::parse(out_)["metadata"]["name"], "quick");
  ASSERT_EQ(run(run_get, {"-o", "yaml"}), 0);
  EXPECT_THAT(out_, HasSubstr("kind: List"));
  ASSERT_EQ(run(run_get, {"-o", "name"}), 0);
  EXPECT_EQ(out_, "quick\n");
}

TEST_F(Get, AWatchPrintsALinePerChangeUntilItIsCancelled) {
  add_job("quick");
  std::thread other([&] {
    while (server_->watches() == 0) std::this_thread::yield();
    set_status("quick", {{"phase", "Running"}, {"training", {{"step", 1}}}});
    set_status("quick", {{"phase", "Running"}, {"training", {{"step", 2}}}});
    EXPECT_TRUE(soon([&] { return server_->watches_have_told(); }));
    stop_.cancel();
  });
  EXPECT_EQ(run(run_get, {"-w"}), 0) << err_;
  other.join();
  EXPECT_THAT(out_, HasSubstr("NAME    STATE"));
  EXPECT_THAT(out_, HasSubstr("quick   Running   <none>   <none>    1 "));
  EXPECT_THAT(out_, HasSubstr("quick   Running   <none>   <none>    2 "));
}

TEST_F(Get, AWatchSurvivesAnUnavailableApiServer) {
  using Fault = kube::testing::Fault;
  add_job("quick");
  std::atomic<int> away = 10;
  server_->set_fault([&](const kube::Request& request) {
    return request.path.contains("watch=") && away-- > 0 ? Fault{.kind = Fault::Kind::LoseRequest}
                                                         : Fault{};
  });
  std::thread other([&] {
    EXPECT_TRUE(soon([&] { return server_->watches() > 0; }));
    stop_.cancel();
  });
  EXPECT_EQ(run(run_get, {"-w"}), 0) << err_;
  other.join();
  EXPECT_THAT(err_, HasSubstr("retrying for 5 minutes"));
  away = 1'000'000;
  EXPECT_EQ(run(run_get, {"-w"}), kExitUnreachable);
}

TEST_F(Get, EachKindOfRefusalHasItsExitCodeAndItsAdvice) {
  EXPECT_EQ(run(run_get, {"quick"}), kExitNotFound);
  EXPECT_THAT(err_, HasSubstr("get -A"));
  int status = 403;
  server_->set_fault([&](const kube::Request&) {
    using Fault = kube::testing::Fault;
    return status == 0 ? Fault{.kind = Fault::Kind::LoseRequest}
                       : Fault{.kind = Fault::Kind::Refuse, .status = status};
  });
  EXPECT_EQ(run(run_get, {}), kExitForbidden);
  EXPECT_THAT(err_, HasSubstr("auth can-i"));
  status = 401;
  EXPECT_EQ(run(run_get, {}), kExitForbidden);
  EXPECT_THAT(err_, HasSubstr("not accepted"));
  status = 503;
  EXPECT_EQ(run(run_get, {}), kExitUnreachable);
  status = 0;
  EXPECT_EQ(run(run_get, {}), kExitUnreachable);
  EXPECT_THAT(err_, HasSubstr("https://fake:6443"));
}

TEST(GetWithoutTheResource, SaysWhatToInstall) {
  const auto server = std::make_shared<kube::testing::FakeApiServer>();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_get({},
                    [&](const ClusterFlags&) -> Result<std::unique_ptr<Session>> {
                      return std::make_unique<Session>(server, kube::system_clock(), "team", "s");
                    }),
            kExitNotFound);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("install the chart"));
}

}  // namespace
}  // namespace dsj::cli
