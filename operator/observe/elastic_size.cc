#include "operator/observe/elastic_size.h"

#include <algorithm>

#include "operator/observe/pace.h"

namespace dsj::op {
namespace {

/// After training for this long, a gang's setbacks are forgotten.
constexpr Seconds kQuiet{3600};

int largest(const std::vector<int>& sizes, int64_t most) {
  const auto above = std::ranges::upper_bound(sizes, most);
  return above == sizes.begin() ? 0 : *(above - 1);
}

class Choice {
 public:
  Choice(const ElasticSeen& seen, const ElasticState& before, Time now)
      : seen_(seen), now_(now), result_{.state = before} {}

  ElasticChoice make() {
    ElasticState& state = result_.state;
    if (state.wanted != seen_.wanted) {
      state.not_before.reset();  // the user asks for another size: try it at once
      state.setbacks = 0;
      state.wanted = seen_.wanted;
    }
    if (seen_.trains) {
      grow();
    } else {
      ask_no_more();
      shrink();
    }
    return std::move(result_);
  }

 private:
  Time shown_now() const { return std::chrono::floor<Seconds>(now_); }
  void due(Time time) {
    if (!result_.due || time < *result_.due) result_.due = time;
  }
  void ask_no_more() {
    result_.spares = 0;
    result_.state.growable.reset();
    result_.state.spares_in_vain.reset();
  }
  void set_back() {
    ElasticState& state = result_.state;
    state.not_before = shown_now() + pause_after(state.setbacks);
    state.setbacks = std::min(state.setbacks + 1, 100);
  }
  void take(int size, const std::string& why) {
    ElasticState& state = result_.state;
    state.message = std::to_string(size) + " workers in place of " +
                    std::to_string(state.replicas) + ": " + why;
    state.replicas = size;
    ++state.resizes;
    state.changed = shown_now();
    result_.resized = true;
    ask_no_more();
  }

  void shrink() {
    const int size = result_.state.replicas;
    if (!seen_.short_since) return;
    const auto smaller = [&](int workers) { return workers > 0 && workers < size; };
    int fits = seen_.no_place ? largest(seen_.sizes, seen_.placed) : 0;
    Time at = *seen_.short_since + Seconds(seen_.policy.shrink_after_seconds);
    if (!smaller(fits)) {
      fits = largest(seen_.sizes, seen_.running);
      at = *seen_.short_since + Seconds(seen_.recovery_deadline_seconds);
    }
    if (!smaller(fits)) return;
    if (now_ < at) return due(at);
    take(fits, seen_.missing);
    set_back();
  }

  void grow() {
    ElasticState& state = result_.state;
    if (state.setbacks > 0 && state.changed && now_ >= *state.changed + kQuiet) state.setbacks = 0;
    const int target = largest(seen_.sizes, seen_.wanted);
    if (target <= state.replicas) return ask_no_more();
    if (seen_.spares_failed && (!state.not_before || now_ >= *state.not_before)) set_back();
    if (state.not_before && now_ < *state.not_before) {
      ask_no_more();
      return due(*state.not_before);
    }
    result_.spares = target - state.replicas;
    const int possible = largest(seen_.sizes, int64_t{state.replicas} + seen_.spares_placed);
    if (possible <= state.replicas) return wait_for_spares();
    state.spares_in_vain.reset();
    if (!state.growable) {
      state.growable = shown_now();
      state.growable_step = seen_.saved_step;
    }
    const Time end = *state.growable + Seconds(seen_.policy.grow_after_seconds);
    if (seen_.saved_step > state.growable_step || now_ >= end) {
      return take(possible, "there are nodes for them");
    }
    due(end);
  }

  /// Spares that hold too few nodes for a larger size hold them in vain.
  void wait_for_spares() {
    ElasticState& state = result_.state;
    state.growable.reset();
    if (seen_.spares_placed == 0) return state.spares_in_vain.reset();
    if (!state.spares_in_vain) state.spares_in_vain = shown_now();
    const Time end = *state.spares_in_vain + Seconds(seen_.recovery_deadline_seconds);
    if (now_ < end) return due(end);
    ask_no_more();
    set_back();
    due(*state.not_before);
  }

  const ElasticSeen& seen_;
  const Time now_;
  ElasticChoice result_;
};

}  // namespace

int permitted_size(const std::vector<int>& sizes, int wanted, int size) {
  const int most = std::max(largest(sizes, wanted), sizes.front());
  if (size <= 0) return most;
  return std::max(largest(sizes, std::min(size, most)), sizes.front());
}

void start_large(const std::vector<int>& sizes, int wanted, ElasticState& state) {
  const int size = permitted_size(sizes, wanted, 0);
  const bool other = size != state.replicas;
  state = {.replicas = size,
           .wanted = wanted,
           .resizes = state.resizes + other,
           .message = other ? std::to_string(size) + " workers: a new gang tries its largest size"
                            : state.message,
           .changed = state.changed};
}

ElasticChoice choose_size(const ElasticSeen& seen, const ElasticState& before, Time now) {
  return Choice(seen, before, now).make();
}

std::string sized_revision(const std::string& base, int workers, int64_t resizes) {
  return base + "-" + std::to_string(workers) + "-" + std::to_string(resizes);
}

std::string base_revision(const std::string& revision) {
  return revision.substr(0, revision.find('-'));
}

std::string resizes_of(const std::string& revision) {
  const size_t at = revision.rfind('-');
  return at == std::string::npos ? "" : revision.substr(at + 1);
}

}  // namespace dsj::op
