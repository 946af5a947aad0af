#pragma once
// What each rank tells the others when it joins (runtime/init.cc): on which machine it is, and the settings on which
// all ranks must agree. It is sent as CBOR, which keeps any bytes: neither a path nor a variable's value need be UTF-8.
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"

namespace tutti::runtime {

struct RankIntroduction {
  static constexpr std::size_t kMostBytes = 64 << 10;  // as CBOR

  std::string boot;     // identifies the machine's start: ranks with the same one share its cores and devices
  std::string host;     // the machine or container
  std::string sharing;  // ranks with the same one share memory: `host`, unless TUTTI_HOST_ID says otherwise
  std::string agent;    // of the launcher, as GROUP_RANK numbers it; may be empty
  std::string shm;      // the rank's socket for shared memory; may be empty
  CoreMask cores;       // that the rank may use

  // How bytes are transferred, the same on every rank.
  std::string transport;  // TUTTI_TRANSPORT
  std::string engines;    // TUTTI_ENGINE, for each device
  std::string algorithm;  // TUTTI_ALGORITHM; may be empty
  int streams = 1;        // TUTTI_STREAMS

  bool operator==(const RankIntroduction&) const = default;
};

std::string encode(const RankIntroduction& introduction);
// kMismatch, without the rank that wrote it, which the caller knows: from another version of tutti, or damaged.
Result<RankIntroduction> parse_introduction(const std::string& bytes);

}  // namespace tutti::runtime
