// Fields of an API object by their path. A missing field is empty. Names contain no dots here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::cli {

using Json = nlohmann::json;

/// "status.training.step"; null: a part of the path is missing, or is not an object.
const Json* find(const Json& object, const std::string& path);
/// A string as it is; a number or a boolean as in JSON; empty for all else.
std::string word(const Json& object, const std::string& path);
int64_t whole(const Json& object, const std::string& path, int64_t otherwise = 0);
/// The items of an array; an empty array if there is none.
const Json& items(const Json& object, const std::string& path);

}  // namespace dsj::cli
