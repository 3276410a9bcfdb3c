#include "agent/transport.h"

namespace dsj::agent {

Board::Board(const Session& session) : unknown_(directive_for(session, -1, 0)) {
  for (int w = 0; w < static_cast<int>(session.workers.size()); ++w) {
    incarnations_.push_back(session.workers[w].report.incarnation);
    current_.push_back(directive_for(session, w, incarnations_.back()));
  }
  replaced_ = directive_for(session, 0, INT64_MIN);
  replaced_.order = Order::Finish;
}

Directive Board::answer(int worker, int64_t incarnation) const {
  if (worker < 0 || worker >= static_cast<int>(current_.size())) return unknown_;
  if (incarnation < incarnations_[worker]) return replaced_;
  if (incarnation == incarnations_[worker]) return current_[worker];
  // Its first beat was not taken yet: it must not start what its predecessor may have started.
  Directive directive = current_[worker];
  if (directive.order != Order::Finish) directive.order = Order::Idle;
  return directive;
}

}  // namespace dsj::agent
