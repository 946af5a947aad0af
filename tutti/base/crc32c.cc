// x86 has an instruction for this polynomial (SSE 4.2). Each instruction waits three cycles for the previous one, so
// three streams run side by side, three times as fast as one. The streams are runs of 4096 bytes. A table maps a
// remainder to the remainder after 4096 zero bytes, which combines the three results.
//
// With carry-less multiplication of 512 bits, blocks of 256 bytes are folded into the next blocks, until 64 bytes are
// left that have the remainder of all (Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel, 2009). Other CPUs use eight tables, with eight bytes per step.
#include "tutti/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti {
namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78;

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: the remainder of byte b followed by k zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) ? kReflectedPolynomial : 0);
    tables[0][byte] = remainder;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t with_tables(const std::byte* data, std::size_t size, std::uint32_t remainder) {
  for (; size >= 8; data += 8, size -= 8) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint32_t folded = i < 4 ? (remainder >> (8 * i)) & 255 : 0;
      next ^= kTables[7 - i][folded ^ std::uint32_t(data[i])];
    }
    remainder = next;
  }
  for (; size > 0; ++data, --size) remainder = (remainder >> 8) ^ kTables[0][(remainder ^ std::uint32_t(*data)) & 255];
  return remainder;
}

#if defined(__x86_64__)
constexpr std::size_t kRun = 4096;  // bytes per stream
constexpr int kDoublings = 12;      // from one byte to a run

using ZerosTable = std::array<std::array<std::uint32_t, 256>, 4>;

// The remainder after a run of zeros is linear in the bits of the remainder: column i is the result for bit i alone.
constexpr ZerosTable make_zeros_table() {
  using Columns = std::array<std::uint32_t, 32>;
  const auto apply = [](const Columns& columns, std::uint32_t remainder) {
    std::uint32_t result = 0;
    for (std::size_t i = 0; i < 32; ++i)
      if ((remainder >> i) & 1) result ^= columns[i];
    return result;
  };
  Columns columns{};
  for (std::size_t i = 0; i < 32; ++i) {
    const std::uint32_t bit = 1u << i;
    columns[i] = (bit >> 8) ^ kTables[0][bit & 255];
  }
  for (int doubling = 0; doubling < kDoublings; ++doubling) {
    Columns twice{};
    for (std::size_t i = 0; i < 32; ++i) twice[i] = apply(columns, columns[i]);
    columns = twice;
  }
  ZerosTable table{};
  for (std::uint32_t k = 0; k < 4; ++k)
    for (std::uint32_t byte = 0; byte < 256; ++byte) table[k][byte] = apply(columns, byte << (8 * k));
  return table;
}

constexpr ZerosTable kZeros = make_zeros_table();

std::uint32_t after_zeros(std::uint32_t remainder) {
  return kZeros[0][remainder & 255] ^ kZeros[1][(remainder >> 8) & 255] ^ kZeros[2][(remainder >> 16) & 255] ^
         kZeros[3][remainder >> 24];
}

__attribute__((target("sse4.2"))) std::uint32_t three_runs(const std::byte* data, std::uint32_t remainder) {
  std::uint64_t first = remainder, second = 0, third = 0;
  for (std::size_t at = 0; at < kRun; at += 8) {
    std::uint64_t words[3];
    std::memcpy(&words[0], data + at, 8);
    std::memcpy(&words[1], data + kRun + at, 8);
    std::memcpy(&words[2], data + 2 * kRun + at, 8);
    first = _mm_crc32_u64(first, words[0]);
    second = _mm_crc32_u64(second, words[1]);
    third = _mm_crc32_u64(third, words[2]);
  }
  const std::uint32_t two = after_zeros(std::uint32_t(first)) ^ std::uint32_t(second);
  return after_zeros(two) ^ std::uint32_t(third);
}

__attribute__((target("sse4.2"))) std::uint32_t with_instruction(const std::byte* data, std::size_t size,
                                                                 std::uint32_t remainder) {
  for (; size >= 3 * kRun; data += 3 * kRun, size -= 3 * kRun) remainder = three_runs(data, remainder);
  std::uint64_t wide = remainder;
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  remainder = std::uint32_t(wide);
  for (; size > 0; ++data, --size) remainder = _mm_crc32_u8(remainder, std::uint8_t(*data));
  return remainder;
}

constexpr std::size_t kFolded = 256;  // bytes per step

// x^n modulo the polynomial, with bit 31 for x^0.
constexpr std::uint32_t power_of_x(unsigned n) {
  std::uint32_t power = std::uint32_t(1) << 31;
  for (unsigned i = 0; i < n; ++i) power = (power >> 1) ^ ((power & 1) ? kReflectedPolynomial : 0);
  return power;
}

// In 128 bits the first 64 represent the higher powers. The product of two reflected 64-bit numbers, the second of
// which has 32 bits, is x^33 too high. So x^(bits + 64 - 33) moves the first half ahead, and x^(bits - 33) the second
// half.
__attribute__((target("avx512f"))) __m512i movers(unsigned bits) {
  return _mm512_set4_epi32(0, int(power_of_x(bits - 33)), 0, int(power_of_x(bits + 31)));
}

__attribute__((target("avx512f,vpclmulqdq"))) __m512i folded(__m512i blocks, __m512i by, __m512i into) {
  const __m512i first = _mm512_clmulepi64_epi128(blocks, by, 0x00), second = _mm512_clmulepi64_epi128(blocks, by, 0x11);
  return _mm512_ternarylogic_epi64(first, second, into, 0x96);  // the exclusive or of three
}

__attribute__((target("avx512f,vpclmulqdq"))) std::uint32_t by_folding(const std::byte* data, std::size_t size,
                                                                       std::uint32_t remainder) {
  if (size < 2 * kFolded) return with_instruction(data, size, remainder);
  static const __m512i far = movers(8 * kFolded), near = movers(512);
  __m512i z[4];
  for (int i = 0; i < 4; ++i) z[i] = _mm512_loadu_si512(data + 64 * i);
  z[0] = _mm512_xor_si512(z[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(int(remainder))));
  for (data += kFolded, size -= kFolded; size >= kFolded; data += kFolded, size -= kFolded)
    for (int i = 0; i < 4; ++i) z[i] = folded(z[i], far, _mm512_loadu_si512(data + 64 * i));
  for (int i = 0; i < 3; ++i) z[i + 1] = folded(z[i], near, z[i + 1]);
  std::byte last[64];
  _mm512_storeu_si512(last, z[3]);
  return with_instruction(data, size, with_instruction(last, sizeof last, 0));
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool folds = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
                            __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
  if (folds) return ~by_folding(bytes.data(), bytes.size(), ~before);
  if (__builtin_cpu_supports("sse4.2")) return ~with_instruction(bytes.data(), bytes.size(), ~before);
#endif
  return ~with_tables(bytes.data(), bytes.size(), ~before);
}

namespace detail {
// For the test: the code paths of other CPUs.
std::uint32_t crc32c_with_tables(std::span<const std::byte> bytes) {
  return ~with_tables(bytes.data(), bytes.size(), ~0u);
}
std::uint32_t crc32c_with_instruction(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~with_instruction(bytes.data(), bytes.size(), ~0u);
#endif
  return crc32c_with_tables(bytes);
}
}  // namespace detail

}  // namespace tutti
