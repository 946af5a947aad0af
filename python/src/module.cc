// The Python module tutti._torch_X_Y: for one minor release of PyTorch, against whose headers it was compiled.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>
#include <unistd.h>

#include "backend.h"
#include "tutti/runtime/init.h"

namespace tutti::python {
namespace {

namespace py = pybind11;

// Hands out memory of a group's shared heap as CPU tensors. Never destroyed: tensors may outlive everything. A process
// that is forked cannot read that memory, and after the shutdown of the group there is none: both get ordinary memory.
class SharedMemoryAllocator final : public c10::Allocator {
 public:
  explicit SharedMemoryAllocator(const c10::intrusive_ptr<TuttiBackend>& backend) : backend_(backend) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    const auto backend = ::getpid() == process_ ? backend_.lock() : c10::intrusive_ptr<TuttiBackend>();
    const Group group = backend ? backend->group_or_none() : Group();
    if (!group || bytes == 0) return otherwise_->allocate(bytes);
    auto memory = group.allocate(bytes);
    if (!memory.ok()) raise(memory.error());
    auto* const owner = new std::shared_ptr<std::byte>(*std::move(memory));
    return {owner->get(), owner, &SharedMemoryAllocator::free, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void free(void* owner) { delete static_cast<std::shared_ptr<std::byte>*>(owner); }

  c10::weak_intrusive_ptr<TuttiBackend> backend_;
  c10::Allocator* const otherwise_ = c10::GetCPUAllocator();
  const pid_t process_ = ::getpid();
};

constexpr std::uint8_t kPriority = 100;

// While it exists, new CPU tensors of the process are in shared memory.
class SharedMemory {
 public:
  explicit SharedMemory(const c10::intrusive_ptr<TuttiBackend>& backend)
      : allocator_(new SharedMemoryAllocator(backend)) {}
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
      .def(py::init<const c10::intrusive_ptr<TuttiBackend>&>(), py::call_guard<py::gil_scoped_release>())
      .def("enter", &SharedMemory::enter)
      .def("leave", &SharedMemory::leave);
  // Python ends a thread that asks for the GIL while the interpreter exits, and in a destructor that ends the process.
  py::module_::import("atexit").attr("register")(py::cpp_function([process = ::getpid()] {
    if (::getpid() != process) return;  // a fork has none of the threads
    const py::gil_scoped_release release;
    tutti::end_callbacks(std::chrono::seconds(10));
  }));
  module.def("create", [](const c10d::DistributedBackendOptions& options, const py::object&) {
    const py::gil_scoped_release release;
    return TuttiBackend::create(options);
  });
}
