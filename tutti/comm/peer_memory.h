#pragma once
// Pointers to the same buffers of all ranks of a group, in this process's address space. For code that works on them in
// place where a collective would have to copy: a fused optimizer step, a table in which peers look up rows.
#include <cstddef>
#include <span>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti {

// Every rank calls, with the same number of buffers in the same order; buffer k has the same size on every rank.
// Element [k * size + r] is the address of rank r's buffer k here. If one of the buffers k is out of reach, all of them
// are null, on every rank: a rank on another host, memory that is not from Group::allocate(), or a group that does not
// use shared memory.
//
// If any buffer is in reach, the call is a barrier: all that the peers wrote before it is visible here. Before a rank
// reads what a peer wrote through these pointers, all ranks meet again (barrier()). A pointer is valid while its owner
// keeps the buffer; the caller ensures that.
Result<std::vector<std::byte*>> peer_memory(const Group& group, std::span<const std::span<std::byte>> mine);

// The address here of a buffer of rank `owner`; the others give nothing. Null, on every rank, if it is out of reach of
// one of them. Every rank calls; a barrier, as above.
Result<std::byte*> owners_memory(const Group& group, int owner, std::span<std::byte> mine);

}  // namespace tutti
