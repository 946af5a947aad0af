// Real elements. The floating point values have so many digits that every sum rounds. If two ranks add in different
// orders, their bits differ.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/plans/simulator/contents.h"

namespace tutti::comm {
namespace {

template <class T>
class Elements final : public Contents {
 public:
  void open(const Goal& goal, std::size_t scratch_bytes) override {
    const int rank = int(memories_.size());
    const Placement& place = places_.emplace_back(goal, scratch_bytes);
    memories_.emplace_back(std::size_t(place.bytes), std::byte(0xa5));
    for (const Goal::Term& piece : goal.before) {
      for (std::size_t i = 0; i < piece.range.bytes / sizeof(T); ++i)
        put(at(rank, piece.range) + i * sizeof(T), value(piece.source, piece.position / sizeof(T) + i));
    }
  }

  void send(int rank, std::uint32_t stream, const Range& from) override {
    if (stream >= streams_.size()) streams_.resize(stream + 1);
    const std::byte* const bytes = at(rank, from);
    streams_[stream].bytes.insert(streams_[stream].bytes.end(), bytes, bytes + from.bytes);
  }
  void recv(int rank, std::uint32_t stream, const Range& into) override {
    const std::byte* const bytes = pop(stream, into.bytes);
    std::copy(bytes, bytes + into.bytes, at(rank, into));
  }
  void recv_reduce(int rank, std::uint32_t stream, const Range& from, const Range& into) override {
    add(at(rank, from), pop(stream, into.bytes), at(rank, into), into.bytes);
  }
  void copy(int rank, const Range& from, const Range& into) override {
    if (into.bytes > 0) std::memmove(at(rank, into), at(rank, from), into.bytes);
  }
  void reduce(int rank, const Range& from, const Range& into) override {
    add(at(rank, into), at(rank, from), at(rank, into), into.bytes);
  }

  std::optional<std::string> check(int rank, const Goal& goal) override {
    for (const Goal::Term& piece : goal.after) {
      for (std::size_t i = 0; i < piece.range.bytes / sizeof(T); ++i) {
        const std::size_t position = piece.position / sizeof(T) + i;
        const T got = get(at(rank, piece.range) + i * sizeof(T));
        if (!(piece.ranks > 1 ? is_sum(got, position, piece.ranks) : got == value(piece.source, position)))
          return std::string(piece.range.area == Area::kIn ? "in" : "out") + " byte " +
                 std::to_string(piece.range.offset + i * sizeof(T)) + ": the value " + std::to_string(got) +
                 " is wrong";
      }
    }
    return {};
  }

  bool same_bits(int rank, const Goal& goal) override {
    const Range out{Area::kOut, 0, goal.out_bytes};
    return out.bytes == 0 || std::memcmp(at(0, out), at(rank, out), out.bytes) == 0;
  }

 private:
  struct Stream {
    std::vector<std::byte> bytes;
    std::size_t taken = 0;
  };

  static T value(int rank, std::size_t position) {
    const std::uint64_t number = (std::uint64_t(rank) + 1) * 1000003 + position * 7919;
    if constexpr (std::is_floating_point_v<T>)
      return T(1) + T(number % 99991) / T(7);
    else
      return T(number);
  }
  static T get(const std::byte* at) {
    T element;
    std::memcpy(&element, at, sizeof element);
    return element;
  }
  static void put(std::byte* at, T element) { std::memcpy(at, &element, sizeof element); }

  static bool is_sum(T got, std::size_t position, int ranks) {
    if constexpr (std::is_floating_point_v<T>) {
      double exact = 0;
      for (int rank = 0; rank < ranks; ++rank) exact += double(value(rank, position));
      return std::abs(double(got) - exact) <= exact * ranks * double(std::numeric_limits<T>::epsilon());
    } else {
      T sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum = T(sum + value(rank, position));
      return got == sum;
    }
  }

  std::byte* at(int rank, const Range& range) {
    const std::uint64_t address = places_[rank].at(range);
    TUTTI_INVARIANT(address + range.bytes <= memories_[rank].size(), "a step reaches up to byte ",
                    address + range.bytes, " of ", memories_[rank].size());
    return memories_[rank].data() + address;
  }

  const std::byte* pop(std::uint32_t stream, std::size_t bytes) {
    if (stream >= streams_.size()) streams_.resize(stream + 1);
    Stream& s = streams_[stream];
    TUTTI_INVARIANT(s.bytes.size() - s.taken >= bytes, "a step takes bytes that were not sent");
    if (s.taken > 65536) {
      s.bytes.erase(s.bytes.begin(), s.bytes.begin() + std::ptrdiff_t(s.taken));
      s.taken = 0;
    }
    s.taken += bytes;
    return s.bytes.data() + s.taken - bytes;
  }

  static void add(const std::byte* left, const std::byte* right, std::byte* into, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += sizeof(T)) put(into + i, T(get(left + i) + get(right + i)));
  }

  std::vector<Placement> places_;
  std::vector<std::vector<std::byte>> memories_;
  std::vector<Stream> streams_;
};

}  // namespace

std::unique_ptr<Contents> make_elements(std::size_t element) {
  switch (element) {
    case 1:
      return std::make_unique<Elements<std::uint8_t>>();
    case 2:
      return std::make_unique<Elements<std::uint16_t>>();
    case 4:
      return std::make_unique<Elements<float>>();
    default:
      TUTTI_REQUIRE(element == 8, "elements of ", element, " bytes; there are those of 1, 2, 4 and 8");
      return std::make_unique<Elements<double>>();
  }
}

}  // namespace tutti::comm
