// The bounds and positions of rows (sequences) that are concatenated without padding. Attention is
// within rows; all other operations treat tokens independently. A micro-batch has one RowBounds; so
// has each call of generation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace dsj::models {

class RowBounds {
 public:
  RowBounds() = default;
  /// Rows of `lengths` tokens, each at least 1. `firsts`: position of each row's first token;
  /// empty: all 0. `device`: of positions().
  RowBounds(std::span<const int64_t> lengths, at::Device device,
            std::span<const int64_t> firsts = {});
  /// Rows reduced to some tokens, with their `positions`, ascending within a row. Attention treats
  /// the tokens of a row as adjacent, as DeepSpeed's random-LTD does.
  RowBounds(std::span<const int64_t> lengths, const std::vector<int64_t>& positions,
            at::Device device);

  int64_t rows() const { return static_cast<int64_t>(starts_.size()) - 1; }
  int64_t tokens() const { return starts_.back(); }
  /// [rows + 1]: the first token of each row, then tokens(): the cumulative sequence lengths of
  /// variable-length attention.
  const std::vector<int64_t>& starts() const { return starts_; }
  /// The same, [rows + 1] int32, on the device; undefined on the CPU (device::upload_starts).
  const at::Tensor& starts_there() const { return starts_there_; }
  int64_t length(int64_t row) const { return starts_[row + 1] - starts_[row]; }
  /// Tokens of the longest row.
  int64_t longest() const { return longest_; }
  /// The largest position plus one: the required length of a table of positions.
  int64_t positions_end() const { return positions_end_; }
  /// [tokens] int64, on the device.
  const at::Tensor& positions() const { return positions_; }

  /// Adjacent rows of equal length and first position: a rectangle [rows, length].
  struct Run {
    int64_t row = 0, rows = 1;      ///< first row, number of rows
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
