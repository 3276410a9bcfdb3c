#include "kube/http.h"

#include <condition_variable>
#include <list>
#include <utility>

namespace dsj::kube {

struct Cancel::Registration::Entry {
  std::mutex mutex;
  std::function<void()> hook;

  /// Holds the lock while the hook runs, so that ending the registration waits for it.
  void fire() {
    const std::lock_guard lock(mutex);
    if (const auto taken = std::exchange(hook, nullptr)) taken();
  }
};

struct Cancel::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool cancelled = false;
  std::list<std::weak_ptr<Registration::Entry>> entries;
};

std::shared_ptr<Cancel::State> Cancel::make_state() {
  return std::make_shared<State>();
}

void Cancel::cancel() {
  std::list<std::weak_ptr<Registration::Entry>> entries;
  {
    const std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->cancelled, true)) return;
    entries.swap(state_->entries);
  }
  state_->changed.notify_all();
  for (const auto& weak : entries) {
    if (const auto entry = weak.lock()) entry->fire();
  }
}

bool Cancel::cancelled() const {
  const std::lock_guard lock(state_->mutex);
  return state_->cancelled;
}

bool Cancel::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, time, [&] { return state_->cancelled; });
}

Cancel::Registration Cancel::on_cancel(std::function<void()> hook) const {
  Registration registration;
  registration.entry_ = std::make_shared<Registration::Entry>();
  registration.entry_->hook = std::move(hook);
  bool now = false;
  {
    const std::lock_guard lock(state_->mutex);
    now = state_->cancelled;
    if (!now) {
      state_->entries.remove_if([](const auto& weak) { return weak.expired(); });
      state_->entries.push_back(registration.entry_);
    }
  }
  if (now) registration.entry_->fire();
  return registration;
}

Cancel::Registration& Cancel::Registration::operator=(Registration&& other) {
  std::swap(entry_, other.entry_);
  return *this;
}

Cancel::Registration::~Registration() {
  if (!entry_) return;
  const std::lock_guard lock(entry_->mutex);
  entry_->hook = nullptr;
}

}  // namespace dsj::kube
