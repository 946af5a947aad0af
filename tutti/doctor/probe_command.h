#pragma once
// What the side of a pair probe that measures tells the side that answers (pair_probe.cc): commands of nine bytes, a
// letter and a number.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/error.h"

namespace tutti {

struct ProbeCommand {
  enum class Kind : char {
    kClock = 'P',      // answer with the number and your wall clock in nanoseconds, 8 bytes each
    kTake = 'S',       // so many bytes follow; answer with one byte when all are here
    kGive = 'R',       // send so many bytes
    kDatagrams = 'U',  // echo datagrams that begin with this number, from now on; 0: none
    kGoodbye = 'Q',
  };
  static constexpr std::size_t kBytes = 9;
  // The largest transfer that is asked for, and that the other side takes part in, in bytes.
  static constexpr std::uint64_t kMostTransfer = std::uint64_t(1) << 30;

  Kind kind = Kind::kGoodbye;
  std::uint64_t number = 0;
  bool operator==(const ProbeCommand&) const = default;
};

std::array<std::byte, ProbeCommand::kBytes> encode(const ProbeCommand& command);
// A command that may be obeyed. kCorrupt: a letter that means nothing; kLimit: a transfer of more than kMostTransfer.
Result<ProbeCommand> parse_probe_command(std::span<const std::byte, ProbeCommand::kBytes> bytes);

}  // namespace tutti
