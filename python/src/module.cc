// The Python module tutti._torch_X_Y: for one minor release of PyTorch, against whose headers it was compiled.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "backend.h"

namespace tutti::python {
namespace {

namespace py = pybind11;

// Hands out memory of a group's shared heap as CPU tensors. Never destroyed: tensors may outlive everything.
class SharedMemoryAllocator final : public c10::Allocator {
 public:
  explicit SharedMemoryAllocator(Group group) : group_(std::move(group)) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    auto memory = group_.allocate(bytes);
    if (!memory.ok()) raise(memory.error());
    auto* const owner = new std::shared_ptr<std::byte>(*std::move(memory));
    return {owner->get(), owner, &SharedMemoryAllocator::free, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void free(void* owner) { delete static_cast<std::shared_ptr<std::byte>*>(owner); }

  const Group group_;
};

constexpr std::uint8_t kPriority = 100;

// While it exists, new CPU tensors of the process are in shared memory.
class SharedMemory {
 public:
  explicit SharedMemory(const c10::intrusive_ptr<TuttiBackend>& backend)
      : allocator_(new SharedMemoryAllocator(backend->group())) {}
  void enter() {
    before_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(allocator_, kPriority);
  }
  void leave() { c10::SetCPUAllocator(before_, kPriority); }

 private:
  SharedMemoryAllocator* const allocator_;
  c10::Allocator* before_ = nullptr;
};

}  // namespace
}  // namespace tutti::python

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace tutti::python;
  py::module_::import("torch.distributed");
  module.attr("torch_version") = TORCH_VERSION;
  py::class_<TuttiBackend, c10d::Backend, c10::intrusive_ptr<TuttiBackend>>(module, "TuttiBackend");
  py::class_<SharedMemory>(module, "SharedMemory")
      .def(py::init<const c10::intrusive_ptr<TuttiBackend>&>())
      .def("enter", &SharedMemory::enter)
      .def("leave", &SharedMemory::leave);
  module.def("create", [](const c10d::DistributedBackendOptions& options, const py::object&) {
    const py::gil_scoped_release release;
    return TuttiBackend::create(options);
  });
}
