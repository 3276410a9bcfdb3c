#include "engine/comm/gathered_store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "engine/comm/transport.h"

namespace dsj::comm {

GatheredStore::GatheredStore(const std::string& key, Rendezvous& rendezvous)
    : values_of_all_([&rendezvous, key](const std::string& mine) {
        return rendezvous.values_of_all(key, mine);
      }),
      others_(c10::make_intrusive<c10d::PrefixStore>(key, rendezvous.store())) {
  timeout_ = rendezvous.remaining();
}

void GatheredStore::gather() {
  if (!values_of_all_) return;
  const auto all = std::exchange(values_of_all_, {})(pack(put_));
  if (!all) throw TransportError(all.error().message);
  for (const std::string& one : *all) {
    const std::vector<std::string> pairs = unpack(one);
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2)
      known_[pairs[i]].assign(pairs[i + 1].begin(), pairs[i + 1].end());
  }
  put_.clear();
}

std::vector<std::string> GatheredStore::unknown(const std::vector<std::string>& names) {
  gather();
  std::vector<std::string> left;
  for (const std::string& name : names)
    if (!known_.contains(name)) left.push_back(name);
  return left;
}

c10::intrusive_ptr<c10d::Store> GatheredStore::clone() {
  gather();
  return others_->clone();
}

void GatheredStore::set(const std::string& name, const std::vector<std::uint8_t>& value) {
  if (!values_of_all_) {
    known_.erase(name);
    return others_->set(name, value);
  }
  put_.push_back(name);
  put_.emplace_back(value.begin(), value.end());
}

std::vector<std::uint8_t> GatheredStore::get(const std::string& name) {
  if (unknown({name}).empty()) return known_.at(name);
  return others_->get(name);
}

void GatheredStore::wait(const std::vector<std::string>& names) {
  wait(names, timeout_);
}

void GatheredStore::wait(const std::vector<std::string>& names,
                         const std::chrono::milliseconds& timeout) {
  if (const auto left = unknown(names); !left.empty()) others_->wait(left, timeout);
}

bool GatheredStore::check(const std::vector<std::string>& names) {
  const auto left = unknown(names);
  return left.empty() || others_->check(left);
}

std::int64_t GatheredStore::add(const std::string& name, std::int64_t value) {
  return others_->add(name, value);
}

bool GatheredStore::deleteKey(const std::string& name) {
  gather();
  return known_.erase(name) > 0 || others_->deleteKey(name);
}

std::int64_t GatheredStore::getNumKeys() {
  gather();
  return static_cast<std::int64_t>(known_.size()) + others_->getNumKeys();
}

}  // namespace dsj::comm
