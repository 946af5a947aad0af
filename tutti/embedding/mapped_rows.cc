// The page cache of the system would do, if rows that are used much lay together; they do not, and a page of 4 KB that
// is kept for the sake of one row of 256 bytes wastes 15 sixteenths. So rows are cached, not pages: in sets of eight
// places by a hash of their number. A row that is missed takes the place of the one in its set with the fewest uses,
// and all others there age by one, so that what was used much last week goes. What was located in this call stays;
// where that leaves no place, the row is used where it lies in the file.
//
// All misses are announced to the system (madvise) before the first of them is read, so that the disk works on all of
// them at once.
#include "tutti/embedding/mapped_rows.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/text.h"
#include "tutti/embedding/table_memory.h"

namespace tutti {
namespace {

constexpr std::uint8_t kMostUses = 15;

constexpr const char* kOtherFolder = "give a folder that is there, and that this user may write to";

// A file in `folder` without a name, which is gone when it is closed.
Result<Fd> nameless_file(const std::string& folder) {
  Fd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
    return system_error(errno, "cannot make a file for embedding tables in " + folder, kOtherFolder);
  std::string name = folder + "/tutti-table-XXXXXX";  // a file system without O_TMPFILE
  Fd named(::mkostemp(name.data(), O_CLOEXEC));
  if (!named) return system_error(errno, "cannot make a file for embedding tables in " + folder, kOtherFolder);
  ::unlink(name.c_str());
  return named;
}

}  // namespace

template <class T>
Result<MappedRows<T>> MappedRows<T>::create(const std::string& folder, std::int64_t rows, std::int64_t width,
                                            std::size_t cached_bytes) {
  MappedRows made;
  made.width_ = width;
  const std::size_t row_bytes = std::size_t(width) * sizeof(T), bytes = std::size_t(rows) * row_bytes;
  const Fd file = TUTTI_TRY(nameless_file(folder));
  if (const int failed = ::posix_fallocate(file.get(), 0, off_t(bytes)); failed != 0)
    return system_error(failed, fmt::format("cannot take {} for embedding tables in {}", bytes_text(bytes), folder),
                        "a folder with more room, or more ranks");
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return system_error(errno, "cannot map " + bytes_text(bytes) + " of a file in " + folder);
  made.file_ = Mapping(base, bytes);
  ::madvise(base, bytes, MADV_RANDOM);  // reading ahead of a random row is reading in vain
  const std::size_t sets = std::max<std::size_t>(1, std::min(cached_bytes, bytes) / (row_bytes * kWays));
  made.sets_.resize(sets);
  made.cache_ = TUTTI_TRY(table_memory(sets * kWays * row_bytes));
  return made;
}

template <class T>
std::size_t MappedRows<T>::set_of(std::uint32_t row) const {
  const std::uint64_t hash = row * std::uint64_t(0x9e3779b97f4a7c15);
  return std::size_t((hash >> 32) * sets_.size() >> 32);
}

template <class T>
int MappedRows<T>::way_of(const Set& set, std::uint32_t row) const {
  for (int way = 0; way < kWays; ++way)
    if (set.used[way] > 0 && set.row[way] == row) return way;
  return -1;
}

// A place for another row, or -1.
template <class T>
int MappedRows<T>::make_room(std::size_t which) {
  Set& set = sets_[which];
  if (set.full == call_) return -1;  // so that a row is in one place throughout a call
  int best = -1;
  for (int way = 0; way < kWays; ++way) {
    if (set.used[way] == 0) return way;
    if (set.call[way] != call_ && (best < 0 || set.used[way] < set.used[best])) best = way;
  }
  if (best < 0 || set.used[best] > 1) {
    for (int way = 0; way < kWays; ++way)
      if (set.used[way] > 1) --set.used[way];
    set.full = call_;
    return -1;
  }
  if (set.changed[best]) std::copy_n(in_cache(which, best), width_, in_file(set.row[best]));
  return best;
}

template <class T>
void MappedRows<T>::ask_for(std::span<const std::uint32_t> rows) const {
  const std::uintptr_t page = std::uintptr_t(::sysconf(_SC_PAGESIZE));
  std::uintptr_t asked = 0;
  for (const std::uint32_t row : rows) {
    if (way_of(sets_[set_of(row)], row) >= 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(in_file(row)) / page * page;
    if (begin == asked) continue;
    asked = begin;
    const auto end = reinterpret_cast<std::uintptr_t>(in_file(std::int64_t(row) + 1));
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
  }
}

template <class T>
void MappedRows<T>::locate(std::span<const std::uint32_t> rows, T** out, bool change) {
  ++call_;
  ask_for(rows);
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const std::uint32_t row = rows[k];
    const std::size_t which = set_of(row);
    Set& set = sets_[which];
    int way = way_of(set, row);
    way >= 0 ? ++hits_ : ++misses_;
    if (way < 0) {
      way = make_room(which);
      if (way < 0) {
        out[k] = in_file(row);
        continue;
      }
      std::copy_n(in_file(row), width_, in_cache(which, way));
      set.row[way] = row;
      set.used[way] = 1;
      set.changed[way] = false;
    } else if (!change && set.call[way] != call_ && set.used[way] < kMostUses) {
      ++set.used[way];
    }
    set.call[way] = call_;
    set.changed[way] = set.changed[way] || change;
    out[k] = in_cache(which, way);
  }
}

template <class T>
T* MappedRows<T>::find(std::int64_t row, bool change) {
  const std::size_t which = set_of(std::uint32_t(row));
  const int way = way_of(sets_[which], std::uint32_t(row));
  if (way < 0) return in_file(row);
  sets_[which].changed[way] = sets_[which].changed[way] || change;
  return in_cache(which, way);
}

template class MappedRows<float>;
template class MappedRows<double>;

}  // namespace tutti
