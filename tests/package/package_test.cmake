# Installs the build into a fresh prefix, moves it (so that nothing relies on where it was built for), builds
# examples/hello there with find_package and with pkg-config, and runs both alone and under the installed `tutti run`.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

function(run)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUTPUT" "COMMAND")
  execute_process(COMMAND ${arg_COMMAND} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    list(JOIN arg_COMMAND " " words)
    message(FATAL_ERROR "${words}\nended with ${status}:\n${output}${errors}")
  endif()
  set(${arg_OUTPUT} "${output}" PARENT_SCOPE)
endfunction()

run(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/prefix)

run(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/examples/hello -B ${WORK}/build -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix
            -DCMAKE_CXX_COMPILER=${CXX} -DHELLO=${COMPONENT})
run(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build)

set(names core tutti)
set(modules tutti-core tutti)
list(FIND names ${COMPONENT} index)
list(GET modules ${index} module)
set(ENV{PKG_CONFIG_PATH} ${WORK}/prefix/${LIBDIR}/pkgconfig)
find_program(pkg_config pkg-config REQUIRED)
run(COMMAND ${pkg_config} --cflags ${module} OUTPUT cflags)
run(COMMAND ${pkg_config} --libs ${module} OUTPUT libs)
separate_arguments(cflags UNIX_COMMAND "${cflags}")
separate_arguments(libs UNIX_COMMAND "${libs}")
run(COMMAND ${CXX} ${cflags} ${SOURCE}/examples/hello/hello_${COMPONENT}.cc -o ${WORK}/hello_pkg_config ${libs})

# Exactly what the hello-world promises: a world of one, and one of three.
foreach(program ${WORK}/build/hello ${WORK}/hello_pkg_config)
  run(COMMAND ${program} OUTPUT alone)
  if(NOT alone MATCHES "rank 0 of 1: the sum is 1\n")
    message(FATAL_ERROR "${program} alone said: ${alone}")
  endif()
  run(COMMAND ${WORK}/prefix/bin/tutti run -n 3 -- ${program} OUTPUT together)
  foreach(rank 0 1 2)
    if(NOT together MATCHES "rank ${rank} of 3: the sum is 6\n")
      message(FATAL_ERROR "under tutti run, rank ${rank} of ${program} is missing in: ${together}")
    endif()
  endforeach()
endforeach()

# The programs of examples/collectives, each on three ranks.
if(COMPONENT STREQUAL core)
  run(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/examples/collectives -B ${WORK}/collectives -G Ninja
              -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${CXX})
  run(COMMAND ${CMAKE_COMMAND} --build ${WORK}/collectives)
  function(expect program)
    run(COMMAND ${WORK}/prefix/bin/tutti run -n 3 -- ${WORK}/collectives/${program} OUTPUT said)
    foreach(line ${ARGN})
      if(NOT said MATCHES "${line}\n")
        message(FATAL_ERROR "${program} does not say \"${line}\" but: ${said}")
      endif()
    endforeach()
    run(COMMAND ${WORK}/collectives/${program})  # alone
  endfunction()
  expect(reduce "rank 0 of 3 has the sum: 6 6 6")
  expect(all_reduce "rank 0 of 3 has the sum: 6 6 6" "rank 2 of 3 has the sum: 6 6 6")
  expect(gather "rank 0 got 0" "rank 0 got 10" "rank 0 got 20")
  expect(all_gather "rank 1 got 3 values, the last is 20")
  expect(send_recv "rank 2 of 3 has the sum of all ranks: 3")
  expect(isend_irecv "rank 0 of 3 got 20" "rank 1 of 3 got 0" "rank 2 of 3 got 10")
endif()
