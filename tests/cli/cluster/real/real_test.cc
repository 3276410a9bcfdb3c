// The verbs against a real API server with the real CRD; the test acts as the operator.
// $KUBECONFIG names the server; without one this program fails.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/cluster/json_path.h"
#include "cli/cluster/verbs.h"
#include "tests/kube/real_cluster.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;

/// Counts the streams that were opened, and their lines that were processed, that is, for which
/// the next one was requested.
class Counting final : public kube::Transport {
 public:
  explicit Counting(kube::Transport& inner) : inner_(inner) {}
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    return inner_.call(request, cancel);
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    auto made = inner_.open(request, cancel);
    if (made && made->lines) made->lines = std::make_unique<Lines>(*this, std::move(made->lines));
    ++opened;
    return made;
  }
  std::atomic<int> opened = 0, told = 0;

 private:
  struct Lines final : kube::LineStream {
    Lines(Counting& all, std::unique_ptr<kube::LineStream> inner)
        : all_(all), inner_(std::move(inner)) {}
    std::expected<std::optional<std::string>, kube::NetError> next(
        std::chrono::milliseconds idle) override {
      all_.told += std::exchange(pending_, 0);
      auto line = inner_->next(idle);
      if (line && *line) pending_ = 1;
      return line;
    }
    Counting& all_;
    std::unique_ptr<kube::LineStream> inner_;
    int pending_ = 0;
  };
  kube::Transport& inner_;
};

class RealVerbs : public kube::testing::RealCluster {
 protected:
  void SetUp() override {
    RealCluster::SetUp();
    if (HasFatalFailure()) return;
    const auto made = client_->create(jobs_resource(), ns_, Json::parse(R"({
      "apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob",
      "metadata": {"name": "quick"},
      "spec": {"deepspeed": {"config": {"train_micro_batch_size_per_gpu": "auto"}},
        "training": {"modelNameOrPath": "/m", "dataPath": "/d", "outputDir": "/tmp/o", "maxSteps": 3},
        "workers": {"replicas": 2}}})"));
    ASSERT_TRUE(made) << made.error().to_string();
  }

  void set_status(const Json& status) {
    const auto set =
        client_->merge_patch(jobs_resource(), ns_, "quick", {{"status", status}}, "status");
    ASSERT_TRUE(set) << set.error().to_string();
  }
  int run(int (*verb)(Arguments, const Connect&), std::vector<std::string> args) {
    args.insert(args.end(), {"-n", ns_});
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = verb(args, connect_to_cluster);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  std::string out_, err_;
};

TEST_F(RealVerbs, GetShowsTheColumnsOfTheResource) {
  set_status({{"phase", "Running"}, {"workers", "2/2"}, {"training", {{"step", 2}}}});
  ASSERT_EQ(run(run_get, {}), 0) << err_;
  EXPECT_THAT(out_,
              HasSubstr("NAME    STATE     REASON   WORKERS   STEP   PROGRESS   RESTARTS   CKPT"));
  EXPECT_THAT(
      out_, HasSubstr("quick   Running   <none>   2/2       2      <none>     <none>     <none>"));
  ASSERT_EQ(run(run_get, {"quick", "-o", "wide"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("TOK/S"));
  EXPECT_EQ(run(run_get, {"slow"}), kExitNotFound);
  EXPECT_THAT(err_, HasSubstr("\"slow\" not found"));
}

TEST_F(RealVerbs, AWatchShowsChanges) {
  kube::Cancel stop;
  const auto counting = std::make_shared<Counting>(*transport_);
  std::thread other([&] {
    EXPECT_TRUE(soon([&] { return counting->opened == 1; }));
    set_status({{"phase", "Running"}, {"training", {{"step", 1}}}});
    set_status({{"phase", "Complete"}, {"training", {{"step", 3}}}});
    EXPECT_TRUE(soon([&] { return counting->told >= 2; }));
    stop.cancel();
  });
  ::testing::internal::CaptureStdout();
  const auto same = [&](const ClusterFlags&) -> Result<std::unique_ptr<Session>> {
    auto made = std::make_unique<Session>(counting, kube::system_clock(), ns_, "");
    made->cancel = stop;
    return made;
  };
  EXPECT_EQ(run_get(std::vector<std::string>{"-w"}, same), 0);
  other.join();
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(out, HasSubstr("quick   Running"));
  EXPECT_THAT(out, HasSubstr("quick   Complete"));
}

TEST_F(RealVerbs, DescribeReadsJobPodsAndEvents) {
  set_status({{"phase", "Pending"},
              {"conditions", Json::array({{{"type", "Accepted"},
                                           {"status", "True"},
                                           {"reason", "ConfigAccepted"},
                                           {"message", ""},
                                           {"lastTransitionTime", "2026-01-01T00:00:00Z"}}})}});
  const auto told = client_->create(kube::resources::events(), ns_,
                                    {{"apiVersion", "events.k8s.io/v1"},
                                     {"kind", "Event"},
                                     {"metadata", {{"name", "quick.1"}, {"namespace", ns_}}},
                                     {"regarding",
                                      {{"kind", "DeepSpeedJob"},
                                       {"name", "quick"},
                                       {"namespace", ns_},
                                       {"apiVersion", "training.dsj.dev/v1alpha1"}}},
                                     {"type", "Normal"},
                                     {"reason", "ConfigAccepted"},
                                     {"note", "the spec is accepted"},
                                     {"action", "Reconcile"},
                                     {"eventTime", "2026-01-01T00:00:00.000000Z"},
                                     {"reportingController", "test"},
                                     {"reportingInstance", "test"}});
  ASSERT_TRUE(told) << told.error().to_string();
  ASSERT_EQ(run(run_describe, {"quick"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("State:        Pending"));
  EXPECT_THAT(out_, HasSubstr("Accepted   True     ConfigAccepted"));
  EXPECT_THAT(out_, HasSubstr("the spec is accepted"));
  EXPECT_THAT(out_, HasSubstr("train_micro_batch_size_per_gpu"));
  ASSERT_EQ(run(run_debug, {"quick"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("Kubernetes v1."));
}

TEST_F(RealVerbs, SuspendAndResumePatchTheSpecAndWait) {
  std::thread operator_like([&] {
    Json job;
    ASSERT_TRUE(soon([&] {
      job = client_->get(jobs_resource(), ns_, "quick").value_or(Json::object());
      return job.value("spec", Json::object()).value("suspend", false);
    }));
    set_status({{"phase", "Suspended"},
                {"observedGeneration", job["metadata"]["generation"]},
                {"checkpoint", {{"lastSaved", {{"step", 2}}}}}});
  });
  EXPECT_EQ(run(run_suspend, {"quick", "--wait", "--timeout", "600"}), 0) << err_;
  operator_like.join();
  EXPECT_THAT(out_, HasSubstr("quick is Suspended, saved at step 2"));
  EXPECT_EQ(run(run_resume, {"quick"}), 0) << err_;
  EXPECT_EQ((*client_->get(jobs_resource(), ns_, "quick"))["spec"]["suspend"], false);
}

TEST_F(RealVerbs, AnUnreachableServerAndAForbiddenUser) {
  kube::Access access;
  access = *kube::access_from_kubeconfig_file();
  access.server = "https://127.0.0.1:1";
  const auto dead = [&](const ClusterFlags&) -> Result<std::unique_ptr<Session>> {
    DSJ_TRY(auto transport, kube::make_api_transport(access));
    return std::make_unique<Session>(std::move(transport), kube::system_clock(), "x",
                                     access.server);
  };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_get({}, dead), kExitUnreachable);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("https://127.0.0.1:1"));
  access = *kube::access_from_kubeconfig_file();
  access.client_certificate_pem.clear();
  access.client_key_pem.clear();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_get({}, dead), kExitForbidden);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("system:anonymous"));
}

// As for EKS, GKE and OIDC users: the kubeconfig names a program that provides the credential.
TEST_F(RealVerbs, ACredentialPluginGivesTheCertificate) {
  const auto access = kube::access_from_kubeconfig_file();
  ASSERT_TRUE(access);
  const std::string folder = ::testing::TempDir() + "/plugin-of-a-user";
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const Json& content) {
    std::ofstream(folder + "/" + name) << content.dump();
  };
  write("credential", {{"apiVersion", "client.authentication.k8s.io/v1"},
                       {"kind", "ExecCredential"},
                       {"status",
                        {{"clientCertificateData", access->client_certificate_pem},
                         {"clientKeyData", access->client_key_pem}}}});
  std::ofstream(folder + "/ca.pem") << access->ca_pem;
  const Json cluster = {{"server", access->server}, {"certificate-authority", "ca.pem"}};
  const Json plugin = {{"apiVersion", "client.authentication.k8s.io/v1"},
                       {"command", "cat"},
                       {"args", {folder + "/credential"}},
                       {"interactiveMode", "Never"}};
  const Json context = {{"cluster", "c"}, {"user", "u"}, {"namespace", ns_}};
  write("clusters",
        {{"clusters", {{{"name", "c"}, {"cluster", cluster}}}}, {"current-context", "x"}});
  write("users", {{"users", {{{"name", "u"}, {"user", {{"exec", plugin}}}}}},
                  {"contexts", {{{"name", "x"}, {"context", context}}}}});
  const std::string own = std::getenv("KUBECONFIG");
  ::setenv("KUBECONFIG", (folder + "/clusters:" + folder + "/none:" + folder + "/users").c_str(),
           1);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_get({}, connect_to_cluster), 0);
  const std::string listed = ::testing::internal::GetCapturedStdout();
  write("credential", Json::object());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_get({}, connect_to_cluster), kExitForbidden);
  const std::string refused = ::testing::internal::GetCapturedStderr();
  ::setenv("KUBECONFIG", own.c_str(), 1);
  EXPECT_THAT(listed, HasSubstr("quick"));
  EXPECT_THAT(refused, HasSubstr("the credential plugin \"cat\""));
}

}  // namespace
}  // namespace dsj::cli
