#include "kube/kubeconfig.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace dsj::kube {
namespace {

using Json = nlohmann::json;

std::string config_of(const std::string& user, const std::string& cluster = {}) {
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

Result<Access> read_text(const std::string& text, const std::string& where = "config",
                         const std::string& context = {}) {
  return access_from_kubeconfig({{text, where}}, context);
}

std::string message_of(const std::string& text, const std::string& context = {}) {
  const auto access = read_text(text, "config", context);
  return access ? "accepted" : access.error().to_string();
}

/// A variable of the environment, until the end of the scope. Null: not set.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Variable() { set(old_ ? old_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) {
    if (value) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

std::string folder_of(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/" + name;
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(Kubeconfig, ReadsInlineCertificates) {
  const auto access =
      read_text(config_of("client-certificate-data: Y2VydA==, client-key-data: a2V5"));
  ASSERT_TRUE(access) << access.error().to_string();
  EXPECT_EQ(access->server, "https://10.0.0.1:6443");
  EXPECT_EQ(access->ca_pem, "ca-pem");
  EXPECT_EQ(access->client_certificate_pem, "cert");
  EXPECT_EQ(access->client_key_pem, "key");
  EXPECT_EQ(access->default_namespace, "team");
}

TEST(Kubeconfig, ReadsFilesBesideItself) {
  const std::string folder = folder_of("kubeconfig-files");
  std::ofstream(folder + "/c.pem") << "cert";
  std::ofstream(folder + "/k.pem") << "key";
  const auto access =
      read_text(config_of("client-certificate: c.pem, client-key: k.pem"), folder + "/config");
  ASSERT_TRUE(access) << access.error().to_string();
  EXPECT_EQ(access->client_certificate_pem, "cert");
  EXPECT_EQ(access->client_key_pem, "key");
}

TEST(Kubeconfig, RefusesWhatIsNotBuiltAndSaysWhatToDo) {
  struct Case {
    const char *user, *found, *advice;
  };
  for (const auto& [user, found, advice] :
       {Case{"auth-provider: {name: gcp}", "auth-provider \"gcp\"", "gke-gcloud-auth-plugin"},
        Case{"auth-provider: {name: azure}", "auth-provider \"azure\"", "kubelogin"},
        Case{"auth-provider: {name: oidc}", "auth-provider \"oidc\"", "kubectl oidc-login"},
        Case{"auth-provider: {name: x}", "auth-provider \"x\"", "aws eks update-kubeconfig"},
        Case{"username: a, password: b", "basic authentication", "credential plugin"},
        Case{"as-groups: [g]", "without \"as\"", ""}}) {
    const std::string said = message_of(config_of(user));
    EXPECT_NE(said.find(found), std::string::npos) << said;
    EXPECT_NE(said.find(advice), std::string::npos) << said;
  }
  // client-go's parseProxyURL takes these three schemes and no other.
  EXPECT_NE(message_of(config_of("", ", proxy-url: \"socks4://p\""))
                .find("config: proxy-url: a proxy's scheme is \"socks4\", expected http, https or "
                      "socks5"),
            std::string::npos)
      << message_of(config_of("", ", proxy-url: \"socks4://p\""));
}

TEST(Kubeconfig, ItsProxyWinsOverTheEnvironmentAndItsExceptions) {
  const Variable proxy("HTTPS_PROXY", "http://environment:1");
  {
    const Variable none("NO_PROXY", "10.0.0.0/8");
    const auto named = read_text(config_of("", ", proxy-url: \"socks5://own\""));
    ASSERT_TRUE(named && named->proxy) << message_of(config_of(""));
    EXPECT_EQ(named->proxy->name(), "proxy own:1080");
    const auto without = read_text(config_of(""));
    ASSERT_TRUE(without);
    EXPECT_FALSE(without->proxy);
  }
  const Variable none("NO_PROXY", nullptr);
  const auto from_environment = read_text(config_of(""));
  ASSERT_TRUE(from_environment && from_environment->proxy);
  EXPECT_EQ(from_environment->proxy->name(), "proxy environment:1");
}

// client-go's ClientConfig() reads a user's credentials only if the server's scheme is https, and impersonation always.
TEST(Kubeconfig, PlainHttpGetsNoCredentials) {
  const auto access = read_text(R"(
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:8001"}}]
users: [{name: u, user: {token: secret, as: jane}}]
)");
  ASSERT_TRUE(access) << access.error().to_string();
  EXPECT_EQ(access->token, "");
  ASSERT_EQ(access->headers.size(), 1u);
  EXPECT_EQ(access->headers[0].second, "jane");
}

TEST(Kubeconfig, NamesWhatIsMissing) {
  EXPECT_NE(message_of(config_of(""), "there").find("no context \"there\" (it has here)"),
            std::string::npos);
  EXPECT_NE(message_of("current-context: x").find("no context \"x\""), std::string::npos);
  EXPECT_NE(message_of("[").find("not YAML"), std::string::npos);
  EXPECT_NE(message_of("a").find("not a kubeconfig"), std::string::npos);
  EXPECT_NE(message_of("").find("no current-context"), std::string::npos);
  EXPECT_NE(message_of(config_of("client-certificate-data: Y2VydA==")).find("are both required"),
            std::string::npos);
  EXPECT_NE(
      message_of(config_of("client-certificate-data: '%', client-key-data: a2V5")).find("base64"),
      std::string::npos);
}

TEST(Kubeconfig, AUserMayActAsAnother) {
  const auto access = read_text(
      config_of("token: t, as: jane, as-uid: '7', as-groups: [a, b], as-user-extra: {a/b: [x]}"));
  ASSERT_TRUE(access) << access.error().to_string();
  using Header = std::pair<std::string, std::string>;
  EXPECT_EQ(access->headers, (std::vector<Header>{{"Impersonate-User", "jane"},
                                                  {"Impersonate-Uid", "7"},
                                                  {"Impersonate-Group", "a"},
                                                  {"Impersonate-Group", "b"},
                                                  {"Impersonate-Extra-a%2Fb", "x"}}));
}

TEST(Kubeconfig, ReadsTheNameOfTheServersCertificate) {
  const auto access = read_text(config_of("", ", tls-server-name: kube.example"));
  ASSERT_TRUE(access);
  EXPECT_EQ(access->tls_server_name, "kube.example");
}

// As `aws eks update-kubeconfig`, `gcloud container clusters get-credentials` and `kubelogin convert-kubeconfig`
// write them.
TEST(Kubeconfig, ReadsTheCredentialPluginsOfTheClouds) {
  const auto eks =
      read_text(config_of(R"(exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws,
    args: [--region, eu-west-1, eks, get-token, --cluster-name, gpu-eks, --output, json],
    env: [{name: AWS_PROFILE, value: team}]})"));
  ASSERT_TRUE(eks) << eks.error().to_string();
  ASSERT_TRUE(eks->plugin);
  EXPECT_EQ(eks->plugin->command, "aws");
  EXPECT_EQ(eks->plugin->args.size(), 8u);
  EXPECT_EQ(eks->plugin->env,
            (std::vector<std::pair<std::string, std::string>>{{"AWS_PROFILE", "team"}}));
  EXPECT_EQ(eks->plugin->stdin_mode, ExecPlugin::Stdin::IfAvailable);
  EXPECT_EQ(eks->plugin->cluster_info, "");
  EXPECT_EQ(eks->plugin->where, "config: user \"u\"");

  const auto gke = read_text(config_of(R"(exec: {apiVersion: client.authentication.k8s.io/v1beta1,
    command: gke-gcloud-auth-plugin, installHint: "Install it.\nSee \e[31mhere", provideClusterInfo: true})"));
  ASSERT_TRUE(gke && gke->plugin);
  EXPECT_EQ(gke->plugin->install_hint, "Install it.\nSee [31mhere");
  EXPECT_EQ(
      Json::parse(gke->plugin->cluster_info),
      (Json{{"server", "https://10.0.0.1:6443/"}, {"certificate-authority-data", "Y2EtcGVt"}}));

  const auto aks =
      read_text(config_of(R"(exec: {apiVersion: client.authentication.k8s.io/v1, command: kubelogin,
    args: [get-token], env: null, interactiveMode: Always, provideClusterInfo: false})"));
  ASSERT_TRUE(aks && aks->plugin);
  EXPECT_EQ(aks->plugin->stdin_mode, ExecPlugin::Stdin::Always);
}

TEST(Kubeconfig, APluginGetsItsClustersExtension) {
  const auto access = read_text(config_of(
      "exec: {apiVersion: client.authentication.k8s.io/v1, command: p, interactiveMode: Never, "
      "provideClusterInfo: true}",
      ", insecure-skip-tls-verify: true, tls-server-name: n, extensions: [{name: other, extension: "
      "1}, "
      "{name: client.authentication.k8s.io/exec, extension: {audience: '06', n: 6, on: true, l: "
      "[a]}}]"));
  ASSERT_TRUE(access && access->plugin) << access.error().to_string();
  const Json info = Json::parse(access->plugin->cluster_info);
  EXPECT_EQ(info["config"], (Json{{"audience", "06"}, {"n", 6}, {"on", true}, {"l", {"a"}}}));
  EXPECT_EQ(info["insecure-skip-tls-verify"], true);
  EXPECT_EQ(info["tls-server-name"], "n");
}

TEST(Kubeconfig, AnOwnCredentialIsUsedBeforeThePlugin) {
  const std::string exec = "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: p}, ";
  EXPECT_TRUE(read_text(config_of(exec))->plugin);
  for (const char* own :
       {"token: t", "tokenFile: /t", "client-certificate-data: Y2VydA==, client-key-data: a2V5"}) {
    const auto access = read_text(config_of(exec + own));
    ASSERT_TRUE(access) << access.error().to_string();
    EXPECT_FALSE(access->plugin) << own;
  }
}

TEST(Kubeconfig, APluginsMistakesAreNamed) {
  const auto plugin = [](const std::string& rest) {
    return message_of(config_of("exec: {" + rest + "}"));
  };
  EXPECT_NE(plugin("apiVersion: client.authentication.k8s.io/v1").find("no command"),
            std::string::npos);
  EXPECT_NE(plugin("command: a, apiVersion: client.authentication.k8s.io/v1alpha1")
                .find("aws eks update-kubeconfig"),
            std::string::npos);
  EXPECT_NE(plugin("command: a").find("exec.apiVersion is \"\""), std::string::npos);
  EXPECT_NE(plugin("command: a, apiVersion: client.authentication.k8s.io/v1")
                .find("interactiveMode is not given"),
            std::string::npos);
  EXPECT_NE(plugin("command: a, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Some")
                .find("\"Some\""),
            std::string::npos);
  EXPECT_NE(
      plugin("command: a, apiVersion: client.authentication.k8s.io/v1beta1, env: [{value: x}]")
          .find("without a name"),
      std::string::npos);
}

// The rules of `kubectl config view --flatten`, with its own words in kubectl's documentation: the first file that
// sets a value or a map's key wins; an entry is never mixed from two files.
TEST(Kubeconfig, SeveralFilesAreMergedAsKubectlMergesThem) {
  const std::string first = R"(
contexts: [{name: one, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: first}}]
)";
  const std::string second = R"(
current-context: one
contexts: [{name: one, context: {cluster: c, user: u, namespace: never}},
           {name: two, context: {cluster: c, user: v, namespace: n}}]
clusters: [{name: c, cluster: {server: "https://second"}}]
users: [{name: u, user: {client-key-data: a2V5}}, {name: v, user: {tokenFile: t}}]
)";
  const std::string third = R"(
current-context: two
clusters: [{name: c, cluster: {server: "https://third", insecure-skip-tls-verify: true}}]
)";
  const std::vector<KubeconfigText> files = {
      {first, "/1/config"}, {second, "/2/config"}, {third, "/3/config"}};
  const auto one = access_from_kubeconfig(files);
  ASSERT_TRUE(one) << one.error().to_string();
  EXPECT_EQ(one->server, "https://second");
  EXPECT_FALSE(one->insecure_skip_tls_verify);
  EXPECT_EQ(one->token, "first");
  EXPECT_EQ(one->client_key_pem, "");
  EXPECT_EQ(one->default_namespace, "default");
  const auto two = access_from_kubeconfig(files, "two");
  ASSERT_TRUE(two) << two.error().to_string();
  EXPECT_EQ(two->token_file, "/2/t");
  EXPECT_EQ(two->default_namespace, "n");
  EXPECT_EQ(access_from_kubeconfig(files, "no").error().to_string(),
            "/1/config:/2/config:/3/config: has no context \"no\" (it has one, one, two)");
}

TEST(Kubeconfig, ARelativePluginIsBesideItsOwnFile) {
  const std::string exec =
      "{apiVersion: client.authentication.k8s.io/v1beta1, command: ./bin/login}";
  const auto access =
      access_from_kubeconfig({{config_of("").substr(0, config_of("").find("users:")), "/1/config"},
                              {"users: [{name: u, user: {exec: " + exec + "}}]", "/2/config"}});
  ASSERT_TRUE(access && access->plugin) << access.error().to_string();
  EXPECT_EQ(access->plugin->command, "/2/bin/login");
}

TEST(Kubeconfig, FilesThatAreNotThereAreLeftOut) {
  const std::string folder = folder_of("kubeconfig-list");
  std::ofstream(folder + "/b") << config_of("token: b");
  std::ofstream(folder + "/c") << config_of("token: c");
  const auto token = [](const std::string& path = {}) {
    const auto access = access_from_kubeconfig_file(path);
    return access ? access->token : access.error().to_string();
  };
  {
    const std::string list = folder + "/a::" + folder + "/b:" + folder + "/c:" + folder + "/b";
    const Variable set("KUBECONFIG", list.c_str());
    EXPECT_EQ(token(), "b");
    EXPECT_EQ(token(folder + "/c"), "c");  // --kubeconfig: that file alone
  }
  const std::string none = folder + "/x:" + folder + "/y";
  const Variable set("KUBECONFIG", none.c_str());
  const auto access = access_from_kubeconfig_file();
  ASSERT_FALSE(access);
  EXPECT_EQ(access.error().kind, ErrorKind::Environment);
  EXPECT_EQ(access.error().where, none);
}

// kubectl in a pod takes a kubeconfig that is there; a program of the operator takes the pod's account.
TEST(Kubeconfig, IsTakenBeforeAPodsAccountByItsUsersPrograms) {
  const std::string home = folder_of("kubeconfig-home");
  std::filesystem::create_directories(home + "/.kube");
  std::ofstream(home + "/.kube/config") << config_of("token: home");
  const Variable no_list("KUBECONFIG", nullptr), at_home("HOME", home.c_str());
  const Variable host("KUBERNETES_SERVICE_HOST", "10.0.0.1"), port("KUBERNETES_SERVICE_PORT", "1");
  EXPECT_EQ(find_users_access()->token, "home");
  const auto account = find_access();
  EXPECT_TRUE(!account || account->token_file.ends_with("/token"));
  const Variable elsewhere("HOME", "/nonexistent");
  const auto user = find_users_access();
  EXPECT_TRUE(!user ? user.error().where.starts_with("/var/run/secrets")
                    : !user->token_file.empty());
}

}  // namespace
}  // namespace dsj::kube
