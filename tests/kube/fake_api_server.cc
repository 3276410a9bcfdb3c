#include "tests/kube/fake_api_server.h"

#include <algorithm>

#include "common/json.h"
#include "kube/lease.h"

namespace dsj::kube::testing {
namespace {

using std::string;

Response status_response(int code, const string& reason, const string& message) {
  const Json body = {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Failure"},
                     {"code", code},     {"reason", reason},   {"message", message}};
  return {code, {}, body.dump()};
}

Response ok(const Json& object, int code = 200) {
  return {code, {}, object.dump()};
}

string unescape(const string& text) {
  string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<string> split(const string& text, char separator) {
  std::vector<string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// "a=b,c,d!=e" on labels; "metadata.name=x" on fields.
bool selected(const Json& object, const std::map<string, string>& query) {
  const Json& labels = json_child(object["metadata"], "labels");
  auto find = [&](const string& selector, auto value_of) {
    for (const string& term : split(selector, ',')) {
      const size_t not_equal = term.find("!="), equal = term.find('=');
      if (not_equal != string::npos) {
        if (value_of(term.substr(0, not_equal)) == term.substr(not_equal + 2)) return false;
      } else if (equal != string::npos) {
        if (value_of(term.substr(0, equal)) != term.substr(equal + 1)) return false;
      } else if (!value_of(term)) {
        return false;
      }
    }
    return true;
  };
  auto label = [&](const string& name) -> std::optional<string> {
    return labels.contains(name) ? std::optional<string>(labels[name]) : std::nullopt;
  };
  auto field = [&](const string& path) -> std::optional<string> {
    const Json* at = &object;
    for (const string& part : split(path, '.')) {
      if (!at->is_object() || !at->contains(part)) return std::nullopt;
      at = &(*at)[part];
    }
    return at->is_string() ? std::optional<string>(*at) : std::nullopt;
  };
  const auto by_label = query.find("labelSelector"), by_field = query.find("fieldSelector");
  return (by_label == query.end() || find(by_label->second, label)) &&
         (by_field == query.end() || find(by_field->second, field));
}

/// Paths of the leaves that an apply sets; list items are leaves (atomic).
void leaves(const Json& value, const string& path, std::set<string>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, child] : value.items()) leaves(child, path + "/" + name, out);
  } else {
    out.insert(path);
  }
}

Json* at_path(Json& object, const string& path, bool make) {
  Json* at = &object;
  for (const string& part : split(path, '/')) {
    if (!at->is_object() || !at->contains(part)) {
      if (!make) return nullptr;
      (*at)[part] = Json::object();
    }
    at = &(*at)[part];
  }
  return at;
}

void erase_path(Json& object, const string& path) {
  const size_t slash = path.rfind('/');
  Json* parent = at_path(object, path.substr(0, slash), false);
  if (parent && parent->is_object()) parent->erase(path.substr(slash + 1));
}

}  // namespace

// ---- streams

class FakeApiServer::Lines final : public LineStream {
 public:
  explicit Lines(std::vector<string> lines) : lines_(std::move(lines)) {}
  std::expected<std::optional<string>, NetError> next(Milliseconds) override {
    if (at_ == lines_.size()) return std::nullopt;
    return lines_[at_++];
  }

 private:
  const std::vector<string> lines_;
  size_t at_ = 0;
};

class FakeApiServer::Stream final : public LineStream {
 public:
  Stream(FakeApiServer& server, Target target, int64_t from, bool table, const Cancel& cancel)
      : server_(server), target_(std::move(target)), at_(from), table_(table), cancel_(cancel) {
    registration_ = cancel_.on_cancel([this] { server_.changed_.notify_all(); });
    cuts_ = server_.cuts_;
    bookmark_ = server_.bookmark_;
    if (const auto limit = target_.query.find("timeoutSeconds"); limit != target_.query.end()) {
      end_ = std::chrono::steady_clock::now() + std::chrono::seconds(std::stoll(limit->second));
    }
    ++server_.watches_;
  }
  ~Stream() override {
    const std::lock_guard lock(server_.mutex_);
    --server_.watches_;
    server_.told_.erase(this);
  }

  std::expected<std::optional<string>, NetError> next(Milliseconds idle) override {
    std::unique_lock lock(server_.mutex_);
    const auto deadline = std::chrono::steady_clock::now() + idle;
    for (;;) {
      if (cancel_.cancelled()) {
        return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
      }
      if (cuts_ != server_.cuts_) {
        return std::unexpected(NetError{NetError::Kind::Cut, "the server went away"});
      }
      if (gone_) return std::nullopt;
      if (at_ < server_.compacted_) {
        gone_ = true;
        const auto gone = status_response(410, "Expired", "too old resource version");
        return R"({"type":"ERROR","object":)" + gone.body + "}";
      }
      if (auto line = event()) return line;
      server_.told_[this] = server_.version_;
      const bool over = std::chrono::steady_clock::now() >= end_;
      if (over && ended_) return std::nullopt;
      if (over || bookmark_ != server_.bookmark_) {
        bookmark_ = server_.bookmark_;
        ended_ = over;
        return Json({{"type", "BOOKMARK"},
                     {"object",
                      {{"kind", target_.served->resource.kind},
                       {"metadata", {{"resourceVersion", std::to_string(server_.version_)}}}}}})
            .dump();
      }
      if (idle.count() <= 0) {  // a simulation only looks
        return std::unexpected(NetError{NetError::Kind::Timeout, "the stream is quiet"});
      }
      if (server_.changed_.wait_until(
              lock, std::min(deadline, std::chrono::steady_clock::now() + Milliseconds(50))) ==
              std::cv_status::timeout &&
          std::chrono::steady_clock::now() >= deadline) {
        return std::unexpected(NetError{NetError::Kind::Timeout, "the stream is quiet"});
      }
    }
  }

 private:
  std::optional<string> event() {
    const auto& history = server_.history_;
    for (auto next = std::ranges::upper_bound(history, at_, {}, &Change::version);
         next != history.end(); ++next) {
      const Change& change = *next;
      at_ = change.version;
      if (change.collection != target_.served->resource.collection("") ||
          (!target_.ns.empty() &&
           change.object->at("metadata").value("namespace", "") != target_.ns)) {
        continue;
      }
      // An object that leaves the selection is deleted as it was, one that enters is added.
      const bool is = selected(*change.object, target_.query);
      const bool was = change.before && selected(*change.before, target_.query);
      if (!is && !was) continue;
      if (!is) {
        Json left = *change.before;
        left["metadata"]["resourceVersion"] = std::to_string(at_);
        return Json({{"type", "DELETED"}, {"object", left}}).dump();
      }
      const string type = change.before && !was ? "ADDED" : change.type;
      const Json shown =
          table_ ? server_.table_of(*target_.served, {*change.object}, std::to_string(at_))
                 : *change.object;
      return Json({{"type", type}, {"object", shown}}).dump();
    }
    return std::nullopt;
  }

  FakeApiServer& server_;
  const Target target_;
  int64_t at_, cuts_ = 0, bookmark_ = 0;
  const bool table_;
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();
  bool ended_ = false;  ///< the last bookmark has been sent
  bool gone_ = false;   ///< its version was forgotten, and that has been said
  Cancel cancel_;
  Cancel::Registration registration_;
};

// ---- requests

FakeApiServer::FakeApiServer() {
  for (const auto& resource :
       {resources::config_maps(), resources::secrets(), resources::services(),
        resources::service_accounts(), resources::roles(), resources::role_bindings(),
        resources::network_policies(), resources::leases(), resources::events(),
        resources::namespaces(), resources::custom_resource_definitions()}) {
    serve(resource, false);
  }
  serve(resources::pods(), true);
  serve(resources::nodes(), true);
}

void FakeApiServer::serve(const Resource& resource, bool status) {
  const std::lock_guard lock(mutex_);
  served_.push_back({resource, status});
}

void FakeApiServer::serve_definition(const Json& definition) {
  const Json& spec = definition.at("spec");
  for (const Json& version : spec.at("versions")) {
    served_.push_back({{.group = spec.at("group"),
                        .version = version.at("name"),
                        .plural = spec.at("names").at("plural"),
                        .kind = spec.at("names").at("kind"),
                        .namespaced = spec.at("scope") == "Namespaced"},
                       version.value("subresources", Json::object()).contains("status"),
                       version.value("additionalPrinterColumns", Json::array())});
  }
}

std::optional<FakeApiServer::Target> FakeApiServer::target_of(const string& path) const {
  Target target;
  const size_t mark = path.find('?');
  if (mark != string::npos) {
    for (const string& pair : split(path.substr(mark + 1), '&')) {
      const size_t equal = pair.find('=');
      target.query[pair.substr(0, equal)] = unescape(pair.substr(equal + 1));
    }
  }
  std::vector<string> parts = split(path.substr(0, mark), '/');
  for (string& part : parts) part = unescape(part);
  for (const Served& served : served_) {
    const auto prefix = split(served.resource.collection(""), '/');
    const size_t head = prefix.size() - 1;
    if (parts.size() <= head || !std::equal(prefix.begin(), prefix.end() - 1, parts.begin()))
      continue;
    size_t at = head;
    Target found = target;
    if (served.resource.namespaced && parts[at] == "namespaces" && parts.size() > at + 2) {
      found.ns = parts[at + 1];
      at += 2;
    }
    if (parts[at] != served.resource.plural) continue;
    if (parts.size() > at + 1) found.name = parts[at + 1];
    if (parts.size() > at + 2) found.subresource = parts[at + 2];
    // "/api/v1/namespaces/NS/pods" is not a subresource of a namespace.
    const bool log = found.subresource == "log" && served.resource.plural == "pods";
    if (!found.subresource.empty() && found.subresource != "status" && !log) continue;
    found.served = &served;
    return found;
  }
  return std::nullopt;
}

string FakeApiServer::key(const Target& target) {
  return target.served->resource.object(target.ns, target.name);
}

std::shared_ptr<const Json> FakeApiServer::find(const Target& target) const {
  const auto all = objects_.find(target.served->resource.collection(""));
  if (all == objects_.end()) return nullptr;
  const auto found = all->second.find(target.ns + "/" + target.name);
  return found == all->second.end() ? nullptr : found->second;
}

void FakeApiServer::record(const Target& target, const string& type,
                           std::shared_ptr<const Json> object, std::shared_ptr<const Json> before) {
  history_.push_back({version_, target.served->resource.collection(""), type, std::move(object),
                      std::move(before)});
  changed_.notify_all();
}

void FakeApiServer::erase(const Target& target) {
  auto& all = objects_[target.served->resource.collection("")];
  const auto found = all.find(target.ns + "/" + target.name);
  Json object = *found->second;
  all.erase(found);
  owners_.erase(key(target));
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  const string uid = object["metadata"]["uid"];
  record(target, "DELETED", std::make_shared<const Json>(std::move(object)));
  // Background garbage collection: what names it as an owner goes, too.
  for (const Served& served : served_) {
    std::vector<Target> children;
    for (const auto& [name, child] : objects_[served.resource.collection("")]) {
      const Json& metadata = child->at("metadata");
      const auto owners = metadata.find("ownerReferences");
      if (owners == metadata.end()) continue;
      for (const auto& owner : *owners) {
        if (owner["uid"] == uid) {
          children.push_back({&served, metadata.value("namespace", ""), metadata["name"], "", {}});
        }
      }
    }
    for (const Target& child : children) remove(child, Json::object());
  }
}

Response FakeApiServer::list(const Target& target) const {
  const auto limit = target.query.find("limit");
  const auto token = target.query.find("continue");
  string after;
  int64_t version = version_;
  if (token != target.query.end()) {
    const size_t colon = token->second.find(':');
    version = std::stoll(token->second.substr(0, colon));
    after = token->second.substr(colon + 1);
    if (version < compacted_) {
      return status_response(410, "Expired", "The provided continue parameter is too old");
    }
  }
  Json list = {{"kind", target.served->resource.kind + "List"},
               {"apiVersion", target.served->resource.api_version()},
               {"metadata", {{"resourceVersion", std::to_string(version)}}},
               {"items", Json::array()}};
  const auto all = objects_.find(target.served->resource.collection(""));
  if (all == objects_.end()) return ok(list);
  const size_t page = limit == target.query.end() ? SIZE_MAX : std::stoul(limit->second);
  for (auto at = all->second.upper_bound(after); at != all->second.end(); ++at) {
    const Json& object = *at->second;
    if (!target.ns.empty() && object["metadata"].value("namespace", "") != target.ns) continue;
    if (!selected(object, target.query)) continue;
    if (list["items"].size() == page) {
      list["metadata"]["continue"] = std::to_string(version) + ":" + after;
      break;
    }
    list["items"].push_back(object);
    after = at->first;
  }
  return ok(list);
}

namespace {

bool wants_table(const Request& request) {
  return request.accept.find("as=Table") != string::npos;
}

}  // namespace

/// Columns of a definition have simple paths: ".status.phase".
Json FakeApiServer::table_of(const Served& served, const std::vector<Json>& objects,
                             const string& version) const {
  Json columns = served.columns;
  if (columns.empty()) {
    columns = Json::array(
        {{{"name", "Age"}, {"type", "date"}, {"jsonPath", ".metadata.creationTimestamp"}}});
  }
  // Json::array: compilers differ on whether braces around one Json are an array or that Json.
  Json shown = Json::array({{{"name", "Name"}, {"type", "string"}, {"priority", 0}}});
  for (const Json& column : columns) {
    shown.push_back({{"name", column["name"]},
                     {"type", column["type"]},
                     {"priority", column.value("priority", 0)}});
  }
  Json rows = Json::array();
  for (const Json& object : objects) {
    Json cells = Json::array({object["metadata"]["name"]});
    for (const Json& column : columns) {
      const Json* at = &object;
      for (const string& part : split(column["jsonPath"], '.')) {
        at = at && at->is_object() && at->contains(part) ? &(*at)[part] : nullptr;
      }
      cells.push_back(!at ? Json() : column["type"] == "date" ? Json("0s") : *at);
    }
    rows.push_back({{"cells", cells}, {"object", {{"metadata", object["metadata"]}}}});
  }
  return {{"kind", "Table"},
          {"apiVersion", "meta.k8s.io/v1"},
          {"metadata", {{"resourceVersion", version}}},
          {"columnDefinitions", shown},
          {"rows", rows}};
}

Response FakeApiServer::store(const Target& target, Json object, const Json* before) {
  auto& metadata = object["metadata"];
  if (before) {
    metadata["uid"] = (*before)["metadata"]["uid"];
    metadata["creationTimestamp"] = (*before)["metadata"]["creationTimestamp"];
    metadata["resourceVersion"] = (*before)["metadata"]["resourceVersion"];
    metadata["generation"] = (*before)["metadata"]["generation"];
    if (object == *before) return ok(object);  // no change: the version stays
    const bool spec_changed = object.value("spec", Json()) != before->value("spec", Json());
    if (spec_changed) metadata["generation"] = metadata["generation"].get<int64_t>() + 1;
  } else {
    metadata["uid"] = "uid-" + std::to_string(++uids_);
    metadata["creationTimestamp"] = stamp(std::chrono::seconds(0));
    metadata["generation"] = 1;
  }
  metadata["resourceVersion"] = std::to_string(++version_);
  const auto stored = std::make_shared<const Json>(std::move(object));
  const auto earlier = find(target);
  objects_[target.served->resource.collection("")][target.ns + "/" + target.name] = stored;
  if (!before && target.served->resource.kind == "CustomResourceDefinition") {
    serve_definition(*stored);
  }
  const Json& now = stored->at("metadata");
  const bool finished =
      now.contains("deletionTimestamp") && now.value("finalizers", Json::array()).empty();
  if (before && finished) {
    erase(target);
    return ok(*stored);
  }
  record(target, before ? "MODIFIED" : "ADDED", stored, before ? earlier : nullptr);
  return ok(*stored, before ? 200 : 201);
}

Response FakeApiServer::create(const Target& target, const Json& body) {
  Target made = target;
  made.name = body["metadata"].value("name", "");
  if (made.name.empty()) return status_response(422, "Invalid", "metadata.name: Required value");
  if (find(made)) {
    return status_response(409, "AlreadyExists",
                           made.served->resource.plural + " \"" + made.name + "\" already exists");
  }
  Json object = body;
  if (!made.ns.empty()) object["metadata"]["namespace"] = made.ns;
  if (made.served->status) object.erase("status");
  if (admit_) admit_(object);
  if (target.query.contains("dryRun")) return ok(object, 201);
  return store(made, std::move(object), nullptr);
}

namespace {

/// Whether `body` names another object of the same name. An update refuses it as a conflict; a
/// patch as a change of an immutable field, but a patch of the status does not look at it.
bool foreign_uid(const Json& body, const Json& current) {
  const Json metadata = body.value("metadata", Json::object());
  return metadata.contains("uid") && metadata["uid"] != current["metadata"]["uid"];
}

bool old_version(const Json& body, const Json& current) {
  const string version = body.value("metadata", Json::object()).value("resourceVersion", "");
  return !version.empty() && current["metadata"]["resourceVersion"] != version;
}

}  // namespace

Response FakeApiServer::replace(const Target& target, const Json& body) {
  const auto current = find(target);
  if (!current) return status_response(404, "NotFound", "\"" + target.name + "\" not found");
  if (foreign_uid(body, *current)) {
    return status_response(409, "Conflict", "Precondition failed: UID in precondition");
  }
  if (old_version(body, *current)) {
    return status_response(409, "Conflict",
                           "the object has been modified; please apply your changes to the latest "
                           "version and try again");
  }
  Json object = body;
  if (!target.ns.empty()) object["metadata"]["namespace"] = target.ns;
  if (target.served->status) object["status"] = current->value("status", Json::object());
  if (admit_) admit_(object);
  return store(target, std::move(object), current.get());
}

Response FakeApiServer::patch(const Target& target, const Request& request) {
  const Json body = Json::parse(request.body, nullptr, false);
  if (!body.is_object()) return status_response(400, "BadRequest", "the patch is not an object");
  const auto current = find(target);
  if (request.content_type == "application/apply-patch+yaml") {
    return apply(target, body, current.get());
  }
  if (!current) return status_response(404, "NotFound", "\"" + target.name + "\" not found");
  const Json& before = *current;
  if (target.subresource.empty() && foreign_uid(body, before)) {
    return status_response(422, "Invalid", "metadata.uid: Invalid value: field is immutable");
  }
  if (old_version(body, before)) {
    return status_response(409, "Conflict", "the object has been modified");
  }
  Json object = before;
  if (target.subresource == "status") {
    Json part = {{"status", body.value("status", Json::object())}};
    object.merge_patch(part);
  } else {
    object.merge_patch(body);
    if (target.served->status && before.contains("status")) object["status"] = before["status"];
  }
  return store(target, std::move(object), &before);
}

Response FakeApiServer::apply(const Target& target, const Json& body, const Json* current) {
  const auto manager = target.query.find("fieldManager");
  if (manager == target.query.end()) {
    return status_response(422, "Invalid", "fieldManager is required for apply patch");
  }
  const bool status = target.subresource == "status";
  if (!current && status) {
    return status_response(404, "NotFound", "\"" + target.name + "\" not found");
  }
  if (!current && body["metadata"].contains("uid")) {
    return status_response(409, "Conflict", "uid mismatch: no existing object was found");
  }
  if (current && !status && foreign_uid(body, *current)) {
    return status_response(422, "Invalid", "metadata.uid: Invalid value: field is immutable");
  }
  if (current && old_version(body, *current)) {
    return status_response(409, "Conflict", "the object has been modified");
  }
  Json fields = body;
  for (const char* own : {"name", "namespace", "uid", "resourceVersion"}) {
    fields["metadata"].erase(own);
  }
  if (fields["metadata"].empty()) fields.erase("metadata");
  fields.erase("apiVersion");
  fields.erase("kind");
  if (status) {
    const Json part = fields.value("status", Json());
    fields = part.is_null() ? Json::object() : Json{{"status", part}};
  } else if (target.served->status) {
    fields.erase("status");
  }
  std::set<string> wanted;
  for (const auto& [name, value] : fields.items()) leaves(value, "/" + name, wanted);

  const string owner = manager->second + (status ? "/status" : "");
  auto& owners = owners_[key(target)];
  Json object = current ? *current
                        : Json{{"apiVersion", body["apiVersion"]},
                               {"kind", body["kind"]},
                               {"metadata", {{"name", target.name}}}};
  if (!current && !target.ns.empty()) object["metadata"]["namespace"] = target.ns;
  const bool force = target.query.contains("force");
  for (auto& [other, paths] : owners) {
    if (other == owner) continue;
    for (const string& path : wanted) {
      if (!paths.contains(path)) continue;
      const Json* held = at_path(object, path, false);
      const Json* asked = at_path(fields, path, false);
      if (held && asked && *held == *asked) continue;
      if (!force) {
        return status_response(409, "Conflict", "conflict with \"" + other + "\": " + path);
      }
      paths.erase(path);
    }
  }
  for (const string& path : owners[owner]) {
    if (wanted.contains(path)) continue;
    const bool shared = std::any_of(owners.begin(), owners.end(), [&](const auto& entry) {
      return entry.first != owner && entry.second.contains(path);
    });
    if (!shared) erase_path(object, path);
  }
  for (const string& path : wanted) *at_path(object, path, true) = *at_path(fields, path, false);
  owners[owner] = wanted;
  return store(target, std::move(object), current);
}

Response FakeApiServer::remove(const Target& target, const Json& body) {
  const auto current = find(target);
  if (!current) return status_response(404, "NotFound", "\"" + target.name + "\" not found");
  const Json& object = *current;
  const Json conditions = body.value("preconditions", Json::object());
  if (conditions.contains("uid") && conditions["uid"] != object["metadata"]["uid"]) {
    return status_response(409, "Conflict", "the UID in the precondition does not match");
  }
  if (conditions.contains("resourceVersion") &&
      conditions["resourceVersion"] != object["metadata"]["resourceVersion"]) {
    return status_response(409, "Conflict", "the resourceVersion in the precondition differs");
  }
  const bool held = !object["metadata"].value("finalizers", Json::array()).empty();
  const bool graceful = target.served->resource.plural == "pods" &&
                        body.value("gracePeriodSeconds", int64_t{30}) != 0 &&
                        object.contains("spec") && object["spec"].contains("nodeName");
  if (!held && !graceful) {
    erase(target);
    return ok(object);
  }
  if (object["metadata"].contains("deletionTimestamp")) return ok(object);
  Json marked = object;
  int64_t grace = 0;
  if (graceful) {
    grace = object["spec"].value("terminationGracePeriodSeconds", int64_t{30});
    grace = body.value("gracePeriodSeconds", grace);
  }
  marked["metadata"]["deletionTimestamp"] = stamp(std::chrono::seconds(grace));
  marked["metadata"]["resourceVersion"] = std::to_string(++version_);
  const auto stored = std::make_shared<const Json>(std::move(marked));
  objects_[target.served->resource.collection("")][target.ns + "/" + target.name] = stored;
  record(target, "MODIFIED", stored);
  return ok(*stored);
}

Response FakeApiServer::handle(const Request& request) {
  const auto target = target_of(request.path);
  if (!target) return status_response(404, "NotFound", "the server could not find " + request.path);
  if (request.method == "GET") {
    if (target->name.empty()) {
      const Response all = list(*target);
      if (!wants_table(request)) return all;
      const Json objects = Json::parse(all.body);
      return ok(table_of(*target->served, objects["items"].get<std::vector<Json>>(),
                         objects["metadata"]["resourceVersion"]));
    }
    const auto object = find(*target);
    if (object && wants_table(request)) {
      return ok(table_of(*target->served, {*object}, std::to_string(version_)));
    }
    return object ? ok(*object)
                  : status_response(
                        404, "NotFound",
                        target->served->resource.plural + " \"" + target->name + "\" not found");
  }
  if (request.method == "PATCH") return patch(*target, request);
  const Json body =
      request.body.empty() ? Json::object() : Json::parse(request.body, nullptr, false);
  if (!body.is_object()) return status_response(400, "BadRequest", "the body is not an object");
  if (request.method == "POST") return create(*target, body);
  if (request.method == "PUT") return replace(*target, body);
  if (request.method == "DELETE") return remove(*target, body);
  return status_response(405, "MethodNotAllowed", request.method);
}

namespace {

std::optional<std::expected<Response, NetError>> before_handling(const Fault& fault) {
  if (fault.kind == Fault::Kind::LoseRequest) {
    return std::unexpected(NetError{NetError::Kind::Cut, "the connection was cut"});
  }
  if (fault.kind != Fault::Kind::Refuse) return std::nullopt;
  Response response = status_response(fault.status, "Injected", "an injected fault");
  if (fault.retry_after_seconds > 0) {
    response.headers["retry-after"] = std::to_string(fault.retry_after_seconds);
  }
  return response;
}

}  // namespace

std::expected<Response, NetError> FakeApiServer::call(const Request& request,
                                                      const Cancel& cancel) {
  if (cancel.cancelled()) return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
  const std::lock_guard lock(mutex_);
  ++requests_[request.method];
  const Fault fault = fault_ ? fault_(request) : Fault{};
  if (auto refused = before_handling(fault)) return *refused;
  Response response = handle(request);
  if (fault.kind == Fault::Kind::LoseAnswer) {
    return std::unexpected(NetError{NetError::Kind::Cut, "the connection was cut"});
  }
  return response;
}

std::expected<StreamResponse, NetError> FakeApiServer::open(const Request& request,
                                                            const Cancel& cancel) {
  if (cancel.cancelled()) return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
  const std::lock_guard lock(mutex_);
  ++requests_["WATCH"];
  if (auto refused = before_handling(fault_ ? fault_(request) : Fault{})) {
    if (!*refused) return std::unexpected(refused->error());
    return StreamResponse{**refused, nullptr};
  }
  auto target = target_of(request.path);
  if (!target) return StreamResponse{status_response(404, "NotFound", request.path), nullptr};
  if (target->subresource == "log") return open_log(*target);
  const auto from = target->query.find("resourceVersion");
  const int64_t version = from == target->query.end() ? version_ : std::stoll(from->second);
  return StreamResponse{
      {.status = 200},
      std::make_unique<Stream>(*this, std::move(*target), version, wants_table(request), cancel)};
}

std::expected<StreamResponse, NetError> FakeApiServer::open_log(const Target& target) const {
  const auto log = logs_.find(target.ns + "/" + target.name);
  if (log == logs_.end()) {
    return StreamResponse{status_response(400, "BadRequest",
                                          "container \"worker\" in pod \"" + target.name +
                                              "\" is waiting to start: ContainerCreating"),
                          nullptr};
  }
  std::vector<string> lines = log->second;
  if (const auto tail = target.query.find("tailLines"); tail != target.query.end()) {
    const size_t most = std::stoul(tail->second);
    if (lines.size() > most) {
      lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
    }
  }
  if (target.query.contains("timestamps")) {  // a line each second
    for (size_t i = 0; i < lines.size(); ++i)
      lines[i] = stamp(std::chrono::seconds(i)) + " " + lines[i];
  }
  return StreamResponse{{.status = 200}, std::make_unique<Lines>(std::move(lines))};
}

// ---- the world and the truth

string FakeApiServer::stamp(std::chrono::seconds later) const {
  const auto time =
      (wall_ ? wall_() : std::chrono::sys_seconds(std::chrono::seconds(1'767'225'600))) + later;
  return kube::micro_time(time).substr(0, 19) + "Z";
}

void FakeApiServer::set_wall(std::function<std::chrono::sys_seconds()> wall) {
  const std::lock_guard lock(mutex_);
  wall_ = std::move(wall);
}

void FakeApiServer::set_fault(std::function<Fault(const Request&)> fault) {
  const std::lock_guard lock(mutex_);
  fault_ = std::move(fault);
}

void FakeApiServer::set_admission(std::function<void(Json&)> admit) {
  const std::lock_guard lock(mutex_);
  admit_ = std::move(admit);
}

void FakeApiServer::set_log(const string& ns, const string& pod, std::vector<string> lines) {
  const std::lock_guard lock(mutex_);
  logs_[ns + "/" + pod] = std::move(lines);
}

void FakeApiServer::cut_watches() {
  const std::lock_guard lock(mutex_);
  ++cuts_;
  changed_.notify_all();
}

void FakeApiServer::compact() {
  const std::lock_guard lock(mutex_);
  compacted_ = ++version_;
  history_.clear();
  changed_.notify_all();
}

void FakeApiServer::send_bookmarks() {
  const std::lock_guard lock(mutex_);
  ++bookmark_;
  changed_.notify_all();
}

bool FakeApiServer::watches_have_told() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(told_.size()) == watches_ &&
         std::ranges::all_of(told_, [&](const auto& one) { return one.second == version_; });
}

int FakeApiServer::watches() const {
  const std::lock_guard lock(mutex_);
  return watches_;
}

int64_t FakeApiServer::requests(const string& method) const {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(method);
  return found == requests_.end() ? 0 : found->second;
}

std::vector<Json> FakeApiServer::objects(const Resource& resource) const {
  const std::lock_guard lock(mutex_);
  std::vector<Json> out;
  if (const auto all = objects_.find(resource.collection("")); all != objects_.end()) {
    for (const auto& [name, object] : all->second) out.push_back(*object);
  }
  return out;
}

std::vector<std::shared_ptr<const Json>> FakeApiServer::shown(const Resource& resource) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Json>> out;
  if (const auto all = objects_.find(resource.collection("")); all != objects_.end()) {
    for (const auto& [name, object] : all->second) out.push_back(object);
  }
  return out;
}

std::shared_ptr<const Json> FakeApiServer::shown(const Resource& resource, const string& ns,
                                                 const string& name) const {
  const std::lock_guard lock(mutex_);
  const auto all = objects_.find(resource.collection(""));
  if (all == objects_.end()) return nullptr;
  const auto found = all->second.find(ns + "/" + name);
  return found == all->second.end() ? nullptr : found->second;
}

void FakeApiServer::edit(const Resource& resource, const string& ns, const string& name,
                         const std::function<void(Json&)>& change) {
  const std::lock_guard lock(mutex_);
  const auto target = target_of(resource.object(ns, name));
  const auto before = find(*target);
  Json object = *before;
  change(object);
  store(*target, std::move(object), before.get());
}

int64_t FakeApiServer::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

}  // namespace dsj::kube::testing
