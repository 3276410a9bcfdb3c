#include "engine/checkpoint/writer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/check.h"
#include "engine/checkpoint/fence.h"
#include "engine/checkpoint/retention.h"
#include "job/contract.h"

namespace dsj::checkpoint {
namespace {

/// Bytes per append: large enough for a disk, small enough to stay in the cache between checksum
/// and write.
constexpr size_t kAppendBytes = size_t(8 * kBlockBytes);
/// Pieces up to this size are gathered. Larger ones are written directly.
constexpr size_t kGatheredBytes = size_t(kBlockBytes);

/// Appends bytes in large runs and checksums them by block in the same pass.
class BlockWriter {
 public:
  explicit BlockWriter(WriteFile& file) : file_(file), checksums_(kBlockBytes) {}

  Status append(std::span<const std::byte> bytes) {
    if (bytes.size() <= kGatheredBytes) {
      if (gathered_.size() + bytes.size() > kAppendBytes) DSJ_TRY_STATUS(flush());
      checksums_.add(bytes);
      gathered_.insert(gathered_.end(), bytes.begin(), bytes.end());
      return {};
    }
    DSJ_TRY_STATUS(flush());
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), kAppendBytes));
      checksums_.add(part);
      DSJ_TRY_STATUS(file_.append(part));
      bytes = bytes.subspan(part.size());
    }
    return {};
  }
  /// Writes the gathered bytes.
  Status flush() {
    if (gathered_.empty()) return {};
    DSJ_TRY_STATUS(file_.append(gathered_));
    gathered_.clear();
    return {};
  }
  /// Call it once, after the last flush().
  std::vector<uint64_t> blocks() { return checksums_.finish(); }

 private:
  WriteFile& file_;
  BlockChecksums checksums_;
  std::vector<std::byte> gathered_;
};

std::string staging_path(const WriteOptions& options) {
  return path_join(options.checkpoints_dir, staging_name(options.step, options.attempt));
}

bool all_finite(const nlohmann::json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  return !value.is_structured() || std::ranges::all_of(value, all_finite);
}

struct Parts {
  std::vector<uint64_t> checksums;
  std::vector<HeldRange> ranges;
  int64_t bytes = 0;
};

/// Indices of tensors by their names.
using Numbers = std::map<std::pair<std::string_view, std::string_view>, int32_t>;

Result<Numbers> numbers_of(const std::vector<Extent>& extents, const std::string& path) {
  Numbers numbers;
  for (const Extent& extent : extents) {
    if (!numbers.emplace(Numbers::key_type(extent.state, extent.param), int32_t(numbers.size()))
             .second) {
      return fail(ErrorKind::Internal, extent.state + " of " + extent.param + " is listed twice",
                  path);
    }
  }
  return numbers;
}

Status add_ranges(const Part& part, const Numbers& numbers, const std::string& path,
                  std::vector<HeldRange>& to) {
  for (const Range& range : part.ranges) {
    const auto number = numbers.find(Numbers::key_type(range.state, range.param));
    if (number == numbers.end()) {
      return fail(ErrorKind::Internal, range.state + " of " + range.param + " is not expected",
                  path);
    }
    to.push_back({number->second, part.rank, range.offset, range.length});
  }
  return {};
}

Result<Parts> read_parts(Files& files, const WriteOptions& options,
                         const std::vector<Extent>& extents) {
  Parts parts;
  DSJ_TRY(const Numbers numbers, numbers_of(extents, staging_path(options)));
  for (int rank = 0; rank < options.world; ++rank) {
    const std::string path = path_join(staging_path(options), part_json_name(rank));
    const auto text = files.read_all(path, kJsonBytesMax);
    if (!text) {
      // Not the user's input: a newer attempt removed files of this one, or a rank's failure was
      // unnoticed.
      Error error = text.error();
      if (error.kind == ErrorKind::BadInput) error.kind = ErrorKind::Transient;
      return std::unexpected(std::move(error));
    }
    DSJ_TRY(const Part part, part_from_text(*text, path));
    if (part.step != options.step || part.attempt != options.attempt || part.rank != rank ||
        part.world != options.world) {
      return fail(ErrorKind::Internal,
                  "this part is of step " + std::to_string(part.step) + ", attempt " +
                      std::to_string(part.attempt) + ", rank " + std::to_string(part.rank) +
                      " of " + std::to_string(part.world),
                  path);
    }
    const std::string data_path = path_join(staging_path(options), part_data_name(rank));
    DSJ_TRY(const auto data, files.open_read(data_path));
    if (data->size() != part.bytes) {
      return fail(ErrorKind::Environment,
                  "the file has " + std::to_string(data->size()) + " bytes, rank " +
                      std::to_string(rank) + " wrote " + std::to_string(part.bytes),
                  data_path);
    }
    parts.checksums.push_back(checksum(*text));
    parts.bytes += part.bytes + int64_t(text->size());
    DSJ_TRY_STATUS(add_ranges(part, numbers, path, parts.ranges));
  }
  return parts;
}

/// The fence: a replaced attempt must not publish.
Status check_attempt(Files& files, const WriteOptions& options) {
  DSJ_TRY(const int64_t owner, owner_of(files, options.checkpoints_dir));
  if (owner <= options.attempt) return {};
  return fail(ErrorKind::Transient,
              "attempt " + std::to_string(owner) + " owns the checkpoints, attempt " +
                  std::to_string(options.attempt) + " may not publish any more",
              path_join(options.checkpoints_dir, contract::kAttemptFile));
}

/// One more than the largest serial in the directory.
Result<int64_t> next_serial(Files& files, const std::string& checkpoints_dir) {
  DSJ_TRY(const auto candidates, list_candidates(files, checkpoints_dir));
  int64_t newest = 0;
  for (const Candidate& candidate : candidates) newest = std::max(newest, candidate.serial);
  return newest + 1;
}

/// Gives the staging directory its final name, after moving an existing checkpoint of that name.
Status take_name(Files& files, const WriteOptions& options, const std::string& target) {
  DSJ_TRY(const bool occupied, files.exists(target));
  if (occupied) {
    DSJ_TRY(const bool swapped, files.exchange(staging_path(options), target));
    if (swapped) return files.sync_dir(options.checkpoints_dir);
    const std::string aside =
        path_join(options.checkpoints_dir, replaced_name(options.step, options.attempt));
    DSJ_TRY_STATUS(files.remove_all(aside));
    DSJ_TRY_STATUS(files.rename(target, aside));
  }
  DSJ_TRY_STATUS(files.rename(staging_path(options), target));
  return files.sync_dir(options.checkpoints_dir);
}

}  // namespace

Result<int64_t> write_rank(Files& files, const WriteOptions& options,
                           std::span<const Piece> pieces) {
  return write_rank_from(files, options, [&](const EmitPiece& emit) -> Status {
    for (const Piece& piece : pieces) DSJ_TRY_STATUS(emit(piece));
    return {};
  });
}

Result<int64_t> write_rank_from(Files& files, const WriteOptions& options,
                                const std::function<Status(const EmitPiece&)>& produce) {
  const std::string staging = staging_path(options);
  const std::string json_path = path_join(staging, part_json_name(options.rank));
  DSJ_TRY_STATUS(files.make_dirs(staging));
  // An earlier save of this step may have failed: its index must not outlive its data.
  DSJ_TRY(const bool stale, files.exists(json_path));
  if (stale) DSJ_TRY_STATUS(files.remove(json_path));

  Part part{.step = options.step,
            .attempt = options.attempt,
            .rank = options.rank,
            .world = options.world};
  DSJ_TRY(const auto file, files.create_write(path_join(staging, part_data_name(options.rank))));
  BlockWriter writer(*file);
  DSJ_TRY_STATUS(produce([&](const Piece& piece) -> Status {
    part.ranges.push_back({.state = piece.state,
                           .param = piece.param,
                           .offset = piece.offset,
                           .length = int64_t(piece.data.size()),
                           .file_offset = part.bytes});
    DSJ_TRY_STATUS(writer.append(std::as_bytes(piece.data)));
    part.bytes += int64_t(piece.data.size_bytes());
    return {};
  }));
  DSJ_TRY_STATUS(writer.flush());
  DSJ_TRY_STATUS(file->sync());
  DSJ_TRY_STATUS(file->close());
  part.blocks = writer.blocks();

  const std::string text = to_text(part);
  DSJ_TRY_STATUS(files.write_synced(json_path, text));
  DSJ_TRY_STATUS(files.sync_dir(staging));
  return part.bytes + int64_t(text.size());
}

Result<Published> publish(Files& files, const WriteOptions& options,
                          const Publication& publication) {
  DSJ_CHECK(options.rank == 0, "only rank 0 publishes");
  if (!all_finite(publication.run_state))
    return fail(ErrorKind::Internal, "the run state holds a number that is not finite",
                options.checkpoints_dir);
  const std::string staging = staging_path(options);
  const std::string target = path_join(options.checkpoints_dir, step_name(options.step));

  DSJ_TRY(Parts parts, read_parts(files, options, publication.extents));
  DSJ_TRY(auto holders, holders_of(publication.extents, std::move(parts.ranges), staging));
  DSJ_TRY(const int64_t serial, next_serial(files, options.checkpoints_dir));
  const std::string manifest = to_text(Manifest{.step = options.step,
                                                .attempt = options.attempt,
                                                .serial = serial,
                                                .world = options.world,
                                                .extents = publication.extents,
                                                .holders = std::move(holders),
                                                .parts = std::move(parts.checksums),
                                                .run_state = publication.run_state});
  DSJ_TRY_STATUS(files.write_synced(path_join(staging, kManifestFile), manifest));
  DSJ_TRY_STATUS(files.sync_dir(staging));
  DSJ_TRY_STATUS(check_attempt(files, options));
  DSJ_TRY_STATUS(take_name(files, options, target));
  DSJ_TRY_STATUS(files.sync_dir(path_parent(options.checkpoints_dir)));

  Published published{.path = target, .bytes = parts.bytes + int64_t(manifest.size())};
  published.warnings = prune(files, {.checkpoints_dir = options.checkpoints_dir,
                                     .step = options.step,
                                     .attempt = options.attempt,
                                     .save_total_limit = publication.save_total_limit,
                                     .best_step = publication.best_step,
                                     .confirmed = publication.confirmed});
  return published;
}

}  // namespace dsj::checkpoint
