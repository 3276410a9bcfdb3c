#include "job/dsconfig/config/batch.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace dsj::dsconfig {

namespace {

std::string described(const char* name, const BatchValue& value) {
  std::string text = std::string(name) + " ";
  text += value.value ? std::to_string(*value.value) : "not given";
  if (value.value && !value.from.empty()) text += " (" + value.from + ")";
  return text;
}

std::string described(const BatchGiven& given) {
  return described("train_batch_size", given.train) + ", " +
         described("train_micro_batch_size_per_gpu", given.micro) + ", " +
         described("gradient_accumulation_steps", given.accumulation) + ", world size " +
         std::to_string(given.world_size) +
         (given.sequence_parallel_size > 1
              ? " / sequence_parallel_size " + std::to_string(given.sequence_parallel_size)
              : "");
}

std::string shown(int64_t train, int64_t micro, int64_t accumulation, int64_t world) {
  return std::to_string(train) + " = " + std::to_string(micro) + " x " +
         std::to_string(accumulation) + " x " + std::to_string(world);
}

/// The product; nullopt on overflow of int64.
std::optional<int64_t> product(int64_t a, int64_t b, int64_t c) {
  int64_t ab = 0, abc = 0;
  if (__builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc)) return std::nullopt;
  return abc;
}

/// The divisor of `number` nearest to `wanted`.
int64_t nearest_divisor(int64_t number, int64_t wanted) {
  constexpr int64_t kFar = 1'000'000;  // the search range
  for (int64_t step = 0; step < kFar; ++step) {
    if (wanted - step >= 1 && number % (wanted - step) == 0) return wanted - step;
    if (wanted + step <= number && number % (wanted + step) == 0) return wanted + step;
  }
  return 1;
}

std::string nearest(const BatchGiven& given) {
  const int64_t world = given.ranks();
  std::vector<std::string> valid;
  const auto add = [&](int64_t micro, int64_t accumulation) {
    const auto train = product(micro, accumulation, world);
    if (!train) return;
    std::string text = shown(*train, micro, accumulation, world);
    if (std::find(valid.begin(), valid.end(), text) == valid.end()) valid.push_back(text);
  };
  const int64_t micro = given.micro.value.value_or(0);
  const int64_t accumulation = given.accumulation.value.value_or(0);
  if (micro > 0 && accumulation > 0) add(micro, accumulation);
  if (given.train.value) {
    const int64_t per_rank = std::max<int64_t>(1, *given.train.value / world);
    if (micro > 0) {
      add(micro, std::max<int64_t>(1, per_rank / micro));
      const int64_t divisor = nearest_divisor(per_rank, std::min(micro, per_rank));
      add(divisor, per_rank / divisor);
    }
    if (accumulation > 0) add(std::max<int64_t>(1, per_rank / accumulation), accumulation);
    if (micro == 0 && accumulation == 0) add(per_rank, 1);
  }
  std::string text;
  for (const std::string& one : valid) text += (text.empty() ? "" : ", or ") + one;
  return "these hold: " + text;
}

}  // namespace

BatchAnswer solve_batch(const BatchGiven& given) {
  const int64_t world = given.ranks();
  BatchAnswer answer;
  const bool has_train = given.train.value.has_value(), has_micro = given.micro.value.has_value();
  if (!has_train && !has_micro) {
    answer.problem =
        "either train_batch_size or train_micro_batch_size_per_gpu needs to be given: " +
        described(given);
    answer.hint = "add train_micro_batch_size_per_gpu, or training.perDeviceTrainBatchSize";
    return answer;
  }
  BatchTriple triple;
  if (has_train && has_micro) {
    triple.micro = *given.micro.value;
    triple.accumulation =
        given.accumulation.value.value_or(*given.train.value / triple.micro / world);
  } else if (has_train) {
    triple.accumulation = given.accumulation.value.value_or(1);
    triple.micro = *given.train.value / world / triple.accumulation;
  } else {
    triple.micro = *given.micro.value;
    triple.accumulation = given.accumulation.value.value_or(1);
  }
  const auto held = product(triple.micro, triple.accumulation, world);
  triple.train = has_train ? *given.train.value : held.value_or(0);
  if (triple.train >= 1 && triple.micro >= 1 && triple.accumulation >= 1 && held == triple.train) {
    answer.triple = triple;
    return answer;
  }
  answer.problem = described(given);
  if (!held)
    answer.problem += ": the product is too large";
  else if (has_train && has_micro && given.accumulation.value)
    answer.problem += ": " + std::to_string(triple.train) + " is not " +
                      shown(*held, triple.micro, triple.accumulation, world);
  else
    answer.problem += ": they do not divide; the nearest, " +
                      shown(*held, triple.micro, triple.accumulation, world) + ", is not " +
                      std::to_string(triple.train);
  if (held) answer.hint = nearest(given);
  return answer;
}

}  // namespace dsj::dsconfig
