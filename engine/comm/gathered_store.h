// A c10d store for gloo, in front of rank 0's store. Gloo sets one value and then gets every
// rank's, one by one: 2 world^2 store operations. Here the first get fetches the values of all
// ranks at once, and answers the others from them. Internal to comm.
// Tested by: tests/engine/comm/rendezvous_test.cc
#pragma once

#include <functional>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// Every rank must set a value before its first get, and every rank must get. Names that were not
/// set by then are looked up in the rendezvous's store, below "KEY/". One thread at a time.
class GatheredStore final : public c10d::Store {
 public:
  /// `rendezvous` must outlive the first get only.
  GatheredStore(const std::string& key, Rendezvous& rendezvous);

  c10::intrusive_ptr<Store> clone() override;
  void set(const std::string& name, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& name) override;
  std::int64_t add(const std::string& name, std::int64_t value) override;
  bool deleteKey(const std::string& name) override;
  bool check(const std::vector<std::string>& names) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& names) override;
  void wait(const std::vector<std::string>& names,
            const std::chrono::milliseconds& timeout) override;

 private:
  /// Collective at its first call. Throws TransportError if a rank did not come.
  void gather();
  std::vector<std::string> unknown(const std::vector<std::string>& names);

  std::function<Result<std::vector<std::string>>(const std::string&)> values_of_all_;
  const c10::intrusive_ptr<c10d::Store> others_;
  std::vector<std::string> put_;  ///< set before the first get: name, value, name, value ...
  std::map<std::string, std::vector<std::uint8_t>> known_;
};

}  // namespace dsj::comm
