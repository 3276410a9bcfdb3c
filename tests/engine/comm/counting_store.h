// A store in memory that many threads share as ranks share rank 0's, and that counts what each of
// them asks. A waiter is woken once, when the last of its names is there.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace dsj::comm::testing_support {

/// What one rank asked of the store. Bytes are those of names and values, without any framing.
struct StoreCount {
  std::int64_t operations = 0;
  std::int64_t sent = 0, received = 0;
  std::vector<std::string> log;  ///< "set NAME", ... in order

  bool operator==(const StoreCount&) const = default;
};

/// What all ranks share.
class SharedStore {
 public:
  using Value = std::vector<std::uint8_t>;

  void set(const std::string& name, const Value& value) {
    const std::lock_guard lock(mutex_);
    values_[name] = value;
    const auto waiters = waiting_.extract(name);
    if (waiters.empty()) return;
    for (Waiter* waiter : waiters.mapped())
      if (--waiter->missing == 0) waiter->there.notify_one();
  }
  /// False: not all were there in time.
  bool wait(const std::vector<std::string>& names, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    Waiter waiter;
    for (const std::string& name : names) {
      if (values_.contains(name)) continue;
      ++waiter.missing;
      waiting_[name].push_back(&waiter);
    }
    if (waiter.there.wait_for(lock, time, [&] { return waiter.missing == 0; })) return true;
    for (const std::string& name : names)
      if (const auto at = waiting_.find(name); at != waiting_.end())
        std::erase(at->second, &waiter);
    return false;
  }
  bool has(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return values_.contains(name);
  }
  Value get(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return values_.at(name);
  }
  std::int64_t add(const std::string& name, std::int64_t value) {
    const std::lock_guard lock(mutex_);
    return sums_[name] += value;
  }

 private:
  struct Waiter {
    std::size_t missing = 0;
    std::condition_variable there;
  };
  std::mutex mutex_;
  std::map<std::string, Value> values_;
  std::map<std::string, std::vector<Waiter*>> waiting_;
  std::map<std::string, std::int64_t> sums_;
};

/// One rank's end of it.
class CountingStore final : public c10d::Store {
 public:
  explicit CountingStore(SharedStore& shared) : shared_(shared) {}
  const StoreCount& count() const { return count_; }

  c10::intrusive_ptr<Store> clone() override { throw std::logic_error("not counted"); }
  void set(const std::string& name, const std::vector<std::uint8_t>& value) override {
    note("set", {name}, value.size(), 0);
    shared_.set(name, value);
  }
  std::vector<std::uint8_t> get(const std::string& name) override {
    await({name}, timeout_);
    auto value = shared_.get(name);
    note("get", {name}, 0, value.size());
    return value;
  }
  std::int64_t add(const std::string& name, std::int64_t value) override {
    note("add", {name}, sizeof value, sizeof value);
    return shared_.add(name, value);
  }
  bool deleteKey(const std::string&) override { throw std::logic_error("not counted"); }
  bool check(const std::vector<std::string>& names) override {
    note("check", names, 0, 1);
    return std::ranges::all_of(names, [&](const auto& name) { return shared_.has(name); });
  }
  std::int64_t getNumKeys() override { throw std::logic_error("not counted"); }
  void wait(const std::vector<std::string>& names) override { wait(names, timeout_); }
  void wait(const std::vector<std::string>& names,
            const std::chrono::milliseconds& timeout) override {
    note("wait", names, 0, 1);
    await(names, timeout);
  }
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& names) override {
    await(names, timeout_);
    std::vector<std::vector<std::uint8_t>> values;
    std::size_t bytes = 0;
    for (const std::string& name : names) {
      values.push_back(shared_.get(name));
      bytes += values.back().size();
    }
    note("multi_get", names, 0, bytes);
    return values;
  }
  void multiSet(const std::vector<std::string>& names,
                const std::vector<std::vector<std::uint8_t>>& values) override {
    std::size_t bytes = 0;
    for (const auto& value : values) bytes += value.size();
    note("multi_set", names, bytes, 0);
    for (std::size_t i = 0; i < names.size(); ++i) shared_.set(names[i], values[i]);
  }
  bool hasExtendedApi() const override { return true; }

 private:
  void await(const std::vector<std::string>& names, std::chrono::milliseconds time) {
    if (!shared_.wait(names, time)) throw std::runtime_error("timed out");
  }
  void note(const std::string& what, const std::vector<std::string>& names, std::size_t sent,
            std::size_t received) {
    ++count_.operations;
    for (const std::string& name : names) count_.sent += static_cast<std::int64_t>(name.size());
    count_.sent += static_cast<std::int64_t>(sent);
    count_.received += static_cast<std::int64_t>(received);
    count_.log.push_back(what + " " + names.front());
  }

  SharedStore& shared_;
  StoreCount count_;
};

}  // namespace dsj::comm::testing_support
