#pragma once
// What each rank tells the others when they meet (runtime/init.cc): on which machine it is, and what they have to agree
// on. It travels as CBOR, which keeps any bytes: neither a path nor what somebody put into a variable need be UTF-8.
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"

namespace tutti {

struct MeetNote {
  static constexpr std::size_t kMostBytes = 64 << 10;  // as it travels

  std::string boot;     // of the machine's start: ranks with the same one share its cores and devices
  std::string host;     // the machine or container
  std::string sharing;  // ranks with the same one share memory: `host`, unless TUTTI_HOST_ID says otherwise
  std::string agent;    // of the launcher, as GROUP_RANK numbers it; may be empty
  std::string shm;      // where the rank's socket for shared memory is; may be empty
  CoreMask cores;       // that the rank may use

  // The way of the bytes, the same on every rank.
  std::string transport;  // TUTTI_TRANSPORT
  std::string engines;    // TUTTI_ENGINE, of each device
  std::string algorithm;  // TUTTI_ALGORITHM; may be empty
  int streams = 1;        // TUTTI_STREAMS

  bool operator==(const MeetNote&) const = default;
};

std::string encode(const MeetNote& note);
// kMismatch, without the rank that wrote it, which the caller knows: of another version of tutti, or damaged.
Result<MeetNote> parse_meet_note(const std::string& bytes);

}  // namespace tutti
