#pragma once
// What `tutti run` exits with when it is not the code of a rank (docs/reference/exit-codes.md), and what any
// command of tutti exits with because of an error.
#include "tutti/base/error.h"

namespace tutti::launch {

inline constexpr int kExitUsage = 2;         // wrong usage: a restart would not help
inline constexpr int kExitRendezvous = 4;    // the nodes did not find each other, or lost one another
inline constexpr int kExitSaved = 75;        // told to stop, the ranks have saved: start the job again later
inline constexpr int kExitNoProgress = 93;   // it fails in the same place again and again: do not start it again
inline constexpr int kExitTimeLimit = 124;   // --timeout
inline constexpr int kExitReaderGone = 141;  // the reader of the output is gone: as `yes | head` exits, 128 + SIGPIPE
inline constexpr int kExitKilled = 137;      // 128 + SIGKILL

// The exit code for an error that kept a command from its work.
inline int exit_code_of(Code code) {
  switch (code) {
    case Code::kTimeout:
    case Code::kUnreachable:
    case Code::kPeerLost:
    case Code::kAborted:
      return kExitRendezvous;
    case Code::kUsage:
    case Code::kInvalidArgument:
    case Code::kMismatch:
    case Code::kRefused:
    case Code::kAddressInUse:
    case Code::kNotFound:
    case Code::kUnsupported:
      return kExitUsage;
    case Code::kCorrupt:
    case Code::kLimit:
    case Code::kNonFinite:
    case Code::kSystem:
    case Code::kInternal:
      return 1;
  }
  return 1;
}

// An error of init(): the ranks did not meet, or met and could not connect to each other.
inline bool is_of_joining(const Error& error) {
  return error.operation == "join" ||
         (error.operation.starts_with("connecting") && exit_code_of(error.code) == kExitRendezvous);
}

}  // namespace tutti::launch
