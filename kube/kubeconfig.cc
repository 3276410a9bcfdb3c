#include "kube/kubeconfig.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/files/posix_files.h"
#include "kube/base64.h"

namespace dsj::kube {
namespace {

using Json = nlohmann::json;

constexpr size_t kFileBytesMax = 4 << 20;
/// The extension of a cluster that its plugin gets as `config`.
constexpr char kPluginExtension[] = "client.authentication.k8s.io/exec";
constexpr char kPluginGroup[] = "client.authentication.k8s.io/";
constexpr char kWriteAnew[] =
    "rewrite the kubeconfig: aws eks update-kubeconfig, gcloud container clusters "
    "get-credentials, "
    "az aks get-credentials with kubelogin convert-kubeconfig, or kubectl oidc-login setup";

Result<std::string> read_file(const std::string& path) {
  PosixFiles files;
  return files.read_all(path, kFileBytesMax);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

YAML::Node child(const YAML::Node& node, const char* key) {
  return node.IsMap() ? node[key] : YAML::Node(YAML::NodeType::Undefined);
}

std::string scalar(const YAML::Node& node, const char* key) {
  const YAML::Node value = child(node, key);
  return value && value.IsScalar() ? value.Scalar() : "";
}

std::vector<std::string> words(const YAML::Node& list) {
  std::vector<std::string> out;
  if (list && list.IsSequence()) {
    for (const auto& entry : list)
      if (entry.IsScalar()) out.push_back(entry.Scalar());
  }
  return out;
}

/// A cluster's extension is any YAML; a plugin gets it as JSON.
Json json_of(const YAML::Node& node) {
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& entry : node) object[entry.first.Scalar()] = json_of(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& entry : node) list.push_back(json_of(entry));
    return list;
  }
  if (!node.IsScalar()) return nullptr;
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text == "true" || text == "false") return text == "true";
  if (text.empty() || text == "null" || text == "~") return nullptr;
  const Json number = Json::parse(text, nullptr, false);
  return number.is_number() ? number : Json(text);
}

/// Makes control characters visible, because a kubeconfig's text is shown in a terminal.
std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7f)) out += c;
  }
  return out;
}

/// An entry with its file.
struct Entry {
  YAML::Node node;
  std::string where;

  std::string resolve(const std::string& file) const {
    const std::filesystem::path path(file);
    if (path.is_absolute()) return file;
    std::error_code error;
    const auto base = std::filesystem::absolute(where, error).parent_path();
    return (base / path).lexically_normal().string();
  }

  /// KEY-data (base64) wins over KEY (a file, returned in `from`), as in kubectl. Empty if both are
  /// missing.
  Result<std::string> inline_or_file(const std::string& key, std::string& from) const {
    const std::string data = scalar(node, (key + "-data").c_str());
    if (!data.empty()) {
      auto bytes = from_base64(data);
      if (!bytes) return bad_input("is not base64", where + ": " + key + "-data");
      return *std::move(bytes);
    }
    const std::string file = scalar(node, key.c_str());
    if (file.empty()) return std::string();
    from = resolve(file);
    return read_file(from);
  }
};

Status read_cluster(const Entry& cluster, Access& access) {
  access.server = scalar(cluster.node, "server");
  while (access.server.ends_with('/')) access.server.pop_back();
  if (!access.server.starts_with("https://") && !access.server.starts_with("http://")) {
    return bad_input(
        "the cluster's server is \"" + access.server + "\", expected https://HOST:PORT",
        cluster.where);
  }
  if (const std::string url = scalar(cluster.node, "proxy-url"); !url.empty()) {
    DSJ_TRY(access.proxy, parse_proxy(url, cluster.where + ": proxy-url"));
  } else {
    DSJ_TRY(access.proxy, proxy_from(proxy_variables(), access.server));
  }
  access.tls_server_name = scalar(cluster.node, "tls-server-name");
  access.insecure_skip_tls_verify = scalar(cluster.node, "insecure-skip-tls-verify") == "true";
  DSJ_TRY(access.ca_pem, cluster.inline_or_file("certificate-authority", access.ca_file));
  return {};
}

/// The cluster as client-go describes it to a plugin.
std::string cluster_info(const Entry& cluster, const Access& access) {
  Json info = {{"server", scalar(cluster.node, "server")}};
  if (!access.tls_server_name.empty()) info["tls-server-name"] = access.tls_server_name;
  if (access.insecure_skip_tls_verify) info["insecure-skip-tls-verify"] = true;
  if (!access.ca_pem.empty()) info["certificate-authority-data"] = to_base64(access.ca_pem);
  if (const std::string url = scalar(cluster.node, "proxy-url"); !url.empty())
    info["proxy-url"] = url;
  if (scalar(cluster.node, "disable-compression") == "true") info["disable-compression"] = true;
  const YAML::Node extensions = child(cluster.node, "extensions");
  if (extensions && extensions.IsSequence()) {
    for (const auto& extension : extensions) {
      if (scalar(extension, "name") == kPluginExtension && extension["extension"]) {
        info["config"] = json_of(extension["extension"]);
      }
    }
  }
  return info.dump();
}

Result<ExecPlugin> read_plugin(const Entry& user, const std::string& name, const Entry& cluster,
                               const Access& access) {
  const YAML::Node exec = user.node["exec"];
  const auto wrong = [&](const std::string& what, const std::string& hint = {}) {
    return bad_input("user \"" + name + "\": " + what, user.where, hint);
  };
  ExecPlugin plugin{.api_version = scalar(exec, "apiVersion"),
                    .command = scalar(exec, "command"),
                    .args = words(child(exec, "args")),
                    .env = {},
                    .install_hint = printable(scalar(exec, "installHint")),
                    .cluster_info = {},
                    .where = user.where + ": user \"" + name + "\""};
  if (plugin.command.empty()) return wrong("exec has no command");
  if (plugin.command.contains('/')) plugin.command = user.resolve(plugin.command);
  const std::string version = plugin.api_version.starts_with(kPluginGroup)
                                  ? plugin.api_version.substr(sizeof kPluginGroup - 1)
                                  : "";
  if (version != "v1" && version != "v1beta1") {
    return wrong("exec.apiVersion is \"" + plugin.api_version + "\", expected " + kPluginGroup +
                     "v1 or " + kPluginGroup + "v1beta1",
                 version == "v1alpha1"
                     ? std::string("Kubernetes 1.24 removed v1alpha1: ") + kWriteAnew
                     : "");
  }
  const YAML::Node variables = child(exec, "env");
  if (variables && variables.IsSequence()) {
    for (const auto& entry : variables) {
      const std::string variable = scalar(entry, "name");
      if (variable.empty()) return wrong("exec.env has an entry without a name");
      plugin.env.emplace_back(variable, scalar(entry, "value"));
    }
  }
  const std::string mode = scalar(exec, "interactiveMode");
  if (mode == "Never") {
    plugin.stdin_mode = ExecPlugin::Stdin::Never;
  } else if (mode == "Always") {
    plugin.stdin_mode = ExecPlugin::Stdin::Always;
  } else if (mode.empty() && version == "v1") {
    return wrong("exec.interactiveMode is not given, version v1 needs it",
                 "set it to Never, IfAvailable or Always");
  } else if (!mode.empty() && mode != "IfAvailable") {
    return wrong("exec.interactiveMode is \"" + mode + "\", expected Never, IfAvailable or Always");
  }
  if (scalar(exec, "provideClusterInfo") == "true")
    plugin.cluster_info = cluster_info(cluster, access);
  return plugin;
}

/// The headers with which a user impersonates another one.
Status read_impersonation(const Entry& user, Access& access) {
  const std::string as = scalar(user.node, "as"), uid = scalar(user.node, "as-uid");
  const auto groups = words(child(user.node, "as-groups"));
  const YAML::Node extra = child(user.node, "as-user-extra");
  const bool more = !uid.empty() || !groups.empty() || (extra && extra.IsMap());
  if (as.empty() && more)
    return bad_input("the user has as-uid, as-groups or as-user-extra without \"as\"", user.where);
  if (as.empty()) return {};
  access.headers.emplace_back("Impersonate-User", as);
  if (!uid.empty()) access.headers.emplace_back("Impersonate-Uid", uid);
  for (const std::string& group : groups) access.headers.emplace_back("Impersonate-Group", group);
  if (extra && extra.IsMap()) {
    for (const auto& entry : extra) {
      std::string key;
      for (const char c : entry.first.Scalar()) {
        if (std::isalnum(static_cast<unsigned char>(c)) || std::string("-._~").contains(c)) {
          key += c;
        } else {
          static constexpr char kHex[] = "0123456789ABCDEF";
          const auto byte = static_cast<unsigned char>(c);
          key += {'%', kHex[byte >> 4], kHex[byte & 15]};
        }
      }
      for (const std::string& value : words(entry.second))
        access.headers.emplace_back("Impersonate-Extra-" + key, value);
    }
  }
  for (const auto& [header, value] : access.headers) {
    if (value.find_first_of("\r\n") != std::string::npos)
      return bad_input(header + " has more than one line", user.where);
  }
  return {};
}

Status refuse_provider(const YAML::Node& provider, const std::string& name, const Entry& user) {
  const std::string kind = scalar(provider, "name");
  const std::string hint =
      kind == "gcp"
          ? "install gke-gcloud-auth-plugin, then gcloud container clusters get-credentials CLUSTER"
      : kind == "azure" ? "install kubelogin, then kubelogin convert-kubeconfig"
      : kind == "oidc"  ? "install the plugin kubectl oidc-login and name it under exec: kubectl "
                          "oidc-login setup shows how"
                        : kWriteAnew;
  return bad_input("user \"" + name + "\" has auth-provider \"" + kind +
                       "\", which credential plugins (exec) have replaced",
                   user.where, hint);
}

/// As client-go: sends no credentials over a connection without TLS.
void keep_back_credentials(Access& access) {
  access.token.clear();
  access.token_file.clear();
  access.client_certificate_pem.clear();
  access.client_certificate_file.clear();
  access.client_key_pem.clear();
  access.client_key_file.clear();
  access.plugin.reset();
}

Status read_user(const Entry& user, const std::string& name, const Entry& cluster, Access& access) {
  if (const YAML::Node provider = child(user.node, "auth-provider"))
    return refuse_provider(provider, name, user);
  if (child(user.node, "username")) {
    return bad_input(
        "user \"" + name + "\" has a username: Kubernetes 1.19 removed basic authentication",
        user.where, "use a client certificate, a token or a credential plugin");
  }
  DSJ_TRY(access.client_certificate_pem,
          user.inline_or_file("client-certificate", access.client_certificate_file));
  DSJ_TRY(access.client_key_pem, user.inline_or_file("client-key", access.client_key_file));
  if (access.client_certificate_pem.empty() != access.client_key_pem.empty()) {
    return bad_input("client-certificate and client-key are both required, only one is given",
                     user.where);
  }
  access.token = scalar(user.node, "token");
  if (const std::string file = scalar(user.node, "tokenFile");
      !file.empty() && access.token.empty()) {
    access.token_file = user.resolve(file);
  }
  DSJ_TRY_STATUS(read_impersonation(user, access));
  const YAML::Node exec = child(user.node, "exec");
  if (!exec || !exec.IsMap()) return {};
  DSJ_TRY(auto plugin, read_plugin(user, name, cluster, access));
  // As client-go: the file's own credentials win, and the plugin does not run.
  if (access.token.empty() && access.token_file.empty() && access.client_certificate_pem.empty())
    access.plugin = std::move(plugin);
  return {};
}

class Merged {
 public:
  static Result<Merged> read(const std::vector<KubeconfigText>& files) {
    Merged merged;
    for (const auto& [text, where] : files) {
      YAML::Node root;
      try {
        root = YAML::Load(text);
      } catch (const YAML::Exception& error) {
        return bad_input(std::string("is not YAML: ") + error.what(), where);
      }
      if (root.IsNull()) continue;  // an empty file
      if (!root.IsMap()) return bad_input("is not a kubeconfig", where);
      merged.files_.push_back({root, where});
    }
    merged.where_ = files.empty() ? "" : files[0].where;
    for (size_t i = 1; i < files.size(); ++i) merged.where_ += ":" + files[i].where;
    return merged;
  }

  const std::string& where() const { return where_; }

  std::string current_context() const {
    for (const Entry& file : files_)
      if (std::string name = scalar(file.node, "current-context"); !name.empty()) return name;
    return {};
  }

  /// The first entry of `list` by that name. `list` has elements {name, INNER}.
  Result<Entry> named(const char* list, const std::string& name, const char* inner) const {
    std::vector<std::string> others;
    for (const Entry& file : files_) {
      const YAML::Node entries = file.node[list];
      if (!entries || !entries.IsSequence()) continue;
      for (const auto& entry : entries) {
        if (scalar(entry, "name") != name) {
          others.push_back(scalar(entry, "name"));
        } else if (entry[inner] && entry[inner].IsMap()) {
          return Entry{entry[inner], file.where};
        }
      }
    }
    std::string hint;
    for (const std::string& other : others) hint += (hint.empty() ? "it has " : ", ") + other;
    return bad_input("has no " + std::string(inner) + " \"" + name + "\"", where_, hint);
  }

 private:
  std::vector<Entry> files_;
  std::string where_;
};

}  // namespace

Result<Access> access_from_kubeconfig(const std::vector<KubeconfigText>& files,
                                      const std::string& context) {
  DSJ_TRY(const Merged merged, Merged::read(files));
  const std::string wanted = context.empty() ? merged.current_context() : context;
  if (wanted.empty())
    return bad_input("has no current-context", merged.where(), "name one with --context");
  DSJ_TRY(const Entry chosen, merged.named("contexts", wanted, "context"));
  const std::string user_name = scalar(chosen.node, "user");
  DSJ_TRY(const Entry cluster, merged.named("clusters", scalar(chosen.node, "cluster"), "cluster"));
  Access access;
  DSJ_TRY_STATUS(read_cluster(cluster, access));
  if (!user_name.empty()) {
    DSJ_TRY(const Entry user, merged.named("users", user_name, "user"));
    DSJ_TRY_STATUS(read_user(user, user_name, cluster, access));
    if (access.server.starts_with("http://")) keep_back_credentials(access);
  }
  if (const std::string ns = scalar(chosen.node, "namespace"); !ns.empty())
    access.default_namespace = ns;
  return access;
}

Result<Access> access_from_kubeconfig_file(const std::string& path, const std::string& context) {
  std::vector<std::string> names = {path};
  if (path.empty()) {
    names.clear();
    std::string list = variable("KUBECONFIG");
    if (list.empty()) list = variable("HOME") + "/.kube/config";
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(':', begin), list.size());
      const std::string name = list.substr(begin, end - begin);
      if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
      begin = end + 1;
    }
  }
  std::vector<KubeconfigText> files;
  std::string missing;
  for (const std::string& name : names) {
    std::error_code error;
    if (!std::filesystem::exists(name, error)) {
      missing += (missing.empty() ? "" : ":") + name;
      continue;
    }
    DSJ_TRY(std::string text, read_file(name));
    files.push_back({std::move(text), name});
  }
  if (files.empty())
    return fail(ErrorKind::Environment, "there is no such kubeconfig", missing,
                "name a cluster with --kubeconfig FILE or $KUBECONFIG");
  return access_from_kubeconfig(files, context);
}

Result<Access> find_users_access(const std::string& path, const std::string& context) {
  auto access = access_from_kubeconfig_file(path, context);
  if (!access && access.error().kind == ErrorKind::Environment && path.empty() && context.empty() &&
      !variable("KUBERNETES_SERVICE_HOST").empty())
    return access_in_cluster();
  return access;
}

Result<Access> find_access() {
  if (!variable("KUBERNETES_SERVICE_HOST").empty()) return access_in_cluster();
  return access_from_kubeconfig_file();
}

}  // namespace dsj::kube
