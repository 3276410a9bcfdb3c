#include "engine/comm/agree.h"

#include <ATen/ATen.h>

namespace dsj::comm {

std::vector<double> max_over_ranks(Collectives& collectives, at::Device device,
                                   std::vector<double> mine) {
  if (mine.empty()) return mine;
  const at::Tensor values = at::tensor(mine, at::kDouble).to(device);
  collectives.all_reduce(values, Op::Max, {Traffic::Control, "agree"})->wait();
  const at::Tensor host = values.to(at::kCPU);
  const double* first = host.const_data_ptr<double>();
  return {first, first + mine.size()};
}

Status agree(Collectives& collectives, at::Device device, const Status& mine) {
  const double failed = max_over_ranks(collectives, device, {mine ? 0.0 : 1.0})[0];
  if (!mine) return mine;
  if (failed > 0) return fail(ErrorKind::Transient, "another rank failed");
  return {};
}

}  // namespace dsj::comm
