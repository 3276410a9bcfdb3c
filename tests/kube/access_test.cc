#include "kube/access.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kube/token_source.h"

namespace dsj::kube {
namespace {

/// The two variables that tell a program that it is in a pod.
class Pod {
 public:
  explicit Pod(const char* host) {
    ::setenv("KUBERNETES_SERVICE_HOST", host, 1);
    ::setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  }
  ~Pod() {
    ::unsetenv("KUBERNETES_SERVICE_HOST");
    ::unsetenv("KUBERNETES_SERVICE_PORT");
  }
};

TEST(AccessInCluster, HasTheAccountsFilesAndAnAddressOfEitherFamily) {
  const std::string folder = ::testing::TempDir() + "/account";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/token") << "t";
  std::ofstream(folder + "/ca.crt") << "ca";
  std::ofstream(folder + "/namespace") << "team";
  for (const auto& [host, server] : {std::pair{"10.0.0.1", "https://10.0.0.1:443"},
                                     std::pair{"fd00::1", "https://[fd00::1]:443"}}) {
    const Pod pod(host);
    const auto access = access_in_cluster(folder);
    ASSERT_TRUE(access) << access.error().to_string();
    EXPECT_EQ(access->server, server);
    EXPECT_EQ(access->ca_pem, "ca");
    EXPECT_EQ(access->token_file, folder + "/token");
    EXPECT_EQ(access->default_namespace, "team");
  }
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
