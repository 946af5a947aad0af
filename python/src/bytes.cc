// The Python module tutti._bytes: what pure Python would be too slow for. It has nothing to do with torch, and the
// stable ABI of Python, so one serves all releases.
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "tutti/base/crc32c.h"

namespace {

PyObject* crc32c(PyObject*, PyObject* arguments) {
  Py_buffer bytes;
  unsigned int before = 0;
  if (!PyArg_ParseTuple(arguments, "y*|I", &bytes, &before)) return nullptr;
  std::uint32_t digest = 0;
  Py_BEGIN_ALLOW_THREADS;
  digest = tutti::crc32c({static_cast<const std::byte*>(bytes.buf), std::size_t(bytes.len)}, before);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&bytes);
  return PyLong_FromUnsignedLong(digest);
}

PyMethodDef methods[] = {
    {"crc32c", crc32c, METH_VARARGS,
     "crc32c(bytes, before=0)\n--\n\nThe CRC-32C of bytes, or, given that of preceding bytes, of both together."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module{PyModuleDef_HEAD_INIT, "tutti._bytes", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__bytes() { return PyModule_Create(&module); }
