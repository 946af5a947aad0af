#include "tests/fakes/cuda/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace tutti::fakes {
namespace {

constexpr std::size_t kSpace = std::size_t(1) << 34;  // of device memory, for all devices
constexpr std::size_t kAlign = 256, kPage = 4096;
constexpr std::uint64_t kMagic = 0x4850'4955'4341'4644;
constexpr int kPoison = 0xFF;

std::size_t up(std::size_t bytes, std::size_t align) { return (bytes + align - 1) / align * align; }

int make_file() {
  const int file = ::memfd_create("fake GPU memory", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, off_t(kSpace)) != 0) std::abort();
  return file;
}
std::byte* map(int protection, int flags, int file) {
  void* const at = ::mmap(nullptr, kSpace, protection, flags | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(at);
}

// The whole pages in a block: those at its ends hold other blocks too.
void give_back_pages(void* bytes, std::size_t count) {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes), first = up(begin, kPage),
             end = (begin + count) / kPage * kPage;
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_REMOVE);
}

// Before the bytes of a block is its id; 0 once it is freed.
std::atomic_ref<std::uint64_t> id_before(void* bytes) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(bytes) - sizeof(std::uint64_t)));
}

}  // namespace

bool is_of_this_process(const IpcHandle& handle) { return handle.magic == kMagic && handle.process == ::getpid(); }

Memory& memory() {
  static Memory* const all = new Memory;
  return *all;
}

Memory::Memory()
    : process_(::getpid()),
      file_(make_file()),
      pointers_(map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1)),
      bytes_(map(PROT_READ | PROT_WRITE, MAP_SHARED, file_)) {}

bool Memory::owns(const void* p) const {
  const auto* const at = static_cast<const std::byte*>(p);
  return at >= pointers_ && at < pointers_ + kSpace;
}
void* Memory::bytes_of(const void* p) const { return bytes_ + (static_cast<const std::byte*>(p) - pointers_); }

// With a gap before and behind it, so that overruns show.
std::byte* Memory::reserve_locked(std::size_t bytes, std::size_t align) {
  const std::size_t begin = up(next_ + kAlign, align);
  if (begin + bytes + kAlign > kSpace) return nullptr;
  next_ = up(begin + bytes, align);
  return pointers_ + begin;
}

void* Memory::allocate(std::size_t bytes, int device) {
  if (::getpid() != process_) {
    std::fprintf(stderr, "the double of CUDA: this process was forked from one that has used CUDA\n");
    std::abort();
  }
  const std::lock_guard lock(mutex_);
  bytes = up(bytes, kAlign);
  const char* const most = std::getenv("FAKE_CUDA_MEMORY");
  if (most && taken_[device] + bytes > std::size_t(std::atoll(most))) return nullptr;
  std::byte* at = nullptr;
  if (const auto old = exported_.find(bytes); old != exported_.end()) {
    at = old->second;
    exported_.erase(old);
  } else {
    at = reserve_locked(bytes, kAlign);
  }
  if (!at) return nullptr;
  taken_[device] += bytes;
  blocks_[at] = {.begin = at, .bytes = bytes, .device = device, .id = ++last_id_};
  id_before(bytes_of(at)) = last_id_;
  return at;
}

bool Memory::release(void* p) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<std::byte*>(p));
  if (found == blocks_.end() || found->second.opened > 0) return false;
  id_before(bytes_of(p)) = 0;
  if (found->second.exported) {
    std::memset(bytes_of(p), kPoison, found->second.bytes);
    exported_.emplace(found->second.bytes, found->first);
  } else {
    give_back_pages(bytes_of(p), found->second.bytes);
  }
  taken_[found->second.device] -= found->second.bytes;
  blocks_.erase(found);
  return true;
}

std::map<std::byte*, Memory::Block>::iterator Memory::find_locked(const void* p) {
  auto after = blocks_.upper_bound(static_cast<std::byte*>(const_cast<void*>(p)));
  if (after == blocks_.begin()) return blocks_.end();
  --after;
  return p < after->first + after->second.bytes ? after : blocks_.end();
}
int Memory::device_of(const void* p, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = find_locked(p);
  if (found == blocks_.end()) return -1;
  const Block& block = found->second;
  return static_cast<const std::byte*>(p) + bytes <= block.begin + block.bytes ? block.device : -1;
}
std::optional<Memory::Block> Memory::block_of(const void* p) {
  const std::lock_guard lock(mutex_);
  const auto found = find_locked(p);
  if (found == blocks_.end()) return {};
  return found->second;
}

// ---- IPC ----

bool Memory::make_handle(void* p, IpcHandle& handle) {
  const std::lock_guard lock(mutex_);
  const auto found = find_locked(p);
  if (found == blocks_.end() || found->second.opened > 0) return false;
  Block& block = found->second;
  block.exported = true;
  handle = {.magic = kMagic,
            .process = ::getpid(),
            .file = file_,
            .offset = std::uint64_t(block.begin - pointers_),
            .bytes = block.bytes,
            .id = block.id,
            .device = block.device};
  return true;
}

// Maps the pages of the block, which begin with the id before it, over this process's bytes of a new block.
void* Memory::open(const IpcHandle& handle) {
  if (handle.magic != kMagic) return nullptr;
  const std::lock_guard lock(mutex_);
  for (auto& [begin, block] : blocks_)
    if (block.owner == handle.process && block.id == handle.id) {
      ++block.opened;
      return begin;
    }
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  const std::size_t first = (handle.offset - sizeof handle.id) / kPage * kPage;
  const std::size_t bytes = up(handle.offset + handle.bytes, kPage) - first;
  std::byte* const at = reserve_locked(bytes, kPage);
  void* const mapped =
      at ? ::mmap(bytes_of(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, off_t(first)) : MAP_FAILED;
  ::close(file);
  if (mapped == MAP_FAILED) return nullptr;
  std::byte* const begin = at + (handle.offset - first);
  if (id_before(bytes_of(begin)) != handle.id) return nullptr;  // it was freed
  blocks_[begin] = {.begin = begin,
                    .bytes = handle.bytes,
                    .device = handle.device,
                    .id = handle.id,
                    .opened = 1,
                    .owner = handle.process};
  return begin;
}

bool Memory::close(void* p) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<std::byte*>(p));
  if (found == blocks_.end() || found->second.opened == 0) return false;
  if (--found->second.opened > 0) return true;
  auto* const bytes = static_cast<std::byte*>(bytes_of(p));
  auto* const first =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(bytes) - sizeof(std::uint64_t)) / kPage * kPage);
  // Nothing is there from now on: work that still uses it ends the process.
  ::mmap(first, up(std::size_t(bytes + found->second.bytes - first), kPage), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  blocks_.erase(found);
  return true;
}

int Memory::open_handles() {
  const std::lock_guard lock(mutex_);
  int count = 0;
  for (const auto& [begin, block] : blocks_) count += block.opened;
  return count;
}

bool Memory::is_of_a_peer(const void* p) {
  const auto block = block_of(p);
  return block && block->opened > 0;
}

void Memory::require_alive(const void* p) {
  if (!owns(p)) return;
  const std::lock_guard lock(mutex_);
  const auto found = find_locked(p);
  if (found == blocks_.end() || found->second.opened == 0 || id_before(bytes_of(found->first)) == found->second.id)
    return;
  std::fprintf(stderr, "the double of CUDA: work uses memory of process %d, which has freed it\n",
               int(found->second.owner));
  std::abort();
}

}  // namespace tutti::fakes
