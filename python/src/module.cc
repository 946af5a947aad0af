// The Python module tutti._torch_X_Y: for one minor release of PyTorch, against whose headers it was compiled.
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>
#include <unistd.h>

#include "backend.h"
#include "shared_memory.h"
#include "tutti/runtime/init.h"

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
  module.def("create", [](const c10d::DistributedBackendOptions& options, const py::object& given) {
    if (!given.is_none())
      throw py::value_error("tutti: pg_options is " + std::string(py::repr(given)) +
                            ", and the backend tutti has no options: leave pg_options out. The timeout is an argument "
                            "of init_process_group() and new_group()");
    const py::gil_scoped_release release;
    return TuttiBackend::create(options);
  });
}
