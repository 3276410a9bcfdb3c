#include "job/flight_log.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <utility>

namespace dsj {
namespace {

constexpr char kMagic[8] = {'d', 's', 'j', 'f', 'l', 'y', '0', '2'};
constexpr size_t kSlots = 120;
constexpr size_t kGroupSlots = 6;
constexpr uint64_t kNoGroup = UINT64_MAX;

using Word = std::atomic_ref<uint64_t>;

void add(uint64_t& total, int64_t more) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(0, more));
  Word(total).fetch_add(count, std::memory_order_relaxed);
}

/// 128 bytes without padding; the checksum is last.
struct Record {
  uint64_t sequence;
  uint64_t state;
  int64_t bytes;
  int64_t changed_ns;
  char kind[16];
  char unit[48];
  uint64_t unused[3];
  uint64_t check;
};
static_assert(sizeof(Record) == 128);

struct Whereabouts {
  uint64_t phase;
  int64_t step;
  uint64_t unused;
  uint64_t check;
};
static_assert(sizeof(Whereabouts) == 32);

/// Identity of a group; the checksum is last.
struct Name {
  uint64_t id;
  uint64_t within;
  char name[48];
  char members[128];
  uint64_t unused[7];
  uint64_t check;
};
static_assert(sizeof(Name) == 256);

struct Progress {
  uint64_t issued, ended;
  uint64_t waits_for;  // the rank + 1; 0 if none
};

struct GroupLayout {
  Name name;
  Progress progress;
  uint64_t unused[5];
  Record records[kGroupSlots];
};

/// FNV-1a over words. A record of zeros, which was never written, does not match its checksum.
template <typename T>
uint64_t checksum(const T& record) {
  uint64_t words[sizeof(T) / 8 - 1], sum = 14695981039346656037U;
  std::memcpy(words, &record, sizeof words);
  for (const uint64_t word : words) sum = (sum ^ word) * 1099511628211U;
  return sum;
}

template <size_t N>
void put(char (&field)[N], std::string_view text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(field, text.data(), length);
}

template <size_t N>
std::string get(const char (&field)[N]) {
  return {field, strnlen(field, N)};
}

}  // namespace

/// Counters are written through atomic_ref, so readers never see a torn word.
struct FlightLayout {
  char magic[8];  // written last
  uint64_t ticks;
  Progress world;
  Whereabouts whereabouts;
  uint64_t steps, step_ns, collective_ns;
  uint64_t unused[52];
  Record records[kSlots];
  GroupLayout groups[FlightLog::kGroups];
};

struct FlightLog::Place {
  Progress& progress;
  std::span<Record> records;
  GroupLayout* group = nullptr;  // null for the world
};

struct FlightLog::Shared {
  Shared(FlightLayout* memory, bool is_mapped) : layout(memory), mapped(is_mapped) {}
  ~Shared() {
    if (mapped) {
      munmap(layout, kBytes);
    } else {
      delete layout;
    }
  }
  Shared(const Shared&) = delete;

  /// Adds the time in which any group's collective ran. `more`: change of `running` at `now`.
  void runs(int64_t now, int more) {
    const std::lock_guard lock(mutex);
    if (const int64_t step = step_began_ns; running > 0 && step > 0) {
      add(layout->collective_ns, now - std::max(counted_ns, step));
    }
    counted_ns = now;
    running += more;
  }

  FlightLayout* const layout;
  const bool mapped;
  FlightPhase phase = FlightPhase::Starting;
  int64_t entered_ns = 0;                 // when the phase was entered
  std::atomic<int64_t> step_began_ns{0};  // 0 outside of a step
  std::mutex mutex;                       // guards the members below
  int running = 0;
  int64_t counted_ns = 0;
  bool taken[kGroups] = {};
};

const char* name_of(FlightPhase phase) {
  constexpr const char* kNames[kFlightPhases] = {"starting",   "reading rows", "training",
                                                 "evaluating", "saving",       "exporting"};
  return kNames[static_cast<int>(phase)];
}

int64_t flight_clock() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<std::unique_ptr<FlightLog>> FlightLog::open(int fd) {
  static_assert(sizeof(FlightLayout) <= kBytes && Word::is_always_lock_free);
  FlightLayout* layout = nullptr;
  if (fd < 0) {
    layout = new FlightLayout();
  } else {
    struct stat info {};
    if (fstat(fd, &info) == 0 && static_cast<size_t>(info.st_size) < kBytes) {
      return fail(ErrorKind::Environment, "the memory for the flight log is too small");
    }
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
      return fail(ErrorKind::Environment,
                  std::string("the memory for the flight log: ") + std::strerror(errno));
    }
    layout = new (memory) FlightLayout();
  }
  auto shared = std::make_shared<Shared>(layout, fd >= 0);
  std::unique_ptr<FlightLog> log(
      new FlightLog(std::move(shared), {.progress = layout->world, .records = layout->records}));
  log->enter(FlightPhase::Starting, 0);
  std::memcpy(layout->magic, kMagic, sizeof kMagic);
  return log;
}

std::unique_ptr<FlightLog> FlightLog::group(const FlightGroup& group) {
  const std::lock_guard lock(shared_->mutex);
  const auto free = std::ranges::find(shared_->taken, false);
  if (free == std::end(shared_->taken)) return nullptr;
  *free = true;
  GroupLayout& layout = shared_->layout->groups[free - std::begin(shared_->taken)];
  Name name{.id = group.id, .within = group.within.value_or(kNoGroup)};
  put(name.name, group.name);
  if (group.members.size() < sizeof name.members) put(name.members, group.members);
  name.check = checksum(name);
  std::memcpy(&layout.name, &name, sizeof name);
  return std::unique_ptr<FlightLog>(new FlightLog(
      shared_, {.progress = layout.progress, .records = layout.records, .group = &layout}));
}

FlightLog::FlightLog(std::shared_ptr<Shared> shared, const Place& place)
    : shared_(std::move(shared)), place_(std::make_unique<const Place>(place)) {}

FlightLog::~FlightLog() {
  if (!place_->group) return;
  for (; !under_way_.empty(); under_way_.pop_front()) {
    if (under_way_.front().state == FlightOperation::State::Begun)
      shared_->runs(flight_clock(), -1);
  }
  const std::lock_guard lock(shared_->mutex);
  std::memset(static_cast<void*>(place_->group), 0, sizeof(GroupLayout));
  shared_->taken[place_->group - shared_->layout->groups] = false;
}

void FlightLog::enter(FlightPhase phase, int64_t step) {
  const int64_t now = flight_clock();
  FlightLayout& layout = *shared_->layout;
  const bool was_training = shared_->phase == FlightPhase::Training;
  if (was_training || shared_->phase == FlightPhase::Reading) {
    add(layout.step_ns, now - shared_->entered_ns);
  }
  if (was_training) add(layout.steps, 1);
  const bool goes_on = phase == FlightPhase::Training && shared_->phase == FlightPhase::Reading;
  const bool in_step = phase == FlightPhase::Reading || phase == FlightPhase::Training;
  if (!goes_on) shared_->step_began_ns = in_step ? now : 0;
  shared_->phase = phase;
  shared_->entered_ns = now;
  Whereabouts whereabouts{.phase = static_cast<uint64_t>(phase), .step = step};
  whereabouts.check = checksum(whereabouts);
  std::memcpy(&layout.whereabouts, &whereabouts, sizeof whereabouts);
  tick();
}

void FlightLog::tick() {
  Word(shared_->layout->ticks).fetch_add(1, std::memory_order_relaxed);
}

void FlightLog::waits_for(int rank) {
  Word(place_->progress.waits_for)
      .store(static_cast<uint64_t>(rank + 1), std::memory_order_relaxed);
}

void FlightLog::issued(uint64_t sequence, std::string_view kind, std::string_view unit,
                       int64_t bytes) {
  Word(place_->progress.issued).store(sequence, std::memory_order_relaxed);
  under_way_.push_back({.sequence = sequence,
                        .kind = std::string(kind),
                        .unit = std::string(unit),
                        .bytes = bytes,
                        .changed_ns = flight_clock()});
  if (under_way_.size() == 1) return begin();
  // The slot may still show an operation that has not ended. This one is written when it begins.
  if (under_way_.size() <= place_->records.size()) write(under_way_.back());
}

void FlightLog::begin() {
  FlightOperation& operation = under_way_.front();
  operation.state = FlightOperation::State::Begun;
  operation.changed_ns = flight_clock();
  shared_->runs(operation.changed_ns, 1);
  write(operation);
}

void FlightLog::ended() {
  if (under_way_.empty()) return;
  FlightOperation operation = std::move(under_way_.front());
  under_way_.pop_front();
  operation.state = FlightOperation::State::Ended;
  operation.changed_ns = flight_clock();
  shared_->runs(operation.changed_ns, -1);
  write(operation);
  Word(place_->progress.ended).store(operation.sequence, std::memory_order_relaxed);
  if (!under_way_.empty()) begin();
}

void FlightLog::write(const FlightOperation& operation) {
  Record record{.sequence = operation.sequence,
                .state = static_cast<uint64_t>(operation.state),
                .bytes = operation.bytes,
                .changed_ns = operation.changed_ns};
  put(record.kind, operation.kind);
  put(record.unit, operation.unit);
  record.check = checksum(record);
  std::memcpy(&place_->records[operation.sequence % place_->records.size()], &record,
              sizeof record);
}

std::string_view FlightLog::bytes() const {
  return {reinterpret_cast<const char*>(shared_->layout), sizeof(FlightLayout)};
}

namespace {

std::vector<FlightOperation> operations_of(std::span<const Record> records) {
  std::vector<FlightOperation> operations;
  for (const Record& record : records) {
    if (record.sequence == 0 || record.check != checksum(record) || record.state > 2) continue;
    operations.push_back({.sequence = record.sequence,
                          .kind = get(record.kind),
                          .unit = get(record.unit),
                          .bytes = record.bytes,
                          .state = static_cast<FlightOperation::State>(record.state),
                          .changed_ns = record.changed_ns});
  }
  std::ranges::sort(operations, {}, &FlightOperation::sequence);
  return operations;
}

int rank_waited_for(const Progress& progress) {
  return progress.waits_for <= INT32_MAX ? static_cast<int>(progress.waits_for) - 1 : -1;
}

}  // namespace

Result<FlightPicture> flight_picture(std::string_view bytes) {
  const auto whole = std::make_unique<FlightLayout>();
  if (bytes.size() < sizeof(FlightLayout)) return bad_input("too short for a flight log");
  std::memcpy(whole.get(), bytes.data(), sizeof(FlightLayout));
  if (std::memcmp(whole->magic, kMagic, sizeof kMagic) != 0) {
    return bad_input("not a flight log of this version, or not opened yet");
  }
  FlightPicture picture{.ticks = whole->ticks,
                        .issued = whole->world.issued,
                        .ended = whole->world.ended,
                        .steps = static_cast<int64_t>(whole->steps),
                        .step_ns = static_cast<int64_t>(whole->step_ns),
                        .collective_ns = static_cast<int64_t>(whole->collective_ns),
                        .operations = operations_of(whole->records),
                        .waits_for = rank_waited_for(whole->world)};
  if (const Whereabouts& at = whole->whereabouts;
      at.check == checksum(at) && at.phase < kFlightPhases) {
    picture.phase = static_cast<FlightPhase>(at.phase);
    picture.step = at.step;
  }
  for (const GroupLayout& group : whole->groups) {
    const Name& name = group.name;
    if (name.id == 0 || name.check != checksum(name)) continue;
    picture.groups.push_back(
        {.group = {.id = name.id,
                   .name = get(name.name),
                   .members = get(name.members),
                   .within = name.within == kNoGroup ? std::nullopt : std::optional(name.within)},
         .issued = group.progress.issued,
         .ended = group.progress.ended,
         .waits_for = rank_waited_for(group.progress),
         .operations = operations_of(group.records)});
  }
  return picture;
}

}  // namespace dsj
