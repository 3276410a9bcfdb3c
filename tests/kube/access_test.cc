#include "kube/access.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kube/token_source.h"

namespace dsj::kube {
namespace {

std::string config(const std::string& user, const std::string& cluster = {}) {
  return R"(
apiVersion: v1
kind: Config
current-context: here
contexts:
- name: here
  context: {cluster: c, user: u, namespace: team}
clusters:
- name: c
  cluster: {server: "https://10.0.0.1:6443/", certificate-authority-data: Y2EtcGVt)" +
         cluster + R"(}
users:
- name: u
  user: {)" +
         user + "}\n";
}

TEST(Kubeconfig, ReadsInlineCertificates) {
  const auto access = access_from_kubeconfig(
      config("client-certificate-data: Y2VydA==, client-key-data: a2V5"), "/home/me/.kube/config");
  ASSERT_TRUE(access) << access.error().to_string();
  EXPECT_EQ(access->server, "https://10.0.0.1:6443");
  EXPECT_EQ(access->ca_pem, "ca-pem");
  EXPECT_EQ(access->client_certificate_pem, "cert");
  EXPECT_EQ(access->client_key_pem, "key");
  EXPECT_EQ(access->default_namespace, "team");
}

TEST(Kubeconfig, ReadsFilesBesideItself) {
  const std::string folder = ::testing::TempDir() + "/kubeconfig-files";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/c.pem") << "cert";
  std::ofstream(folder + "/k.pem") << "key";
  const auto access = access_from_kubeconfig(config("client-certificate: c.pem, client-key: k.pem"),
                                             folder + "/config");
  ASSERT_TRUE(access) << access.error().to_string();
  EXPECT_EQ(access->client_certificate_pem, "cert");
  EXPECT_EQ(access->client_key_pem, "key");
}

TEST(Kubeconfig, RefusesPluginsByName) {
  for (const char* user : {"exec: {command: aws}", "auth-provider: {name: gcp}",
                           "username: a, password: b", "as: root"}) {
    const auto access = access_from_kubeconfig(config(user), "config");
    ASSERT_FALSE(access);
    EXPECT_EQ(access.error().kind, ErrorKind::BadInput);
    const std::string key = std::string(user).substr(0, std::string(user).find(':'));
    EXPECT_NE(access.error().message.find("\"" + key + "\""), std::string::npos);
  }
}

TEST(Kubeconfig, NamesWhatIsMissing) {
  auto message = [](const std::string& text, const std::string& context = {}) {
    const auto access = access_from_kubeconfig(text, "config", context);
    return access ? "accepted" : access.error().to_string();
  };
  EXPECT_NE(message(config(""), "there").find("no context \"there\""), std::string::npos);
  EXPECT_NE(message("current-context: x").find("no context \"x\""), std::string::npos);
  EXPECT_NE(message("[").find("not YAML"), std::string::npos);
  EXPECT_NE(message("a").find("not a kubeconfig"), std::string::npos);
  EXPECT_NE(message(config("client-certificate-data: Y2VydA==")).find("belong together"),
            std::string::npos);
  EXPECT_NE(message(config("", ", tls-server-name: x")).find("tls-server-name"), std::string::npos);
  EXPECT_NE(message(config("client-certificate-data: '%', client-key-data: a2V5")).find("base64"),
            std::string::npos);
}

TEST(TokenSource, ReadsARotatedTokenAfterAMinuteOrARefusal) {
  const std::string path = ::testing::TempDir() + "/token";
  auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write("first\n");
  Access access;
  access.token_file = path;
  TokenSource source(access);
  const TokenSource::Clock::time_point start{};
  using std::chrono::seconds;
  EXPECT_EQ(source.token(start), "first");
  write("second\n");
  EXPECT_EQ(source.token(start + seconds(59)), "first");
  EXPECT_EQ(source.token(start + seconds(60)), "second");
  write("third\n");
  source.refused();
  EXPECT_EQ(source.token(start + seconds(61)), "third");
  std::filesystem::remove(path);
  EXPECT_EQ(source.token(start + seconds(200)), "third");
}

}  // namespace
}  // namespace dsj::kube
