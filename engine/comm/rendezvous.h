// How ranks find each other: c10d's TCPStore behind our own class. Internal to comm.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/comm/transport.h"

namespace c10d {
class Store;
}

namespace dsj::comm {

class Rendezvous {
 public:
  /// Rank 0 serves the store; the others connect to it. All must be there within options.timeout
  /// from now, which is also the deadline of every exchange(). Environment: the port cannot be
  /// bound. Transient: rank 0 was not reached.
  static Result<std::unique_ptr<Rendezvous>> open(const Options& options);
  ~Rendezvous();

  const Options& options() const { return options_; }
  Clock::time_point deadline() const { return deadline_; }
  /// What is left of that time, at least 1 ms.
  std::chrono::milliseconds remaining() const;

  /// Every rank's value for `key`, in rank order. A key is used once. Collective. Transient: names
  /// the ranks that did not come.
  Result<std::vector<std::string>> exchange(const std::string& key, const std::string& mine);

  /// Call last: all ranks have joined, and none needs rank 0's store any more. Collective.
  Status finish();

  /// The numeric address of the interface through which this rank reaches the master.
  const std::string& local_address() const { return local_address_; }
  /// For backends that need c10d's own type.
  c10::intrusive_ptr<c10d::Store> store() const;

 private:
  Rendezvous(const Options& options, c10::intrusive_ptr<c10d::Store> store, std::string address);
  std::string missing(const std::vector<std::string>& keys);
  Status wait_for_all(const std::string& what, const std::vector<std::string>& keys);
  std::unexpected<Error> lost(const std::string& what, const std::exception& error);
  void put(const std::string& key, const std::string& value);
  std::vector<std::string> keys_of(const std::string& key) const;

  const Options options_;
  const Clock::time_point begin_ = Clock::now();
  const Clock::time_point deadline_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string local_address_;
};

}  // namespace dsj::comm
