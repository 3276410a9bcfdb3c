#include "tests/engine/simulated/late.h"

#include <ATen/ATen.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <shared_mutex>

#include "common/check.h"
#include "engine/comm/single.h"
#include "engine/comm/split.h"
#include "engine/comm/streamed.h"
#include "engine/device/device.h"
#include "engine/device/host_pages.h"
#include "tests/engine/simulated/device.h"
#include "tests/engine/simulated/late_port.h"
#include "tests/engine/simulated/late_queues.h"

namespace dsj::simulated {
namespace {

/// All devices, for memory whose owner is not known.
struct All {
  std::mutex mutex;
  std::shared_mutex lives;  ///< shared: no device of `queues` goes meanwhile
  std::array<LateQueues*, 8> queues{};
  int count = 0;
  kernels::Port* port_before = nullptr;
};
All& all() {
  static auto* instance = new All;
  return *instance;
}

// ---- page-locked memory: real pages, so that the host's touch shows

void* take_pages(size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memset(memory, 0xFF, bytes);
  const std::lock_guard lock(all_pages().mutex);
  all_pages().bytes[memory] = bytes;
  return memory;
}
void give_pages(void* memory) {
  {
    const std::shared_lock lives(all().lives);
    for (LateQueues* const one : all().queues)
      if (one && one->is_host(memory)) one->remove_host(memory);
  }
  const std::lock_guard lock(all_pages().mutex);
  munmap(memory, all_pages().bytes[memory]);
  all_pages().bytes.erase(memory);
}

struct sigaction usual;

void touched(int signal, siginfo_t* info, void* context) {
  {
    const std::shared_lock lives(all().lives);
    for (LateQueues* const one : all().queues)
      if (one && one->host_touched(info->si_addr)) return;
  }
  sigaction(SIGSEGV, &usual, nullptr);  // a real one: again, as it was before
  (void)signal, (void)context;
}

void begin_all() {
  const std::lock_guard lock(all().mutex);
  if (all().count++ > 0) return;
  device();
  all().port_before = &device::install(kKind, late_port());
  device::set_capability(kKind, 0);
  device::provide_pages(kKind, {take_pages, give_pages});
  struct sigaction action {};
  action.sa_sigaction = touched;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &usual);
}
void end_all() {
  const std::lock_guard lock(all().mutex);
  if (--all().count > 0) return;
  device::install(kKind, *all().port_before);
  device::set_capability(kKind, 90);
  device::provide_pages(kKind, {});
  sigaction(SIGSEGV, &usual, nullptr);
}

}  // namespace

Late::Late(int index, uint64_t seed) : queues_(std::make_unique<LateQueues>(index, seed)) {
  begin_all();
  here_of_thread() = {queues_.get(), index, 0};
  const std::unique_lock lives(all().lives);
  all().queues[static_cast<size_t>(index)] = queues_.get();
}

Late::~Late() {
  queues_->drain();
  {
    const std::unique_lock lives(all().lives);
    all().queues[static_cast<size_t>(queues_->index())] = nullptr;
  }
  here_of_thread() = {};
  end_all();
}

at::Device Late::device() const {
  return {kKind, static_cast<at::DeviceIndex>(queues_->index())};
}
void Late::reseed(uint64_t seed) {
  queues_->reseed(seed);
}
void Late::run_at_once() {
  queues_->run_at_once();
}
void Late::drain() {
  queues_->drain();
}
int64_t Late::stops() const {
  return queues_->stops();
}
int64_t Late::reads() const {
  return queues_->reads();
}
int64_t Late::host_waits() const {
  return queues_->host_waits();
}
int64_t Late::beside(device::Lane lane) const {
  const auto stream = device::streams(device()).native(lane).handle;
  return queues_->beside(static_cast<int>(reinterpret_cast<intptr_t>(stream)));
}
void Late::forget_counts() {
  queues_->forget_counts();
}
std::vector<std::string> Late::findings() const {
  return queues_->findings();
}
void Late::leave_out_wait(int64_t n) {
  queues_->leave_out(n);
}
int64_t Late::waits() const {
  return queues_->waits();
}
std::string Late::left_out() const {
  return queues_->left_out();
}

// ---- collectives

/// What the ranks brought to each operation.
class Meeting {
 public:
  explicit Meeting(int world) : world_(world) {}
  int world() const { return world_; }
  void lose_from(uint64_t sequence) { lost_from_ = sequence; }
  bool lost(uint64_t sequence) const { return sequence >= lost_from_; }

  void bring(uint64_t sequence, int rank, std::vector<at::Tensor> inputs) {
    const std::lock_guard lock(mutex_);
    auto& brought = operations_[sequence];
    brought.resize(static_cast<size_t>(world_));
    brought[static_cast<size_t>(rank)] = std::move(inputs);
    ++arrived_[sequence];
    tell_news();
  }
  bool complete(uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    return arrived_[sequence] == world_;
  }
  /// [rank][chunk]
  std::vector<std::vector<at::Tensor>> take(uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    const auto brought = operations_[sequence];
    if (++left_[sequence] == world_) {
      operations_.erase(sequence);
      left_.erase(sequence);
    }
    return brought;
  }

  /// The n-th split: where the ranks of this rank's colour meet, null: nowhere; and who they are.
  struct Place {
    std::shared_ptr<Meeting> meeting;
    std::vector<int> members;
  };
  /// Waits until all ranks have asked.
  Place part(int n, int rank, const comm::Part& part) {
    std::unique_lock lock(mutex_);
    auto& split = splits_[n];
    split.parts.resize(static_cast<size_t>(world_));
    split.parts[static_cast<size_t>(rank)] = part;
    if (++split.asked == world_) asked_.notify_all();
    asked_.wait(lock, [&] { return split.asked == world_; });
    const auto members = comm::members_of(split.parts);
    if (!members) return {};
    const auto mine = members->find(part.colour);
    if (mine == members->end()) return {};
    auto& meeting = split.meetings[part.colour];
    if (!meeting) meeting = std::make_shared<Meeting>(static_cast<int>(mine->second.size()));
    return {meeting, mine->second};
  }

 private:
  struct Split {
    std::vector<comm::Part> parts;
    int asked = 0;
    std::map<int, std::shared_ptr<Meeting>> meetings;
  };
  const int world_;
  std::atomic<uint64_t> lost_from_{UINT64_MAX};
  std::mutex mutex_;
  std::condition_variable asked_;
  std::map<int, Split> splits_;
  std::map<uint64_t, std::vector<std::vector<at::Tensor>>> operations_;
  std::map<uint64_t, int> arrived_, left_;
};

std::shared_ptr<Meeting> make_meeting(int world) {
  return std::make_shared<Meeting>(world);
}
void lose_a_peer(Meeting& meeting, uint64_t from) {
  meeting.lose_from(from);
}

namespace {

/// The same memory, as a tensor of the CPU that owns nothing.
at::Tensor as_of_cpu(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.options().device(at::kCPU));
}

void exchange(const comm::Request& request, const std::vector<at::Tensor>& outs, int rank,
              const std::vector<std::vector<at::Tensor>>& brought) {
  const auto world = static_cast<int64_t>(brought.size());
  for (size_t chunk = 0; chunk < outs.size(); ++chunk) {
    const at::Tensor& out = outs[chunk];
    const auto of = [&](int64_t r) { return brought[static_cast<size_t>(r)][chunk]; };
    switch (request.kind) {
      case comm::Kind::AllGather:
        for (int64_t r = 0; r < world; ++r)
          out.narrow(0, r * of(r).numel(), of(r).numel()).copy_(of(r));
        break;
      case comm::Kind::AllToAll:
        for (int64_t r = 0; r < world; ++r)
          out.chunk(world)[static_cast<size_t>(r)].copy_(
              of(r).chunk(world)[static_cast<size_t>(rank)]);
        break;
      case comm::Kind::Broadcast:
        out.copy_(of(request.root));
        break;
      case comm::Kind::ReduceScatter:
      case comm::Kind::AllReduce: {
        const bool half = out.scalar_type() == at::kBFloat16 || out.scalar_type() == at::kHalf;
        const auto part = [&](int64_t r) {
          const at::Tensor all = half ? of(r).to(at::kFloat) : of(r);
          return request.kind == comm::Kind::AllReduce
                     ? all
                     : all.narrow(0, rank * out.numel(), out.numel());
        };
        at::Tensor sum = part(0).clone();
        for (int64_t r = 1; r < world; ++r)
          request.op == comm::Op::Sum ? sum.add_(part(r)) : sum.copy_(at::maximum(sum, part(r)));
        out.copy_(sum);
        break;
      }
      case comm::Kind::Barrier:
        break;
    }
  }
}

class LateTransport final : public comm::StreamTransport {
 public:
  LateTransport(std::shared_ptr<Meeting> meeting, LateQueues& queues, int rank)
      : meeting_(std::move(meeting)), queues_(queues), rank_(rank) {}
  std::string_view name() const override { return "late"; }
  void launch(const comm::Request& request, device::Lane lane, comm::Clock::time_point) override {
    const at::Device place(kKind, static_cast<at::DeviceIndex>(queues_.index()));
    const auto stream = device::streams(place).native(lane).handle;
    std::vector<Touch> touches;
    std::vector<at::Tensor> ins, outs;
    for (const auto& chunk : request.chunks) {
      touches.push_back({chunk.in.const_data_ptr(), chunk.in.nbytes(), false});
      touches.push_back({chunk.out.const_data_ptr(), chunk.out.nbytes(), true});
      ins.push_back(as_of_cpu(chunk.in));
      outs.push_back(as_of_cpu(chunk.out));
    }
    comm::Request asked = request;
    asked.chunks.clear();  // it holds no memory: the engine must
    auto brought = std::make_shared<bool>(false);
    const std::string name = std::string(comm::name_of(request.kind)) + " (" + request.unit + ")";
    last_ = std::max(last_, request.sequence);
    queues_.enqueue(static_cast<int>(reinterpret_cast<intptr_t>(stream)), name, touches,
                    {.ready =
                         [meeting = meeting_, rank = rank_, ended = ended_, asked, ins, brought] {
                           if (meeting->lost(asked.sequence)) return ended->load();
                           if (!*brought) {
                             std::vector<at::Tensor> copies;
                             for (const auto& in : ins) copies.push_back(in.clone());
                             *brought = true;
                             meeting->bring(asked.sequence, rank, std::move(copies));
                           }
                           return meeting->complete(asked.sequence);
                         },
                     .run =
                         [meeting = meeting_, rank = rank_, asked, outs] {
                           if (meeting->lost(asked.sequence)) return;
                           exchange(asked, outs, rank, meeting->take(asked.sequence));
                         }});
  }
  void check() override {
    if (meeting_->lost(last_)) throw comm::TransportError("a peer is gone");
  }
  void abort() override {
    *ended_ = true;
    tell_news();
  }
  void finish(comm::Clock::time_point) override {}

 private:
  const std::shared_ptr<Meeting> meeting_;
  LateQueues& queues_;
  const int rank_;
  uint64_t last_ = 0;  ///< launched
  const std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

std::unique_ptr<comm::Collectives> join(std::shared_ptr<Meeting> meeting, Late& late, int rank,
                                        int world) {
  if (world == 1) return comm::make_single(late.device());
  auto group = comm::make_streamed(std::make_unique<LateTransport>(meeting, late.queues(), rank),
                                   rank, world, late.device(), std::chrono::minutes(5));
  group->split_by([meeting, &late, self = group.get(), n = 0](const comm::Part& part) mutable
                  -> Result<std::unique_ptr<comm::Collectives>> {
    const Meeting::Place place = meeting->part(n++, self->rank(), part);
    if (!place.meeting) return std::unique_ptr<comm::Collectives>();
    const auto rank = std::ranges::find(place.members, self->rank()) - place.members.begin();
    auto made =
        join(place.meeting, late, static_cast<int>(rank), static_cast<int>(place.members.size()));
    std::vector<int> world_ranks = place.members;
    if (const auto& of_group = self->world_ranks(); !of_group.empty())
      for (int& member : world_ranks) member = of_group[static_cast<size_t>(member)];
    made->is_part(part.name, std::move(world_ranks));
    return made;
  });
  return group;
}

}  // namespace dsj::simulated
