#include "engine/checkpoint/reader.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
namespace dsj::checkpoint {
namespace {

constexpr int64_t kJsonBytesMax = int64_t{1} << 30;
constexpr char kDamagedHint[] = "the checkpoint is damaged: use an older one";
/// Blocks per read. It bounds what verify() holds, and keeps the bytes in the cache for the
/// checksum.
constexpr int64_t kBlocksPerRead = 8;

}  // namespace

Result<Reader> Reader::open(Files& files, const std::string& path) {
  Reader reader;
  reader.path_ = path;
  const std::string manifest_path = path_join(path, kManifestFile);
  DSJ_TRY(const std::string text, files.read_all(manifest_path, kJsonBytesMax));
  DSJ_TRY(reader.manifest_, manifest_from_text(text, manifest_path));
  for (const Extent& extent : reader.manifest_.extents) {
    reader.elements_[{extent.state, extent.param}] = extent.elements;
  }
  for (int rank = 0; rank < reader.manifest_.world; ++rank) {
    DSJ_TRY_STATUS(reader.add_part(files, rank));
  }
  for (auto& [name, ranges] : reader.located_) {
    std::ranges::sort(ranges, {},
                      [](const Located& at) { return std::pair(at.offset, at.length); });
    int64_t end = 0;
    for (const Located& at : ranges) end = at.offset == end ? end + at.length : INT64_MIN;
    if (const auto found = reader.elements_.find(name);
        found == reader.elements_.end() || found->second != end) {
      return fail(ErrorKind::Environment,
                  "the parts do not cover " + name.first + " of " + name.second + " exactly", path,
                  kDamagedHint);
    }
  }
  for (const auto& [name, elements] : reader.elements_) {
    if (elements > 0 && !reader.located_.contains(name)) {
      return fail(ErrorKind::Environment, "no part holds " + name.first + " of " + name.second,
                  path, kDamagedHint);
    }
  }
  return reader;
}

Status Reader::add_part(Files& files, int rank) {
  const std::string json_path = path_join(path_, part_json_name(rank));
  DSJ_TRY(const std::string text, files.read_all(json_path, kJsonBytesMax));
  if (checksum(text) != manifest_.parts[size_t(rank)]) {
    return fail(ErrorKind::Environment, "the file is not the one the manifest was written for",
                json_path, kDamagedHint);
  }
  DSJ_TRY(Part part, part_from_text(text, json_path));
  Source source{.path = path_join(path_, part_data_name(rank)),
                .bytes = part.bytes,
                .block_bytes = part.block_bytes,
                .blocks = std::move(part.blocks)};
  DSJ_TRY(source.file, files.open_read(source.path));
  if (source.file->size() != part.bytes) {
    return fail(ErrorKind::Environment,
                "the file has " + std::to_string(source.file->size()) + " bytes, " +
                    std::to_string(part.bytes) + " were written",
                source.path, kDamagedHint);
  }
  source.verified.resize(source.blocks.size());
  for (const Range& range : part.ranges) {
    if (range.length == 0) continue;
    located_[{range.state, range.param}].push_back(
        {range.offset, range.length, sources_.size(), range.file_offset});
  }
  sources_.push_back(std::move(source));
  return {};
}

std::optional<int64_t> Reader::elements(const std::string& state, const std::string& param) const {
  const auto found = elements_.find({state, param});
  if (found == elements_.end()) return std::nullopt;
  return found->second;
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
  if (out.empty()) return {};
  const auto& ranges = located_.at({state, param});
  auto at = std::ranges::upper_bound(ranges, offset, {}, &Located::offset) - 1;
  while (!out.empty()) {
    const int64_t skipped = offset - at->offset;
    const size_t taken = std::min(out.size(), size_t(at->length - skipped));
    if (auto done = read_bytes(at->source, at->file_offset + skipped * int64_t(sizeof(float)),
                               std::as_writable_bytes(out.first(taken)));
        !done) {
      done.error().message += " (read for " + state + " of " + param + ")";
      return done;
    }
    out = out.subspan(taken);
    offset += int64_t(taken);
    ++at;
  }
  return {};
}

Status Reader::read_bytes(size_t source_index, int64_t begin, std::span<std::byte> out) {
  Source& source = sources_[source_index];
  while (!out.empty()) {
    const int64_t block = begin / source.block_bytes;
    const int64_t block_begin = block * source.block_bytes;
    const int64_t block_end = std::min(block_begin + source.block_bytes, source.bytes);
    const int64_t end = begin + int64_t(out.size());
    int64_t taken;
    if (begin == block_begin && end >= block_end) {
      // As many whole blocks as are asked for. The file's last one may be short.
      const int64_t whole_end =
          end == source.bytes ? end : end / source.block_bytes * source.block_bytes;
      taken = std::min(whole_end - begin, kBlocksPerRead * source.block_bytes);
      DSJ_TRY_STATUS(read_blocks(source, block, out.first(size_t(taken))));
    } else {
      taken = std::min(end, block_end) - begin;
      const std::span<std::byte> part = out.first(size_t(taken));
      const bool cached = cached_source_ == source_index && cached_block_ == block;
      if (!cached && source.verified[size_t(block)]) {
        DSJ_TRY_STATUS(source.file->read(begin, part));
      } else {
        DSJ_TRY_STATUS(load_cached_block(source_index, block));
        std::memcpy(part.data(), cached_.data() + (begin - block_begin), part.size());
      }
    }
    begin += taken;
    out = out.subspan(size_t(taken));
  }
  return {};
}

Status Reader::read_blocks(Source& source, int64_t first, std::span<std::byte> out) {
  DSJ_TRY_STATUS(source.file->read(first * source.block_bytes, out));
  for (int64_t block = first; !out.empty(); ++block) {
    const size_t length = std::min(out.size(), size_t(source.block_bytes));
    if (checksum(out.first(length)) != source.blocks[size_t(block)]) {
      return fail(ErrorKind::Environment,
                  "block " + std::to_string(block) + ", the " + std::to_string(length) +
                      " bytes from " + std::to_string(block * source.block_bytes) +
                      " on, does not match its checksum",
                  source.path, kDamagedHint);
    }
    source.verified[size_t(block)] = true;
    out = out.subspan(length);
  }
  return {};
}

Status Reader::load_cached_block(size_t source_index, int64_t block) {
  if (cached_source_ == source_index && cached_block_ == block) return {};
  Source& source = sources_[source_index];
  const int64_t begin = block * source.block_bytes;
  cached_block_ = -1;
  cached_.resize(size_t(std::min(source.block_bytes, source.bytes - begin)));
  DSJ_TRY_STATUS(read_blocks(source, block, cached_));
  cached_source_ = source_index;
  cached_block_ = block;
  return {};
}

Status Reader::verify() {
  std::vector<std::byte> buffer;
  for (Source& source : sources_) {
    const int64_t step = kBlocksPerRead * source.block_bytes;
    for (int64_t begin = 0; begin < source.bytes; begin += step) {
      buffer.resize(size_t(std::min(step, source.bytes - begin)));
      DSJ_TRY_STATUS(read_blocks(source, begin / source.block_bytes, buffer));
    }
  }
  return {};
}

Result<Search> Search::begin(Files& files, const std::string& checkpoints_dir) {
  Search search;
  search.files_ = &files;
  search.directory_ = checkpoints_dir;
  DSJ_TRY(search.candidates_, list_candidates(files, checkpoints_dir));
  return search;
}

uint32_t Search::fingerprint() const {
  std::string names;
  for (const Candidate& candidate : candidates_) names += candidate.name + "\n";
  return static_cast<uint32_t>(checksum(names));
}

int Search::open(int index) {
  reader_.reset();
  for (open_ = index; open_ < count(); ++open_) {
    auto reader = Reader::open(*files_, path_join(directory_, candidates_[open_].name));
    if (reader) {
      reader_ = std::move(*reader);
      break;
    }
    problems_.insert_or_assign(open_, reader.error());
  }
  return open_;
}

std::optional<Error> Search::problem(int index) const {
  const auto found = problems_.find(index);
  return found == problems_.end() ? std::nullopt : std::optional(found->second);
}

void Search::reject(int index, const Error& problem) {
  problems_.insert_or_assign(index, problem);
}

std::vector<Search::Passed> Search::passed_over() const {
  std::vector<Passed> passed;
  for (int i = 0; i < count(); ++i) {
    // Those with an unreadable manifest come last. They matter only if they could be newer.
    const bool newer =
        i < open_ || (i > open_ && open_ < count() && !candidates_[i].problem.empty() &&
                      candidates_[i].step >= candidates_[open_].step);
    if (!newer) continue;
    const auto problem = problems_.find(i);
    passed.push_back({candidates_[i].name, problem != problems_.end() ? problem->second.to_string()
                                                                      : candidates_[i].problem});
  }
  return passed;
}

Error Search::nothing_left() const {
  DSJ_CHECK(!problems_.empty());
  Error error = problems_.begin()->second;
  error.kind = ErrorKind::Environment;
  error.hint =
      "no complete checkpoint is left in " + directory_ + "; remove the broken one to start again";
  return error;
}

Result<Newest> newest(Files& files, const std::string& checkpoints_dir) {
  DSJ_TRY(Search search, Search::begin(files, checkpoints_dir));
  Newest result;
  if (search.count() == 0) return result;
  if (search.open(0) == search.count()) return std::unexpected(search.nothing_left());
  for (const auto& passed : search.passed_over()) {
    result.warnings.push_back("checkpoint " + passed.name + " is passed over: " + passed.problem);
  }
  result.reader = std::move(search.reader());
  return result;
}

}  // namespace dsj::checkpoint
