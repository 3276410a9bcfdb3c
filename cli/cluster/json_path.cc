#include "cli/cluster/json_path.h"

namespace dsj::cli {

const Json* find(const Json& object, const std::string& path) {
  const Json* at = &object;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (!at->is_object()) return nullptr;
    const auto found = at->find(path.substr(begin, end - begin));
    if (found == at->end() || found->is_null()) return nullptr;
    at = &*found;
    begin = end + 1;
  }
  return at;
}

std::string word(const Json& object, const std::string& path) {
  const Json* found = find(object, path);
  if (!found || found->is_structured()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

int64_t whole(const Json& object, const std::string& path, int64_t otherwise) {
  const Json* found = find(object, path);
  return found && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

const Json& items(const Json& object, const std::string& path) {
  static const Json none = Json::array();
  const Json* found = find(object, path);
  return found && found->is_array() ? *found : none;
}

}  // namespace dsj::cli
