// What gloo sees of rank 0's store. Gloo puts one value and then asks for every rank's, one by one:
// world^2 times two operations in all. Here the first question brings the values of all ranks at
// once, and the others are answered from them. Internal to comm.
// Tested by: tests/engine/comm/rendezvous_test.cc
#pragma once

#include <functional>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// All ranks put something before they ask, and every rank asks. Names that no rank had put by then
/// are looked for in the rendezvous's store, below "KEY/". One thread at a time.
class GatheredStore final : public c10d::Store {
 public:
  /// `rendezvous` must outlive the first question only.
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
  /// Collective at its first call. Throws TransportError if the ranks did not come.
  void gather();
  std::vector<std::string> unknown(const std::vector<std::string>& names);

  std::function<Result<std::vector<std::string>>(const std::string&)> values_of_all_;
  const c10::intrusive_ptr<c10d::Store> others_;
  std::vector<std::string> put_;  ///< before the first question: name, value, name, value ...
  std::map<std::string, std::vector<std::uint8_t>> known_;
};

}  // namespace dsj::comm
