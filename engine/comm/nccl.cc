#include "engine/comm/nccl.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <thread>

#include "common/check.h"
#include "engine/comm/nccl_words.h"
#include "engine/comm/streamed.h"
#include "engine/comm/transport.h"
#include "engine/device/lanes.h"
#include "engine/memory/shortage.h"

namespace dsj::comm {
namespace {

ncclDataType_t nccl_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return ncclFloat32;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclFloat16;
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    default:
      DSJ_CHECK(false, "dtype %s in NCCL", at::toString(dtype));
  }
}

/// An NCCL communicator in non-blocking mode: each call is polled until NCCL accepts it.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { abort(); }

  void init(const ncclUniqueId& id, int rank, int world, Clock::time_point deadline) {
    ncclConfig_t config;
    config.blocking = 0;
    const ncclResult_t code = ncclCommInitRankConfig(&comm_, world, id, rank, &config);
    settle(code, deadline, "ncclCommInitRank");
  }

  /// Waits until NCCL has accepted the call, not until the operation is done.
  void settle(ncclResult_t code, Clock::time_point deadline, const char* call) {
    while (code == ncclInProgress) {
      if (Clock::now() >= deadline) throw TransportTimeout(std::string("in ") + call);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (ncclCommGetAsyncError(comm_, &code) != ncclSuccess) code = ncclInternalError;
    }
    if (code != ncclSuccess) refuse(std::string(call) + ": " + explain(code));
  }

  /// Throws if NCCL reports an error of the operations in flight.
  void check() {
    ncclResult_t code = ncclSuccess;
    if (ncclCommGetAsyncError(comm_, &code) != ncclSuccess) code = ncclInternalError;
    if (code != ncclSuccess && code != ncclInProgress) refuse(explain(code));
  }

  ncclComm_t get() const { return comm_; }
  void abort() {
    if (comm_ != nullptr) ncclCommAbort(comm_);
    comm_ = nullptr;
  }
  /// Orderly close, when nothing is in flight.
  void finish(Clock::time_point deadline) {
    if (comm_ == nullptr) return;
    settle(ncclCommFinalize(comm_), deadline, "ncclCommFinalize");
    ncclCommDestroy(comm_);
    comm_ = nullptr;
  }

 private:
  /// Throws the error. libtorch does not see NCCL's allocations, so a failed one is recorded here.
  [[noreturn]] static void refuse(const std::string& text) {
    const auto bytes = refused_memory(text);
    std::size_t left = 0, all = 0;
    // A broken GPU also fails to allocate, but does not answer cudaMemGetInfo.
    if (!bytes || cudaMemGetInfo(&left, &all) != cudaSuccess) throw TransportError(text);
    if (*bytes > 0) {
      const memory::MemoryScope scope(memory::Class::Buckets);
      memory::note_shortage(*bytes, static_cast<std::int64_t>(all),
                            static_cast<std::int64_t>(left));
    }
    throw DeviceMemoryError(text);
  }
  std::string explain(ncclResult_t code) const {
    const char* last = ncclGetLastError(comm_);
    std::string text = ncclGetErrorString(code);
    if (last != nullptr && *last != '\0') text += std::string(": ") + last;
    return text;
  }

  ncclComm_t comm_ = nullptr;
};

/// One communicator per lane, because NCCL runs the operations of a communicator in order.
class Nccl final : public StreamTransport {
 public:
  Nccl(std::unique_ptr<Communicator> gathers, std::unique_ptr<Communicator> others, int world,
       at::Device device)
      : gathers_(std::move(gathers)),
        others_(std::move(others)),
        world_(world),
        device_(device),
        token_(at::zeros({1}, at::TensorOptions(device).dtype(at::kFloat))) {
    device::streams(device).drain();  // so that every lane can use the token
  }

  std::string_view name() const override { return "nccl"; }

  void launch(const Request& request, device::Lane lane, Clock::time_point deadline) override {
    const c10::cuda::CUDAGuard guard(device_);
    Communicator& communicator = lane == device::Lane::Gather ? *gathers_ : *others_;
    const To to{communicator.get(),
                static_cast<cudaStream_t>(device::streams(device_).native(lane).handle)};
    ncclResult_t code = ncclGroupStart();
    const auto enqueue = [&](ncclResult_t result) {
      if (result != ncclSuccess && result != ncclInProgress) code = result;
    };
    for (const ChunkPair& chunk : request.chunks) enqueue(launch_chunk(request, chunk, to));
    if (request.kind == Kind::Barrier) {
      enqueue(ncclAllReduce(token_.data_ptr(), token_.data_ptr(), 1, ncclFloat32, ncclMax, to.comm,
                            to.stream));
    }
    const ncclResult_t end = ncclGroupEnd();
    communicator.settle(code == ncclSuccess ? end : code, deadline, name_of(request.kind));
  }
  void check() override {
    gathers_->check();
    others_->check();
  }
  /// Aborts both in one NCCL group: each abort waits for the device, and so for the kernels of the
  /// other communicator, which end only when that one is aborted. (NCCL's issue 1013.)
  void abort() override {
    const c10::cuda::CUDAGuard guard(device_);
    (void)ncclGroupStart();
    gathers_->abort();
    others_->abort();
    (void)ncclGroupEnd();
  }
  void finish(Clock::time_point deadline) override {
    const c10::cuda::CUDAGuard guard(device_);
    gathers_->finish(deadline);
    others_->finish(deadline);
  }

 private:
  struct To {
    ncclComm_t comm;
    cudaStream_t stream;
  };

  ncclResult_t launch_chunk(const Request& request, const ChunkPair& chunk, const To& to) {
    const auto type = nccl_type(chunk.out.scalar_type());
    const auto op = request.op == Op::Sum ? ncclSum : ncclMax;
    void* out = chunk.out.data_ptr();
    const void* in = chunk.in.const_data_ptr();
    const auto count = [](const at::Tensor& tensor) {
      return static_cast<std::size_t>(tensor.numel());
    };
    const auto [comm, stream] = to;
    switch (request.kind) {
      case Kind::AllGather:
        return ncclAllGather(in, out, count(chunk.in), type, comm, stream);
      case Kind::ReduceScatter:
        return ncclReduceScatter(in, out, count(chunk.out), type, op, comm, stream);
      case Kind::AllReduce:
        return ncclAllReduce(in, out, count(chunk.out), type, op, comm, stream);
      case Kind::Broadcast:
        return ncclBroadcast(in, out, count(chunk.out), type, request.root, comm, stream);
      case Kind::AllToAll:
        return all_to_all(chunk, type, to);
      case Kind::Barrier:
        break;
    }
    return ncclInvalidUsage;
  }

  /// Called within the NCCL group that launch() opens.
  ncclResult_t all_to_all(const ChunkPair& chunk, ncclDataType_t type, const To& to) {
    const auto count = static_cast<std::size_t>(chunk.in.numel() / world_);
    const std::size_t bytes = count * chunk.in.element_size();
    ncclResult_t result = ncclSuccess;
    const auto note = [&](ncclResult_t code) {
      if (code != ncclSuccess && code != ncclInProgress) result = code;
    };
    for (int peer = 0; peer < world_; ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * bytes;
      note(ncclSend(static_cast<const char*>(chunk.in.const_data_ptr()) + at, count, type, peer,
                    to.comm, to.stream));
      note(ncclRecv(static_cast<char*>(chunk.out.data_ptr()) + at, count, type, peer, to.comm,
                    to.stream));
    }
    return result;
  }

  const std::unique_ptr<Communicator> gathers_, others_;
  const int world_;
  const at::Device device_;
  const at::Tensor token_;  // all-reduced by a barrier
};

Result<std::unique_ptr<Communicator>> join(Rendezvous& rendezvous, const char* what) {
  const Options& options = rendezvous.options();
  ncclUniqueId id{};
  if (options.rank == 0 && ncclGetUniqueId(&id) != ncclSuccess) {
    return fail(ErrorKind::Environment,
                std::string("ncclGetUniqueId: ") + ncclGetLastError(nullptr));
  }
  const std::string mine = options.rank == 0 ? std::string(id.internal, sizeof id.internal) : "";
  DSJ_TRY(const std::string text, rendezvous.value_of_first(what, mine));
  DSJ_CHECK(text.size() == sizeof id.internal, "not a unique id");
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  auto communicator = std::make_unique<Communicator>();
  communicator->init(id, options.rank, options.world, rendezvous.deadline());
  return communicator;
}

}  // namespace

Result<std::unique_ptr<Collectives>> make_nccl(Rendezvous& rendezvous) {
  const Options& options = rendezvous.options();
  const std::string me = "rank " + std::to_string(options.rank);
  try {
    at::Device device = options.device;
    if (!device.has_index()) device = {at::kCUDA, c10::cuda::current_device()};
    const c10::cuda::CUDAGuard guard(device);
    DSJ_TRY(auto gathers, join(rendezvous, "nccl gathers"));
    DSJ_TRY(auto others, join(rendezvous, "nccl"));
    auto transport =
        std::make_unique<Nccl>(std::move(gathers), std::move(others), options.world, device);
    return make_streamed(std::move(transport), options.rank, options.world, device,
                         options.timeout);
  } catch (const TransportTimeout& error) {
    return fail(ErrorKind::Transient, me + ": the ranks did not connect in time " + error.what());
  } catch (const DeviceMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    return fail(ErrorKind::Environment, me + ": " + brief(error));
  }
}

}  // namespace dsj::comm
