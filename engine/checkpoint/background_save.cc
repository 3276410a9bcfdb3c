#include "engine/checkpoint/background_save.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "common/check.h"

namespace dsj::checkpoint {
namespace {

constexpr size_t kPageElements = 4096 / sizeof(float);
constexpr size_t kChunkElements = size_t{1} << 20;  // elements that a thread copies at a time

template <typename T>
bool is_ready(const std::future<T>& work) {
  return work.valid() && work.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

/// Runs `work` on a thread. Exceptions, and a failure to start the thread, become errors.
template <typename T>
std::future<Result<T>> on_a_thread(std::function<Result<T>()> work) {
  const auto guarded = [work = std::move(work)]() -> Result<T> {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return fail(ErrorKind::Environment, "out of host memory while a checkpoint was saved");
    } catch (const std::exception& error) {
      return fail(ErrorKind::Internal, error.what());
    }
  };
  try {
    return std::async(std::launch::async, guarded);
  } catch (const std::exception& error) {
    std::promise<Result<T>> none;
    none.set_value(fail(ErrorKind::Environment,
                        std::string("no thread to save the checkpoint: ") + error.what()));
    return none.get_future();
  }
}

void plain_copy(std::span<float> to, std::span<const float> from) {
  std::ranges::copy(from, to.begin());
}

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

BackgroundSave::Copies BackgroundSave::plain_copies() {
  return {.waiting = plain_copy, .beside = plain_copy};
}

BackgroundSave::BackgroundSave(Files& files, std::span<float> buffer, Copies copies)
    : files_(files), buffer_(buffer), copies_(std::move(copies)) {
  if (buffer_.size() < kPageElements) return;
  warm_ = std::async(std::launch::async, [buffer] {
    for (size_t i = 0; i < buffer.size(); i += kPageElements) buffer[i] = 0;
  });
}

BackgroundSave::~BackgroundSave() {
  given_up_ = true;
  if (warm_.valid()) warm_.wait();
  if (writing_.valid()) writing_.wait();
  if (publishing_.valid()) publishing_.wait();
}

Status BackgroundSave::take_pieces(const Produce& produce) {
  pieces_.clear();
  chunks_.clear();
  begun_chunks_ = copied_chunks_ = 0;
  std::span<float> free = buffer_;
  return produce([&](const Piece& piece) -> Status {
    DSJ_CHECK(piece.data.size() <= free.size(), "the pieces are larger than the buffer");
    const std::span<float> to = free.first(piece.data.size());
    free = free.subspan(piece.data.size());
    pieces_.push_back({piece.state, piece.param, piece.offset, to});
    if (!piece.stays) {
      copies_.waiting(to, piece.data);
      return {};
    }
    for (size_t at = 0; at < to.size(); at += kChunkElements) {
      const size_t count = std::min(kChunkElements, to.size() - at);
      chunks_.push_back({to.subspan(at, count), piece.data.subspan(at, count)});
    }
    return {};
  });
}

void BackgroundSave::copy_chunks(const Copy& copy) {
  for (;;) {
    const size_t chunk = begun_chunks_.fetch_add(1);
    if (chunk >= chunks_.size()) return;
    copy(chunks_[chunk].to, chunks_[chunk].from);
    if (copied_chunks_.fetch_add(1) + 1 == chunks_.size()) copied_chunks_.notify_all();
  }
}

void BackgroundSave::wait_for_chunks() {
  for (size_t copied = copied_chunks_; copied < chunks_.size(); copied = copied_chunks_)
    copied_chunks_.wait(copied);
}

void BackgroundSave::settle() {
  if (settled_) return;
  const auto start = Clock::now();
  copy_chunks(copies_.waiting);
  wait_for_chunks();
  settled_ = true;
  stall_ += Clock::now() - start;
}

Result<int64_t> BackgroundSave::write() {
  copy_chunks(copies_.beside);
  wait_for_chunks();
  return write_rank_from(files_, options_, [this](const EmitPiece& emit) -> Status {
    for (const Piece& piece : pieces_) {
      if (given_up_) return fail(ErrorKind::Transient, "the run ended before this was saved");
      DSJ_TRY_STATUS(emit(piece));
    }
    return {};
  });
}

void BackgroundSave::begin(const WriteOptions& options, Publication publication,
                           const Produce& produce) {
  DSJ_CHECK(idle() && !writing_.valid() && !publishing_.valid());
  begun_ = Clock::now();
  if (warm_.valid()) warm_.get();
  options_ = options;
  publication_ = std::move(publication);
  written_.reset();
  published_.reset();
  phase_ = Phase::Writing;
  const Status taken = take_pieces(produce);
  settled_ = !taken || chunks_.empty();
  if (!taken)
    written_ = std::unexpected(taken.error());
  else
    writing_ = on_a_thread<int64_t>([this] { return write(); });
  stall_ = Clock::now() - begun_;
}

bool BackgroundSave::confirm() {
  if (phase_ != Phase::Writing) return false;
  publication_.confirmed = options_.step;
  return true;
}

SaveVotes BackgroundSave::votes() {
  if (is_ready(writing_)) written_ = writing_.get();
  if (is_ready(publishing_)) published_ = publishing_.get();
  SaveVotes votes;
  if (phase_ == Phase::Writing && written_) (*written_ ? votes.written : votes.failed) = 1;
  if (phase_ == Phase::Publishing && published_) (*published_ ? votes.published : votes.failed) = 1;
  return votes;
}

BackgroundSave::Saved BackgroundSave::advance(const SaveVotes& all) {
  if (phase_ == Phase::Idle) return std::nullopt;
  DSJ_CHECK(settled_, "a step has updated what was not copied yet");
  if (all.failed > 0) {
    phase_ = Phase::Idle;
    if (written_ && !*written_) return std::unexpected(written_->error());
    if (published_ && !*published_) return std::unexpected(published_->error());
    return fail(ErrorKind::Transient, "another rank failed");
  }
  if (phase_ == Phase::Writing) {
    if (all.written < options_.world) return std::nullopt;
    phase_ = Phase::Publishing;
    if (options_.rank == 0) {
      publishing_ =
          on_a_thread<Published>([this] { return publish(files_, options_, publication_); });
    }
    return std::nullopt;
  }
  if (all.published == 0) return std::nullopt;
  phase_ = Phase::Idle;
  BackgroundSaved saved{
      .step = options_.step, .seconds = seconds(Clock::now() - begun_), .stall = seconds(stall_)};
  if (published_) saved.published = std::move(**published_);
  return saved;
}

void BackgroundSave::wait() {
  if (writing_.valid()) writing_.wait();
  if (publishing_.valid()) publishing_.wait();
}

BackgroundSave::Saved BackgroundSave::finish(
    const std::function<SaveVotes(const SaveVotes&)>& add) {
  settle();
  const auto start = Clock::now();
  while (!idle()) {
    wait();
    DSJ_TRY(auto saved, advance(add(votes())));
    if (!saved) continue;
    saved->stall += seconds(Clock::now() - start);
    return saved;
  }
  return std::nullopt;
}

}  // namespace dsj::checkpoint
