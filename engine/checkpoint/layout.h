// The layout of a checkpoint on disk, and the two JSON files that describe it.
//
//   checkpoints/
//     attempt                           the attempt that may publish; written by the agent
//     step-<S>/                         complete, because it is renamed last; may be a link
//       manifest.json                   step, attempt, world, extents, holders, parts, run state
//       rank-00000.json                 one per rank: ranges, block checksums
//       rank-00000.bin                  one per rank: fp32 values
//     .staging-step-<S>-attempt-<N>/    being written, or left by a dead attempt
//     .old-step-<S>-attempt-<N>/        replaced by attempt N, if directories cannot be swapped
//     .trash-*/                         being deleted
//     kept-step-<S>/                    files not written by a save, found in a deleted step
//     damaged-step-<S>/                 found damaged at a resume, and renamed
//
// Values are addressed by state, parameter and range of elements, never by rank or chunk, so that
// any world size can read them. Both JSON files are sealed: {"body": ..., "xxh3": checksum of the
// body's text}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/checkpoint/checksum.h"
#include "engine/checkpoint/holders.h"

namespace dsj::checkpoint {

/// A part's bytes are checksummed per block, so that reading a few ranges reads only their blocks.
inline constexpr int64_t kBlockBytes = 1 << 20;
/// The maximum size of a JSON file.
inline constexpr int64_t kJsonBytesMax = int64_t{1} << 30;

/// The position, in a part's file, of elements [offset, offset + length) of (state, param).
struct Range {
  std::string state;
  std::string param;
  int64_t offset = 0, length = 0;
  int64_t file_offset = 0;
};

/// rank-NNNNN.json.
struct Part {
  int64_t step = 0, attempt = 0;
  int rank = 0, world = 1;
  int64_t bytes = 0;  ///< of rank-NNNNN.bin
  int64_t block_bytes = kBlockBytes;
  std::vector<uint64_t> blocks;  ///< XXH3-64 of each block
  std::vector<Range> ranges;     ///< in file order
};

/// manifest.json.
struct Manifest {
  int64_t step = 0, attempt = 0;
  /// One more than the largest serial in the directory when it was written; orders checkpoints by
  /// age. 0 if it was written before manifests had one.
  int64_t serial = 0;
  int world = 1;
  std::vector<Extent> extents;
  /// The parts that have each extent. Empty if it was written before manifests had them.
  std::vector<std::vector<Holders>> holders;
  std::vector<uint64_t> parts;  ///< XXH3-64 of each rank's rank-NNNNN.json
  nlohmann::json run_state;     ///< the engine's: skipped steps, loss scaler, settings ...
};

std::string to_text(const Part& part);
std::string to_text(const Manifest& manifest);
/// Environment, with `path`: the file is damaged (damage.h), or of a later version.
Result<Part> part_from_text(std::string_view text, const std::string& path);
Result<Manifest> manifest_from_text(std::string_view text, const std::string& path);

// Names.
inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kTrashPrefix[] = ".trash-";
inline constexpr char kDamagedPrefix[] = "damaged-";
inline constexpr char kKeptPrefix[] = "kept-";
std::string step_name(int64_t step);                       ///< "step-100"
std::string staging_name(int64_t step, int64_t attempt);   ///< ".staging-step-100-attempt-2"
std::string replaced_name(int64_t step, int64_t attempt);  ///< ".old-step-100-attempt-2"
std::string part_json_name(int rank);                      ///< "rank-00003.json"
std::string part_data_name(int rank);                      ///< "rank-00003.bin"
/// Whether a save writes a file of this name into a checkpoint.
bool is_checkpoint_file(std::string_view name);

/// A directory's name, parsed. attempt is 0 for "step-<S>".
struct DirName {
  enum class Kind { Step, Staging, Replaced, Trash } kind;
  int64_t step = 0, attempt = 0;
};
std::optional<DirName> parse_dir_name(std::string_view name);

}  // namespace dsj::checkpoint
