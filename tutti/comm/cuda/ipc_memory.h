#pragma once
// GPU memory that ranks of one host open by handles: the notes by which a rank shares its memory, and the memory that a
// group has opened. ipc_operation.h and ipc_message.h copy.
//
// In collectives every rank of a group reads the same notes in the same order, and opens the memory of all its peers.
// So all ranks agree, without further messages, on the memory that is open, cannot be used, or is closed to make room.
// For messages each pair of ranks has an object of its own, and the receiver alone decides.
#include <cstdint>
#include <list>
#include <vector>

#include "tutti/comm/cuda/ipc_functions.h"
#include "tutti/comm/request.h"

namespace tutti::cuda {

// An allocation of a rank, and a position in it. Sent to all ranks.
struct MemoryNote {
  std::uint64_t is_shared = 0;                // 0: peers read nothing there
  std::uint64_t base = 0, bytes = 0, id = 0;  // of the allocation, in its process; ids are never used again
  std::uint64_t offset = 0;
  IpcHandle handle;
};

// Used by one thread at a time. Closes the memory when it is destroyed.
class OpenMemory {
 public:
  // Allocations of a rank that are open at once. Beyond them the one that was used longest ago is closed.
  static constexpr std::size_t kMost = 128;

  OpenMemory(int rank, int size) : rank_(rank), entries_(std::size_t(size)) {}
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;

  // The note of this rank's `memory`. An error: CUDA does not share it.
  Result<MemoryNote> share(const void* memory) const;

  enum class Known { kNew, kOpen, kUnusable };
  // Counts as a use.
  Known find(int rank, const MemoryNote& note);
  // Opens memory that find() called kNew, on the current device. Closes memory of `rank` at the same addresses, which
  // it has freed, and the memory beyond kMost. Memory of this rank is open as it is.
  Status open(int rank, const MemoryNote& note);
  // The id of an allocation of this rank that it has freed since peers opened it; 0: none was found. Looks at a few
  // allocations in each call.
  std::uint64_t freed_here();
  // `rank` has freed this allocation: its pages are kept until all ranks have closed it.
  void close_freed(int rank, std::uint64_t id);
  // A rank could not open memory of `note`: no rank uses it.
  void give_up(int rank, const MemoryNote& note);
  // The memory of the note. find() has called it kOpen.
  std::byte* at(int rank, const MemoryNote& note) const;
  // The device on which memory is opened: the one of the first call. Memory that is opened on one device is not for
  // another.
  int device_for(int device) {
    if (device_ == kHost) device_ = device;
    return device_;
  }
  // A GPU may still read the memory: it stays open until the process ends.
  void abandon() { is_abandoned_ = true; }

 private:
  struct Entry {
    MemoryNote note;
    std::byte* base = nullptr;  // here; null: could not be opened here
    bool usable = true;         // by all ranks
  };
  using Entries = std::list<Entry>;  // the one that was used last is first
  static bool is_same(const MemoryNote& a, const MemoryNote& b) { return a.id == b.id && a.handle == b.handle; }
  void close(int rank, Entry& entry);

  const int rank_;
  int device_ = kHost;
  std::vector<Entries> entries_;  // by rank
  std::size_t looked_at_ = 0;     // number of allocations that freed_here() has looked at
  bool is_abandoned_ = false;
};

}  // namespace tutti::cuda
