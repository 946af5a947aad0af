#pragma once
#include <string>

#include "tutti/base/error.h"

namespace tutti {

// The report at the path that the user gave for it. A new file in place of an old one, never seen half; where the path
// is a link or a device, or lies in a folder that takes no new file, what is there is written to. What a rank has put
// there meanwhile, such as a pipe that nobody reads, keeps nobody waiting.
Status write_report_file(const std::string& path, const std::string& text);
// At the start: a file that an earlier job has left there, which would be taken for this one's if it is killed.
void remove_old_report(const std::string& path);

}  // namespace tutti
