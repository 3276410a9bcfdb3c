#include "agent/gang/transport.h"

namespace dsj::agent {

Board::Board(const Session& session) : unknown_(directive_for(session, -1, 0)) {
  int first_rank = 0;
  answers_.reserve(session.workers.size());
  for (int w = 0; w < static_cast<int>(session.workers.size()); ++w) {
    const int64_t incarnation = session.workers[w].report.incarnation;
    answers_.push_back({incarnation, directive_for(session, w, incarnation, first_rank),
                        directive_for(session, w, incarnation + 1, first_rank)});
    if (w < static_cast<int>(session.slots.size())) first_rank += session.slots[w];
  }
  replaced_ = directive_for(session, 0, INT64_MIN);
  replaced_.order = Order::Finish;
}

Directive Board::answer(int worker, int64_t incarnation) const {
  if (worker < 0 || worker >= static_cast<int>(answers_.size())) return unknown_;
  const Answers& own = answers_[worker];
  if (incarnation < own.incarnation) return replaced_;
  return incarnation == own.incarnation ? own.current : own.successor;
}

}  // namespace dsj::agent
