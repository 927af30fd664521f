#include "server/metrics_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/metrics_text.h"

namespace vitrine::server {
namespace {

constexpr time_t kTimeoutSeconds = 2;
constexpr size_t kMaxBodyBytes = 1024;  // Nobody has anything to send.

// One connection at a time: the others wait in the system's backlog, and cost no descriptor that
// clients of the service could need.
class InlineQueue final : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> task) override { task(); }
  void shutdown() override {}
};

class HttplibMetricsServer final : public MetricsServer {
 public:
  HttplibMetricsServer(const CallerTable* callers, std::function<std::string()> text)
      : callers_(callers), text_(std::move(text)) {
    http_.new_task_queue = [] { return new InlineQueue; };
    http_.set_read_timeout(kTimeoutSeconds);
    http_.set_write_timeout(kTimeoutSeconds);
    http_.set_keep_alive_max_count(1);
    http_.set_payload_max_length(kMaxBodyBytes);
    // Without SO_REUSEPORT, the library's choice: two servers would each get some of the readers.
    http_.set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    });
    // Before the library's routes, which are regular expressions.
    http_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Answer(request, response);
          return httplib::Server::HandlerResponse::Handled;
        });
  }

  ~HttplibMetricsServer() override {
    http_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen(const std::string& listen) {
    const size_t colon = listen.rfind(':');
    std::string host = listen.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    int port = 0;
    const bool is_bound =
        absl::SimpleAtoi(absl::string_view(listen).substr(colon + 1), &port) &&
        (port == 0 ? (port = http_.bind_to_any_port(host)) > 0 : http_.bind_to_port(host, port));
    if (!is_bound) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", listen,
                       " for metrics: the address is in use or not of this machine"));
    }
    address_ = absl::StrCat(listen.substr(0, colon), ":", port);
    thread_ = std::thread([this] {
      http_.listen_after_bind();
      has_ended_ = true;
    });
    // A stop before it runs would be lost.
    while (!http_.is_running() && !has_ended_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  void Answer(const httplib::Request& request, httplib::Response& response) const {
    if (request.path != "/metrics") {
      response.status = 404;
    } else if (request.method != "GET" && request.method != "HEAD") {
      response.status = 405;
    } else if (const absl::Status status = Authorize(request); !status.ok()) {
      response.status = absl::IsPermissionDenied(status) ? 403 : 401;
    } else {
      response.status = 200;
      response.set_content(text_(), kMetricsContentType);
    }
  }

  absl::Status Authorize(const httplib::Request& request) const {
    if (callers_ == nullptr) return absl::OkStatus();
    const bool is_single = request.get_header_value_count("Authorization") == 1;
    return callers_
        ->Admit(is_single ? request.get_header_value("Authorization") : "", Scope::kControl)
        .status();
  }

  const CallerTable* const callers_;
  const std::function<std::string()> text_;
  httplib::Server http_;
  std::string address_;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& listen, const CallerTable* callers, std::function<std::string()> text) {
  auto server = std::make_unique<HttplibMetricsServer>(callers, std::move(text));
  if (absl::Status status = server->Listen(listen); !status.ok()) return status;
  return server;
}

}  // namespace vitrine::server
