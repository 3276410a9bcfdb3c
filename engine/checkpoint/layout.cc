#include "engine/checkpoint/layout.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <map>

#include "engine/checkpoint/damage.h"

namespace dsj::checkpoint {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr int64_t kBlockBytesMax = int64_t{1} << 30;
constexpr int64_t kSerialMax = int64_t{1} << 53;  // exact in every JSON implementation
constexpr char kPartFormat[] = "dsj-checkpoint-part";
constexpr char kManifestFormat[] = "dsj-checkpoint";

std::string hex(uint64_t value) {
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

uint64_t from_hex(const std::string& text) {
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (problem != std::errc{} || end != text.data() + text.size() || text.size() != 16) {
    throw json::other_error::create(500, "16 hexadecimal digits are expected", nullptr);
  }
  return value;
}

constexpr std::string_view kSealBegin = "{\"xxh3\":\"", kSealMiddle = "\",\n\"body\":";

std::string seal(const json& body) {
  const std::string text = body.dump();
  return std::string(kSealBegin) + hex(checksum(text)) + std::string(kSealMiddle) + text + "}";
}

/// The body's text if the text is exactly in seal()'s form; else empty.
std::string_view sealed_body(std::string_view text) {
  constexpr size_t kMiddle = kSealBegin.size() + 16, kBody = kMiddle + kSealMiddle.size();
  if (text.size() <= kBody || !text.starts_with(kSealBegin) || text.back() != '}' ||
      text.substr(kMiddle, kSealMiddle.size()) != kSealMiddle) {
    return {};
  }
  const std::string_view body = text.substr(kBody, text.size() - kBody - 1);
  return text.substr(kSealBegin.size(), 16) == hex(checksum(body)) ? body : std::string_view();
}

/// The body of a text whose seal is valid in any JSON spelling. seal()'s own form is not serialised
/// again for the comparison, because rank 0 reads an index per rank.
Result<json> unsealed(std::string_view text, const std::string& path) {
  json body;
  if (const std::string_view usual = sealed_body(text); !usual.empty()) {
    body = json::parse(usual, nullptr, /*allow_exceptions=*/false);
    if (body.is_object()) return body;
  }
  json sealed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!sealed.is_object() || !sealed.contains("body") || !sealed.contains("xxh3") ||
      !sealed["body"].is_object()) {
    return damaged("no sealed JSON object", path);
  }
  body = std::move(sealed["body"]);
  if (sealed["xxh3"] != hex(checksum(body.dump(-1, ' ', false, json::error_handler_t::replace)))) {
    return damaged("the content does not match its checksum", path);
  }
  return body;
}

/// The body of a sealed text, after its seal and format are checked.
Result<json> unseal(std::string_view text, const char* format, const std::string& path) {
  DSJ_TRY(json body, unsealed(text, path));
  if (body.value("format", json()) != format) {
    return damaged(std::string("\"format\" is not ") + format, path);
  }
  if (body.value("version", json()) != kVersion) {
    return fail(ErrorKind::Environment,
                "version " + body.value("version", json()).dump() + " of the checkpoint format, " +
                    std::to_string(kVersion) + " is read here",
                path,
                "use the program that wrote it, or a newer one; or name a checkpoint of this "
                "version in resumeFromCheckpoint");
  }
  return body;
}

/// Indices of names in a table that grows as names are added.
class NameTable {
 public:
  size_t index(const std::string& name) {
    const auto [row, is_new] = index_.emplace(name, names_.size());
    if (is_new) names_.push_back(name);
    return row->second;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::map<std::string, size_t> index_;
  std::vector<std::string> names_;
};

/// Validates a part's ranges, before a reader trusts them.
Status check_part(const Part& part, const std::string& path) {
  if (part.bytes < 0 || part.block_bytes <= 0 || part.block_bytes > kBlockBytesMax ||
      part.rank < 0 || part.rank >= part.world) {
    return damaged("a number is out of its range", path);
  }
  const int64_t blocks = part.bytes / part.block_bytes + (part.bytes % part.block_bytes != 0);
  if (blocks != int64_t(part.blocks.size())) {
    return damaged(std::to_string(part.blocks.size()) + " block checksums, " +
                       std::to_string(blocks) + " are expected",
                   path);
  }
  for (const Range& range : part.ranges) {
    int64_t element_end = 0;
    if (range.offset < 0 || range.length < 0 || range.file_offset < 0 ||
        range.file_offset > part.bytes ||
        range.length > (part.bytes - range.file_offset) / int64_t(sizeof(float)) ||
        __builtin_add_overflow(range.offset, range.length, &element_end)) {
      return damaged("a range of " + range.state + " of " + range.param + " is not in the file",
                     path);
    }
  }
  return {};
}

bool read_number(std::string_view& text, int64_t& value) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || value < 0) return false;
  text.remove_prefix(size_t(end - text.data()));
  return true;
}

bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string numbered(const char* pattern, int rank) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), pattern, rank);
  return text.data();
}

}  // namespace

std::string to_text(const Part& part) {
  NameTable states, params;
  json ranges = json::array();
  for (const Range& range : part.ranges) {
    ranges.push_back({states.index(range.state), params.index(range.param), range.offset,
                      range.length, range.file_offset});
  }
  json blocks = json::array();
  for (const uint64_t block : part.blocks) blocks.push_back(hex(block));
  return seal({{"format", kPartFormat},
               {"version", kVersion},
               {"step", part.step},
               {"attempt", part.attempt},
               {"rank", part.rank},
               {"world", part.world},
               {"bytes", part.bytes},
               {"block_bytes", part.block_bytes},
               {"blocks", std::move(blocks)},
               {"states", states.names()},
               {"params", params.names()},
               {"ranges", std::move(ranges)}});
}

std::string to_text(const Manifest& manifest) {
  json extents = json::array();
  for (const Extent& extent : manifest.extents) {
    extents.push_back({extent.state, extent.param, extent.elements});
  }
  json holders = json::array();  // four numbers each, one list per extent
  for (const auto& of_extent : manifest.holders) {
    json numbers = json::array();
    for (const Holders& one : of_extent)
      for (const int64_t number : {one.offset, one.length, int64_t{one.part}, int64_t{one.count}})
        numbers.push_back(number);
    holders.push_back(std::move(numbers));
  }
  json parts = json::array();
  for (const uint64_t part : manifest.parts) parts.push_back(hex(part));
  json body = {{"format", kManifestFormat}, {"version", kVersion},
               {"step", manifest.step},     {"attempt", manifest.attempt},
               {"world", manifest.world},   {"extents", std::move(extents)},
               {"parts", std::move(parts)}, {"run_state", manifest.run_state}};
  if (!manifest.holders.empty()) body["holders"] = std::move(holders);
  if (manifest.serial > 0) body["serial"] = manifest.serial;
  return seal(body);
}

Result<Part> part_from_text(std::string_view text, const std::string& path) {
  DSJ_TRY(const json body, unseal(text, kPartFormat, path));
  try {
    Part part{.step = body.at("step"),
              .attempt = body.at("attempt"),
              .rank = body.at("rank"),
              .world = body.at("world"),
              .bytes = body.at("bytes"),
              .block_bytes = body.at("block_bytes")};
    for (const json& block : body.at("blocks")) part.blocks.push_back(from_hex(block));
    const json &states = body.at("states"), &params = body.at("params");
    for (const json& range : body.at("ranges")) {
      part.ranges.push_back({states.at(range.at(0).get<size_t>()),
                             params.at(range.at(1).get<size_t>()), range.at(2), range.at(3),
                             range.at(4)});
    }
    DSJ_TRY_STATUS(check_part(part, path));
    return part;
  } catch (const json::exception& problem) {
    return damaged(problem.what(), path);
  }
}

namespace {

/// Reads and checks the manifest's "holders". Without them the list stays empty.
Status read_holders(const json& body, Manifest& manifest, const std::string& path) {
  const auto found = body.find("holders");
  if (found == body.end()) return {};
  for (const json& numbers : *found) {
    std::vector<Holders>& holders = manifest.holders.emplace_back();
    for (size_t i = 0; i < numbers.size(); i += 4) {
      holders.push_back({.offset = numbers.at(i),
                         .length = numbers.at(i + 1),
                         .part = numbers.at(i + 2),
                         .count = numbers.at(i + 3)});
    }
  }
  bool sound = manifest.holders.size() == manifest.extents.size();
  for (size_t i = 0; sound && i < manifest.holders.size(); ++i)
    sound = covers(manifest.holders[i], manifest.extents[i].elements, manifest.world);
  if (!sound) return damaged("the holders of the tensors do not cover them", path);
  return {};
}

}  // namespace

Result<Manifest> manifest_from_text(std::string_view text, const std::string& path) {
  DSJ_TRY(const json body, unseal(text, kManifestFormat, path));
  try {
    Manifest manifest{.step = body.at("step"),
                      .attempt = body.at("attempt"),
                      .serial = body.value("serial", int64_t{0}),
                      .world = body.at("world"),
                      .run_state = body.at("run_state")};
    if (manifest.serial < 0 || manifest.serial > kSerialMax)
      return damaged("the serial is out of its range", path);
    for (const json& extent : body.at("extents")) {
      manifest.extents.push_back({extent.at(0), extent.at(1), extent.at(2)});
      if (manifest.extents.back().elements < 0) return damaged("a negative size", path);
    }
    for (const json& part : body.at("parts")) manifest.parts.push_back(from_hex(part));
    if (int64_t(manifest.parts.size()) != manifest.world) {
      return damaged("the number of parts is not the world size", path);
    }
    DSJ_TRY_STATUS(read_holders(body, manifest, path));
    return manifest;
  } catch (const json::exception& problem) {
    return damaged(problem.what(), path);
  }
}

std::string step_name(int64_t step) {
  return "step-" + std::to_string(step);
}
std::string staging_name(int64_t step, int64_t attempt) {
  return ".staging-" + step_name(step) + "-attempt-" + std::to_string(attempt);
}
std::string replaced_name(int64_t step, int64_t attempt) {
  return ".old-" + step_name(step) + "-attempt-" + std::to_string(attempt);
}
std::string part_json_name(int rank) {
  return numbered("rank-%05d.json", rank);
}
std::string part_data_name(int rank) {
  return numbered("rank-%05d.bin", rank);
}

bool is_checkpoint_file(std::string_view name) {
  if (name == kManifestFile) return true;
  int64_t rank = 0;
  return skip(name, "rank-") && read_number(name, rank) && (name == ".json" || name == ".bin");
}

std::optional<DirName> parse_dir_name(std::string_view name) {
  if (name.starts_with(kTrashPrefix)) return DirName{DirName::Kind::Trash};
  DirName parsed{DirName::Kind::Step};
  if (skip(name, ".staging-"))
    parsed.kind = DirName::Kind::Staging;
  else if (skip(name, ".old-"))
    parsed.kind = DirName::Kind::Replaced;
  if (!skip(name, "step-") || !read_number(name, parsed.step)) return std::nullopt;
  if (parsed.kind != DirName::Kind::Step &&
      (!skip(name, "-attempt-") || !read_number(name, parsed.attempt))) {
    return std::nullopt;
  }
  if (!name.empty()) return std::nullopt;
  return parsed;
}

}  // namespace dsj::checkpoint
