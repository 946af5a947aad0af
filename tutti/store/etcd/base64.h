#pragma once
// Keys and values are bytes; JSON has only text. RFC 4648, with padding. Private to store/etcd/.
#include <optional>
#include <string>
#include <string_view>

namespace tutti::etcd {

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tutti::etcd
