// Members of a JSON object that anybody may have written: what is missing or of another type is as
// good as not there. And a value for a message. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dsj {

/// A null value if `object` has no such member, or is no object. Lives as long as `object`.
const nlohmann::json& json_child(const nlohmann::json& object, const char* name);
/// Empty: there is no such text.
std::string json_text(const nlohmann::json& object, const char* name);
std::optional<int64_t> json_whole(const nlohmann::json& object, const char* name);
/// False: it is not there, or false.
bool json_flag(const nlohmann::json& object, const char* name);
/// The value as it stands in a message: compact, at most 60 bytes of whole characters.
std::string json_brief(const nlohmann::json& value);

}  // namespace dsj
