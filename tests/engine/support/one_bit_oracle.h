// The 1-bit arithmetic of all ranks in one place, slowly: the oracle of comm/compressed.h and of
// zero/methods/one_bit.h. Written from the rules (docs/optimizers.md), with none of the engine's code.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace dsj::testing_support {

/// The errors of every rank for one vector of `padded` elements.
class CompressedOracle {
 public:
  using Numbers = std::vector<float>;

  CompressedOracle(int world, std::int64_t padded)
      : worker_(static_cast<std::size_t>(world), Numbers(static_cast<std::size_t>(padded))),
        server_(worker_[0].size()) {}

  /// xs [rank][n]; the rest is padding, zero. The mean, with padding.
  Numbers mean(const std::vector<at::Tensor>& xs) {
    const std::size_t world = xs.size(), chunk = server_.size() / world;
    Numbers sums(server_.size());
    for (std::size_t r = 0; r < world; ++r) {
      Numbers& x = worker_[r];
      for (std::size_t i = 0; i < static_cast<std::size_t>(xs[r].numel()); ++i)
        x[i] += xs[r].const_data_ptr<float>()[i];
      const float s = compress(x.data(), x.size(), nullptr);
      for (std::size_t i = 0; i < x.size(); ++i)
        sums[i] += (signs_[i] ? s : -s) / static_cast<float>(world);
    }
    Numbers out(server_.size());
    for (std::size_t r = 0; r < world; ++r) {
      for (std::size_t i = r * chunk; i < (r + 1) * chunk; ++i) server_[i] = sums[i] + server_[i];
      compress(server_.data() + r * chunk, chunk, out.data() + r * chunk);
    }
    return out;
  }
  const Numbers& worker(int rank) const { return worker_[static_cast<std::size_t>(rank)]; }
  const Numbers& server() const { return server_; }

 private:
  float compress(float* x, std::size_t n, float* out) {
    // By torch's norm, as there: its last bit decides signs of numbers that are almost 0.
    const at::Tensor norm = at::norm(at::from_blob(x, {static_cast<std::int64_t>(n)}));
    const auto s = norm.div(std::sqrt(static_cast<double>(n))).item<float>();
    signs_.assign(n, false);
    for (std::size_t i = 0; i < n; ++i) {
      signs_[i] = !(x[i] < 0);
      if (out != nullptr) out[i] = signs_[i] ? s : -s;
      x[i] -= signs_[i] ? s : -s;
    }
    return s;
  }

  std::vector<Numbers> worker_;
  Numbers server_;
  std::vector<bool> signs_;
};

/// OneBitAdam of one vector on all ranks, fp32.
class OneBitAdamOracle {
 public:
  struct Options {
    double beta1, beta2, eps, weight_decay;
    int freeze_step, world;
  };
  OneBitAdamOracle(const Options& options, std::int64_t numel, std::int64_t padded)
      : p(at::zeros({numel})),
        o_(options),
        m_(at::zeros({numel})),
        v_(at::zeros({numel})),
        errors_(options.world, padded) {}

  /// gradients [rank][numel].
  void step(const std::vector<at::Tensor>& gradients, double lr) {
    ++count_;
    if (count_ == 1) return;  // DeepSpeed's first call
    if (count_ <= std::max(o_.freeze_step, 2)) {
      at::Tensor g = at::zeros_like(m_);
      for (const at::Tensor& one : gradients) g += one;
      g /= o_.world;
      m_ = m_ * o_.beta1 + g * (1 - o_.beta1);
      v_ = v_ * o_.beta2 + g * g * (1 - o_.beta2);
    } else {
      std::vector<at::Tensor> own;
      for (const at::Tensor& one : gradients) own.push_back(m_ * o_.beta1 + one * (1 - o_.beta1));
      const auto mean = errors_.mean(own);
      for (std::int64_t i = 0; i < m_.numel(); ++i) m_[i] = mean[static_cast<std::size_t>(i)];
    }
    p -= lr * (m_ / (v_.sqrt() + o_.eps) + o_.weight_decay * p);
  }

  at::Tensor p;

 private:
  const Options o_;
  int count_ = 0;
  at::Tensor m_, v_;
  CompressedOracle errors_;
};

/// OneBitLamb of all tensors on all ranks, fp32: they are one vector, in order.
class OneBitLambOracle {
 public:
  struct Options {
    double beta1, beta2, eps, weight_decay, max_coeff, min_coeff, coeff_beta, factor_max,
        factor_min, factor_threshold;
    int freeze_step, world;
  };
  OneBitLambOracle(const Options& options, const std::vector<std::int64_t>& numels,
                   std::int64_t padded)
      : o_(options), errors_(options.world, padded) {
    for (const std::int64_t n : numels) {
      tensors_.push_back({at::zeros({n}), at::zeros({n}), at::zeros({n}), at::zeros({n})});
      numel_ += n;
    }
    padding_ = at::zeros({padded - numel_});
  }

  const at::Tensor& parameter(std::size_t tensor) const { return tensors_[tensor].p; }

  /// gradients [tensor][rank][numel].
  void step(const std::vector<std::vector<at::Tensor>>& gradients, double lr) {
    ++count_;
    if (count_ == 1) return;  // DeepSpeed's first call
    if (count_ <= std::max(o_.freeze_step, 2)) {
      for (std::size_t t = 0; t < tensors_.size(); ++t) warm_up(tensors_[t], gradients[t], lr);
      return;
    }
    if (count_ == std::max(o_.freeze_step, 2) + 1) begin();
    const auto momenta = exchange(gradients);
    for (std::size_t t = 0; t < tensors_.size(); ++t) compressed(tensors_[t], momenta[t], lr);
  }

 private:
  struct One {
    at::Tensor p, m, v, fresh;
    double frozen = 0, factor = 1, scaling = 1;
  };

  static double norm(const at::Tensor& x) { return x.pow(2).sum().sqrt().item<double>(); }

  void warm_up(One& one, const std::vector<at::Tensor>& gradients, double lr) {
    at::Tensor g = at::zeros_like(one.m);
    for (const at::Tensor& of_rank : gradients) g += of_rank;
    g /= o_.world;
    one.m = one.m * o_.beta1 + g * (1 - o_.beta1);
    one.v = one.v * o_.beta2 + g * g * (1 - o_.beta2);
    const at::Tensor update = one.m / (one.v.sqrt() + o_.eps) + o_.weight_decay * one.p;
    double c = 1;
    if (norm(one.p) != 0 && norm(update) != 0)
      c = std::max(std::min(norm(one.p) / norm(update), o_.max_coeff), o_.min_coeff);
    if (c != 1) one.frozen = o_.coeff_beta * one.frozen + (1 - o_.coeff_beta) * c;
    one.p = one.p - lr * c * update;
  }

  void begin() {
    double sum = 0;
    const auto size = [](const One& one) {
      return norm(one.m) / std::sqrt(static_cast<double>(one.m.numel()));
    };
    for (One& one : tensors_) {
      one.fresh = one.v.clone();
      sum += size(one);
    }
    for (One& one : tensors_) one.scaling = sum / static_cast<double>(tensors_.size()) / size(one);
  }

  std::vector<at::Tensor> exchange(const std::vector<std::vector<at::Tensor>>& gradients) {
    std::vector<at::Tensor> xs;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(o_.world); ++rank) {
      std::vector<at::Tensor> parts;
      for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const One& one = tensors_[t];
        parts.push_back((one.m * o_.beta1 + gradients[t][rank] * (1 - o_.beta1)) * one.scaling);
      }
      parts.push_back(padding_);
      xs.push_back(at::cat(parts));
    }
    at::Tensor mean = xs[0];
    if (o_.world > 1) mean = at::tensor(errors_.mean(xs));
    std::vector<at::Tensor> momenta;
    std::int64_t at = 0;
    for (const One& one : tensors_) {
      momenta.push_back(mean.narrow(0, at, one.m.numel()) / one.scaling);
      at += one.m.numel();
    }
    padding_ = mean.narrow(0, at, padding_.numel()).clone();  // nobody touches it
    return momenta;
  }

  void compressed(One& one, const at::Tensor& m, double lr) {
    const at::Tensor g = (m - one.m * o_.beta1) / (1 - o_.beta1);
    one.m = m.clone();
    one.fresh = one.fresh * o_.beta2 + g * g * (1 - o_.beta2);
    const at::Tensor d = one.v.sqrt() + o_.eps, real = one.fresh.sqrt() + o_.eps;
    const at::Tensor prelim = m / d, update = prelim + o_.weight_decay * one.p;
    double factor = (d / real).max().item<double>();
    if (o_.weight_decay > 0) {
      const double q = std::min(1.0, norm(prelim) / norm(update));
      factor = factor * q + 1 - q;
    }
    if (factor > o_.factor_max) factor = o_.factor_max;
    if (factor < o_.factor_min) factor = o_.factor_min;
    const double most = one.factor * (1 + o_.factor_threshold),
                 least = one.factor * (1 - o_.factor_threshold);
    if (factor > most) factor = most;
    if (factor < least) factor = least;
    one.factor = factor;
    one.p = one.p - lr * one.frozen * factor * update;
  }

  const Options o_;
  int count_ = 0;
  std::int64_t numel_ = 0;
  std::vector<One> tensors_;
  at::Tensor padding_;
  CompressedOracle errors_;
};

/// ZeroOneAdam of one vector on all ranks, fp32. Counts and intervals are kept as DeepSpeed keeps
/// them, one step at a time.
class ZeroOneAdamOracle {
 public:
  struct Options {
    double beta1, beta2, eps, weight_decay;
    int64_t var_freeze_step, var_update_scaler, local_step_scaler, local_step_clipper;
    int world;
  };
  ZeroOneAdamOracle(const Options& options, std::int64_t numel, std::int64_t padded)
      : o_(options), padded_(padded), v_(at::zeros({numel})), errors_(options.world, padded) {
    for (int rank = 0; rank < options.world; ++rank)
      ranks_.push_back({at::zeros({numel}), at::zeros({numel}), at::zeros({numel})});
  }

  const at::Tensor& parameter(int rank) const { return ranks_[static_cast<std::size_t>(rank)].p; }

  /// gradients [rank][numel].
  void step(const std::vector<at::Tensor>& gradients, double lr) {
    ++count_;
    if (count_ == 1) return;
    frozen_ ? frozen_step(gradients, lr) : variance_step(gradients, lr);
    if (!frozen_ && count_ > o_.var_freeze_step) {
      frozen_ = true;
      errors_ = CompressedOracle(o_.world, padded_);
    }
  }

 private:
  struct Rank {
    at::Tensor p, m, u;
  };

  at::Tensor denominator() const { return v_.sqrt() + o_.eps; }
  at::Tensor mean(const std::vector<at::Tensor>& xs) {
    if (o_.world == 1) return xs[0].clone();
    const auto numbers = errors_.mean(xs);
    return at::tensor(numbers).narrow(0, 0, v_.numel());
  }

  void variance_step(const std::vector<at::Tensor>& gradients, double lr) {
    at::Tensor g = at::zeros_like(v_);
    if (count_ % k_ == 0) {
      for (const at::Tensor& one : gradients) g += one;
      g /= o_.world;
      v_ = v_ * o_.beta2 + g * g * (1 - o_.beta2);
      if (++variance_counter_ == o_.var_update_scaler) {
        variance_counter_ = 0;
        k_ *= 2;
      }
    } else if (o_.world > 1) {
      g = mean(gradients);
    }
    const bool moves = o_.world > 1 || g.abs().max().item<double>() > 0;
    for (Rank& rank : ranks_) {
      if (moves) rank.m = rank.m * o_.beta1 + g * (1 - o_.beta1);
      rank.p -= lr * (rank.m / denominator() + o_.weight_decay * rank.p);
    }
  }

  void frozen_step(const std::vector<at::Tensor>& gradients, double lr) {
    rates_ += lr;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      rank.m = rank.m * o_.beta1 + gradients[r] * (1 - o_.beta1);
      const at::Tensor by = lr * (rank.m / denominator() + o_.weight_decay * rank.p);
      rank.p -= by;
      rank.u -= by;
    }
    if (count_ % h_ == 0) {
      std::vector<at::Tensor> moved;
      for (Rank& rank : ranks_) {
        rank.p -= rank.u;
        moved.push_back(rank.u * denominator());
      }
      const at::Tensor u = mean(moved);
      for (Rank& rank : ranks_) {
        rank.m = -u / rates_;
        rank.p += u / denominator();
        rank.u.zero_();
      }
      rates_ = 0;
    }
    if (++local_counter_ == o_.local_step_scaler) {
      local_counter_ = 0;
      h_ = std::min(o_.local_step_clipper, 2 * h_);
    }
  }

  const Options o_;
  const std::int64_t padded_;
  std::int64_t count_ = 0, k_ = 1, variance_counter_ = 0, h_ = 1, local_counter_ = 0;
  bool frozen_ = false;
  double rates_ = 0;
  at::Tensor v_;
  std::vector<Rank> ranks_;
  CompressedOracle errors_;
};

}  // namespace dsj::testing_support
