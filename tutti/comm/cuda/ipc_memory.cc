#include "tutti/comm/cuda/ipc_memory.h"

#include <algorithm>

#include "tutti/comm/cuda/runtime.h"

namespace tutti::cuda {
namespace {

constexpr int kLooks = 3;  // of freed_here(): more than a call adds, or it would never get to the older allocations

std::uint64_t address(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

bool overlap(const MemoryNote& a, const MemoryNote& b) {
  return a.base < b.base + b.bytes && b.base < a.base + a.bytes;
}

}  // namespace

OpenMemory::~OpenMemory() {
  for (int r = 0; r < int(entries_.size()); ++r)
    for (Entry& entry : entries_[std::size_t(r)]) close(r, entry);
}

void OpenMemory::close(int rank, Entry& entry) {
  if (!entry.base || rank == rank_ || is_abandoned_) return;
  const auto ipc = ipc_functions();
  const auto r = runtime();
  if (!ipc.ok() || !r.ok()) return;
  const OnDevice current(**r, device_);
  if ((*ipc)->cudaIpcCloseMemHandle(entry.base) != 0) (*r)->cudaGetLastError();
  entry.base = nullptr;
}

Result<MemoryNote> OpenMemory::share(const void* memory) const {
  const IpcFunctions& ipc = *TUTTI_TRY(ipc_functions());
  const Runtime& r = *TUTTI_TRY(runtime());
  MemoryNote note;
  note.is_shared = 1;
  DriverPointer base = 0;
  std::size_t bytes = 0;
  if (ipc.cuMemGetAddressRange(&base, &bytes, address(memory)) != 0 ||
      ipc.cuPointerGetAttribute(&note.id, kBufferId, base) != 0)
    return Error{.code = Code::kUnsupported, .detail = "CUDA does not know the allocation of the memory"};
  note.base = base, note.bytes = bytes;
  note.offset = address(memory) - note.base;
  for (const Entry& entry : entries_[std::size_t(rank_)])
    if (entry.note.base == note.base && entry.note.id == note.id) {
      note.handle = entry.note.handle;
      return note;
    }
  TUTTI_TRY(r.check(ipc.cudaIpcGetMemHandle(&note.handle, reinterpret_cast<void*>(note.base)), "share the memory"));
  return note;
}

OpenMemory::Known OpenMemory::find(int rank, const MemoryNote& note) {
  Entries& entries = entries_[std::size_t(rank)];
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return is_same(e.note, note); });
  if (found == entries.end()) return Known::kNew;
  entries.splice(entries.begin(), entries, found);
  return found->usable ? Known::kOpen : Known::kUnusable;
}

Status OpenMemory::open(int rank, const MemoryNote& note) {
  Entries& entries = entries_[std::size_t(rank)];
  for (auto it = entries.begin(); it != entries.end();) {
    const bool goes = overlap(it->note, note) || (entries.size() >= kMost && std::next(it) == entries.end());
    if (goes) close(rank, *it);
    it = goes ? entries.erase(it) : std::next(it);
  }
  entries.push_front({.note = note});
  if (rank == rank_) {
    entries.front().base = reinterpret_cast<std::byte*>(note.base);
    return {};
  }
  const IpcFunctions& ipc = *TUTTI_TRY(ipc_functions());
  const Runtime& r = *TUTTI_TRY(runtime());
  void* base = nullptr;
  TUTTI_TRY(r.check(ipc.cudaIpcOpenMemHandle(&base, note.handle, kEnablePeerAccess), "open the memory"));
  entries.front().base = static_cast<std::byte*>(base);
  return {};
}

std::uint64_t OpenMemory::freed_here() {
  Entries& entries = entries_[std::size_t(rank_)];
  const auto ipc = ipc_functions();
  if (entries.empty() || !ipc.ok()) return 0;
  for (int i = 0; i < kLooks; ++i) {  // from the one that was used longest ago, as new ones come to the front
    const MemoryNote& note = std::prev(entries.end(), std::ptrdiff_t(1 + looked_at_++ % entries.size()))->note;
    DriverPointer base = 0;
    std::uint64_t id = 0;
    std::size_t bytes = 0;
    const bool is_there = (*ipc)->cuMemGetAddressRange(&base, &bytes, note.base) == 0 && base == note.base &&
                          (*ipc)->cuPointerGetAttribute(&id, kBufferId, base) == 0 && id == note.id;
    if (!is_there) return note.id;
  }
  return 0;
}

void OpenMemory::close_freed(int rank, std::uint64_t id) {
  Entries& entries = entries_[std::size_t(rank)];
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.note.id == id; });
  if (id == 0 || found == entries.end()) return;
  close(rank, *found);
  entries.erase(found);
}

void OpenMemory::give_up(int rank, const MemoryNote& note) {
  for (Entry& entry : entries_[std::size_t(rank)])
    if (is_same(entry.note, note)) {
      close(rank, entry);
      entry.usable = false;
    }
}

std::byte* OpenMemory::at(int rank, const MemoryNote& note) const {
  for (const Entry& entry : entries_[std::size_t(rank)])
    if (is_same(entry.note, note)) return entry.base + note.offset;
  return nullptr;
}

}  // namespace tutti::cuda
