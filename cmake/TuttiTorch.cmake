# LibTorch as the targets in TORCH_LIBRARIES. Usually find_package(Torch): Debian's libtorch-dev, or the folder of a LibTorch
# archive named in CMAKE_PREFIX_PATH. With TUTTI_TORCH_WHEEL, an unpacked Python wheel of torch: the CPU part that
# scripts/libtorch-wheel fetches, or the site-packages of a Python with a torch for CUDA. The wheel's own CMake files would ask
# for a CUDA toolkit, and its include folder brings foreign copies of fmt and others, so only the four folders that are
# LibTorch are taken from it.
set(TUTTI_TORCH_WHEEL "" CACHE PATH "Folder where a Python wheel of torch was unpacked (site-packages); empty: find_package(Torch)")

# Headers of LibTorch have a vector of c10::IValue before that is complete. clang accepts it in C++20 only if ivalue.h comes
# first.
set(TUTTI_TORCH_FIRST "$<$<CXX_COMPILER_ID:Clang>:SHELL:-include ATen/core/ivalue.h>")
# The compiler of this build, with what it needs to find LibTorch's headers, for tests that call it.
function(tutti_torch_compiler variable)
  set(compiler ${CMAKE_CXX_COMPILER})
  foreach(folder ${TORCH_INCLUDE_DIRS})  # torch/torch.h is not where ATen is
    if(NOT folder MATCHES "^/usr/include/*$")  # which the compiler must keep in its own order
      string(APPEND compiler " -isystem ${folder}")
    endif()
  endforeach()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    string(APPEND compiler " -include ATen/core/ivalue.h")
  endif()
  set(${variable} ${compiler} PARENT_SCOPE)
endfunction()

if(NOT TUTTI_TORCH_WHEEL)
  find_package(Torch REQUIRED)
  return()
endif()

set(wheel_include ${CMAKE_BINARY_DIR}/libtorch-include)
file(MAKE_DIRECTORY ${wheel_include})
foreach(folder ATen c10 caffe2 torch)
  file(CREATE_LINK ${TUTTI_TORCH_WHEEL}/torch/include/${folder} ${wheel_include}/${folder} SYMBOLIC)
endforeach()
set(TORCH_INCLUDE_DIRS ${wheel_include} ${wheel_include}/torch/csrc/api/include)
add_library(c10 SHARED IMPORTED)
set_target_properties(c10 PROPERTIES IMPORTED_LOCATION ${TUTTI_TORCH_WHEEL}/torch/lib/libc10.so)
add_library(torch SHARED IMPORTED)
set_target_properties(torch PROPERTIES IMPORTED_LOCATION ${TUTTI_TORCH_WHEEL}/torch/lib/libtorch_cpu.so
                      INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INCLUDE_DIRS}" INTERFACE_LINK_LIBRARIES c10)
set(TORCH_LIBRARIES torch)
# A wheel for CUDA has the target torch_cuda. No symbol of ours refers to its library, which registers its devices when it is
# loaded, so the linker must not drop it. It finds the wheels of NVIDIA, which are its neighbours, by a path of its own; the
# linker finds them by -rpath-link. Their headers serve the backend NCCL (TUTTI_NVIDIA_INCLUDES).
set(TUTTI_NVIDIA_INCLUDES "")
set(with_cuda "")
set(wheel_cuda ${TUTTI_TORCH_WHEEL}/torch/lib/libtorch_cuda.so)
if(EXISTS ${wheel_cuda})
  file(GLOB TUTTI_NVIDIA_INCLUDES ${TUTTI_TORCH_WHEEL}/nvidia/*/include)
  file(GLOB nvidia_folders ${TUTTI_TORCH_WHEEL}/nvidia/*/lib)
  if(NOT nvidia_folders)
    message(FATAL_ERROR "${TUTTI_TORCH_WHEEL} has a torch for CUDA, but no folder nvidia/*/lib with the libraries that it needs: "
                        "name the site-packages in which pip installed both")
  endif()
  add_library(c10_cuda SHARED IMPORTED)
  set_target_properties(c10_cuda PROPERTIES IMPORTED_LOCATION ${TUTTI_TORCH_WHEEL}/torch/lib/libc10_cuda.so)
  add_library(torch_cuda SHARED IMPORTED)
  set_target_properties(torch_cuda PROPERTIES IMPORTED_LOCATION ${wheel_cuda})
  list(TRANSFORM nvidia_folders PREPEND LINKER:-rpath-link, OUTPUT_VARIABLE nvidia_options)
  set_target_properties(torch PROPERTIES INTERFACE_LINK_OPTIONS "${nvidia_options}")
  set_property(TARGET torch APPEND PROPERTY INTERFACE_LINK_LIBRARIES c10_cuda "-Wl,--push-state,--no-as-needed,${wheel_cuda},--pop-state")
  set(with_cuda ", with CUDA")
endif()
file(STRINGS ${TUTTI_TORCH_WHEEL}/torch/version.py wheel_version REGEX "^__version__")
message(STATUS "LibTorch from a Python wheel: ${wheel_version}${with_cuda}")
