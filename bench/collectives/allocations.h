#pragma once
#include <cstdint>

namespace tutti::bench {

// How often this process has asked operator new for memory, in all its threads; always 0 under sanitizers, which have
// an operator new of their own. Whoever links this has its memory counted.
std::uint64_t allocations();

}  // namespace tutti::bench
