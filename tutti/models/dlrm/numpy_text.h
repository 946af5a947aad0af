#pragma once
// Arrays as numpy prints them, for --debug-mode: digits up to a precision, trailing zeros left out, columns aligned,
// three entries at each end of what has more than a thousand.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::dlrm {

std::string numpy_text(std::span<const std::int64_t> vector);
std::string numpy_text(std::span<const double> vector, int precision);
// [rows, columns], row by row.
std::string numpy_text(std::span<const double> matrix, std::size_t columns, int precision);

}  // namespace tutti::dlrm
