// Inputs of resolve() besides ds_config and the arguments, and its result. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/dsconfig/config/resolved.h"

namespace dsj::dsconfig {

/// Facts about the run that ds_config lacks. Values that depend on a missing fact stay open.
struct Facts {
  int world_size = 1;
  std::optional<int64_t> hidden_size;   ///< from the model's config.json
  std::optional<int64_t> dataset_rows;  ///< decides the number of steps if max_steps is not given
  /// With training.packing: the number of packed rows.
  std::optional<int64_t> packed_rows = std::nullopt;
  std::optional<int64_t> layers;  ///< decoder layers, from the model's config.json
  /// From the model's config.json: its number of positions, unless rope scaling extends with the
  /// sequence; and whether these positions have parameters.
  std::optional<int64_t> positions = std::nullopt;
  bool positions_learned = false;
};

struct Finding {
  enum class Severity { Error, Unsupported, Warning } severity;
  std::string path;          ///< "zero_optimization.stage"
  std::string message;       ///< what is wrong
  std::string hint;          ///< what to do; or "did you mean ...?"
  int line = 0, column = 0;  ///< 1-based; 0: unknown
  std::string other = {};    ///< the other path of a contradiction: "training.learningRate"
};

/// The source of a value: "ds_config", "training.learningRate", "default (DeepSpeed 0.19)",
/// "hidden_size^2" ...
struct Origin {
  std::string path, value, from;
};

/// A value that ds_config leaves to its job. Not a Finding: the file is correct.
struct Note {
  std::string path;     ///< the key that would set it: "train_micro_batch_size_per_gpu"
  std::string message;  ///< what is missing
  std::string hint;     ///< the job's field and argument that set it
};

struct Resolution {
  ResolvedConfig config;  ///< valid if there is no Error finding
  std::vector<Finding> findings;
  std::vector<Note> notes;      ///< from resolve_alone() only
  std::vector<Origin> origins;  ///< one per "auto", and per relevant default
  bool complete = false;        ///< false if a fact was missing (total steps, a hidden_size "auto")

  bool ok() const;        ///< no Error
  bool runnable() const;  ///< no Error, no Unsupported
};

}  // namespace dsj::dsconfig
