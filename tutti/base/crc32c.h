#pragma once
// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected): the checksum of iSCSI, ext4 and TensorBoard's event files.
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

// The checksum of `bytes`, or, given the checksum of preceding bytes, of both together. crc32c("123456789") is
// 0xE3069283.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace tutti
