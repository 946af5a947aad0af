#pragma once
// A cable on which frames take long, overtake one another and come twice: two TAP interfaces and a loop that carries
// frames from one to the other, because not every kernel has a queue that does so (netem).
#include <cstdint>
#include <string>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"

namespace tutti::testing {

// What befalls each frame, in either direction.
struct Roughness {
  Duration delay{}, jitter{};  // it takes `delay`, and up to `jitter` more
  double overtaken = 0;        // this share is held back for another `jitter`, while those behind it go on
  double doubled = 0;          // this share comes twice
};

// A TAP interface of the network namespace that this thread is in; it lasts as long as the descriptor.
Result<Fd> open_tap(const std::string& name);

// Carries frames until a descriptor fails. What befalls a frame depends on `seed` and how many came before it.
void carry_frames(int one, int other, const Roughness& roughness, std::uint64_t seed);

}  // namespace tutti::testing
