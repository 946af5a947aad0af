#pragma once
// The memory of the double's devices, and its handles for other processes.
//
// Device pointers lie in a range that nobody may touch. The bytes lie in a file of memory, so that another process can
// map those of a block. Handles are as strict as CUDA's:
//
//   A handle is of a whole block. The process that made it cannot open it. Opening it twice gives one pointer, which is
//   valid until it has been closed twice. It cannot be opened once the block is freed, or its process has exited.
//   Work that reads or writes a block which its owner has freed, or which is closed, ends the process.
//   A new block gets the address of a freed one of its size, if a handle of that was made. Other addresses are never
//   used again.
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace tutti::fakes {

struct IpcHandle {
  std::uint64_t magic = 0;
  pid_t process = 0;
  int file = -1;
  std::uint64_t offset = 0, bytes = 0, id = 0;
  int device = 0;
  int unused[5] = {};
};
static_assert(sizeof(IpcHandle) == 64);  // as cudaIpcMemHandle_t

bool is_of_this_process(const IpcHandle& handle);

// Thread-safe.
class Memory {
 public:
  struct Block {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    int device = 0;
    std::uint64_t id = 0;   // never used again by this process
    bool exported = false;  // a handle was made
    int opened = 0;         // times; of memory of another process
    pid_t owner = 0;        // likewise
  };

  Memory();
  bool owns(const void* p) const;
  void* bytes_of(const void* p) const;
  // Null: no space is left, or the device would have more than FAKE_CUDA_MEMORY bytes. Ends a process that was forked
  // from one that has used the memory: CUDA does not work there.
  void* allocate(std::size_t bytes, int device);
  bool release(void* p);  // false: not a block of this process
  bool is_valid(const void* p, std::size_t bytes) { return device_of(p, bytes) >= 0; }
  int device_of(const void* p, std::size_t bytes);  // -1: this is not within one block
  std::optional<Block> block_of(const void* p);

  bool make_handle(void* p, IpcHandle& handle);
  void* open(const IpcHandle& handle);  // null: its block is gone
  bool close(void* p);
  int open_handles();
  bool is_of_a_peer(const void* p);
  // Ends the process if `p` is in a block of another process that has freed it.
  void require_alive(const void* p);

 private:
  std::map<std::byte*, Block>::iterator find_locked(const void* p);
  std::byte* reserve_locked(std::size_t bytes, std::size_t align);

  const pid_t process_;  // a forked process cannot use it
  const int file_;
  std::byte *const pointers_, *const bytes_;
  std::mutex mutex_;
  std::size_t next_ = 0;
  std::uint64_t last_id_ = 0;
  std::map<int, std::size_t> taken_;  // bytes, by device
  std::map<std::byte*, Block> blocks_;
  std::multimap<std::size_t, std::byte*> exported_;  // freed blocks whose handles peers may have, by size
};

Memory& memory();

}  // namespace tutti::fakes
