// The port to an API server: requests, answers, streams of lines. Everything above uses this.
// kube/api_transport.h is the real one; tests put a fake API server here.
#pragma once

#include <chrono>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace dsj::kube {

struct Request {
  std::string method = "GET";
  std::string path;          ///< with the query, escaped: "/api/v1/pods?limit=500"
  std::string content_type;  ///< of the body; empty: no body
  std::string body;
  std::chrono::milliseconds timeout{
      30'000};         ///< until the answer is complete; of a stream: until its head
  std::string accept;  ///< media types; empty: JSON
};

struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
};

/// No answer from the server: the request may or may not have been carried out.
struct NetError {
  enum class Kind {
    Connect,      ///< refused, no route, no such name: nothing was sent
    Tls,          ///< a certificate was not accepted, by either side
    Timeout,      ///< no answer in time
    Cut,          ///< the connection ended in the middle
    Cancelled,    ///< by the caller's Cancel
    Credentials,  ///< the kubeconfig's plugin gave none: nothing was sent
  } kind = Kind::Connect;
  std::string message;
};

/// Makes blocked calls return NetError::Cancelled. Copies share one state. Thread-safe.
class Cancel {
 public:
  void cancel();
  bool cancelled() const;
  /// Calls `hook` once when cancelled, at once if it already is. `hook` runs on the cancelling
  /// thread; it must not block and must not end its own registration. Destroying the returned
  /// object ends the registration: after its destructor `hook` does not run.
  class Registration {
   public:
    Registration() = default;
    Registration(Registration&&) = default;
    Registration& operator=(Registration&& other);
    ~Registration();

   private:
    friend class Cancel;
    struct Entry;
    std::shared_ptr<Entry> entry_;
  };
  [[nodiscard]] Registration on_cancel(std::function<void()> hook) const;
  /// Waits. True: cancelled before the time was over.
  bool wait_for(std::chrono::milliseconds time) const;

 private:
  struct State;
  std::shared_ptr<State> state_ = make_state();
  static std::shared_ptr<State> make_state();
};

/// The body of an answer, line by line. One thread. Its destructor closes the connection.
class LineStream {
 public:
  virtual ~LineStream() = default;
  /// The next line without its end; nullopt: the server ended the body in good order. Blocks for at
  /// most `idle`, then NetError::Timeout.
  virtual std::expected<std::optional<std::string>, NetError> next(
      std::chrono::milliseconds idle) = 0;
};

/// The head of a streamed answer. `lines` is there only with status 200; else the head has the
/// body.
struct StreamResponse {
  Response head;
  std::unique_ptr<LineStream> lines;
};

/// Thread-safe: many calls may be in flight at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::expected<Response, NetError> call(const Request& request, const Cancel& cancel) = 0;
  virtual std::expected<StreamResponse, NetError> open(const Request& request,
                                                       const Cancel& cancel) = 0;
};

}  // namespace dsj::kube
