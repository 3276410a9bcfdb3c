// The rules of optimizer.h for one element, in fp32: the only source of the formulas for the CPU's
// kernels (engine/kernels/kernels_impl.h) and the CUDA kernels (engine/kernels/cuda/updates.cu).
// elements.h makes them from an update's doubles. C++20 and without headers of other rooms, so that
// nvcc can compile it.
//
// A rule takes a parameter p, its gradient g (already scaled) and its states in the descriptor's
// order, and writes p and states. Branches depend only on the rule's own numbers, which are the
// same for every element.
// Tested by: tests/engine/zero/flat/update_test.cc, tests/engine/zero/optimizers_oracle_test.cc
#pragma once

#include <cmath>
#include <cstdint>

// Always inlined, because each instruction set compiles its own copy, and none may be shared.
#ifdef __CUDACC__
#define DSJ_ELEMENT __host__ __device__ __forceinline__
#else
#define DSJ_ELEMENT __attribute__((always_inline)) inline
#endif

namespace dsj::optim {

/// g + decay * p; without decay exactly g, even if p is not finite.
DSJ_ELEMENT float decayed(float g, float p, float decay) {
  return decay != 0 ? g + decay * p : g;
}

/// Adam's two moments.
struct Moments {
  float rest1, beta2, rest2;  ///< 1 - beta1, beta2, 1 - beta2
  DSJ_ELEMENT void operator()(float g, float* s) const {
    s[0] = s[0] + rest1 * (g - s[0]);
    s[1] = beta2 * s[1] + rest2 * g * g;
  }
};

struct AdamElement {
  static constexpr int kStates = 2;
  float decay, keep;  ///< g += decay * p; p *= keep
  Moments moments;
  float root, step, eps;  ///< sqrt(correction2), lr / correction1
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    moments(decayed(g, p, decay), s);
    p *= keep;
    p -= step * s[0] / (sqrtf(s[1]) / root + eps);
  }
};

struct SgdElement {
  static constexpr int kStates = 0;
  float decay, lr;
  DSJ_ELEMENT void operator()(float& p, float g, float*) const { p -= lr * decayed(g, p, decay); }
};

struct MomentumElement {
  static constexpr int kStates = 1;
  float decay, lr, momentum, rest;  ///< rest: 1 - dampening
  bool nesterov, first;
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    g = decayed(g, p, decay);
    s[0] = first ? g : momentum * s[0] + rest * g;
    p -= lr * (nesterov ? g + momentum * s[0] : s[0]);
  }
};

struct AdagradElement {
  static constexpr int kStates = 1;
  float decay, lr, eps;
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    g = decayed(g, p, decay);
    s[0] += g * g;
    p -= lr * (g / (sqrtf(s[0]) + eps));
  }
};

template <bool kMomentum, bool kCentered>
struct RMSpropElement {
  static constexpr int kStates = 1 + kMomentum + kCentered;
  float decay, lr, alpha, rest, eps, momentum;  ///< rest: 1 - alpha
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    g = decayed(g, p, decay);
    s[0] = alpha * s[0] + rest * g * g;
    float average = s[0];
    if constexpr (kCentered) {
      float& mean = s[kStates - 1];
      mean += rest * (g - mean);
      average -= mean * mean;
    }
    float step = g / (sqrtf(average) + eps);
    if constexpr (kMomentum) {
      s[1] = momentum != 0 ? momentum * s[1] + step : s[1];
      step = momentum != 0 ? s[1] : step;
    }
    p -= lr * step;
  }
};

struct LionElement {
  static constexpr int kStates = 1;
  float keep, lr, beta1, rest1, beta2, rest2;
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    const float direction = beta1 * s[0] + rest1 * g;
    p = p * keep - copysignf(lr, direction);
    s[0] = beta2 * s[0] + rest2 * g;
  }
};

/// LAMB's u, from updated moments.
struct LambDirection {
  float eps, weight_decay;
  bool inside;  ///< eps is added below the root
  DSJ_ELEMENT float operator()(float p, const float* s) const {
    const float root = inside ? sqrtf(s[1] + eps) : sqrtf(s[1]) + eps;
    return s[0] / root + weight_decay * p;
  }
};

/// LAMB's first pass: writes the moments and returns u.
struct LambMoments {
  static constexpr int kStates = 2;
  Moments moments;
  LambDirection direction;
  DSJ_ELEMENT float operator()(float p, float g, float* s) const {
    moments(g, s);
    return direction(p, s);
  }
};

/// LAMB's second pass.
struct LambElement {
  static constexpr int kStates = 2;
  double lr;
  LambDirection direction;
  float step;  ///< lr times the parameter's coefficient
  DSJ_ELEMENT void take(double coefficient) { step = static_cast<float>(lr * coefficient); }
  DSJ_ELEMENT void along(float& p, float u) const { p -= step * u; }
  DSJ_ELEMENT void operator()(float& p, float, float* s) const { along(p, direction(p, s)); }
};

struct AdadeltaElement {
  static constexpr int kStates = 2;
  float decay, lr, rho, rest, eps;
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    g = decayed(g, p, decay);
    s[0] = rho * s[0] + rest * g * g;
    const float delta = sqrtf(s[1] + eps) / sqrtf(s[0] + eps) * g;
    s[1] = rho * s[1] + rest * delta * delta;
    p -= lr * delta;
  }
};

struct AdamaxElement {
  static constexpr int kStates = 2;
  float decay, lr, rest1, beta2, eps;
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    g = decayed(g, p, decay);
    s[0] = s[0] + rest1 * (g - s[0]);
    const float kept = beta2 * s[1], now = fabsf(g) + eps;
    s[1] = kept > now || kept != kept ? kept : now;  // keeps a NaN of either
    p -= lr * (s[0] / s[1]);
  }
};

struct NAdamElement {
  static constexpr int kStates = 2;
  float decay, keep;
  Moments moments;
  float correction2, eps, grad_factor, moment_factor;
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    g = decayed(g, p, decay);
    moments(g, s);
    const float root = sqrtf(s[1] / correction2) + eps;
    p *= keep;
    p -= grad_factor * (g / root);
    p -= moment_factor * (s[0] / root);
  }
};

struct RAdamElement {
  static constexpr int kStates = 2;
  float decay, keep;
  Moments moments;
  float step, eps;
  bool adaptive;
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    moments(decayed(g, p, decay), s);
    p *= keep;
    p -= step * (adaptive ? s[0] / (sqrtf(s[1]) + eps) : s[0]);
  }
};

struct AsgdElement {
  static constexpr int kStates = 1;
  float decay, keep, eta, mu;
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    g = decayed(g, p, decay);
    p = p * keep - eta * g;
    s[0] = mu == 1 ? p : s[0] + mu * (p - s[0]);
  }
};

struct RpropElement {
  static constexpr int kStates = 2;
  float lr, eta_minus, eta_plus, step_min, step_max;
  bool first;
  DSJ_ELEMENT void operator()(float& p, float g, float* s) const {
    const float turn = g * s[0];
    const float factor = turn > 0 ? eta_plus : turn < 0 ? eta_minus : 1.0f;
    float step = (first ? lr : s[1]) * factor;
    step = step < step_min ? step_min : step;
    step = step > step_max ? step_max : step;
    g = turn < 0 ? 0.0f : g;
    p -= g > 0 ? step : g < 0 ? -step : g;  // keeps NaN
    s[0] = g;
    s[1] = step;
  }
};

/// LAMB's trust coefficient: ||p|| / ||u||, clamped; 1 if either norm is 0. Takes the sums of
/// squares of a whole parameter and of its u.
DSJ_ELEMENT double lamb_coefficient(double least, double most, double parameter_squares,
                                    double update_squares) {
  if (parameter_squares == 0 || update_squares == 0) return 1;
  const double ratio = sqrt(parameter_squares / update_squares);
  const double below = ratio < most ? ratio : most;  // NaN gives most
  return below < least ? least : below;
}

template <typename... Rules>
struct RuleList {
  template <template <typename...> typename Of>
  using As = Of<Rules...>;
};
/// Every rule. Tables of kernels have one entry for each, in this order.
using ElementRules =
    RuleList<AdamElement, SgdElement, MomentumElement, AdagradElement, RMSpropElement<false, false>,
             RMSpropElement<false, true>, RMSpropElement<true, false>, RMSpropElement<true, true>,
             LionElement, LambElement, AdadeltaElement, AdamaxElement, NAdamElement, RAdamElement,
             AsgdElement, RpropElement>;

}  // namespace dsj::optim
