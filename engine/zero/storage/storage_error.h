// Thrown if offloaded state cannot be read or written during a step. It ends the attempt, as a
// failed collective does. The last checkpoint is not affected.
// Tested by: tests/engine/zero/storage/tile_cache_test.cc
#pragma once

#include <stdexcept>
#include <utility>

#include "common/result.h"

namespace dsj::zero {

class StorageError : public std::runtime_error {
 public:
  explicit StorageError(Error error)
      : std::runtime_error(error.to_string()), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

/// Returns the value; throws StorageError if `result` is an error.
template <typename T>
T value_or_throw(Result<T> result) {
  if (!result) throw StorageError(result.error());
  return std::move(*result);
}

}  // namespace dsj::zero
