#pragma once
// Elements of any type as numbers, for tools that look at values.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti {

// Whether to_doubles() knows the type, as safetensors names it: all but those of less than a byte and of 8-bit floats.
bool is_numeric(std::string_view dtype);
// How many numbers an element has: 2 for complex ones.
std::uint64_t numbers_of(std::string_view dtype);
// `out` has room for count * numbers_of(dtype). Whole numbers beyond 2^53 are rounded.
void to_doubles(std::string_view dtype, const std::byte* elements, std::uint64_t count, double* out);

}  // namespace tutti
