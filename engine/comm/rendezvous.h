// How ranks find each other: a class around c10d's TCPStore. Internal to comm.
// docs/reports/scale.md counts the store operations of a join.
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

/// Packs several values into one, each after its length. unpack() reverses it.
std::string pack(const std::vector<std::string>& values);
std::vector<std::string> unpack(const std::string& packed);

/// A Decide: the lowest rank's problem among the non-empty texts; empty if there is none.
std::string first_problem(const std::vector<std::string>& texts);

class Rendezvous {
 public:
  static constexpr std::size_t kNamedMax = 16;  ///< ranks that a message names

  /// Rank 0 serves the store; the others connect to it. options.timeout from now is the deadline
  /// for all ranks to connect, and for all later calls. Environment: the port cannot be bound.
  /// Transient: rank 0 was not reached.
  static Result<std::unique_ptr<Rendezvous>> open(const Options& options);
  /// The same over an existing store. `address`: this rank's address. `names`: the ranks' numbers
  /// in messages; empty: as they are.
  Rendezvous(const Options& options, c10::intrusive_ptr<c10d::Store> store, std::string address,
             std::vector<int> names = {});
  ~Rendezvous();

  const Options& options() const { return options_; }
  /// The number of a rank in messages: its rank in the world.
  int name(int rank) const;
  const std::vector<int>& names() const { return names_; }
  /// Where the group of these ranks records its operations; may be null.
  const std::shared_ptr<FlightLog>& flight() const { return flight_; }
  Clock::time_point deadline() const { return deadline_; }
  /// The time to the deadline, at least 1 ms.
  std::chrono::milliseconds remaining() const;

  // The number of store operations of each call is independent of the world size; one operation of
  // rank 0 carries the names and values of all ranks. A key can be used once. Transient: names the
  // missing ranks; only in this case a rank queries each missing rank, kNamedMax at most.

  /// Rank 0 calls `decide` with all ranks' values, in rank order; all ranks get its answer.
  /// Collective.
  using Decide = std::function<std::string(const std::vector<std::string>&)>;
  Result<std::string> settle(const std::string& key, const std::string& mine, const Decide& decide);
  /// The same with an answer for each rank, in rank order.
  using Deal = std::function<std::vector<std::string>(const std::vector<std::string>&)>;
  Result<std::string> deal(const std::string& key, const std::string& mine, const Deal& decide);
  /// The value of rank `from`. Collective; `from` may differ between ranks.
  Result<std::string> value_of(const std::string& key, const std::string& mine, int from);
  /// Rank 0's value. Collective.
  Result<std::string> value_of_first(const std::string& key, const std::string& mine);
  /// Every rank's value, in rank order: world^2 values in total. Use it only if every rank needs
  /// all values. Collective.
  Result<std::vector<std::string>> values_of_all(const std::string& key, const std::string& mine);

  /// Call it last, when all ranks have joined and none needs rank 0's store any more. Collective.
  Status finish();

  /// A rendezvous of the same ranks over the same store; its deadline is one timeout from now.
  std::unique_ptr<Rendezvous> again() const;
  /// The rendezvous of some of the ranks, in the order of `members`, which must include this rank.
  /// Its names in the store begin with `key`; its deadline is one timeout from now. Not collective,
  /// but all members must make it. `name`: the group's name in the flight log. `level`: the group's
  /// operations are parts of this group's operations.
  std::unique_ptr<Rendezvous> part(const std::string& key, const std::vector<int>& members,
                                   const std::string& name, bool level = false) const;

  /// The numeric address of the interface through which this rank reaches the master.
  const std::string& local_address() const { return local_address_; }
  /// For backends that need c10d's type.
  c10::intrusive_ptr<c10d::Store> store() const;

 private:
  /// Waits until all `ranks` have put a value under `key`.
  Status wait_for(const std::string& key, const std::vector<int>& ranks);
  /// Waits for `names`; `ranks`: the ranks that must come before these exist.
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
  std::uint64_t id_ = 0;  ///< of the group in the flight log; 0 is the world
  std::string title_;     ///< its name there; empty for the world
};

}  // namespace dsj::comm
