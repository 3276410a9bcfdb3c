// How ranks find each other: c10d's TCPStore behind our own class. Internal to comm.
// What a join asks of the store, by count: docs/reports/scale.md.
// Tested by: tests/engine/comm/rendezvous_test.cc
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
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

/// Several values as one, each behind its length; and back. unpack() takes what pack() made.
std::string pack(const std::vector<std::string>& values);
std::vector<std::string> unpack(const std::string& packed);

/// A Decide: what the lowest rank with a text told, as its problem. Empty: no rank has one.
std::string first_told(const std::vector<std::string>& texts);

class Rendezvous {
 public:
  static constexpr std::size_t kNamedMax = 16;  ///< ranks that a message names

  /// Rank 0 serves the store; the others connect to it. All must be there within options.timeout
  /// from now, which is also the deadline of all that follows. Environment: the port cannot be
  /// bound. Transient: rank 0 was not reached.
  static Result<std::unique_ptr<Rendezvous>> open(const Options& options);
  /// The same over a store that is there already; `address`: of this rank.
  /// `names`: of the ranks in messages; empty: their numbers.
  Rendezvous(const Options& options, c10::intrusive_ptr<c10d::Store> store, std::string address,
             std::vector<int> names = {});
  ~Rendezvous();

  const Options& options() const { return options_; }
  /// What messages call a rank of this rendezvous: its number in the world.
  int name(int rank) const;
  const std::vector<int>& names() const { return names_; }
  /// Where the group of these ranks notes what it does; null: nowhere.
  const std::shared_ptr<FlightLog>& flight() const { return flight_; }
  Clock::time_point deadline() const { return deadline_; }
  /// What is left of that time, at least 1 ms.
  std::chrono::milliseconds remaining() const;

  // Each of these takes a number of store operations that does not depend on the world size; one of
  // rank 0 carries the names and values of all ranks. A key is used once. Transient: names the
  // ranks that did not come; only then a rank asks for each that is missing, kNamedMax at most.

  /// Rank 0's `decide` on every rank's value, in rank order; all ranks get its answer. Collective.
  using Decide = std::function<std::string(const std::vector<std::string>&)>;
  Result<std::string> settle(const std::string& key, const std::string& mine, const Decide& decide);
  /// The same with an answer for each rank, in rank order.
  using Deal = std::function<std::vector<std::string>(const std::vector<std::string>&)>;
  Result<std::string> deal(const std::string& key, const std::string& mine, const Deal& decide);
  /// The value of rank `from`. Collective; each rank may name another one.
  Result<std::string> value_of(const std::string& key, const std::string& mine, int from);
  /// Rank 0's value. Collective.
  Result<std::string> value_of_first(const std::string& key, const std::string& mine);
  /// Every rank's value, in rank order. All of them go to every rank: world^2 values in total, for
  /// what every rank does need. Collective.
  Result<std::vector<std::string>> values_of_all(const std::string& key, const std::string& mine);

  /// Call last: all ranks have joined, and none needs rank 0's store any more. Collective.
  Status finish();

  /// The same ranks over the same store, with a deadline a timeout from now.
  std::unique_ptr<Rendezvous> again() const;
  /// The rendezvous of some of the ranks, in the order of `members`, this one among them. Its names
  /// in the store begin with `key`, and its deadline is a timeout from now. Not collective by itself;
  /// all members make it. In the flight log the group is called `name`; a `level` is one whose
  /// operations are parts of this group's.
  std::unique_ptr<Rendezvous> part(const std::string& key, const std::vector<int>& members,
                                   const std::string& name, bool level = false) const;

  /// The numeric address of the interface through which this rank reaches the master.
  const std::string& local_address() const { return local_address_; }
  /// For backends that need c10d's own type.
  c10::intrusive_ptr<c10d::Store> store() const;

 private:
  /// Waits for what `ranks` put under `key`.
  Status wait_for(const std::string& key, const std::vector<int>& ranks);
  /// Waits for one name; `ranks`: who has to come before it is there.
  Status wait_for(const std::string& key, const std::vector<std::string>& names,
                  const std::vector<int>& ranks);
  std::string missing(const std::string& key, const std::vector<int>& ranks);
  std::unexpected<Error> lost(const std::string& what, const std::exception& error);
  void put(const std::string& name, const std::string& value);
  std::string get(const std::string& name);
  std::vector<std::string> collect(const std::string& key);

  const Options options_;
  const Clock::time_point begin_ = Clock::now();
  const Clock::time_point deadline_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string local_address_;
  const std::vector<int> names_;
  std::shared_ptr<FlightLog> flight_;
  std::uint64_t id_ = 0;  ///< of the group in the flight log; 0: the world
  std::string title_;     ///< what it is called there; empty: the world
};

}  // namespace dsj::comm
