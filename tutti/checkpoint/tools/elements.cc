#include "tutti/checkpoint/tools/elements.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "tutti/base/float16.h"

namespace tutti {
namespace {

template <class T>
void convert(const std::byte* from, std::uint64_t count, double* out) {
  for (std::uint64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      out[i] = double(to_float(value));
    } else {
      out[i] = double(value);
    }
  }
}

struct Row {
  std::string_view dtype;
  void (*convert)(const std::byte*, std::uint64_t, double*);
  std::uint64_t numbers = 1;
};

constexpr Row kRows[] = {
    {"F32", convert<float>},         {"F64", convert<double>},        {"F16", convert<Half>},
    {"BF16", convert<BFloat16>},     {"I8", convert<std::int8_t>},    {"U8", convert<std::uint8_t>},
    {"BOOL", convert<std::uint8_t>}, {"I16", convert<std::int16_t>},  {"U16", convert<std::uint16_t>},
    {"I32", convert<std::int32_t>},  {"U32", convert<std::uint32_t>}, {"I64", convert<std::int64_t>},
    {"U64", convert<std::uint64_t>}, {"C64", convert<float>, 2},      {"C128", convert<double>, 2},
};

const Row* find(std::string_view dtype) {
  const Row* const row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.dtype == dtype; });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

bool is_numeric(std::string_view dtype) { return find(dtype) != nullptr; }

std::uint64_t numbers_of(std::string_view dtype) {
  const Row* const row = find(dtype);
  return row ? row->numbers : 1;
}

void to_doubles(std::string_view dtype, const std::byte* elements, std::uint64_t count, double* out) {
  if (const Row* const row = find(dtype)) row->convert(elements, count * row->numbers, out);
}

}  // namespace tutti
