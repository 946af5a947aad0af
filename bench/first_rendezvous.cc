// A rank that only meets the others: for measuring the rendezvous by itself.
//   time tutti run -n 256 first_rendezvous
#include <cstdio>

#include "tutti/rendezvous/join.h"

int main() {
  const auto begin = tutti::now();
  const auto member = tutti::rendezvous::join();
  if (!member.ok()) {
    std::fprintf(stderr, "%s\n", to_string(member.error()).c_str());
    return 4;
  }
  if (member->rank == 0)
    std::printf("%d ranks have met %.3f s after rank 0 began\n", member->world_size, tutti::seconds_since(begin));
}
