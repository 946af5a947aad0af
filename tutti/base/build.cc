#include "tutti/base/build.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace tutti {
namespace {

// The program itself is the first object that dl_iterate_phdr tells of.
int find_note(dl_phdr_info* info, std::size_t, void* result) {
  auto& id = *static_cast<std::string*>(result);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const char* const end = at + segment.p_memsz;
    const auto padded = [](std::size_t size) { return (size + 3) & ~std::size_t(3); };
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* const name = at + sizeof note;
      const char* const content = name + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
        for (std::size_t b = 0; b < note.n_descsz; ++b) {
          const auto byte = static_cast<unsigned char>(content[b]);
          id += "0123456789abcdef"[byte >> 4];
          id += "0123456789abcdef"[byte & 15];
        }
      at = content + padded(note.n_descsz);
    }
  }
  return 1;
}

}  // namespace

std::string program_build() {
  std::string id;
  ::dl_iterate_phdr(find_note, &id);
  struct stat file {};
  if (id.empty() && ::stat("/proc/self/exe", &file) == 0) id = std::to_string(file.st_size) + " bytes";
  return id;
}

std::string program_name() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return "a program";
  const std::string text(path, std::size_t(size));
  return text.substr(text.rfind('/') + 1);
}

}  // namespace tutti
