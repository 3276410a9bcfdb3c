// The individual writes of a pass, each with its precondition (described in apply.h). Used only by
// apply.
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
/// One part of a pass. It writes through its own Application, so that several can run at once.
/// Returns false if no further task should begin.
using Task = std::function<bool(Application& part)>;

/// Writes return false if they were refused or could not be made; `result` has the reason.
class Application {
 public:
  Application(kube::Client& client, const Observed& observed,
              const std::function<bool()>& may_write, Writes& writes)
      : client_(client), o_(observed), may_write_(may_write), writes_(writes) {}

  /// Runs up to `at_once` tasks at a time, in any order; in order if `at_once` is 1.
  bool carry_out(const std::vector<Task>& tasks, int at_once, const Crew& crew);
  bool create(const Create& create);
  /// Restores an object that somebody changed, if it still belongs to the job. Labels, annotations
  /// and finalizers of others stay. An object that cannot be updated now stays as it is; the pass
  /// continues.
  bool update(const Create& update);
  /// Marks a node as the settings require. A refusal becomes an event and does not stop the pass.
  /// False if the server did not answer, or if repeated writes by others conflicted.
  bool mark(const NodeMark& mark);
  bool status(const Plan& plan);
  /// Creates the Secret of a key (keys.h) and sets `result.key`. If its name is taken by the Secret
  /// that the status names, that is replaced: no pod has its authority. If it is taken by any other,
  /// the key gets another name.
  bool make_key(NewKey key, const IssueKey& issue);
  bool release(const Release& entry);
  bool remove(const Delete& entry);
  /// Deletes all that it can: a refusal for one object does not affect the others, but it stops if
  /// the server does not answer.
  bool remove_all(const std::vector<Delete>& entries);

  Applied result;
  std::vector<Event> events;  ///< events about marks

 private:
  kube::ApiResult<Json> write_mark(const NodeMark& mark);
  void take(const Applied& part);
  void note_admission(const Create& sent, const Json& stored);
  bool allowed();
  /// After a conflict: true if the name belongs to another object, which must not be deleted; false
  /// if another write came between.
  bool is_another(const kube::ApiError& error, const Delete& entry);
  /// The name already exists: an earlier pass created it and the watch lags, or it belongs to
  /// another owner.
  bool existing(const Create& create, const kube::Resource& resource);
  bool failed(const kube::ApiError& error, const std::string& what, bool of_create = false);

  kube::Client& client_;
  const Observed& o_;
  const std::function<bool()>& may_write_;
  Writes& writes_;
  bool answered_ = true;  ///< false if the last failure was without an answer from the server
};

}  // namespace dsj::op
