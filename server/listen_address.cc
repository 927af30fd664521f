#include "server/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace vitrine::server {
namespace {

class Socket {
 public:
  Socket(int family, int type) : descriptor_(socket(family, type, 0)) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

absl::Status CannotListen(const std::string& listen, const char* why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", listen, ": ", why));
}

absl::Status CheckUnixPath(const std::string& listen, const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return CannotListen(listen, "the path is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  const Socket probe(AF_UNIX, SOCK_STREAM);
  // Binding would create the file; who answers is who listens.
  if (connect(probe.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
      0) {
    return CannotListen(listen, "another process listens there");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckListenAddressIsFree(const std::string& listen) {
  constexpr size_t kUnixPrefix = 5;  // "unix:"
  if (listen.rfind("unix:", 0) == 0) return CheckUnixPath(listen, listen.substr(kUnixPrefix));
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), listen.c_str() + colon + 1, &hints, &found) != 0) {
    return CannotListen(listen, "the host name does not resolve");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  const Socket probe(found->ai_family, found->ai_socktype);
  const int on = 1;
  setsockopt(probe.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(probe.descriptor(), found->ai_addr, found->ai_addrlen) == 0) return absl::OkStatus();
  return CannotListen(listen, errno == EADDRINUSE ? "the address is in use"
                              : errno == EACCES   ? "the port needs privileges"
                                                  : "the address is not of this machine");
}

}  // namespace vitrine::server
