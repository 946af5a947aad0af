// Three bytes are four letters. OpenSSL's block functions do the work; they know nothing of padding on the way back,
// where they count it as zero bytes.
#include "tutti/store/etcd/api.h"

#include <openssl/evp.h>

namespace tutti::etcd {

std::string to_base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // EVP writes a final zero
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()), int(bytes.size()));
  text.resize(std::size_t(size));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty()) return std::string();
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), int(text.size()));
  if (size < 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  bytes.resize(std::size_t(size) - padding);
  return bytes;
}

}  // namespace tutti::etcd
