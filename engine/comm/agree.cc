#include "engine/comm/agree.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "common/cut_text.h"

namespace dsj::comm {

at::Tensor on_host(Work& work, const at::Tensor& values) {
  work.wait();
  const at::Tensor host = values.to(at::kCPU);
  work.wait();
  return host;
}

std::vector<double> max_over_ranks(Collectives& collectives, at::Device device,
                                   std::vector<double> mine) {
  if (mine.empty()) return mine;
  const at::Tensor values = at::tensor(mine, at::kDouble).to(device);
  const WorkPtr work = collectives.all_reduce(values, Op::Max, {Traffic::Control, "agree"});
  const at::Tensor host = on_host(*work, values);
  const double* first = host.const_data_ptr<double>();
  return {first, first + mine.size()};
}

Status agree(Collectives& collectives, at::Device device, const Status& mine) {
  const double failed = max_over_ranks(collectives, device, {mine ? 0.0 : 1.0})[0];
  if (!mine) return mine;
  if (failed > 0) return fail(ErrorKind::Transient, "another rank failed");
  return {};
}

Result<std::string> said_by_first(Collectives& collectives, at::Device device,
                                  const std::function<Result<std::string>()>& say) {
  Result<std::string> text = collectives.rank() == 0 ? say() : std::string();
  DSJ_TRY_STATUS(agree(collectives, device, text));
  const auto size = static_cast<int64_t>(
      max_over_ranks(collectives, device, {static_cast<double>(text->size())})[0]);
  if (size == 0) return text;
  // Collectives carry numbers, not bytes: eight bytes go into each number.
  const at::Tensor numbers = at::zeros({(size + 7) / 8}, at::kLong);
  std::memcpy(numbers.data_ptr<int64_t>(), text->data(), text->size());
  const at::Tensor sent = numbers.to(device);
  const WorkPtr work = collectives.broadcast(sent, 0, {Traffic::Control, "agree"});
  const at::Tensor host = on_host(*work, sent);
  const auto* bytes = reinterpret_cast<const char*>(host.const_data_ptr<int64_t>());
  text->assign(bytes, static_cast<size_t>(size));
  return text;
}

std::optional<Error> first_error(Collectives& collectives, at::Device device,
                                 const std::optional<Error>& mine) {
  constexpr size_t kBytesMax = 1000;
  const double rank = collectives.rank(), none = collectives.world();
  const double first = -max_over_ranks(collectives, device, {mine ? -rank : -none})[0];
  if (first == none) return std::nullopt;
  std::vector<double> bytes(2 + 3 * kBytesMax);  // the kind, the cause, then the bytes of each text
  if (first == rank) {
    bytes[0] = static_cast<double>(mine->kind);
    bytes[1] = static_cast<double>(mine->cause);
    size_t position = 2;
    // Keep the end of a path: it has the file's name.
    for (const std::string& text :
         {text::first_bytes(mine->message, kBytesMax), text::last_bytes(mine->where, kBytesMax),
          text::first_bytes(mine->hint, kBytesMax)}) {
      for (size_t i = 0; i < text.size(); ++i)
        bytes[position + i] = static_cast<unsigned char>(text[i]);
      position += kBytesMax;
    }
  }
  const at::Tensor sent = at::tensor(bytes, at::kDouble).to(device);
  const WorkPtr work =
      collectives.broadcast(sent, static_cast<int>(first), {Traffic::Control, "agree"});
  const at::Tensor host = on_host(*work, sent);
  std::copy_n(host.const_data_ptr<double>(), bytes.size(), bytes.begin());
  Error error{.kind = static_cast<ErrorKind>(static_cast<int>(bytes[0])),
              .cause = static_cast<Error::Cause>(static_cast<int>(bytes[1]))};
  size_t position = 2;
  for (std::string* text : {&error.message, &error.where, &error.hint}) {
    for (size_t i = 0; i < kBytesMax && bytes[position + i] != 0; ++i)
      text->push_back(static_cast<char>(static_cast<unsigned char>(bytes[position + i])));
    position += kBytesMax;
  }
  return error;
}

}  // namespace dsj::comm
