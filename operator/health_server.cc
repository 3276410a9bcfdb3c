#include "operator/health_server.h"

#define _TURN_OFF_PLATFORM_STRING
#include <cpprest/http_listener.h>

namespace dsj::op {
namespace {

using web::http::http_request;
using web::http::experimental::listener::http_listener;

class CpprestHealthServer final : public HealthServer {
 public:
  CpprestHealthServer(const std::string& address, HealthAnswers answers)
      : answers_(std::move(answers)), listener_("http://" + address + "/") {
    listener_.support(web::http::methods::GET, [this](http_request request) { answer(request); });
  }
  ~CpprestHealthServer() override {
    try {
      listener_.close().wait();
    } catch (const std::exception&) {  // it never opened
    }
  }
  void open() { listener_.open().wait(); }

 private:
  void answer(http_request& request) {
    const std::string path = request.relative_uri().path();
    if (path == "/healthz") return reply(request, 200, "ok\n");
    if (path == "/readyz") {
      const bool ready = answers_.ready();
      return reply(request, ready ? 200 : 503, ready ? "ok\n" : "the caches are not filled\n");
    }
    if (path == "/metrics") return reply(request, 200, answers_.metrics());
    reply(request, 404, "/healthz, /readyz, /metrics\n");
  }

  static void reply(http_request& request, unsigned short code, const std::string& text) {
    // A reader that went away is its own affair.
    request.reply(code, text, "text/plain; version=0.0.4").then([](pplx::task<void> sent) {
      try {
        sent.get();
      } catch (const std::exception&) {
      }
    });
  }

  HealthAnswers answers_;
  http_listener listener_;
};

}  // namespace

Result<std::unique_ptr<HealthServer>> serve_health(const std::string& address,
                                                   HealthAnswers answers) {
  try {
    auto server = std::make_unique<CpprestHealthServer>(address, std::move(answers));
    server->open();
    return server;
  } catch (const std::exception& error) {
    return fail(ErrorKind::Environment, std::string("cannot listen: ") + error.what(), address);
  }
}

}  // namespace dsj::op
