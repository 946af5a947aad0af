// HKDF (RFC 5869) is two uses of HMAC: extract, PRK = HMAC(salt, secret), and expand, T(1) = HMAC(PRK, info | 0x01).
// One block of 32 bytes is all that a key here needs.
#include "tutti/transport/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::crypto {
namespace {

unsigned char* bytes_of(std::byte* p) { return reinterpret_cast<unsigned char*>(p); }
const unsigned char* bytes_of(const std::byte* p) { return reinterpret_cast<const unsigned char*>(p); }

}  // namespace

Digest sha256(std::span<const std::byte> bytes) {
  Digest digest;
  unsigned size = 0;
  const int done = EVP_Digest(bytes.data(), bytes.size(), bytes_of(digest.data()), &size, EVP_sha256(), nullptr);
  TUTTI_INVARIANT(done == 1 && size == digest.size(), "OpenSSL has no SHA-256");
  return digest;
}

Digest sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text.data(), text.size()))); }

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  Digest digest;
  unsigned size = 0;
  const auto* done = HMAC(EVP_sha256(), key.data(), int(key.size()), bytes_of(message.data()), message.size(),
                          bytes_of(digest.data()), &size);
  TUTTI_INVARIANT(done != nullptr && size == digest.size(), "OpenSSL has no HMAC-SHA256");
  return digest;
}

Digest hkdf_sha256(std::span<const std::byte> secret, std::span<const std::byte> salt, std::string_view info) {
  const Digest extracted = hmac_sha256(salt, secret);
  std::vector<std::byte> message(info.size() + 1, std::byte(1));
  if (!info.empty()) std::memcpy(message.data(), info.data(), info.size());
  return hmac_sha256(extracted, message);
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got > 0) bytes = bytes.subspan(std::size_t(got));
    TUTTI_INVARIANT(got > 0 || errno == EINTR, "the kernel gives no random bytes");
  }
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += kDigits[std::to_integer<unsigned>(b) >> 4];
    text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

}  // namespace tutti::crypto
