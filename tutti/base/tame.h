#pragma once
#include <string>
#include <string_view>

namespace tutti {

// Text of others for a terminal, as UTF-8: '?' in place of each character that would move the cursor, ring the bell,
// change colours (the control characters of ASCII but '\n' and '\t', and U+0080-U+009F) or the order in which letters
// are shown (bidirectional marks, overrides and isolates), and of each byte that is not UTF-8.
std::string tame(std::string_view text);
// The same in one line: '\n' and '\t' are '?' as well.
std::string tame_line(std::string_view text);
// A name for an error's text: in quotes, cut after 80 bytes, control characters of ASCII as \x1b.
std::string quoted_name(std::string_view name);

}  // namespace tutti
