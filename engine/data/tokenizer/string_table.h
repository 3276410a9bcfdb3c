// A map from strings to ids without an allocation per entry. It takes a vocabulary of 150,000
// tokens in milliseconds; a std::unordered_map would take a good part of a program's start.
// Internal to engine/data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dsj::data {

class StringTable {
 public:
  /// Room for `count` strings of `bytes` bytes in all. It grows if there are more.
  explicit StringTable(std::size_t count = 0, std::size_t bytes = 0) {
    entries_.reserve(count);
    text_.reserve(bytes);
    std::size_t size = 16;
    while (size < 2 * count) size *= 2;
    slots_.assign(size, kEmpty);
  }

  /// If a string is given twice, the later id counts.
  void insert(std::string_view key, int32_t id) {
    if (2 * (entries_.size() + 1) > slots_.size()) grow();
    const auto hash = static_cast<uint32_t>(std::hash<std::string_view>{}(key));
    uint32_t& slot = slots_[slot_of(key, hash)];
    if (slot != kEmpty) {
      entries_[slot].id = id;
      return;
    }
    slot = static_cast<uint32_t>(entries_.size());
    entries_.push_back(
        {hash, static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(key.size()), id});
    text_.append(key);
  }

  std::optional<int32_t> find(std::string_view key) const {
    const auto hash = static_cast<uint32_t>(std::hash<std::string_view>{}(key));
    const uint32_t slot = slots_[slot_of(key, hash)];
    if (slot == kEmpty) return std::nullopt;
    return entries_[slot].id;
  }

  std::size_t size() const { return entries_.size(); }
  /// The i-th string in the order of insertion. A view is valid until the next insert.
  std::string_view key(std::size_t i) const {
    return std::string_view(text_).substr(entries_[i].begin, entries_[i].length);
  }
  int32_t id(std::size_t i) const { return entries_[i].id; }

 private:
  static constexpr uint32_t kEmpty = UINT32_MAX;
  struct Entry {
    uint32_t hash, begin, length;
    int32_t id;
  };

  std::size_t slot_of(std::string_view key, uint32_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = hash & mask;
    while (slots_[slot] != kEmpty &&
           (entries_[slots_[slot]].hash != hash || this->key(slots_[slot]) != key)) {
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  void grow() {
    slots_.assign(slots_.size() * 2, kEmpty);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      slots_[slot_of(key(i), entries_[i].hash)] = static_cast<uint32_t>(i);
    }
  }

  std::vector<Entry> entries_;
  std::string text_;
  std::vector<uint32_t> slots_;
};

}  // namespace dsj::data
