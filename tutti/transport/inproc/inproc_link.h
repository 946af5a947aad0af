#pragma once
// A Link between two threads of one process, with nothing of the system in between: for tests of what runs over links.
// No world uses it; ranks that are threads (comm/inproc_world.h) share memory as those of one host do, over shm.
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tutti/transport/link.h"

namespace tutti::transport {

// Wakes the rank at the other end after bytes were put into, or taken out of, a queue. Called by the thread that uses a
// link, with no lock held; must not block, and must stay valid as long as either end lives.
using Ring = std::function<void()>;

// Two ends of one connection, each with a bounded queue of `capacity` bytes towards the other. An end that is destroyed
// is a peer that is gone. `ring_first` is called to wake the owner of the first end. Blocked ends have no descriptor:
// they are rung.
std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> make_inproc_links(Ring ring_first = {}, Ring ring_second = {},
                                                                          std::size_t capacity = 256 << 10);

// mesh[a][b] is a's end of its link to b; null where a == b. ring(rank) wakes a rank.
std::vector<std::vector<std::unique_ptr<Link>>> make_inproc_mesh(int size, std::function<void(int rank)> ring = {},
                                                                 std::size_t capacity = 256 << 10);

}  // namespace tutti::transport
