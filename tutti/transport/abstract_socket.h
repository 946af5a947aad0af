#pragma once
// Unix sockets whose names are in no folder (abstract: man 7 unix). Their addresses begin with @,
// "unix:@tutti-9c1e...", as ss and /proc/net/unix write them. However their process ends, nothing is left of them. A
// name is seen, and may be dialled or taken, by everybody in this network namespace: so accept() looks at who comes,
// connect() at who listens.
#include "tutti/transport/address.h"

namespace tutti {

bool is_abstract(const Address& address);
// One that nobody has or guesses.
Address new_abstract_address();
// kRefused unless the one that listens at the other end of `socket` is this user, or root.
Status check_listener(int socket, const Address& address);

}  // namespace tutti
