#pragma once
// Values that are no arrays, as byte strings of any length: configurations, names, serialised state.
// comm/json_objects.h has the same for JSON. Nothing that is received is ever executed or unpickled.
//
// All calls block, throw Exception, and cost two or three small collectives (send and recv: two messages or more). Use
// them at the start of a job, or now and then. If the value of one rank is larger than the smallest limit that any rank
// gives, all ranks reject the collective before anything is sent (kLimit, which names the rank). A sender rejects a
// value above its own limit. A recv that finds too large a value discards it, so that the next message can be received.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/call_site.h"
#include "tutti/comm/group.h"

namespace tutti {

struct ObjectLimit {
  std::size_t most = std::size_t(64) << 20;  // bytes of one value
};

// The root's value, on every rank.
void broadcast_bytes(const Group& group, std::string& value, int root = 0, ObjectLimit limit = {},
                     CallSite at = CallSite::here());
// Every rank's value, by rank.
std::vector<std::string> all_gather_bytes(const Group& group, const std::string& mine, ObjectLimit limit = {},
                                          CallSite at = CallSite::here());
// Every rank's value, by rank, on the root; empty elsewhere.
std::vector<std::string> gather_bytes(const Group& group, const std::string& mine, int root, ObjectLimit limit = {},
                                      CallSite at = CallSite::here());
// This rank's value. `values` is used on the root, where it has one for each rank.
std::string scatter_bytes(const Group& group, const std::vector<std::string>& values, int root, ObjectLimit limit = {},
                          CallSite at = CallSite::here());
void send_bytes(const Group& group, const std::string& value, int peer, int tag = 0, ObjectLimit limit = {},
                CallSite at = CallSite::here());
// `peer` may be kAnySource; *source is set to the sender if it is not null.
std::string recv_bytes(const Group& group, int peer, int tag = 0, std::int32_t* source = nullptr,
                       ObjectLimit limit = {}, CallSite at = CallSite::here());

}  // namespace tutti
