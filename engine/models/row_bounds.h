// Rows (sequences) laid end to end in one run of tokens: where each begins and ends, and what each
// token's position is. Attention is within rows; all else in a model treats tokens one by one, so
// no row is ever padded to another's length. A micro-batch has one; so has each call of generation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace dsj::models {

class RowBounds {
 public:
  RowBounds() = default;
  /// Rows of `lengths` tokens, each at least 1. `firsts`: the position of each row's first token,
  /// as many as rows; empty: all 0. The positions lie on `place`.
  RowBounds(std::span<const int64_t> lengths, at::Device place,
            std::span<const int64_t> firsts = {});
  /// Rows of which only these tokens are left: `positions` of each, rising within a row. Attention
  /// treats the tokens of a row as neighbours, as DeepSpeed's random-LTD does.
  RowBounds(std::span<const int64_t> lengths, const std::vector<int64_t>& positions,
            at::Device place);

  int64_t rows() const { return static_cast<int64_t>(starts_.size()) - 1; }
  int64_t tokens() const { return starts_.back(); }
  /// [rows + 1]: the first token of each row, then tokens(). What variable-length attention calls
  /// cumulative sequence lengths.
  const std::vector<int64_t>& starts() const { return starts_; }
  /// The same, [rows + 1] int32, on the device; undefined on the CPU (device::upload_starts).
  const at::Tensor& starts_there() const { return starts_there_; }
  int64_t length(int64_t row) const { return starts_[row + 1] - starts_[row]; }
  /// Tokens of the longest row.
  int64_t longest() const { return longest_; }
  /// The largest position and one more: how long a table of positions must be.
  int64_t positions_end() const { return positions_end_; }
  /// [tokens] int64, on the device.
  const at::Tensor& positions() const { return positions_; }

  /// Neighbours of one length that begin at one position: a rectangle [rows, length].
  struct Run {
    int64_t row = 0, rows = 1;      ///< first row, and how many
    int64_t start = 0, length = 0;  ///< first token; tokens of each row
    int64_t first = 0;              ///< position of each row's first token
    int64_t tokens() const { return rows * length; }
  };
  const std::vector<Run>& runs() const { return runs_; }

 private:
  void add_row(int64_t length, int64_t first);

  std::vector<int64_t> starts_ = {0};
  std::vector<Run> runs_;
  at::Tensor positions_, starts_there_;
  int64_t positions_end_ = 0, longest_ = 0;
};

}  // namespace dsj::models
