#include "job/flight_log.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

namespace dsj {
namespace {

constexpr char kMagic[8] = {'d', 's', 'j', 'f', 'l', 'y', '0', '1'};
constexpr size_t kSlots = 120;

using Word = std::atomic_ref<uint64_t>;

void add(uint64_t& total, int64_t more) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(0, more));
  Word(total).fetch_add(count, std::memory_order_relaxed);
}

/// 128 bytes without padding, the checksum last.
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

struct Place {
  uint64_t phase;
  int64_t step;
  uint64_t unused;
  uint64_t check;
};
static_assert(sizeof(Place) == 32);

/// FNV-1a over words. A record of zeros, which nobody wrote, does not have its own checksum.
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

/// The counters are written through atomic_ref: a reader of the memory sees whole words.
struct FlightLayout {
  char magic[8];  // written last
  uint64_t ticks, issued, ended;
  Place place;
  uint64_t steps, step_ns, collective_ns;
  uint64_t unused[53];
  Record records[kSlots];
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
  if (fd < 0) return std::unique_ptr<FlightLog>(new FlightLog(new FlightLayout(), false));
  struct stat info {};
  if (fstat(fd, &info) == 0 && static_cast<size_t>(info.st_size) < kBytes) {
    return fail(ErrorKind::Environment, "the memory for the flight log is too small");
  }
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorKind::Environment,
                std::string("the memory for the flight log: ") + std::strerror(errno));
  }
  return std::unique_ptr<FlightLog>(new FlightLog(new (memory) FlightLayout(), true));
}

FlightLog::FlightLog(FlightLayout* layout, bool mapped) : layout_(layout), mapped_(mapped) {
  enter(FlightPhase::Starting, 0);
  std::memcpy(layout_->magic, kMagic, sizeof kMagic);
}

FlightLog::~FlightLog() {
  if (mapped_) {
    munmap(layout_, kBytes);
  } else {
    delete layout_;
  }
}

void FlightLog::enter(FlightPhase phase, int64_t step) {
  const int64_t now = flight_clock();
  const bool was_training = phase_ == FlightPhase::Training;
  if (was_training || phase_ == FlightPhase::Reading) add(layout_->step_ns, now - entered_ns_);
  if (was_training) add(layout_->steps, 1);
  const bool goes_on = phase == FlightPhase::Training && phase_ == FlightPhase::Reading;
  const bool in_step = phase == FlightPhase::Reading || phase == FlightPhase::Training;
  if (!goes_on) step_began_ns_ = in_step ? now : 0;
  phase_ = phase;
  entered_ns_ = now;
  Place place{.phase = static_cast<uint64_t>(phase), .step = step};
  place.check = checksum(place);
  std::memcpy(&layout_->place, &place, sizeof place);
  tick();
}

void FlightLog::tick() {
  Word(layout_->ticks).fetch_add(1, std::memory_order_relaxed);
}

void FlightLog::issued(uint64_t sequence, std::string_view kind, std::string_view unit,
                       int64_t bytes) {
  Word(layout_->issued).store(sequence, std::memory_order_relaxed);
  under_way_.push_back({.sequence = sequence,
                        .kind = std::string(kind),
                        .unit = std::string(unit),
                        .bytes = bytes,
                        .changed_ns = flight_clock()});
  if (under_way_.size() == 1) return begin();
  // Its place may still show an older one that has not ended. It is shown when it begins.
  if (under_way_.size() <= kSlots) write(under_way_.back());
}

void FlightLog::begin() {
  FlightOperation& operation = under_way_.front();
  operation.state = FlightOperation::State::Begun;
  operation.changed_ns = flight_clock();
  write(operation);
}

void FlightLog::ended() {
  if (under_way_.empty()) return;
  FlightOperation operation = std::move(under_way_.front());
  under_way_.pop_front();
  operation.state = FlightOperation::State::Ended;
  const int64_t begun = std::exchange(operation.changed_ns, flight_clock());
  if (const int64_t step = step_began_ns_; step > 0) {
    add(layout_->collective_ns, operation.changed_ns - std::max(begun, step));
  }
  write(operation);
  Word(layout_->ended).store(operation.sequence, std::memory_order_relaxed);
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
  std::memcpy(&layout_->records[operation.sequence % kSlots], &record, sizeof record);
}

std::string_view FlightLog::bytes() const {
  return {reinterpret_cast<const char*>(layout_), sizeof(FlightLayout)};
}

Result<FlightPicture> flight_picture(std::string_view bytes) {
  const auto whole = std::make_unique<FlightLayout>();
  if (bytes.size() < sizeof(FlightLayout)) return bad_input("too short for a flight log");
  std::memcpy(whole.get(), bytes.data(), sizeof(FlightLayout));
  if (std::memcmp(whole->magic, kMagic, sizeof kMagic) != 0) {
    return bad_input("not a flight log of this version, or not opened yet");
  }
  FlightPicture picture{.ticks = whole->ticks,
                        .issued = whole->issued,
                        .ended = whole->ended,
                        .steps = static_cast<int64_t>(whole->steps),
                        .step_ns = static_cast<int64_t>(whole->step_ns),
                        .collective_ns = static_cast<int64_t>(whole->collective_ns)};
  if (const Place& place = whole->place;
      place.check == checksum(place) && place.phase < kFlightPhases) {
    picture.phase = static_cast<FlightPhase>(place.phase);
    picture.step = place.step;
  }
  for (const Record& record : whole->records) {
    if (record.sequence == 0 || record.check != checksum(record) || record.state > 2) continue;
    picture.operations.push_back({.sequence = record.sequence,
                                  .kind = get(record.kind),
                                  .unit = get(record.unit),
                                  .bytes = record.bytes,
                                  .state = static_cast<FlightOperation::State>(record.state),
                                  .changed_ns = record.changed_ns});
  }
  std::ranges::sort(picture.operations, {}, &FlightOperation::sequence);
  return picture;
}

}  // namespace dsj
