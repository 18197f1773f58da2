#include "tests/hosts/interfaces.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

absl::Status Refused(absl::string_view what, const std::string& name) {
  return absl::InternalError(absl::StrCat(what, " of '", name, "': ", strerror(errno)));
}

ifreq RequestFor(const std::string& interface) {
  ifreq request = {};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

template <typename Argument>
absl::Status Control(unsigned long call, Argument argument, absl::string_view what,
                     const std::string& name) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Refused("a socket", name);
  const absl::Status status =
      ioctl(fd, call, argument) < 0 ? Refused(what, name) : absl::OkStatus();
  close(fd);
  return status;
}

absl::Status ChangeFlags(const std::string& interface, int set, int clear) {
  ifreq request = RequestFor(interface);
  LOCKSTEP_RETURN_IF_ERROR(Control(SIOCGIFFLAGS, &request, "the state", interface));
  request.ifr_flags = static_cast<short>((request.ifr_flags | set) & ~clear);
  return Control(SIOCSIFFLAGS, &request, "a change of the state", interface);
}

absl::Status SetOne(unsigned long call, const std::string& interface, const std::string& address) {
  ifreq request = RequestFor(interface);
  auto* const place = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
  place->sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &place->sin_addr) != 1) {
    return absl::InternalError(absl::StrCat("'", address, "' is no IPv4 address"));
  }
  return Control(call, &request, absl::StrCat("the address ", address), interface);
}

}  // namespace

absl::StatusOr<int> OpenTap(const std::string& name) {
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (fd < 0) return Refused("/dev/net/tun", name);
  ifreq request = RequestFor(name);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(fd, TUNSETIFF, &request) < 0) {
    const absl::Status refused = Refused("the making", name);
    close(fd);
    return refused;
  }
  return fd;
}

absl::Status AddBridge(const std::string& name) {
  return Control(SIOCBRADDBR, name.c_str(), "the making", name);
}

absl::Status RemoveBridge(const std::string& name) {
  LOCKSTEP_RETURN_IF_ERROR(TakeDown(name));
  return Control(SIOCBRDELBR, name.c_str(), "the removal", name);
}

absl::Status PlugIn(const std::string& bridge, const std::string& interface) {
  ifreq request = RequestFor(bridge);
  request.ifr_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  return Control(SIOCBRADDIF, &request, absl::StrCat("plugging in ", interface), bridge);
}

absl::Status SetAddress(const std::string& interface, const std::string& address) {
  LOCKSTEP_RETURN_IF_ERROR(SetOne(SIOCSIFADDR, interface, address));
  return SetOne(SIOCSIFNETMASK, interface, "255.255.255.0");
}

absl::Status BringUp(const std::string& interface) { return ChangeFlags(interface, IFF_UP, 0); }

absl::Status TakeDown(const std::string& interface) { return ChangeFlags(interface, 0, IFF_UP); }

}  // namespace lockstep
