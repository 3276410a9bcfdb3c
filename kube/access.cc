#include "kube/access.h"

#include <openssl/evp.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/files/posix_files.h"

namespace dsj::kube {
namespace {

constexpr size_t kFileBytesMax = 4 << 20;

Result<std::string> read_file(const std::string& path) {
  PosixFiles files;
  return files.read_all(path, kFileBytesMax);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Result<std::string> from_base64(std::string text, const std::string& where) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c); });
  std::string out(text.size() / 4 * 3 + 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) return bad_input("is not base64", where);
  const auto padding =
      std::count(text.end() - std::min<ptrdiff_t>(2, text.size()), text.end(), '=');
  out.resize(static_cast<size_t>(size) - static_cast<size_t>(padding));
  return out;
}

std::string scalar(const YAML::Node& node, const char* key) {
  const YAML::Node value = node.IsMap() ? node[key] : YAML::Node();
  return value && value.IsScalar() ? value.Scalar() : "";
}

/// The entry of `list` called `name`. `list`: a sequence of {name, INNER}.
std::optional<YAML::Node> named(const YAML::Node& list, const std::string& name,
                                const char* inner) {
  if (!list || !list.IsSequence()) return std::nullopt;
  for (const auto& entry : list) {
    if (scalar(entry, "name") == name && entry[inner] && entry[inner].IsMap()) return entry[inner];
  }
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string where) : where_(std::move(where)) {}

  /// KEY-data (base64) wins over KEY (a file, reported in `from`), as in kubectl. Empty: neither is
  /// there.
  Result<std::string> inline_or_file(const YAML::Node& node, const std::string& key,
                                     std::string& from) const {
    const std::string data = scalar(node, (key + "-data").c_str());
    if (!data.empty()) return from_base64(data, where_ + ": " + key + "-data");
    const std::string file = scalar(node, key.c_str());
    if (file.empty()) return std::string();
    from = resolve(file);
    return read_file(from);
  }

  std::string resolve(const std::string& file) const {
    const std::filesystem::path path(file);
    return path.is_absolute() ? file
                              : (std::filesystem::path(where_).parent_path() / path).string();
  }

  Status read_cluster(const YAML::Node& cluster, Access& access) const {
    access.server = scalar(cluster, "server");
    while (access.server.ends_with('/')) access.server.pop_back();
    if (!access.server.starts_with("https://") && !access.server.starts_with("http://")) {
      return bad_input(
          "the cluster's server is \"" + access.server + "\", expected https://HOST:PORT", where_);
    }
    for (const char* key : {"proxy-url", "tls-server-name"}) {
      if (!scalar(cluster, key).empty()) {
        return bad_input(std::string(key) + " is not supported", where_,
                         "use an address that the server's certificate names");
      }
    }
    access.insecure_skip_tls_verify = scalar(cluster, "insecure-skip-tls-verify") == "true";
    DSJ_TRY(access.ca_pem, inline_or_file(cluster, "certificate-authority", access.ca_file));
    return {};
  }

  Status read_user(const YAML::Node& user, Access& access) const {
    static constexpr std::pair<const char*, const char*> kRefused[] = {
        {"exec", "an exec credential plugin: programs are never started for credentials"},
        {"auth-provider", "an auth-provider plugin"},
        {"username", "basic authentication: Kubernetes has removed it"},
        {"as", "impersonation"}};
    for (const auto& [key, what] : kRefused) {
      if (user[key]) {
        return bad_input(
            std::string("the user has \"") + key + "\", " + what + " (not supported)", where_,
            "use a client certificate or a token: kubectl create token SERVICEACCOUNT");
      }
    }
    DSJ_TRY(access.client_certificate_pem,
            inline_or_file(user, "client-certificate", access.client_certificate_file));
    DSJ_TRY(access.client_key_pem, inline_or_file(user, "client-key", access.client_key_file));
    if (access.client_certificate_pem.empty() != access.client_key_pem.empty()) {
      return bad_input("client-certificate and client-key belong together, only one is there",
                       where_);
    }
    access.token = scalar(user, "token");
    if (const std::string file = scalar(user, "tokenFile"); !file.empty()) {
      access.token_file = resolve(file);
    }
    return {};
  }

 private:
  std::string where_;
};

}  // namespace

Result<Access> access_from_kubeconfig(const std::string& text, const std::string& where,
                                      const std::string& context) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return bad_input(std::string("is not YAML: ") + error.what(), where);
  }
  if (!root.IsMap()) return bad_input("is not a kubeconfig", where);
  const std::string wanted = context.empty() ? scalar(root, "current-context") : context;
  if (wanted.empty()) return bad_input("has no current-context", where, "name one with --context");
  const auto chosen = named(root["contexts"], wanted, "context");
  if (!chosen) return bad_input("has no context \"" + wanted + "\"", where);
  const std::string cluster_name = scalar(*chosen, "cluster"), user_name = scalar(*chosen, "user");
  const auto cluster = named(root["clusters"], cluster_name, "cluster");
  if (!cluster) return bad_input("has no cluster \"" + cluster_name + "\"", where);
  Access access;
  const Reader reader(where);
  DSJ_TRY_STATUS(reader.read_cluster(*cluster, access));
  if (!user_name.empty()) {
    const auto user = named(root["users"], user_name, "user");
    if (!user) return bad_input("has no user \"" + user_name + "\"", where);
    DSJ_TRY_STATUS(reader.read_user(*user, access));
  }
  if (const std::string ns = scalar(*chosen, "namespace"); !ns.empty())
    access.default_namespace = ns;
  return access;
}

Result<Access> access_from_kubeconfig_file(const std::string& path, const std::string& context) {
  std::string file = path;
  if (file.empty()) {
    const std::string list = variable("KUBECONFIG");
    file = list.substr(0, list.find(':'));
  }
  if (file.empty()) file = variable("HOME") + "/.kube/config";
  DSJ_TRY(const std::string text, read_file(file));
  return access_from_kubeconfig(text, file, context);
}

Result<Access> access_in_cluster(const std::string& directory) {
  const std::string host = variable("KUBERNETES_SERVICE_HOST");
  const std::string port = variable("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return fail(ErrorKind::Environment, "this is not a pod: KUBERNETES_SERVICE_HOST is not set");
  }
  Access access;
  access.server = "https://" + (host.contains(':') ? "[" + host + "]" : host) + ":" + port;
  access.token_file = directory + "/token";
  access.ca_file = directory + "/ca.crt";
  DSJ_TRY(access.ca_pem, read_file(access.ca_file));
  DSJ_TRY(const std::string token, read_file(access.token_file));
  if (token.empty()) {
    return fail(ErrorKind::Environment, "is empty", access.token_file);
  }
  if (auto ns = read_file(directory + "/namespace"); ns && !ns->empty()) {
    access.default_namespace = *ns;
  }
  return access;
}

Result<Access> find_access() {
  if (!variable("KUBERNETES_SERVICE_HOST").empty()) return access_in_cluster();
  return access_from_kubeconfig_file();
}

}  // namespace dsj::kube
