#include "kube/exec_plugin.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dsj::kube {
namespace {

using Json = nlohmann::json;

const ExecPlugin kAskedPlugin{.api_version = "client.authentication.k8s.io/v1beta1",
                              .command = "aws",
                              .args = {},
                              .env = {},
                              .install_hint = {},
                              .cluster_info = R"({"server":"https://k"})",
                              .where = "config: user \"me\""};

std::string answer_of(const Json& status) {
  return Json{{"kind", "ExecCredential"},
              {"apiVersion", kAskedPlugin.api_version},
              {"spec", Json::object()},
              {"status", status}}
      .dump();
}

TEST(ExecPlugin, IsAskedInItsVersion) {
  EXPECT_EQ(Json::parse(exec_info(kAskedPlugin, true)),
            (Json{{"kind", "ExecCredential"},
                  {"apiVersion", "client.authentication.k8s.io/v1beta1"},
                  {"spec", {{"interactive", true}, {"cluster", {{"server", "https://k"}}}}}}));
  ExecPlugin without = kAskedPlugin;
  without.cluster_info.clear();
  EXPECT_EQ(Json::parse(exec_info(without, false))["spec"], (Json{{"interactive", false}}));
}

TEST(ExecPlugin, GivesATokenOrACertificateUntilATime) {
  const auto token = read_exec_credential(
      kAskedPlugin, answer_of({{"token", "t"}, {"expirationTimestamp", "2026-01-31T12:00:00Z"}}));
  ASSERT_TRUE(token) << token.error().to_string();
  EXPECT_EQ(token->token, "t");
  EXPECT_EQ(token->expires, rfc3339_time("2026-01-31T12:00:00Z"));
  const auto certificate = read_exec_credential(
      kAskedPlugin,
      answer_of({{"clientCertificateData", "c"}, {"clientKeyData", "k"}, {"token", nullptr}}));
  ASSERT_TRUE(certificate) << certificate.error().to_string();
  EXPECT_EQ(certificate->certificate_pem + certificate->key_pem, "ck");
  EXPECT_FALSE(certificate->expires);
}

TEST(ExecPlugin, AWrongAnswerIsNamedAndNotShown) {
  const Json secret = {{"token", "secret"}};
  Json other = Json::parse(answer_of(secret));
  other["apiVersion"] = "client.authentication.k8s.io/v1";
  Json kind = Json::parse(answer_of(secret));
  kind["kind"] = "Secret";
  for (const auto& [output, found] : std::initializer_list<std::pair<std::string, std::string>>{
           {"secret", "not a JSON object"},
           {"", "not a JSON object"},
           {kind.dump(), "not an ExecCredential"},
           {other.dump(), "answered in version \"client.authentication.k8s.io/v1\""},
           {answer_of(nullptr), "without a status"},
           {answer_of(Json::object()), "neither a token nor a certificate"},
           {answer_of({{"token", 1}}), "not a string"},
           {answer_of({{"token", "secret\r\nX: y"}}), "more than one line"},
           {answer_of({{"clientKeyData", "secret"}}), "only a certificate or only a key"},
           {answer_of({{"token", "secret"}, {"expirationTimestamp", "soon"}}), "\"soon\""}}) {
    const auto read = read_exec_credential(kAskedPlugin, output);
    ASSERT_FALSE(read) << output;
    const std::string said = read.error().to_string();
    EXPECT_NE(said.find(found), std::string::npos) << said;
    EXPECT_NE(said.find("\"aws\""), std::string::npos) << said;
    EXPECT_EQ(said.find("secret"), std::string::npos) << said;
  }
}

TEST(Rfc3339, IsReadWithFractionsAndOffsets) {
  using std::chrono::milliseconds;
  const auto ms = [](const char* text) -> std::optional<int64_t> {
    const auto time = rfc3339_time(text);
    if (!time) return std::nullopt;
    return std::chrono::duration_cast<milliseconds>(time->time_since_epoch()).count();
  };
  EXPECT_EQ(ms("1970-01-01T00:00:01Z"), 1000);
  EXPECT_EQ(ms("1970-01-01T00:00:01.25Z"), 1250);
  EXPECT_EQ(ms("1970-01-01T01:00:01+01:00"), 1000);
  EXPECT_EQ(ms("1969-12-31T23:30:01.250000001-00:30"), 1250);
  for (const char* wrong : {"", "1970-01-01", "1970-01-01T00:00:01", "1970-01-01T00:00:01.Z",
                            "1970-01-01T00:00:01+1", "1970-01-01T00:00:01Zx"})
    EXPECT_FALSE(ms(wrong)) << wrong;
}

}  // namespace
}  // namespace dsj::kube
