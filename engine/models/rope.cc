// The rotary table of each scaling, as transformers' modeling_rope_utils computes it: inverse
// frequencies and angles in fp32.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/models/ops.h"

namespace dsj::models::ops {
namespace {

using layout::RopeConfig;
using Scaling = RopeConfig::Scaling;

/// The base grows with the part of the sequence beyond the original length.
double dynamic_theta(const RopeConfig& c, int64_t dim, int64_t length) {
  const auto original = static_cast<double>(c.original_max);
  const double seq = std::max(static_cast<double>(length), original);
  const double exponent = static_cast<double>(dim) / static_cast<double>(dim - 2);
  return c.theta * std::pow(c.factor * seq / original - (c.factor - 1), exponent);
}

/// Divides low frequencies by the factor, keeps high ones, and ramps between.
at::Tensor llama3(const RopeConfig& c, const at::Tensor& inverse) {
  const auto original = static_cast<double>(c.original_max);
  const at::Tensor wavelength = inverse.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor low = inverse / c.factor;
  const at::Tensor ramp = (wavelength.reciprocal() * original - c.low_freq_factor) /
                          (c.high_freq_factor - c.low_freq_factor);
  const at::Tensor middle = low * (1 - ramp) + inverse * ramp;
  return at::where(wavelength > original / c.low_freq_factor, low,
                   at::where(wavelength < original / c.high_freq_factor, inverse, middle));
}

}  // namespace

RopeTable rope_table(const RopeConfig& c, int64_t dim, int64_t length,
                     const at::TensorOptions& options) {
  const auto wide = options.dtype(at::kFloat);
  const double theta = c.scaling == Scaling::Dynamic ? dynamic_theta(c, dim, length) : c.theta;
  const at::Tensor exponent =
      at::arange(0, dim, 2, options.dtype(at::kLong)).to(at::kFloat).div_(dim);
  at::Tensor inverse = at::pow(theta, exponent).reciprocal_();
  if (c.scaling == Scaling::Linear) inverse.div_(c.factor);
  if (c.scaling == Scaling::Llama3) inverse = llama3(c, inverse);
  const at::Tensor angles = at::arange(length, wide).unsqueeze(1) * inverse.unsqueeze(0);
  const auto type = c10::typeMetaToScalarType(options.dtype());
  return {angles.cos().to(type).to(at::kFloat), angles.sin().to(type).to(at::kFloat)};
}

const RopeTable& RopeTables::below(int64_t length) {
  const bool dynamic = config_.scaling == Scaling::Dynamic;
  const int64_t scaled_for = dynamic ? std::max(length, config_.original_max) : 0;
  if (table_.cos.defined() && table_.cos.size(0) >= length && scaled_for == scaled_for_)
    return table_;
  table_ = {};  // before the new one is made
  table_ = rope_table(config_, dim_, length, options_);
  scaled_for_ = scaled_for;
  return table_;
}

}  // namespace dsj::models::ops
