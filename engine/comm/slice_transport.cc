#include "engine/comm/slice_transport.h"

#include "common/check.h"

namespace dsj::comm {

void SliceTransport::run(const Request& request, Clock::time_point deadline) {
  begin(request, deadline);
  if (request.kind == Kind::Barrier) meet();
  for (const ChunkPair& chunk : request.chunks) {
    if (chunk.out.numel() != 0) run_chunk(request, chunk);
  }
}

void SliceTransport::run_chunk(const Request& request, const ChunkPair& chunk) {
  const std::span<char> out = bytes_of(chunk.out);
  const std::span<char> in = bytes_of(chunk.in);
  const at::ScalarType dtype = chunk.out.scalar_type();
  const std::size_t element = chunk.out.element_size();
  switch (request.kind) {
    case Kind::AllGather:
      return gather(cut(out, world_, element), in);
    case Kind::ReduceScatter:
      return reduce(cut(in, world_, element), out.data(), dtype, request.op);
    case Kind::AllReduce:
      return all_reduce(out, dtype, request.op);
    case Kind::Broadcast:
      return broadcast(out, request.root);
    case Kind::AllToAll:
      return all_to_all(cut(out, world_, element), cut(in, world_, element));
    case Kind::Barrier:
      break;
  }
  DSJ_CHECK(false, "a %s has no chunks", name_of(request.kind));
}

}  // namespace dsj::comm
