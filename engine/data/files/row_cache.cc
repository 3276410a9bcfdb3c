#include "engine/data/files/row_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/format.h"

namespace dsj::data {
namespace {

/// Version of entries: change it with the entries' format and with the rules of the check.
constexpr std::string_view kCacheMagic = "dsjrows4";
constexpr size_t kKeyDigits = 32, kChecksumBytes = sizeof(uint64_t);
constexpr size_t kHeadBytes = 8 + kKeyDigits + 4 * sizeof(int64_t);
constexpr int64_t kPiece = 1 << 20;

void append(std::string& out, const void* data, size_t bytes) {
  out.append(static_cast<const char*>(data), bytes);
}

using Json = nlohmann::json;

/// [[name, rows]...]
Json to_list(const std::vector<UnreadField>& counts) {
  Json list = Json::array();
  for (const UnreadField& one : counts) list.push_back({one.name, one.rows});
  return list;
}

/// The lists as JSON text.
std::string counts_text(const CheckedRows& rows) {
  return Json({to_list(rows.unread), to_list(rows.shapes), to_list(rows.left_out)})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::vector<UnreadField>> from_list(const Json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<UnreadField> unread;
  for (const auto& one : list) {
    if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_number_integer())
      return std::nullopt;
    unread.push_back({one[0].get<std::string>(), one[1].get<int64_t>()});
  }
  return unread;
}

bool read_counts(std::string_view text, CheckedRows& rows) {
  const Json lists = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!lists.is_array() || lists.size() != 3) return false;
  auto unread = from_list(lists[0]), shapes = from_list(lists[1]), left_out = from_list(lists[2]);
  if (!unread || !shapes || !left_out) return false;
  rows.unread = std::move(*unread);
  rows.shapes = std::move(*shapes);
  rows.left_out = std::move(*left_out);
  return true;
}

/// A hash state that already includes the conditions.
std::unique_ptr<XXH3_state_t> state_of(const std::string& conditions) {
  auto state = std::make_unique<XXH3_state_t>();
  XXH3_128bits_reset(state.get());
  XXH3_128bits_update(state.get(), kCacheMagic.data(), kCacheMagic.size());
  XXH3_128bits_update(state.get(), conditions.c_str(), conditions.size() + 1);
  return state;
}

std::string digits_of(const XXH3_state_t& state) {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return text::format("%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                      static_cast<unsigned long long>(hash.low64));
}

}  // namespace

Result<std::string> row_key(const ReadFile& file, const std::string& conditions) {
  const auto state = state_of(conditions);
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPiece, file.size())));
  for (int64_t done = 0; done < file.size(); done += kPiece) {
    const auto bytes = static_cast<size_t>(std::min(kPiece, file.size() - done));
    DSJ_TRY_STATUS(file.read(done, std::span(piece).first(bytes)));
    XXH3_128bits_update(state.get(), piece.data(), bytes);
  }
  return digits_of(*state);
}

std::string row_key(const std::string& content, const std::string& conditions) {
  const auto state = state_of(conditions);
  XXH3_128bits_update(state.get(), content.data(), content.size());
  return digits_of(*state);
}

std::string to_entry(const std::string& key, const CheckedRows& rows) {
  const std::string counts = counts_text(rows);
  const int64_t head[] = {static_cast<int64_t>(rows.kind), rows.chat_template,
                          std::ssize(rows.places), std::ssize(counts)};
  std::string entry(kCacheMagic);
  entry += key;
  append(entry, head, sizeof head);
  append(entry, rows.places.data(), rows.places.size() * sizeof(Place));
  entry += counts;
  const uint64_t checksum = XXH3_64bits(entry.data(), entry.size());
  append(entry, &checksum, sizeof checksum);
  return entry;
}

std::optional<CheckedRows> from_entry(const std::string& key, std::string_view entry,
                                      int64_t file_bytes) {
  if (entry.size() < kHeadBytes + kChecksumBytes) return std::nullopt;
  const std::string_view body = entry.substr(0, entry.size() - kChecksumBytes);
  uint64_t checksum = 0;
  std::memcpy(&checksum, entry.data() + body.size(), sizeof checksum);
  if (checksum != XXH3_64bits(body.data(), body.size())) return std::nullopt;
  if (!body.starts_with(kCacheMagic) || body.substr(kCacheMagic.size(), kKeyDigits) != key)
    return std::nullopt;
  int64_t head[4];
  std::memcpy(head, body.data() + kHeadBytes - sizeof head, sizeof head);
  const bool known = head[0] >= 0 && head[0] <= static_cast<int64_t>(kLastRowKind);
  const auto left = static_cast<int64_t>(body.size() - kHeadBytes);
  if (!known || head[3] < 0 || head[3] > left) return std::nullopt;
  const auto bytes = static_cast<size_t>(left - head[3]);
  if (bytes % sizeof(Place) != 0 || head[2] <= 0 ||
      bytes / sizeof(Place) != static_cast<size_t>(head[2])) {
    return std::nullopt;
  }
  CheckedRows rows{static_cast<RowKind>(head[0]), head[1], {}, {}, {}, {}};
  if (!read_counts(body.substr(kHeadBytes + bytes), rows)) return std::nullopt;
  rows.places.resize(static_cast<size_t>(head[2]));
  std::memcpy(rows.places.data(), body.data() + kHeadBytes, bytes);
  int64_t end = 0;
  for (const Place& place : rows.places) {
    if (place.offset < end || place.length < 0 || place.length > file_bytes - place.offset)
      return std::nullopt;
    end = place.offset + place.length;
  }
  return rows;
}

RowCache::RowCache(Files& files, RowCacheOptions options)
    : files_(files),
      bytes_max_(options.bytes_max),
      entries_(files, {.directory = std::move(options.directory),
                       .suffix = ".rows",
                       .bytes_max = options.bytes_max,
                       .now = options.now,
                       .process = options.process}) {}

std::optional<CheckedRows> RowCache::find(const std::string& key, int64_t file_bytes) const {
  for (const std::string& path : entries_.find(key)) {
    const auto bytes = files_.read_all(path, bytes_max_);
    if (!bytes) continue;
    if (auto rows = from_entry(key, *bytes, file_bytes)) return rows;
  }
  return std::nullopt;
}

Status RowCache::store(const std::string& key, const CheckedRows& rows) {
  const std::string entry = to_entry(key, rows);
  if (static_cast<int64_t>(entry.size()) > bytes_max_ / 2) return {};
  // No sync: after a power loss the checksum detects an incomplete entry.
  DSJ_TRY(const std::string temporary, entries_.temporary(key));
  DSJ_TRY(const auto file, files_.create_write(temporary));
  DSJ_TRY_STATUS(file->append(std::as_bytes(std::span(entry))));
  DSJ_TRY_STATUS(file->close());
  return entries_.publish(key);
}

std::string row_cache_directory(const std::function<const char*(const char*)>& variable) {
  const auto text = [&](const char* name) {
    const char* value = variable(name);
    return std::string(value ? value : "");
  };
  if (text("DSJ_ROWS_CACHE") == "0") return {};
  if (const std::string cache = text("XDG_CACHE_HOME"); cache.starts_with("/"))
    return path_join(cache, "dsj/rows");
  const std::string home = text("HOME");
  return home.starts_with("/") ? path_join(home, ".cache/dsj/rows") : std::string();
}

}  // namespace dsj::data
