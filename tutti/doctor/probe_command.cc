#include "tutti/doctor/probe_command.h"

#include <cstring>
#include <string>
#include <string_view>

namespace tutti {
namespace {

constexpr std::string_view kLetters = "PSRUQ";

bool moves_bytes(ProbeCommand::Kind kind) {
  switch (kind) {
    case ProbeCommand::Kind::kTake:
    case ProbeCommand::Kind::kGive:
      return true;
    case ProbeCommand::Kind::kClock:
    case ProbeCommand::Kind::kDatagrams:
    case ProbeCommand::Kind::kGoodbye:
      return false;
  }
  return false;
}

}  // namespace

std::array<std::byte, ProbeCommand::kBytes> encode(const ProbeCommand& command) {
  std::array<std::byte, ProbeCommand::kBytes> bytes;
  bytes[0] = std::byte(command.kind);
  std::memcpy(&bytes[1], &command.number, sizeof command.number);
  return bytes;
}

Result<ProbeCommand> parse_probe_command(std::span<const std::byte, ProbeCommand::kBytes> bytes) {
  const char letter = char(bytes[0]);
  if (kLetters.find(letter) == kLetters.npos)
    return Error{.code = Code::kCorrupt,
                 .detail = "the other side speaks another protocol (a command that begins with byte " +
                           std::to_string(int(bytes[0])) + ")"};
  ProbeCommand command{.kind = ProbeCommand::Kind(letter)};
  std::memcpy(&command.number, &bytes[1], sizeof command.number);
  if (moves_bytes(command.kind) && command.number > ProbeCommand::kMostTransfer)
    return Error{.code = Code::kLimit,
                 .detail = "the other side asks for a transfer of " + std::to_string(command.number) +
                           " bytes; a measurement asks for " + std::to_string(ProbeCommand::kMostTransfer) +
                           " at most"};
  return command;
}

}  // namespace tutti
