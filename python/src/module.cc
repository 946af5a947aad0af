// The Python module tutti._torch_X_Y: for one minor release of PyTorch, against whose headers it was compiled.
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>
#include <unistd.h>

#include "backend.h"
#include "shared_memory.h"
#include "tutti/runtime/init.h"

namespace tutti::python {
namespace {

py::object as_python(const Error& error) {
  const auto known = [](auto value) { return value < 0 ? py::object(py::none()) : py::cast(value); };
  py::dict fields;
  fields["kind"] = name(error.code);
  fields["text"] = to_string(error);
  fields["group"] = error.group;
  fields["rank"] = known(error.rank);
  fields["operation"] = error.operation;
  fields["peer"] = known(error.peer);
  fields["late_ranks"] = error.ranks;
  fields["lost_ranks"] = error.lost;
  fields["waited"] = known(error.waited);
  fields["limit"] = known(error.limit);
  fields["cause"] = error.cause;
  fields["hint"] = error.hint;
  return fields;
}

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
  module.def("error_in", [](const std::string& text) {
    const auto error = raised_error_in(text);
    return error ? as_python(*error) : py::object(py::none());
  });
  module.def("create", [](const c10d::DistributedBackendOptions& options, const py::object& given) {
    if (!given.is_none())
      throw py::value_error("tutti: pg_options is " + std::string(py::repr(given)) +
                            ", and the backend tutti has no options: leave pg_options out. The timeout is an argument "
                            "of init_process_group() and new_group()");
    const py::gil_scoped_release release;
    return TuttiBackend::create(options);
  });
}
