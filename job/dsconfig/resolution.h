// What resolve() takes besides ds_config and the arguments, and what it gives back. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/dsconfig/resolved.h"

namespace dsj::dsconfig {

/// What the run knows and ds_config does not say. What depends on a missing fact stays undecided.
struct Facts {
  int world_size = 1;
  std::optional<int64_t> hidden_size;   ///< from the model's config.json
  std::optional<int64_t> dataset_rows;  ///< decides the steps if max_steps is not given
  /// With training.packing: how many packed rows the rows to train on make.
  std::optional<int64_t> packed_rows = std::nullopt;
  std::optional<int64_t> layers;  ///< decoder layers, from the model's config.json
  /// From the model's config.json: the positions that it was made for, unless its rope scaling grows
  /// with the sequence; and whether there are parameters for these positions alone.
  std::optional<int64_t> positions = std::nullopt;
  bool positions_learned = false;
};

struct Finding {
  enum class Severity { Error, Unsupported, Warning } severity;
  std::string path;          ///< "zero_optimization.stage"
  std::string message;       ///< what is wrong
  std::string hint;          ///< what to do; "did you mean ...?"
  int line = 0, column = 0;  ///< 1-based; 0: unknown
  std::string other = {};    ///< the second place of a contradiction: "training.learningRate"
};

/// Where a value came from: "ds_config", "training.learningRate", "default (DeepSpeed 0.19)",
/// "hidden_size^2" ...
struct Origin {
  std::string path, value, from;
};

/// What a ds_config leaves to its job. It is not a Finding: nothing is wrong with the file.
struct Note {
  std::string path;     ///< the key that would decide it: "train_micro_batch_size_per_gpu"
  std::string message;  ///< what is missing
  std::string hint;     ///< the job's field and argument that set it
};

struct Resolution {
  ResolvedConfig config;  ///< valid if there is no Error finding
  std::vector<Finding> findings;
  std::vector<Note> notes;      ///< from resolve_alone() only
  std::vector<Origin> origins;  ///< one per "auto", and per default that matters
  bool complete = false;        ///< false: a fact was missing (total steps, a hidden_size "auto")

  bool ok() const;        ///< no Error
  bool runnable() const;  ///< no Error, no Unsupported
};

}  // namespace dsj::dsconfig
