#include "engine/checkpoint/reader.h"

#include <algorithm>
#include <cstring>

#include "engine/checkpoint/damage.h"

namespace dsj::checkpoint {
namespace {

/// Blocks per read. It limits the memory of verify(), and keeps the bytes in the cache for the
/// checksum.
constexpr int64_t kBlocksPerRead = 8;

}  // namespace

Result<Reader> Reader::open(Files& files, const std::string& path) {
  Reader reader;
  reader.files_ = &files;
  reader.path_ = path;
  const std::string manifest_path = path_join(path, kManifestFile);
  const auto text = files.read_all(manifest_path, kJsonBytesMax);
  if (!text) {
    DSJ_TRY(const bool there, files.exists(path));
    return std::unexpected(there ? judged(text.error()) : text.error());
  }
  DSJ_TRY(reader.manifest_, manifest_from_text(*text, manifest_path));
  const auto& extents = reader.manifest_.extents;
  for (size_t i = 0; i < extents.size(); ++i)
    reader.numbers_[{extents[i].state, extents[i].param}] = int32_t(i);
  if (reader.manifest_.holders.size() != extents.size()) DSJ_TRY_STATUS(reader.find_holders());
  return reader;
}

Status Reader::find_holders() {
  std::vector<HeldRange> ranges;
  for (int part = 0; part < manifest_.world; ++part) {
    DSJ_TRY(const Source* of_part, source(part));
    for (const Located& at : of_part->located)
      ranges.push_back({at.extent, int32_t(part), at.offset, at.length});
  }
  auto found = holders_of(manifest_.extents, std::move(ranges), path_);
  if (!found) return damaged(found.error().message, path_);
  manifest_.holders = std::move(*found);
  return {};
}

Result<Reader::Source*> Reader::source(int part) {
  if (const auto found = sources_.find(part); found != sources_.end()) return found->second.get();
  const std::string json_path = path_join(path_, part_json_name(part));
  const auto text = files_->read_all(json_path, kJsonBytesMax);
  if (!text) return std::unexpected(judged(text.error()));
  if (checksum(*text) != manifest_.parts[size_t(part)])
    return damaged("the file is not the one the manifest was written for", json_path);
  DSJ_TRY(Part read, part_from_text(*text, json_path));
  auto made = std::make_unique<Source>(Source{.path = path_join(path_, part_data_name(part)),
                                              .bytes = read.bytes,
                                              .block_bytes = read.block_bytes,
                                              .blocks = std::move(read.blocks)});
  made->verified.resize(made->blocks.size());
  for (const Range& range : read.ranges) {
    if (range.length == 0) continue;
    const auto number = numbers_.find({range.state, range.param});
    if (number == numbers_.end()) {
      return damaged("the manifest does not know " + range.state + " of " + range.param, json_path);
    }
    made->located.push_back({number->second, range.offset, range.length, range.file_offset});
  }
  std::ranges::sort(made->located, {},
                    [](const Located& at) { return std::pair(at.extent, at.offset); });
  return (sources_[part] = std::move(made)).get();
}

Result<const ReadFile*> Reader::file(int part, const Source& source) {
  const auto found = std::ranges::find(open_, part, &OpenFile::part);
  if (found != open_.end()) return found->file.get();
  if (open_.size() == kFilesOpenMax) open_.erase(open_.begin());
  auto file = files_->open_read(source.path);
  if (!file) return std::unexpected(judged(file.error()));
  if ((*file)->size() != source.bytes) {
    return damaged("the file has " + std::to_string((*file)->size()) + " bytes, " +
                       std::to_string(source.bytes) + " were written",
                   source.path);
  }
  open_.push_back({part, std::move(*file)});
  return open_.back().file.get();
}

std::optional<int64_t> Reader::elements(const std::string& state, const std::string& param) const {
  const auto found = numbers_.find({state, param});
  if (found == numbers_.end()) return std::nullopt;
  return manifest_.extents[size_t(found->second)].elements;
}

Status Reader::read(const std::string& state, const std::string& param, int64_t offset,
                    std::span<float> out) {
  const auto whole = elements(state, param);
  if (!whole) return bad_input("the checkpoint has no " + state + " of " + param, path_);
  if (offset < 0 || offset > *whole || int64_t(out.size()) > *whole - offset) {
    return bad_input(state + " of " + param + " has " + std::to_string(*whole) +
                         " elements, the model asks for [" + std::to_string(offset) + ", " +
                         std::to_string(uint64_t(offset) + out.size()) + ")",
                     path_, "the checkpoint is of another model");
  }
  Status done = read_elements(numbers_.at({state, param}), offset, out);
  if (!done) done.error().message += " (read for " + state + " of " + param + ")";
  return done;
}

Status Reader::read_elements(int32_t extent, int64_t offset, std::span<float> out) {
  while (!out.empty()) {
    const int part = part_of(manifest_.holders[size_t(extent)], offset);
    DSJ_TRY(Source * from, source(part));
    const auto after = std::ranges::upper_bound(
        from->located, std::pair(extent, offset), {},
        [](const Located& one) { return std::pair(one.extent, one.offset); });
    const auto at = after == from->located.begin() ? from->located.end() : after - 1;
    if (at == from->located.end() || at->extent != extent || offset >= at->offset + at->length) {
      return damaged("element " + std::to_string(offset) + " is not in part " +
                         std::to_string(part) + ", where the manifest says",
                     path_join(path_, part_json_name(part)));
    }
    const int64_t skipped = offset - at->offset;
    const size_t taken = std::min(out.size(), size_t(at->length - skipped));
    DSJ_TRY_STATUS(read_bytes(part, *from, at->file_offset + skipped * int64_t(sizeof(float)),
                              std::as_writable_bytes(out.first(taken))));
    out = out.subspan(taken);
    offset += int64_t(taken);
  }
  return {};
}

Status Reader::read_bytes(int part, Source& source, int64_t begin, std::span<std::byte> out) {
  while (!out.empty()) {
    const int64_t block = begin / source.block_bytes;
    const int64_t block_begin = block * source.block_bytes;
    const int64_t block_end = std::min(block_begin + source.block_bytes, source.bytes);
    const int64_t end = begin + int64_t(out.size());
    int64_t taken;
    if (begin == block_begin && end >= block_end) {
      // As many requested whole blocks as possible. The file's last one may be short.
      const int64_t whole_end =
          end == source.bytes ? end : end / source.block_bytes * source.block_bytes;
      taken = std::min(whole_end - begin, kBlocksPerRead * source.block_bytes);
      DSJ_TRY_STATUS(read_blocks(part, source, block, out.first(size_t(taken))));
    } else {
      taken = std::min(end, block_end) - begin;
      const std::span<std::byte> some = out.first(size_t(taken));
      const bool cached = cached_part_ == part && cached_block_ == block;
      if (!cached && source.verified[size_t(block)]) {
        DSJ_TRY(const ReadFile* from, file(part, source));
        if (auto read = from->read(begin, some); !read)
          return std::unexpected(judged(read.error()));
      } else {
        DSJ_TRY_STATUS(load_cached_block(part, source, block));
        std::memcpy(some.data(), cached_.data() + (begin - block_begin), some.size());
      }
    }
    begin += taken;
    out = out.subspan(size_t(taken));
  }
  return {};
}

Status Reader::read_blocks(int part, Source& source, int64_t first, std::span<std::byte> out) {
  DSJ_TRY(const ReadFile* from, file(part, source));
  if (auto read = from->read(first * source.block_bytes, out); !read) {
    Error error = judged(read.error());
    error.message += ", in block " + std::to_string(first) +
                     (int64_t(out.size()) > source.block_bytes ? " or behind it" : "");
    return std::unexpected(error);
  }
  for (int64_t block = first; !out.empty(); ++block) {
    const size_t length = std::min(out.size(), size_t(source.block_bytes));
    if (checksum(out.first(length)) != source.blocks[size_t(block)]) {
      return damaged("block " + std::to_string(block) + ", the " + std::to_string(length) +
                         " bytes from " + std::to_string(block * source.block_bytes) +
                         " on, does not match its checksum",
                     source.path);
    }
    source.verified[size_t(block)] = true;
    out = out.subspan(length);
  }
  return {};
}

Status Reader::load_cached_block(int part, Source& source, int64_t block) {
  if (cached_part_ == part && cached_block_ == block) return {};
  const int64_t begin = block * source.block_bytes;
  cached_block_ = -1;
  cached_.resize(size_t(std::min(source.block_bytes, source.bytes - begin)));
  DSJ_TRY_STATUS(read_blocks(part, source, block, cached_));
  cached_part_ = part;
  cached_block_ = block;
  return {};
}

Status Reader::check_parts() {
  for (int part = 0; part < manifest_.world; ++part) {
    DSJ_TRY(const Source* of_part, source(part));
    DSJ_TRY(const ReadFile* data, file(part, *of_part));
    (void)data;
  }
  return {};
}

Status Reader::verify() {
  std::vector<std::byte> buffer;
  for (int part = 0; part < manifest_.world; ++part) {
    DSJ_TRY(Source * of_part, source(part));
    DSJ_TRY_STATUS(file(part, *of_part));
    const int64_t step = kBlocksPerRead * of_part->block_bytes;
    for (int64_t begin = 0; begin < of_part->bytes; begin += step) {
      buffer.resize(size_t(std::min(step, of_part->bytes - begin)));
      DSJ_TRY_STATUS(read_blocks(part, *of_part, begin / of_part->block_bytes, buffer));
    }
  }
  return {};
}

}  // namespace dsj::checkpoint
