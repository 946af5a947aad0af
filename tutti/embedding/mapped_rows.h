#pragma once
// Rows in a file that is mapped, for tables larger than memory, with a cache of those that are used most.
//
// The file has no name in its folder and goes with this object. Space for it is taken at once, so that a full disk is
// an error here and not a crash later. Threads: one at a time.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

template <class T>
class MappedRows {
 public:
  // Zeros. `cached_bytes`: of rows that are kept in memory; at least one set of them is.
  static Result<MappedRows> create(const std::string& folder, std::int64_t rows, std::int64_t width,
                                   std::size_t cached_bytes);

  // out[k] = where row rows[k] is now, `width` numbers: good until the next call of locate(). `change`: they may be
  // written to; does not count as a use, since it follows one.
  void locate(std::span<const std::uint32_t> rows, T** out, bool change);
  // The same for one row, which is not taken into the cache; good until locate().
  T* find(std::int64_t row, bool change);

  std::uint64_t hits() const { return hits_; }
  std::uint64_t misses() const { return misses_; }

 private:
  // A row may lie in one of kWays places. `used` counts its uses, up to a limit, and ages.
  static constexpr int kWays = 8;
  struct Set {
    std::uint32_t row[kWays];
    std::uint32_t call[kWays];  // of locate() that used it last: it stays until the next
    std::uint8_t used[kWays];   // 0: free
    bool changed[kWays];
    std::uint32_t full;  // the call in which it had no place: nor has it for the rest of that call
  };
  T* in_file(std::int64_t row) const { return reinterpret_cast<T*>(file_.data()) + row * width_; }
  T* in_cache(std::size_t set, int way) const {
    return reinterpret_cast<T*>(cache_.data()) + std::int64_t(set * kWays + std::size_t(way)) * width_;
  }
  std::size_t set_of(std::uint32_t row) const;
  int way_of(const Set& set, std::uint32_t row) const;
  int make_room(std::size_t set);
  void ask_for(std::span<const std::uint32_t> rows) const;

  std::int64_t width_ = 0;
  Mapping file_, cache_;
  std::vector<Set> sets_;
  std::uint32_t call_ = 0;
  std::uint64_t hits_ = 0, misses_ = 0;
};

}  // namespace tutti
