#include "kube/resource.h"

#include <cctype>

namespace dsj::kube {

std::string escape(const std::string& text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const unsigned char c : text) {
    if (std::isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      out += static_cast<char>(c);
    } else {
      out += '%';
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
  return out;
}

std::string Resource::collection(const std::string& ns) const {
  std::string path = group.empty() ? "/api/" + version : "/apis/" + group + "/" + version;
  if (namespaced && !ns.empty()) path += "/namespaces/" + escape(ns);
  return path + "/" + plural;
}

std::string Resource::object(const std::string& ns, const std::string& name,
                             const std::string& subresource) const {
  std::string path = collection(ns) + "/" + escape(name);
  if (!subresource.empty()) path += "/" + subresource;
  return path;
}

namespace resources {

Resource pods() {
  return {"", "v1", "pods", "Pod"};
}
Resource services() {
  return {"", "v1", "services", "Service"};
}
Resource config_maps() {
  return {"", "v1", "configmaps", "ConfigMap"};
}
Resource secrets() {
  return {"", "v1", "secrets", "Secret"};
}
Resource service_accounts() {
  return {"", "v1", "serviceaccounts", "ServiceAccount"};
}
Resource roles() {
  return {"rbac.authorization.k8s.io", "v1", "roles", "Role"};
}
Resource role_bindings() {
  return {"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"};
}
Resource network_policies() {
  return {"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"};
}
Resource events() {
  return {"events.k8s.io", "v1", "events", "Event"};
}
Resource leases() {
  return {"coordination.k8s.io", "v1", "leases", "Lease"};
}
Resource nodes() {
  return {"", "v1", "nodes", "Node", false};
}
Resource namespaces() {
  return {"", "v1", "namespaces", "Namespace", false};
}
Resource custom_resource_definitions() {
  return {"apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
          false};
}

}  // namespace resources
}  // namespace dsj::kube
