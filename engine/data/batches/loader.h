// Loads the micro-batches of one rank, tokenized ahead on its own thread while the model
// computes. Used by the trainer. The order depends on the sampler only, not on how far ahead
// the thread is.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "common/result.h"
#include "engine/data/batches/batch.h"
#include "engine/data/batches/packs.h"
#include "engine/data/batches/sampler.h"
#include "engine/data/dataset.h"

namespace dsj::data {

struct MicroBatch {
  int64_t step = 0;        ///< from 0, as in the sampler
  int64_t micro_step = 0;  ///< from 0
  int64_t epoch = 0;       ///< from 0
  Batch batch;
};

struct LoaderOptions {
  int64_t rank = 0;
  int64_t first_step = 0;  ///< a resumed run starts where it stopped
  int64_t ahead_max = 4;   ///< micro-batches held ahead; at least 1
  /// The packs that the sampler deals, which must outlive the loader. Null: it deals rows.
  const Packs* packs = nullptr;
};

class Loader {
 public:
  /// Reads a row: Dataset::at, Dataset::whole if packs are made of whole rows, or a function of
  /// a test.
  using Source = std::function<Result<Sample>(int64_t row)>;

  /// Starts the thread. `dataset` must outlive the loader and have the sampler's number of rows.
  Loader(const Dataset& dataset, Sampler sampler, LoaderOptions options);
  Loader(Source source, Sampler sampler, LoaderOptions options);
  /// Stops the thread after the row that it is reading.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Waits for the next micro-batch: each micro-step of first_step, then of the next step,
  /// without end. An error comes instead of its micro-batch, and again from every later call.
  /// One caller at a time.
  Result<MicroBatch> next();

 private:
  void run(const std::stop_token& stop);
  Result<MicroBatch> make(int64_t step, int64_t micro_step) const;

  Source source_;
  Sampler sampler_;
  LoaderOptions options_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Result<MicroBatch>> ready_;
  std::optional<Error> failed_;
  std::jthread thread_;  // last: it stops before the rest goes
};

}  // namespace dsj::data
