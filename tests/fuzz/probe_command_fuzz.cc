// What the side that measures the way between two hosts asks of the other: a command that is obeyed is the nine bytes
// that came, and moves no more than a measurement does.
#include <algorithm>
#include <array>

#include "tests/fuzz/targets.h"
#include "tutti/doctor/pair_probe.h"

namespace tutti::fuzz {

void probe_command(Input input) {
  std::array<std::byte, doctor::ProbeCommand::kBytes> bytes{};
  while (!input.empty()) {
    bytes.fill({});
    std::ranges::copy(std::as_bytes(take(input, bytes.size())), bytes.begin());
    const auto command = doctor::parse_probe_command(bytes);
    if (!command.ok()) {
      promise_sentence(command.error());
      continue;
    }
    promise(encode(*command) == bytes, "a command is what was sent");
    using enum doctor::ProbeCommand::Kind;
    const bool moves = command->kind == kTake || command->kind == kGive;
    promise(!moves || command->number <= doctor::ProbeCommand::kMostTransfer,
            "no transfer is larger than a measurement's");
  }
}

}  // namespace tutti::fuzz
