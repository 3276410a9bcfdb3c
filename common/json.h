// Reads members of a JSON object that any program may have written: a member of a wrong type counts
// as missing. Also formats a value for a message. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dsj {

/// Null if `object` lacks the member or is not an object. Valid as long as `object`.
const nlohmann::json& json_child(const nlohmann::json& object, const char* name);
/// Empty if there is no such text.
std::string json_text(const nlohmann::json& object, const char* name);
std::optional<int64_t> json_whole(const nlohmann::json& object, const char* name);
/// False if it is missing or false.
bool json_flag(const nlohmann::json& object, const char* name);
/// The value for a message: compact, at most 60 bytes, whole characters.
std::string json_brief(const nlohmann::json& value);

}  // namespace dsj
