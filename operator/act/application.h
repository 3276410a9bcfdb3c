// The writes of one pass, one by one, each with its precondition (apply.h says which). Internal to apply.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kube/client.h"
#include "operator/act/applied.h"
#include "operator/act/resources.h"

namespace dsj::op {

class Application;
/// A part of a pass. It writes by an Application of its own, so that several can be under way. False: no
/// other is begun any more.
using Task = std::function<bool(Application& part)>;

/// A write that returns false was refused or could not be made; `result` says why.
class Application {
 public:
  Application(kube::Client& client, const Observed& observed,
              const std::function<bool()>& may_write, Writes& writes)
      : client_(client), o_(observed), may_write_(may_write), writes_(writes) {}

  /// Carries out up to `at_once` at a time, in no order; 1: in order.
  bool carry_out(const std::vector<Task>& tasks, int at_once, const Crew& crew);
  bool create(const Create& create);
  /// Writes over the version that was seen. What cannot be mended now stays as it was; everything
  /// else goes on.
  bool update(const Create& update);
  /// Leaves on a node what the settings say. A refusal becomes an event and stops nothing. False: the
  /// server did not answer, or others wrote the node again and again.
  bool mark(const NodeMark& mark);
  bool status(const Plan& plan);
  /// Makes a key and tells of it, or drops old ones (keys.h). The Secret comes first, so that whoever reads
  /// of a key finds it, and goes first, so that whoever forgets one leaves nothing.
  bool change_keys(KeyChange change, const IssueKey& issue);
  bool release(const Release& entry);
  bool remove(const Delete& entry);
  /// Deletes what it can. An answer about one object says nothing of the others; no answer does.
  bool remove_all(const std::vector<Delete>& entries);

  Applied result;
  std::vector<Event> events;  ///< of what became of marks

 private:
  kube::ApiResult<Json> write_mark(const NodeMark& mark);
  void take(const Applied& part);
  bool allowed();
  bool make_key(KeyChange& change, const IssueKey& issue, std::optional<WorkerKey>& made,
                std::string& authority);
  /// Says in the ConfigMap that a Secret of ours may be in the slot from now on.
  bool announce(KeyChange& change, int slot);
  /// Deletes what a pass that was cut off may have left in the slot that it had announced. Its uid is not
  /// known; if the chart's policy says that it is no key, it stays, and the slot is passed over.
  bool clear_slot(const KeyChange& change);
  /// A conflict is another object of that name, which is not ours to delete, or a write that came
  /// between.
  bool is_another(const kube::ApiError& error, const Delete& entry);
  /// The name exists: from an earlier pass whose watch has not told yet, or from somebody else.
  bool existing(const Create& create, const kube::Resource& resource);
  bool failed(const kube::ApiError& error, const std::string& what, bool of_create = false);

  kube::Client& client_;
  const Observed& o_;
  const std::function<bool()>& may_write_;
  Writes& writes_;
  bool answered_ = true;  ///< the last failure was the server's word
};

}  // namespace dsj::op
