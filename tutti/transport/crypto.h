#pragma once
// The few primitives that the handshake is made of (OpenSSL underneath).
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tutti::crypto {

using Digest = std::array<std::byte, 32>;

Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
// RFC 5869 with one block of output.
Digest hkdf_sha256(std::span<const std::byte> secret, std::span<const std::byte> salt, std::string_view info);
// In a time that does not depend on where they differ.
bool equal(std::span<const std::byte> a, std::span<const std::byte> b);
// From the kernel's generator.
void fill_random(std::span<std::byte> bytes);
// Two hexadecimal digits for each byte.
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace tutti::crypto
