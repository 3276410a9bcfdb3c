#include "agent/gang/transport.h"

namespace dsj::agent {

Board::Board(const Session& session) : unknown_(directive_for(session, -1, 0)) {
  for (int w = 0; w < static_cast<int>(session.workers.size()); ++w) {
    const int64_t incarnation = session.workers[w].report.incarnation;
    answers_.push_back({incarnation, directive_for(session, w, incarnation),
                        directive_for(session, w, incarnation + 1)});
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
