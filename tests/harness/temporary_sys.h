#pragma once
// A folder that stands for / of a host, with PCI devices and network cards as the kernel's sysfs shows them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tutti::test {

class TemporarySys {
 public:
  TemporarySys() {
    root_ = std::filesystem::temp_directory_path() / "tutti_sys_XXXXXX";
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
  }
  ~TemporarySys() { std::filesystem::remove_all(root_); }
  TemporarySys(const TemporarySys&) = delete;
  const std::string& root() const { return root_; }

  // `way`: from the root of the PCI tree to the device, "pci0000:00/0000:00:01.0/0000:01:00.0".
  void add_device(const std::string& way, int numa) {
    const std::filesystem::path device = root_ + "/sys/devices/" + way, bus = root_ + "/sys/bus/pci/devices";
    std::filesystem::create_directories(device);
    std::filesystem::create_directories(bus);
    std::ofstream(device / "numa_node") << numa << "\n";
    std::filesystem::create_directory_symlink(device, bus / device.filename());
  }
  // `kind`: "infiniband" or "net".
  void add_card(const std::string& kind, const std::string& name, const std::string& way, int numa) {
    add_device(way, numa);
    const std::filesystem::path card = root_ + "/sys/class/" + kind + "/" + name;
    std::filesystem::create_directories(card);
    std::filesystem::create_directory_symlink(root_ + "/sys/devices/" + way, card / "device");
  }

 private:
  std::string root_;
};

}  // namespace tutti::test
