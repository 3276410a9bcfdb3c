// Reads a DeepSpeed checkpoint like one of ours: ZeRO stages 0 to 3, BF16_Optimizer, universal;
// fp32, bf16 and fp16; any number of ranks. Parameters and states are read by ranges of elements,
// so that each rank reads only its own. Called by engine/train (resume) and cli (`dsj checkpoint`).
// Not supported: tensor and pipeline parallelism, experts, states on NVMe, data samplers.
// docs/import.md describes the layouts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/saved_run.h"
#include "engine/deepspeed/contents.h"
#include "engine/deepspeed/folder.h"
#include "engine/deepspeed/model_states.h"
#include "engine/deepspeed/optim_states.h"
#include "engine/deepspeed/ranges.h"

namespace dsj::deepspeed {

struct OpenOptions {
  bool universal = false;  ///< if a directory has both, the universal tag (folder.h)
};

class Checkpoint : public checkpoint::SavedRun {
 public:
  /// The maximum number of open files. A rank that reads more files reopens them.
  static constexpr size_t kFilesOpenMax = 128;

  /// `path`: the directory with `latest`, or one tag in it. `files` must outlive the checkpoint.
  /// Reads directories and the pickles of rank 0, no values; other files at their first use.
  /// Errors: BadInput (folder.h, saved_file.h), Environment (damaged).
  static Result<Checkpoint> open(Files& files, const std::string& path,
                                 const OpenOptions& options = {});
  /// The same for a folder that was found before, perhaps by another rank. Lists nothing, except
  /// the folders of a universal checkpoint's parameters.
  static Result<Checkpoint> open(Files& files, const Folder& folder);

  const std::string& path() const override { return folder_.path; }
  int64_t step() const override { return model_.steps; }
  const nlohmann::json& run_state() const override { return run_state_; }
  std::optional<int64_t> elements(const std::string& state,
                                  const std::string& param) const override;
  /// At a file's first use, it may turn out to be damaged or to have another form than rank 0's.
  Status read(const std::string& state, const std::string& param, int64_t offset,
              std::span<float> out) override;

  // ---- its content
  bool universal() const { return folder_.universal; }
  int stage() const { return placed_.optim.stage; }
  int world() const { return model_.world; }
  const std::string& version() const { return model_.version; }
  /// The trained parameters, then the frozen ones.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  size_t frozen_count() const { return model_.frozen.size(); }
  /// Tied name → its parameter.
  const std::map<std::string, std::string>& aliases() const { return model_.aliases; }
  /// All tensors.
  const std::map<StateOf, Dealt>& tensors() const { return placed_.tensors; }
  /// What a resumed run does differently from DeepSpeed; may be empty.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Reads the directory and the pickle of every file. Call it before reading everything.
  Status check_parts();
  /// The same, and checks the bytes of all files against their checksums.
  Status verify();

 private:
  struct OpenFile {
    size_t file = 0;
    std::unique_ptr<ReadFile> data;
  };

  void note_options();
  void derive_run_state();
  Status read_elements(const Dealt& dealt, int64_t offset, std::span<float> out);
  /// A file's content; read at its first use. Valid as long as the checkpoint.
  Result<const Contents*> contents(size_t file);
  /// Valid until the next call.
  Result<const ReadFile*> data(size_t file);
  const ReadFile* keep_open(size_t file, std::unique_ptr<ReadFile> data);

  Files* files_ = nullptr;
  Folder folder_;
  ModelStates model_;
  Placed placed_;
  std::vector<Parameter> parameters_;
  std::vector<std::string> notes_;
  nlohmann::json run_state_;
  std::vector<OpenFile> open_;  ///< oldest first
};

}  // namespace dsj::deepspeed
