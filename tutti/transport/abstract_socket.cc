#include "tutti/transport/address.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>

namespace tutti {

bool is_abstract(const Address& address) { return address.path.starts_with('@'); }

Address new_abstract_address() {
  std::random_device random;
  char name[40];
  std::snprintf(name, sizeof name, "@tutti-%08x%08x%08x", random(), random(), random());
  return Address{.path = name};
}

Status check_listener(int socket, const Address& address) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
    return system_error(errno, "cannot tell who listens at " + to_string(address));
  if (who.uid == ::geteuid() || who.uid == 0) return {};
  return Error{.code = Code::kRefused,
               .detail = "pid " + std::to_string(who.pid) + " of user id " + std::to_string(who.uid) + " listens at " +
                         to_string(address) + ", not a process of this user"};
}

}  // namespace tutti
