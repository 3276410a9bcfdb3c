// Muon's update of the flats whose parameters are all matrices that it orthogonalises. An update
// sees a whole matrix, so each has one owner: the ranks' parts of what is to be orthogonalised are
// gathered, the owners work on theirs, and every rank gets its part of the results. Where nothing is
// sharded, every rank works on all. ModelState owns one. Not thread-safe.
// Tested by: tests/engine/train/muon_test.cc
#pragma once

#include <map>
#include <vector>

#include "engine/comm/collectives.h"
#include "engine/optim/muon.h"
#include "engine/zero/flat.h"

namespace dsj::zero {

class Muon {
 public:
  /// `flats` are Muon's and outlive it.
  Muon(const std::vector<Flat*>& flats, comm::Collectives& collectives);

  /// Updates momenta and masters of one of its flats. Collective, in the same order of flats.
  void step(Flat& flat, const optim::MatrixUpdate& update);
  /// Whether the flat is one of its own.
  bool owns(const Flat& flat) const { return owners_.contains(&flat); }
  /// [slot]: the rank that orthogonalises the matrix. Each gets about the same work.
  const std::vector<int>& owners(const Flat& flat) const { return owners_.at(&flat); }

 private:
  /// The ranks' parts of the flat, from each rank's own slices.
  void gather(const Flat& flat, const at::Tensor& whole);
  /// The reverse: this rank's slices of what the owners have; elsewhere they have 0.
  void scatter(const Flat& flat, const at::Tensor& whole);

  comm::Collectives& collectives_;
  std::map<const Flat*, std::vector<int>> owners_;
};

}  // namespace dsj::zero
