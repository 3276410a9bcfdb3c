// Names of API resources and the paths of their objects.
#pragma once

#include <string>

namespace dsj::kube {

struct Resource {
  std::string group;    ///< "" is the core group
  std::string version;  ///< "v1"
  std::string plural;   ///< "pods"
  std::string kind;     ///< "Pod"
  bool namespaced = true;

  std::string api_version() const { return group.empty() ? version : group + "/" + version; }
  /// "/apis/apps/v1/namespaces/NS/deployments"; an empty `ns` of a namespaced resource means all.
  std::string collection(const std::string& ns) const;
  /// The path of one object, or of its subresource ("status").
  std::string object(const std::string& ns, const std::string& name,
                     const std::string& subresource = {}) const;
};

/// RFC 3986: all except unreserved characters as %XX.
std::string escape(const std::string& text);

namespace resources {
Resource pods();
Resource services();
Resource config_maps();
Resource secrets();
Resource service_accounts();
Resource roles();
Resource role_bindings();
Resource network_policies();
Resource events();
Resource leases();
Resource nodes();
Resource namespaces();
Resource custom_resource_definitions();
}  // namespace resources

}  // namespace dsj::kube
