#include "worker/transport/interface_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

std::string NumberOf(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  getnameinfo(address, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

}  // namespace

absl::StatusOr<std::string> InterfaceAddress(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::InternalError(
        absl::StrCat("the network interfaces cannot be listed: ", std::strerror(errno)));
  }
  const absl::Cleanup free_list = [&] { freeifaddrs(list); };
  std::string ipv6;
  bool found = false;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (interface != each->ifa_name) continue;
    found = true;
    if (each->ifa_addr == nullptr) continue;
    if (each->ifa_addr->sa_family == AF_INET) {
      return NumberOf(each->ifa_addr, sizeof(sockaddr_in));
    }
    if (each->ifa_addr->sa_family != AF_INET6 || !ipv6.empty()) continue;
    sockaddr_in6 address;
    std::memcpy(&address, each->ifa_addr, sizeof(address));
    // Such an address means nothing without the name of the reader's own interface.
    if (IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr)) continue;
    ipv6 = absl::StrCat("[", NumberOf(each->ifa_addr, sizeof(address)), "]");
  }
  if (!ipv6.empty()) return ipv6;
  return absl::FailedPreconditionError(
      found ? absl::StrCat("network interface '", interface, "' has no address")
            : absl::StrCat("there is no network interface '", interface,
                           "'; `ip address` lists those of this host"));
}

}  // namespace lockstep
