# How every folder adds its files. A folder's CMakeLists.txt says
#   tutti_sources(core a.cc b.cc)        files of tutti::core (above the Torch line)
#   tutti_sources(torch c.cc)            files of tutti::tutti (below it)
#   tutti_sources(image d.cc)            files of tutti::image; so too dlrm, transformer and gpt
#   tutti_test(base_test a_test.cc ...)  one gtest program per folder, next to what it tests; LIBRARIES: what else it links;
#                                        TRAINER: it starts programs that link LibTorch
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# -O3 compiles a sixth longer than -O2. Its gain is that it vectorises loops of any length. Kernels ask for -O3.
if(CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")  # else the user has chosen
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    string(APPEND CMAKE_CXX_FLAGS_RELEASE " -fvect-cost-model=dynamic")
  endif()
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(TUTTI_CCACHE ccache)
if(TUTTI_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TUTTI_CCACHE})
endif()

function(tutti_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers $<$<BOOL:${TUTTI_WERROR}>:-Werror>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${target} PRIVATE -Wthread-safety)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)  # PR105651: false alarms on std::string
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC collects its garbage after 128 MB, again and again: a fifth of the time of a large unit.
    target_compile_options(${target} PRIVATE --param=ggc-min-heapsize=2000000)
    if(TUTTI_UNITY)
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # takes a file that a unity file includes for a header
    endif()
  endif()
  if(TUTTI_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${TUTTI_SANITIZE})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # PR105562: false alarms
    if(TUTTI_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # TSan does not model fences. Ours only decide whether a sleeper is rung (transport/bell.h); data is ordered by acquire and release.
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
endfunction()

# tutti_library(core core): the static library libtutti_core.a, which others link as tutti::core, here and when installed.
function(tutti_library name exported)
  add_library(tutti_${name} STATIC)
  add_library(tutti::${exported} ALIAS tutti_${name})
  set_target_properties(tutti_${name} PROPERTIES EXPORT_NAME ${exported})
  target_include_directories(tutti_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(tutti_${name} PUBLIC cxx_std_20)
  if(TUTTI_SANITIZE)
    target_link_options(tutti_${name} PUBLIC -fsanitize=${TUTTI_SANITIZE})  # for programs without options of ours: examples
  endif()
  tutti_compile_units(tutti_${name})
endfunction()

function(tutti_compile_units target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TUTTI_UNITY} UNITY_BUILD_MODE GROUP)
  tutti_compile_options(${target})
endfunction()

# The files of a folder are compiled as one translation unit, so that the headers they share and the templates they
# instantiate are compiled once. The units below join or divide top-level folders, so that each compiles in 5 to 30 s.
# A file with flags of its own stays alone. Two files of a unit must not define the same name in an anonymous namespace.
set(TUTTI_UNITS
    "comm/plans=plans" "comm=comm" "data=data" "planning=planning" "training=training" "transport=transport" "embedding=embedding" "tensor=tensor"
    "base=base" "metrics|trace=trace" "store=store" "doctor|runtime|rendezvous=rendezvous"
    "checkpoint/(memory|sources|tools|torch)=checkpoint_files" "checkpoint=checkpoint"
    "launch/(affinity|monitor)=launch_monitor" "launch/(membership|ssh)=launch_membership" "launch=launch"
    "parallel/(gradients|optim)=parallel_optim" "parallel/(data_parallel|fully_sharded|tensor)=parallel_\\2" "parallel=parallel" "models/(image|dlrm|transformer|gpt)=models_\\2")
# Units of the core that no training step runs. They are compiled at -O1, in three quarters of the time.
set(TUTTI_COLD_UNITS checkpoint checkpoint_files launch launch_membership launch_monitor rendezvous)
function(tutti_unit_of folder unit)
  foreach(row ${TUTTI_UNITS})
    string(REGEX MATCH "^(.*)=(.*)$" row "${row}")
    set(pattern ${CMAKE_MATCH_1})
    set(name ${CMAKE_MATCH_2})
    if("${folder}/" MATCHES "^(${pattern})/")
      string(REGEX REPLACE "^(${pattern})/.*" "${name}" found "${folder}/")
      set(${unit} ${found} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "no translation unit for tutti/${folder}: add it to TUTTI_UNITS in cmake/TuttiTargets.cmake")
endfunction()

function(tutti_sources name)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  foreach(file ${ARGN})
    cmake_path(NORMAL_PATH file)
    cmake_path(GET file PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/tutti)
    tutti_unit_of(${folder} unit)
    set(target tutti_${name})
    if(name STREQUAL core AND unit IN_LIST TUTTI_COLD_UNITS)
      set(target tutti_core_cold)
    endif()
    target_sources(${target} PRIVATE ${file})
    set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${unit})
  endforeach()
endfunction()

# tutti_isa_kernel(core kernels/reduce OPTION...): kernels/reduce_generic.cc, and on x86-64 kernels/reduce_avx2.cc and
# kernels/reduce_avx512.cc, each for its instruction set (base/cpu_dispatch.h). All sets give the same bits: nothing is contracted.
function(tutti_isa_kernel name path)
  set(options_generic)
  set(options_avx2 -mavx2 -mfma -mf16c)
  set(options_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  set(isas generic)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND isas avx2 avx512)
  endif()
  foreach(isa ${isas})
    tutti_sources(${name} ${path}_${isa}.cc)
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/${path}_${isa}.cc TARGET_DIRECTORY tutti_${name}
                                PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=off;${ARGN};${options_${isa}}")
  endforeach()
endfunction()

# GCC at -O1 sees too little to warn of uninitialised variables.
set(TUTTI_QUICK_OPTIONS $<$<CONFIG:Release>:-O1> $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
# For code that is not hot, in this folder and those below.
macro(tutti_compile_quickly)
  add_compile_options(${TUTTI_QUICK_OPTIONS})
endmacro()

# The files of a target as units of at most `files` (0: one unit).
function(tutti_unite target files)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TUTTI_UNITY} UNITY_BUILD_BATCH_SIZE ${files})
endfunction()

function(tutti_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE tutti_core CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json)
  tutti_compile_options(${name})
endfunction()

# The label `torch`: the test links LibTorch, and its ranks are threads. The label `programs`: it starts trainers or examples that
# link LibTorch. LibTorch, OpenMP and OpenBLAS are not instrumented: under TSan both ignore memory that these libraries alone touch,
# and run them with one thread.
set(TUTTI_WITH_TORCH)
set(TUTTI_TEST_LIMIT 300)           # seconds, of a test
set(TUTTI_TEST_PROGRAM_LIMIT 1200)  # of a program that is one test
if(TUTTI_SANITIZE)
  set(TUTTI_TEST_LIMIT 1200)
  set(TUTTI_TEST_PROGRAM_LIMIT 4800)
endif()
if(TUTTI_SANITIZE MATCHES thread)
  list(APPEND TUTTI_WITH_TORCH ENVIRONMENT OMP_NUM_THREADS=1  # OpenBLAS reads it as well
    ENVIRONMENT_MODIFICATION TSAN_OPTIONS=string_append::ignore_noninstrumented_modules=1)
endif()

# What `./run-tests --full` builds: under TSan the test programs whose ranks are threads or small programs, with a current
# LibTorch those that link it or start a program that does.
add_custom_target(thread_tests)
add_custom_target(torch_tests)

# Each test of a program is a test of ctest's. But a program that links LibTorch or a sanitizer takes half a second of a core to
# load: it is one test of ctest's, named after the program, and scripts/summary.py counts and names what ran in it.
function(tutti_test name)
  if(TUTTI_TESTS)
    cmake_parse_arguments(PARSE_ARGV 1 test "TRAINER" "CONFIGURATION" LIBRARIES)
    add_executable(${name} ${test_UNPARSED_ARGUMENTS})
    tutti_unite(${name} 8)
    target_compile_options(${name} PRIVATE ${TUTTI_QUICK_OPTIONS})
    target_link_libraries(${name} PRIVATE ${test_LIBRARIES} tutti_core GTest::gmock GTest::gtest_main fmt::fmt nlohmann_json::nlohmann_json)
    tutti_compile_options(${name})
    if(NOT test_TRAINER)
      add_dependencies(thread_tests ${name})
    endif()
    set(properties)
    if(test_LIBRARIES MATCHES "tutti_(torch|image|dlrm|transformer|gpt)")
      set(properties LABELS torch ${TUTTI_WITH_TORCH})
    elseif(test_TRAINER)
      set(properties LABELS programs ${TUTTI_WITH_TORCH})
    endif()
    if(properties)
      add_dependencies(torch_tests ${name})
    endif()
    if(test_CONFIGURATION OR TUTTI_SANITIZE OR properties MATCHES "torch")
      add_test(NAME ${name} COMMAND ${name} CONFIGURATIONS ${test_CONFIGURATION})
      set_tests_properties(${name} PROPERTIES TIMEOUT ${TUTTI_TEST_PROGRAM_LIMIT} ${properties})
    else()
      list(APPEND properties TIMEOUT ${TUTTI_TEST_LIMIT})
      gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES PROPERTIES ${properties})
    endif()
  endif()
endfunction()

# tutti_test_programs(NAME MACRO=TARGET...): in the test NAME each MACRO is the path of the program that TARGET builds.
function(tutti_test_programs name)
  foreach(program ${ARGN})
    string(REGEX MATCH "^([A-Z_]+)=(.+)$" program "${program}")
    set(target ${CMAKE_MATCH_2})
    target_compile_definitions(${name} PRIVATE "${CMAKE_MATCH_1}=\"$<TARGET_FILE:${target}>\"")
    add_dependencies(${name} ${target})
  endforeach()
endfunction()

# A test that starts programs by tests/launch/running.h, and the `tutti` of this build, which is TUTTI_COMMAND:
#   tutti_program_test(train_dlrm_test TRAINER a_test.cc PROGRAMS TRAIN_DLRM=train_dlrm EXAMPLES ddp/ddp LIBRARIES tutti_core)
# TRAINER, LIBRARIES: as in tutti_test. EXAMPLES: examples/ddp/ddp.cc, which needs LibTorch, is built as EXAMPLES "/ddp" (quicker
# than as a project of its own), and TRAINER is implied.
# `Running` starts TUTTI_TEST_COMMAND, if PROGRAMS has it; else the first argument is the program.
function(tutti_program_test name)
  if(TUTTI_TESTS)
    cmake_parse_arguments(PARSE_ARGV 1 test "TRAINER" "" "PROGRAMS;EXAMPLES;LIBRARIES")
    set(trainer)
    if(test_TRAINER OR test_EXAMPLES)
      set(trainer TRAINER)
    endif()
    tutti_test(${name} ${trainer} ${test_UNPARSED_ARGUMENTS} ${PROJECT_SOURCE_DIR}/tests/launch/running.cc LIBRARIES ${test_LIBRARIES})
    tutti_test_programs(${name} TUTTI_COMMAND=tutti ${test_PROGRAMS})
    if(NOT test_PROGRAMS MATCHES "TUTTI_TEST_COMMAND=")
      target_compile_definitions(${name} PRIVATE TUTTI_TEST_COMMAND="/usr/bin/env")
    endif()
    if(NOT test_PROGRAMS MATCHES "TUTTI_TEST_WORKER=")
      target_compile_definitions(${name} PRIVATE TUTTI_TEST_WORKER="")
    endif()
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/examples)
    foreach(example ${test_EXAMPLES})
      cmake_path(GET example FILENAME program)
      add_executable(example_${program} ${PROJECT_SOURCE_DIR}/examples/${example}.cc)
      target_link_libraries(example_${program} PRIVATE tutti_torch)
      set_target_properties(example_${program} PROPERTIES OUTPUT_NAME ${program} RUNTIME_OUTPUT_DIRECTORY ${folder})
      add_dependencies(${name} example_${program})
      target_compile_definitions(${name} PRIVATE EXAMPLES="${folder}")
    endforeach()
  endif()
endfunction()
