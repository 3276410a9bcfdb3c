// How a client is let in by a real API server, and what it is told when it is not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kube/api_transport.h"
#include "kube/client.h"
#include "kube/kubeconfig.h"
#include "tests/kube/fake_clock.h"
#include "tests/kube/real/cluster.h"
#include "tests/support/soon.h"

namespace dsj::kube::testing {
namespace {

using Kind = ApiError::Kind;

const Resource kReviews{"authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview",
                        false};

std::string state(const std::string& file) {
  const char* folder = std::getenv("DSJ_CLUSTER_STATE");
  return std::string(folder ? folder : "/no/cluster") + "/" + file;
}

Access access_of(const std::string& file) {
  auto access = access_from_kubeconfig_file(state(file));
  EXPECT_TRUE(access) << access.error().to_string();
  return access ? *access : Access{};
}

/// Who the server says this client is: a user name, or the error.
std::string who(const Access& access, Kind* kind = nullptr, Clock& clock = system_clock()) {
  auto transport = make_api_transport(access);
  if (!transport) return transport.error().to_string();
  Client client(**transport, clock);
  const auto review = client.create(
      kReviews, "", {{"apiVersion", kReviews.api_version()}, {"kind", kReviews.kind}});
  if (review) return (*review)["status"]["userInfo"]["username"];
  if (kind) *kind = review.error().kind;
  return review.error().to_string();
}

TEST(RealAccess, CertificatesOfBothKindsInlineAndByFile) {
  cluster("user ellipse system:masters ec");
  cluster("user rivest system:masters rsa");
  EXPECT_EQ(who(access_of("ellipse.kubeconfig")), "ellipse");
  EXPECT_EQ(who(access_of("rivest.kubeconfig")), "rivest");
  const Access by_file = access_of("files.kubeconfig");
  EXPECT_FALSE(by_file.client_key_file.empty());
  EXPECT_EQ(who(by_file), "admin");
}

/// A token of the service account `name`, made with it.
std::string token_of(const std::string& name) {
  auto transport = make_api_transport(access_of("admin.kubeconfig"));
  EXPECT_TRUE(transport);
  Client client(**transport, system_clock());
  const auto made = client.create(
      resources::service_accounts(), "default",
      {{"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", {{"name", name}}}});
  EXPECT_TRUE(made) << made.error().to_string();
  const auto token =
      client.create({"", "v1", "serviceaccounts/" + name + "/token", "TokenRequest"}, "default",
                    {{"apiVersion", "authentication.k8s.io/v1"},
                     {"kind", "TokenRequest"},
                     {"spec", Json::object()}});
  EXPECT_TRUE(token) << token.error().to_string();
  return token ? (*token)["status"]["token"].get<std::string>() : "";
}

TEST(RealAccess, ATokenThatIsRotatedIsReadAgainAtOnce) {
  Access access = access_of("admin.kubeconfig");
  access.client_certificate_pem.clear();
  access.client_key_pem.clear();
  access.token_file = state("token");
  std::ofstream(access.token_file) << token_of("first") << "\n";
  auto transport = make_api_transport(access);
  ASSERT_TRUE(transport);
  Client client(**transport, system_clock());
  const Json review{{"apiVersion", kReviews.api_version()}, {"kind", kReviews.kind}};
  const auto name = [&] {
    const auto answer = client.create(kReviews, "", review);
    return answer ? (*answer)["status"]["userInfo"]["username"].get<std::string>()
                  : answer.error().to_string();
  };
  EXPECT_EQ(name(), "system:serviceaccount:default:first");
  const std::string second = token_of("second");
  {  // the first one ends with its account; the kubelet has already written the second
    auto admin = make_api_transport(access_of("admin.kubeconfig"));
    ASSERT_TRUE(admin);
    Client owner(**admin, system_clock());
    ASSERT_TRUE(owner.remove(resources::service_accounts(), "default", "first"));
    std::ofstream(access.token_file) << second;
  }
  // The server knows a good token for 10 s.
  EXPECT_TRUE(soon([&] { return name() == "system:serviceaccount:default:second"; })) << name();
}

TEST(RealAccess, WhatIsNotAcceptedIsNamed) {
  const Access good = access_of("admin.kubeconfig");
  Access foreign = good;  // an authority that did not sign the server's certificate
  foreign.ca_pem = good.client_certificate_pem;
  Kind kind{};
  FakeClock clock;
  EXPECT_NE(who(foreign, &kind, clock).find("certificate verify failed"), std::string::npos);
  EXPECT_EQ(kind, Kind::Network);
  EXPECT_EQ(clock.sleeps, 0) << "a certificate does not get better by asking again";

  Access mixed = good;  // another's key
  mixed.client_key_pem = access_of("rivest.kubeconfig").client_key_pem;
  EXPECT_NE(who(mixed).find("they do not match"), std::string::npos);

  Access nobody = good;
  nobody.client_certificate_pem.clear();
  nobody.client_key_pem.clear();
  nobody.token = "not-a-token";
  who(nobody, &kind);
  EXPECT_EQ(kind, Kind::Unauthorized);
  nobody.token.clear();  // anonymous
  who(nobody, &kind);
  EXPECT_EQ(kind, Kind::Forbidden);

  Access nowhere = good;
  nowhere.server = "https://127.0.0.1:1";
  EXPECT_NE(who(nowhere, &kind, clock).find("refused"), std::string::npos);
  EXPECT_EQ(kind, Kind::Network);
}

/// A disruption budget that no controller has looked at yet: an eviction is answered with 429 and
/// Retry-After, and the client keeps to it.
TEST(RealAccess, ARetryAfterIsKept) {
  auto transport = make_api_transport(access_of("admin.kubeconfig"));
  ASSERT_TRUE(transport);
  FakeClock clock;
  Client client(**transport, clock, {.attempts = 3, .deadline = std::chrono::seconds(600)});
  const auto must = [](const auto& result) {
    EXPECT_TRUE(result) << (result ? "" : result.error().to_string());
  };
  must(client.create(
      resources::service_accounts(), "default",
      {{"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", {{"name", "default"}}}}));
  must(client.create(resources::pods(), "default",
                     {{"apiVersion", "v1"},
                      {"kind", "Pod"},
                      {"metadata", {{"name", "a"}, {"labels", {{"app", "a"}}}}},
                      {"spec", {{"containers", {{{"name", "c"}, {"image", "c"}}}}}}}));
  must(client.merge_patch(resources::pods(), "default", "a", {{"status", {{"phase", "Running"}}}},
                          "status"));
  must(client.create(
      {"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"}, "default",
      {{"apiVersion", "policy/v1"},
       {"kind", "PodDisruptionBudget"},
       {"metadata", {{"name", "a"}}},
       {"spec", {{"minAvailable", 1}, {"selector", {{"matchLabels", {{"app", "a"}}}}}}}}));
  const auto refused = client.create(
      {"", "v1", "pods/a/eviction", "Eviction"}, "default",
      {{"apiVersion", "policy/v1"}, {"kind", "Eviction"}, {"metadata", {{"name", "a"}}}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::TooManyRequests);
  ASSERT_TRUE(refused.error().retry_after) << refused.error().to_string();
  EXPECT_GE(*refused.error().retry_after, std::chrono::seconds(1));
  EXPECT_EQ(clock.sleeps, 2);
  EXPECT_GE(clock.slept, 2 * *refused.error().retry_after);
}

}  // namespace
}  // namespace dsj::kube::testing
