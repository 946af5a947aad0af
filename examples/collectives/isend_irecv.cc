// Every rank sends to the next and receives from the one before at the same time. With blocking calls all could wait
// for each other; these return at once, and the memory belongs to them until get() has returned.
#include <tutti/core.h>

#include <cstdio>

int main() {
  const tutti::Group world = tutti::init();
  const int rank = world.rank(), size = world.size();
  const int mine = 10 * rank;
  int theirs = mine;
  if (size > 1) {
    const tutti::Work sent = tutti::isend(world, std::span<const int>(&mine, 1), (rank + 1) % size);
    const tutti::Work received = tutti::irecv(world, std::span<int>(&theirs, 1), (rank + size - 1) % size);
    // ... compute something here, while both are under way ...
    received.get();
    sent.get();
  }
  std::printf("rank %d of %d got %d\n", rank, size, theirs);
}
