// The port to an API server: requests, answers, streams of lines. All of kube/ uses it.
// kube/api_transport.h is the real one; tests use a fake API server.
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

/// User-Agent of all requests. The API server takes it as the field manager of creates, updates and
/// merge patches.
inline constexpr char kUserAgent[] = "deepspeedjob";

struct Request {
  std::string method = "GET";
  std::string path;          ///< with the query, escaped: "/api/v1/pods?limit=500"
  std::string content_type;  ///< of the body; empty: no body
  std::string body;
  std::chrono::milliseconds timeout{
      30'000};                 ///< until the answer is complete; for a stream: until its head is
  std::string accept;          ///< media types; empty: JSON
  bool with_managers = false;  ///< keep metadata.managedFields of the answer (client.h)
};

struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
};

/// There is no answer from the server. The request may or may not have been carried out.
struct NetError {
  enum class Kind {
    Connect,      ///< refused, no route, unknown name: nothing was sent
    Tls,          ///< one side refused the other's certificate
    Timeout,      ///< no answer in time
    Cut,          ///< the connection ended in the middle
    Cancelled,    ///< by the caller's Cancel
    Credentials,  ///< the kubeconfig's plugin provided none: nothing was sent
  } kind = Kind::Connect;
  std::string message;
};

/// Makes blocked calls return NetError::Cancelled. Copies share their state. Thread-safe.
class Cancel {
 public:
  void cancel();
  bool cancelled() const;
  /// Calls `hook` once when cancelled, immediately if it already is. `hook` runs on the cancelling
  /// thread; it must not block and must not end its own registration. Destroying the returned
  /// object ends the registration: `hook` does not run after its destructor.
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
  /// Waits. True if cancelled before the time was over.
  bool wait_for(std::chrono::milliseconds time) const;

 private:
  struct State;
  std::shared_ptr<State> state_ = make_state();
  static std::shared_ptr<State> make_state();
};

/// The body of an answer, line by line. One thread. The destructor closes the connection.
class LineStream {
 public:
  virtual ~LineStream() = default;
  /// The next line without its end; nullopt if the server ended the body normally. Blocks for at
  /// most `idle`, then returns NetError::Timeout.
  virtual std::expected<std::optional<std::string>, NetError> next(
      std::chrono::milliseconds idle) = 0;
};

/// The head of a streamed answer. `lines` is set only with status 200; otherwise the head has the
/// body.
struct StreamResponse {
  Response head;
  std::unique_ptr<LineStream> lines;
};

/// Thread-safe: many calls may be in flight at the same time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::expected<Response, NetError> call(const Request& request, const Cancel& cancel) = 0;
  virtual std::expected<StreamResponse, NetError> open(const Request& request,
                                                       const Cancel& cancel) = 0;
};

}  // namespace dsj::kube
