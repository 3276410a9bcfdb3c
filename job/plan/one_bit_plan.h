// The vectors that a 1-bit optimizer compresses, and the position of each parameter in them. The
// engine (engine/zero/methods/one_bit) and the memory model use it. As in DeepSpeed 0.18.9: in fp32 one
// vector per parameter, in 16 bits one vector of all parameters, in the order of Hugging Face's
// model. OneBitLamb always has one. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "job/dsconfig/config/resolved.h"
#include "job/layout/partition.h"
#include "job/layout/units.h"

namespace dsj::plan {

struct CompressedVector {
  std::string name;   ///< the parameter's, or "all"
  int64_t numel = 0;  ///< without padding
  int64_t chunk = 0;  ///< elements that one rank owns, a multiple of 8; world * chunk >= numel

  int64_t padded(int world) const { return world * chunk; }
  int64_t padding(int world) const { return padded(world) - numel; }
};

struct OneBitPlan {
  struct Place {
    int64_t vector = -1;  ///< -1: frozen
    int64_t offset = 0;   ///< elements from the vector's start
  };
  std::vector<CompressedVector> vectors;
  std::vector<std::vector<Place>> places;  ///< [flat][slot]

  /// fp32 elements of one rank's errors: as a worker of every vector, as an owner of its chunks.
  int64_t worker_elements(int world) const;
  int64_t server_elements() const;
  /// Bytes that a rank sends per step: a scale per vector and a bit per element of a chunk, to each
  /// other rank, twice. Equals comm::compressed_mean_bytes().
  int64_t wire_bytes(int world) const;
};

/// Whether some steps leave gradients on their ranks. OneBitAdam on one rank has none.
bool keeps_gradients_local(const dsconfig::ResolvedConfig& config, int world);
/// Errors: if a 1-bit optimizer trains experts, because their order in one vector differs between
/// the published files and the classes that DeepSpeed wraps.
Status check_one_bit(const std::vector<layout::UnitSpec>& units,
                     const dsconfig::ResolvedConfig& config);
OneBitPlan one_bit_plan(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
                        const dsconfig::ResolvedConfig& config, int world);

/// Values that OneBitLamb keeps per parameter: its frozen coefficient, the last factor and the
/// scale of its momentum.
inline constexpr int64_t kLambCoefficients = 3;

/// fp32 elements that a rank keeps besides the optimizer's states once gradients stay local.
/// ZeroOneAdam's local steps need more (local_elements).
int64_t one_bit_elements(const OneBitPlan& one_bit, const layout::FlatPlan& plan,
                         const dsconfig::ResolvedConfig& config, int world);
/// Further elements for ZeroOneAdam's local steps: each parameter's value at the last
/// synchronization, and its change since then.
int64_t local_elements(const layout::FlatPlan& plan);
/// The most bytes of messages and temporary vectors in such a step (engine/zero/methods/one_bit.cc,
/// engine/comm/compressed.cc). One set of messages stays between steps.
int64_t one_bit_scratch(const OneBitPlan& one_bit, const layout::FlatPlan& plan, int world);

/// All parameters, as {unit, index in the unit}, in the order of Hugging Face's
/// model.named_parameters().
std::vector<std::pair<size_t, size_t>> registration_order(
    const std::vector<layout::UnitSpec>& units);

}  // namespace dsj::plan
