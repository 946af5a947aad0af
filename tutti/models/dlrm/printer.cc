#include "tutti/models/dlrm/printer.h"

#include <cstdio>

namespace tutti::dlrm {

void Printer::line_of_all(const std::string& text) {
  std::fwrite((text + "\n").data(), 1, text.size() + 1, stdout);
  std::fflush(stdout);
}

}  // namespace tutti::dlrm
