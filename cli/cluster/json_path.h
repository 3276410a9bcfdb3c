// Reads fields of an API object by path. A missing field is empty. Names must not contain dots.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::cli {

using Json = nlohmann::json;

/// `path`: "status.training.step". Null if a part of it is missing or not an object.
const Json* find(const Json& object, const std::string& path);
/// A string unchanged; a number or boolean as in JSON; empty for anything else.
std::string word(const Json& object, const std::string& path);
int64_t whole(const Json& object, const std::string& path, int64_t otherwise = 0);
/// The items of an array; an empty array if there is none.
const Json& items(const Json& object, const std::string& path);

}  // namespace dsj::cli
