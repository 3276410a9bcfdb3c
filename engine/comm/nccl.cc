#include "engine/comm/nccl.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "common/check.h"
#include "engine/comm/transport.h"

namespace dsj::comm {
namespace {

constexpr std::chrono::milliseconds kLook{2};  // how often the watchdog looks while work runs

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

void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) {
    throw TransportError(std::string(call) + ": " + cudaGetErrorString(code));
  }
}

class Event {
 public:
  Event() {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) {
    check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  void hold(cudaStream_t stream) const {
    check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }
  bool reached() const {
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) return false;
    check_cuda(code, "cudaEventQuery");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

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
    if (code != ncclSuccess) throw TransportError(std::string(call) + ": " + explain(code));
  }

  /// Throws if NCCL reports an error of the operations in flight.
  void check() {
    ncclResult_t code = ncclSuccess;
    if (ncclCommGetAsyncError(comm_, &code) != ncclSuccess) code = ncclInternalError;
    if (code != ncclSuccess && code != ncclInProgress) throw TransportError(explain(code));
  }

  ncclComm_t get() const { return comm_; }
  void abort() {
    if (comm_ != nullptr) ncclCommAbort(comm_);
    comm_ = nullptr;
  }
  /// Closes in good order, when nothing is in flight.
  void finish(Clock::time_point deadline) {
    if (comm_ == nullptr) return;
    settle(ncclCommFinalize(comm_), deadline, "ncclCommFinalize");
    ncclCommDestroy(comm_);
    comm_ = nullptr;
  }

 private:
  std::string explain(ncclResult_t code) const {
    const char* last = ncclGetLastError(comm_);
    std::string text = ncclGetErrorString(code);
    if (last != nullptr && *last != '\0') text += std::string(": ") + last;
    return text;
  }

  ncclComm_t comm_ = nullptr;
};

/// Shared between the group, its works and the watchdog.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<CollectiveError::Facts> failure;
};

class NcclWork final : public Work {
 public:
  NcclWork(std::shared_ptr<State> state, at::Device device, bool blocks_host)
      : state_(std::move(state)), device_(device), blocks_host_(blocks_host) {}

  void wait() override {
    std::unique_lock lock(state_->mutex);
    if (blocks_host_) state_->changed.wait(lock, [&] { return done_; });
    if (failed_ || (!done_ && state_->failure)) throw CollectiveError(*state_->failure);
    event.hold(c10::cuda::getCurrentCUDAStream(device_.index()).stream());
  }
  bool done() override {
    const std::lock_guard lock(state_->mutex);
    return done_;
  }
  /// Call with the state's mutex held.
  void finish(bool failed) {
    done_ = true;
    failed_ = failed;
    state_->changed.notify_all();
  }

  Event event;

 private:
  const std::shared_ptr<State> state_;
  const at::Device device_;
  const bool blocks_host_;
  bool done_ = false;
  bool failed_ = false;
};

class Nccl final : public Collectives {
 public:
  Nccl(std::unique_ptr<Communicator> communicator, int rank, int world, at::Device device,
       std::chrono::milliseconds timeout)
      : Collectives(rank, world, device),
        communicator_(std::move(communicator)),
        device_(device),
        stream_(c10::cuda::getStreamFromPool(true, device.index())),
        timeout_(timeout),
        token_(at::zeros({1}, at::TensorOptions(device).dtype(at::kFloat))),
        watchdog_([this] { watch(); }) {}

  ~Nccl() override {
    abort("was abandoned: its group was closed");
    close();
  }

  std::string_view backend() const override { return "nccl"; }

  void shutdown() override {
    close();
    const std::lock_guard lock(state_->mutex);
    if (state_->failure) throw CollectiveError(*state_->failure);
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(state_->mutex);
    if (abort_reason_.empty()) abort_reason_ = reason;
    state_->changed.notify_all();
  }

 protected:
  WorkPtr issue(Request request) override {
    const c10::cuda::CUDAGuard guard(device_);
    auto work = std::make_shared<NcclWork>(state_, device_, request.kind == Kind::Barrier);
    const std::lock_guard lock(state_->mutex);
    DSJ_CHECK(!closing_, "%s was issued after shutdown", name_of(request.kind));
    if (!state_->failure && !abort_reason_.empty()) fail(request, Clock::now(), abort_reason_);
    if (!state_->failure) {
      try {
        launch(request, *work);
        flying_.push_back({std::move(request), work});
        state_->changed.notify_all();
        return work;
      } catch (const std::exception& error) {
        fail(request, Clock::now(), std::string("failed: ") + brief(error));
      }
    }
    operation_done();
    work->finish(true);
    return work;
  }

 private:
  struct Item {
    Request request;  // keeps the tensors until the GPU is done with them
    std::shared_ptr<NcclWork> work;
  };

  void launch(const Request& request, NcclWork& work) {
    Event ready;
    ready.record(c10::cuda::getCurrentCUDAStream(device_.index()).stream());
    ready.hold(stream_.stream());
    const auto deadline = Clock::now() + timeout_;
    ncclResult_t code = ncclGroupStart();
    const auto enqueue = [&](ncclResult_t result) {
      if (result != ncclSuccess && result != ncclInProgress) code = result;
    };
    for (const ChunkPair& chunk : request.chunks) enqueue(launch_chunk(request, chunk));
    if (request.kind == Kind::Barrier) {
      enqueue(ncclAllReduce(token_.data_ptr(), token_.data_ptr(), 1, ncclFloat32, ncclMax,
                            communicator_->get(), stream_.stream()));
    }
    const ncclResult_t end = ncclGroupEnd();
    communicator_->settle(code == ncclSuccess ? end : code, deadline, name_of(request.kind));
    work.event.record(stream_.stream());
  }

  ncclResult_t launch_chunk(const Request& request, const ChunkPair& chunk) {
    const auto type = nccl_type(chunk.out.scalar_type());
    const auto op = request.op == Op::Sum ? ncclSum : ncclMax;
    void* out = chunk.out.data_ptr();
    const void* in = chunk.in.const_data_ptr();
    const auto count = [](const at::Tensor& tensor) {
      return static_cast<std::size_t>(tensor.numel());
    };
    ncclComm_t comm = communicator_->get();
    cudaStream_t stream = stream_.stream();
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
        return all_to_all(chunk, type);
      case Kind::Barrier:
        break;
    }
    return ncclInvalidUsage;
  }

  /// Within the group that launch() opens.
  ncclResult_t all_to_all(const ChunkPair& chunk, ncclDataType_t type) {
    const auto count =
        static_cast<std::size_t>(chunk.in.numel()) / static_cast<std::size_t>(world());
    const std::size_t bytes = count * chunk.in.element_size();
    ncclResult_t result = ncclSuccess;
    const auto note = [&](ncclResult_t code) {
      if (code != ncclSuccess && code != ncclInProgress) result = code;
    };
    for (int peer = 0; peer < world(); ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * bytes;
      note(ncclSend(static_cast<const char*>(chunk.in.const_data_ptr()) + at, count, type, peer,
                    communicator_->get(), stream_.stream()));
      note(ncclRecv(static_cast<char*>(chunk.out.data_ptr()) + at, count, type, peer,
                    communicator_->get(), stream_.stream()));
    }
    return result;
  }

  void watch() {
    const c10::cuda::CUDAGuard guard(device_);
    std::unique_lock lock(state_->mutex);
    auto begin = Clock::now();  // when the oldest operation became the oldest
    while (true) {
      if (flying_.empty()) {
        if (closing_) break;
        if (!abort_reason_.empty()) communicator_->abort();
        state_->changed.wait(lock, [&] {
          return closing_ || !flying_.empty() ||
                 (!abort_reason_.empty() && communicator_->get() != nullptr);
        });
        begin = Clock::now();
        continue;
      }
      Item& front = flying_.front();
      if (look(front, begin)) {
        front.work->finish(state_->failure.has_value());
        operation_done();
        flying_.pop_front();
        begin = Clock::now();
      } else {
        state_->changed.wait_for(lock, kLook);
      }
    }
    end();
  }

  /// True: the operation is done or failed.
  bool look(const Item& item, Clock::time_point begin) {
    if (state_->failure) return true;
    try {
      if (item.work->event.reached()) return true;
      if (!abort_reason_.empty()) {
        fail(item.request, begin, abort_reason_);
      } else {
        communicator_->check();
        if (Clock::now() >= begin + timeout_) throw TransportTimeout("in NCCL");
      }
    } catch (const TransportTimeout& error) {
      const std::chrono::duration<double> seconds = Clock::now() - begin;
      fail(item.request, begin,
           "timed out after " + format_seconds(seconds.count()) + " " + error.what());
    } catch (const std::exception& error) {
      fail(item.request, begin, std::string("failed: ") + brief(error));
    }
    return state_->failure.has_value();
  }

  /// Call with the mutex held. Aborting ends the kernels, so streams that wait for them go on.
  void fail(const Request& request, Clock::time_point begin, std::string reason) {
    if (state_->failure) return;
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    state_->failure = CollectiveError::Facts{.rank = rank(),
                                             .kind = request.kind,
                                             .sequence = request.sequence,
                                             .unit = request.unit,
                                             .seconds = seconds.count(),
                                             .reason = std::move(reason)};
    communicator_->abort();
  }

  void end() {
    try {
      if (!state_->failure && abort_reason_.empty()) communicator_->finish(Clock::now() + timeout_);
    } catch (const std::exception&) {
      // Nothing was in flight; the peers left first. abort() frees the rest.
    }
    communicator_->abort();
  }

  void close() {
    {
      const std::lock_guard lock(state_->mutex);
      closing_ = true;
      state_->changed.notify_all();
    }
    if (watchdog_.joinable()) watchdog_.join();
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  const std::unique_ptr<Communicator> communicator_;
  const at::Device device_;
  const c10::cuda::CUDAStream stream_;
  const std::chrono::milliseconds timeout_;
  const at::Tensor token_;  // a barrier all-reduces it
  std::deque<Item> flying_;
  bool closing_ = false;
  std::string abort_reason_;
  std::thread watchdog_;  // last member: starts when all others exist
};

}  // namespace

Result<std::unique_ptr<Collectives>> make_nccl(Rendezvous& rendezvous) {
  const Options& options = rendezvous.options();
  const std::string me = "rank " + std::to_string(options.rank);
  try {
    at::Device device = options.device;
    if (!device.has_index()) device = {at::kCUDA, c10::cuda::current_device()};
    const c10::cuda::CUDAGuard guard(device);
    ncclUniqueId id{};
    if (options.rank == 0 && ncclGetUniqueId(&id) != ncclSuccess) {
      return fail(ErrorKind::Environment,
                  std::string("ncclGetUniqueId: ") + ncclGetLastError(nullptr));
    }
    const std::string mine = options.rank == 0 ? std::string(id.internal, sizeof id.internal) : "";
    DSJ_TRY(const std::vector<std::string> all, rendezvous.exchange("nccl", mine));
    DSJ_CHECK(all[0].size() == sizeof id.internal, "not a unique id");
    std::memcpy(id.internal, all[0].data(), sizeof id.internal);
    auto communicator = std::make_unique<Communicator>();
    communicator->init(id, options.rank, options.world, rendezvous.deadline());
    return std::make_unique<Nccl>(std::move(communicator), options.rank, options.world, device,
                                  options.timeout);
  } catch (const TransportTimeout& error) {
    return fail(ErrorKind::Transient, me + ": the ranks did not connect in time " + error.what());
  } catch (const std::exception& error) {
    return fail(ErrorKind::Environment, me + ": " + brief(error));
  }
}

}  // namespace dsj::comm
