#pragma once
// The same buffers of all ranks of a group, as they lie in this process's memory: for who works on them in place where
// a collective would have to copy (a fused step of an optimizer, a table that peers look things up in).
#include <cstddef>
#include <span>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti {

// Every rank calls, with as many buffers in the same order; buffer k is as large on every rank. [k * size + r] is where
// rank r's buffer k lies here. All of buffer k are null, on every rank alike, where one of them is out of reach: a rank
// on another host, memory that is not the group's (Group::allocate), a group whose ranks do not work in shared memory.
//
// It is a meeting, where anything is in reach: all that the peers wrote before their call is seen here. Before a rank
// reads what a peer wrote through these pointers, all meet again (barrier()). A pointer is good for as long as its
// owner keeps the buffer, which is for the caller to see to.
Result<std::vector<std::byte*>> peer_memory(const Group& group, std::span<const std::span<std::byte>> mine);

// A buffer of rank `owner` alone, as it lies here; the others give nothing. Null, on every rank alike, where it is out
// of reach of one of them. Every rank calls; a meeting, as above.
Result<std::byte*> owners_memory(const Group& group, int owner, std::span<std::byte> mine);

}  // namespace tutti
