#include "kube/cpprest_transport.h"

#define _TURN_OFF_PLATFORM_STRING
#include <cpprest/http_client.h>
#include <cpprest/producerconsumerstream.h>

#include <boost/asio/ssl.hpp>

#include <condition_variable>
#include <deque>

#include "kube/token_source.h"

namespace dsj::kube {
namespace {

namespace http = web::http;
using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kStreamTimeout = std::chrono::hours(1);

/// The certificates of an Access in an OpenSSL context.
void configure_tls(boost::asio::ssl::context& context, const Access& access) {
  namespace ssl = boost::asio::ssl;
  context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                      ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  if (!access.ca_pem.empty()) {
    context.add_certificate_authority(boost::asio::buffer(access.ca_pem));
  } else {
    context.set_default_verify_paths();
  }
  if (!access.client_certificate_pem.empty()) {
    context.use_certificate_chain(boost::asio::buffer(access.client_certificate_pem));
    context.use_private_key(boost::asio::buffer(access.client_key_pem), ssl::context::pem);
  }
}

http::client::http_client_config client_config(const Access& access, Milliseconds timeout) {
  http::client::http_client_config config;
  config.set_timeout(timeout);
  config.set_validate_certificates(!access.insecure_skip_tls_verify);
  config.set_ssl_context_callback(
      [access](boost::asio::ssl::context& context) { configure_tls(context, access); });
  return config;
}

NetError net_error(const std::exception& error, const Cancel& cancel, bool timed_out) {
  if (cancel.cancelled()) return {NetError::Kind::Cancelled, "cancelled"};
  const std::string text = error.what();
  if (timed_out) return {NetError::Kind::Timeout, "no answer in time"};
  if (text.find("SSL") != std::string::npos || text.find("certificate") != std::string::npos) {
    return {NetError::Kind::Tls, text};
  }
  if (const auto* exception = dynamic_cast<const http::http_exception*>(&error)) {
    const int code = exception->error_code().value();
    if (code == ETIMEDOUT) return {NetError::Kind::Timeout, text};
    if (text.find("connect") != std::string::npos || text.find("resolv") != std::string::npos ||
        code == ECONNREFUSED || code == EHOSTUNREACH || code == ENETUNREACH) {
      return {NetError::Kind::Connect, text};
    }
  }
  return {NetError::Kind::Cut, text};
}

Response head_of(const http::http_response& answer) {
  Response response{.status = answer.status_code()};
  for (const auto& [name, value] : answer.headers()) {
    std::string lower = name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    response.headers[lower] = value;
  }
  return response;
}

/// What a request's thread waits on: pplx tasks cannot be waited for with a deadline.
template <typename T>
class Slot {
 public:
  void put(std::expected<T, std::exception_ptr> value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
    ready_.notify_all();
  }
  std::optional<std::expected<T, std::exception_ptr>> wait_for(Milliseconds time) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, time, [&] { return value_.has_value(); });
    return std::move(value_);
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return value_.has_value(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::optional<std::expected<T, std::exception_ptr>> value_;
};

/// Fills `slot` with the task's result, whatever it is.
template <typename T>
void deliver(pplx::task<T> task, const std::shared_ptr<Slot<T>>& slot) {
  task.then([slot](pplx::task<T> done) {
    try {
      slot->put(done.get());
    } catch (...) {
      slot->put(std::unexpected(std::current_exception()));
    }
  });
}

NetError rethrown(std::exception_ptr error, const Cancel& cancel, bool timed_out) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return net_error(e, cancel, timed_out);
  } catch (...) {
    return {NetError::Kind::Cut, "unknown failure"};
  }
}

/// Ends the task's own cancellation source when the caller's Cancel fires or the deadline passes.
struct Stopper {
  pplx::cancellation_token_source source;
  Cancel::Registration registration;

  explicit Stopper(const Cancel& cancel)
      : registration(cancel.on_cancel([s = source] { s.cancel(); })) {}
};

/// Waits for `slot` until `timeout`; then stops the task and waits for it to notice.
template <typename T>
std::expected<T, NetError> await(const std::shared_ptr<Slot<T>>& slot, Stopper& stopper,
                                 const Cancel& cancel, Milliseconds timeout) {
  auto result = slot->wait_for(timeout);
  bool timed_out = false;
  if (!result) {
    timed_out = true;
    stopper.source.cancel();
    result = slot->wait_for(std::chrono::seconds(10));
    if (!result) return std::unexpected(NetError{NetError::Kind::Timeout, "no answer in time"});
  }
  if (*result) {
    if (cancel.cancelled())
      return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
    return std::move(**result);
  }
  return std::unexpected(rethrown(result->error(), cancel, timed_out));
}

class CpprestStream final : public LineStream {
 public:
  CpprestStream(std::unique_ptr<http::client::http_client> client, http::http_response answer,
                std::unique_ptr<Stopper> stopper, Cancel cancel)
      : client_(std::move(client)),
        body_(answer.body()),
        stopper_(std::move(stopper)),
        cancel_(std::move(cancel)) {}

  ~CpprestStream() override {
    stopper_->source.cancel();
    if (pending_) pending_->wait_for(std::chrono::seconds(10));
    try {
      body_.close().wait();
    } catch (const std::exception&) {  // closing is all that was wanted
    }
  }

  std::expected<std::optional<std::string>, NetError> next(Milliseconds idle) override {
    const auto deadline = std::chrono::steady_clock::now() + idle;
    for (;;) {
      if (const size_t end = buffer_.find('\n', searched_); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        searched_ = 0;
        if (line.ends_with('\r')) line.pop_back();
        return line;
      }
      searched_ = buffer_.size();
      if (buffer_.size() > kLineBytesMax) {
        return std::unexpected(NetError{NetError::Kind::Cut, "a line of the stream is too long"});
      }
      auto more = read_some(deadline);
      if (!more) return std::unexpected(more.error());
      if (*more == 0) {
        if (buffer_.empty()) return std::nullopt;
        return std::exchange(buffer_, {});
      }
    }
  }

 private:
  using Bytes = concurrency::streams::container_buffer<std::string>;

  std::expected<size_t, NetError> read_some(std::chrono::steady_clock::time_point deadline) {
    if (!pending_) {
      // read() waits until it has all it was asked for: wait for one byte, then take what is there.
      pending_ = std::make_shared<Slot<size_t>>();
      chunk_ = Bytes();
      deliver(body_.streambuf().getc().then(
                  [body = body_, chunk = chunk_](Bytes::int_type c) mutable -> pplx::task<size_t> {
                    if (c == Bytes::traits::eof()) return pplx::task_from_result<size_t>(0);
                    return body.read(chunk, std::max<size_t>(1, body.streambuf().in_avail()));
                  }),
              pending_);
    }
    const auto left =
        std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now());
    auto result = pending_->wait_for(std::max(left, Milliseconds(0)));
    if (!result) return std::unexpected(NetError{NetError::Kind::Timeout, "the stream is quiet"});
    pending_.reset();
    if (!*result) return std::unexpected(rethrown(result->error(), cancel_, false));
    if (cancel_.cancelled()) {
      return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
    }
    buffer_ += chunk_.collection();
    return **result;
  }

  std::unique_ptr<http::client::http_client> client_;
  concurrency::streams::istream body_;
  std::unique_ptr<Stopper> stopper_;
  Cancel cancel_;
  std::shared_ptr<Slot<size_t>> pending_;
  Bytes chunk_;
  std::string buffer_;
  size_t searched_ = 0;
};

class CpprestTransport final : public Transport {
 public:
  explicit CpprestTransport(const Access& access)
      : access_(access), tokens_(access), calls_(make_client(std::chrono::seconds(60))) {}

  std::expected<Response, NetError> call(const Request& request, const Cancel& cancel) override {
    if (cancel.cancelled()) {
      return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
    }
    Stopper stopper(cancel);
    auto slot = std::make_shared<Slot<Response>>();
    try {
      deliver(calls_->request(build(request), stopper.source.get_token())
                  .then([](http::http_response answer) {
                    if (answer.headers().content_length() > kResponseBytesMax) {
                      throw http::http_exception("the answer is too long");
                    }
                    return answer.extract_string(true).then([answer](const std::string& body) {
                      Response response = head_of(answer);
                      response.body = body;
                      return response;
                    });
                  }),
              slot);
    } catch (const std::exception& error) {
      return std::unexpected(net_error(error, cancel, false));
    }
    auto response = await(slot, stopper, cancel, request.timeout);
    if (response && response->status == 401) tokens_.refused();
    return response;
  }

  std::expected<StreamResponse, NetError> open(const Request& request,
                                               const Cancel& cancel) override {
    if (cancel.cancelled()) {
      return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
    }
    auto client = make_client(kStreamTimeout);
    auto stopper = std::make_unique<Stopper>(cancel);
    auto slot = std::make_shared<Slot<http::http_response>>();
    try {
      deliver(client->request(build(request), stopper->source.get_token()), slot);
    } catch (const std::exception& error) {
      return std::unexpected(net_error(error, cancel, false));
    }
    auto answer = await(slot, *stopper, cancel, request.timeout);
    if (!answer) return std::unexpected(answer.error());
    StreamResponse response{.head = head_of(*answer), .lines = nullptr};
    if (response.head.status == 401) tokens_.refused();
    if (response.head.status == 200) {
      response.lines =
          std::make_unique<CpprestStream>(std::move(client), *answer, std::move(stopper), cancel);
      return response;
    }
    auto body = std::make_shared<Slot<std::string>>();
    deliver(answer->extract_string(true), body);
    auto text = await(body, *stopper, cancel, request.timeout);
    if (!text) return std::unexpected(text.error());
    response.head.body = std::move(*text);
    return response;
  }

 private:
  std::unique_ptr<http::client::http_client> make_client(Milliseconds timeout) const {
    return std::make_unique<http::client::http_client>(access_.server,
                                                       client_config(access_, timeout));
  }

  http::http_request build(const Request& request) {
    http::http_request out(request.method);
    out.set_request_uri(request.path);
    out.headers().add(http::header_names::accept, "application/json");
    out.headers().add(http::header_names::user_agent, "deepspeedjob");
    if (const std::string token = tokens_.token(); !token.empty()) {
      out.headers().add(http::header_names::authorization, "Bearer " + token);
    }
    if (!request.content_type.empty()) out.set_body(request.body, request.content_type);
    return out;
  }

  const Access access_;
  TokenSource tokens_;
  const std::unique_ptr<http::client::http_client> calls_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_cpprest_transport(const Access& access) {
  try {  // the context that every connection gets: what OpenSSL refuses is found here, once
    boost::asio::ssl::context context(boost::asio::ssl::context::sslv23);
    configure_tls(context, access);
  } catch (const std::exception& error) {
    return bad_input(std::string("the certificates are not accepted: ") + error.what(),
                     access.server);
  }
  try {
    return std::make_unique<CpprestTransport>(access);
  } catch (const std::exception& error) {
    return bad_input(error.what(), access.server);
  }
}

}  // namespace dsj::kube
