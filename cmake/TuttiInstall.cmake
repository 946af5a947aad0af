# What `cmake --install` leaves: headers under include/tutti, the static libraries, the programs, a CMake package
# (find_package(tutti COMPONENTS core | tutti | image | dlrm | transformer | gpt)) and pkg-config files. The component `core` never
# asks for LibTorch. Whatever was not built is skipped, so a tree in which ./quickstart built two programs installs these.
include(CMakePackageConfigHelpers)
set(TUTTI_INSTALL_TORCH ${TUTTI_TORCH})
if(TUTTI_TORCH_WHEEL)
  set(TUTTI_INSTALL_TORCH OFF)  # a wheel has no CMake package that users of ours could find
endif()
set(TUTTI_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)

if(NOT TUTTI_INSTALL_TORCH)
  set(without_torch REGEX "/tutti/((tensor|parallel|models)(/|$)|tutti\\.h$)" EXCLUDE)
endif()
install(DIRECTORY tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*_test*" EXCLUDE PATTERN "*_impl.h" EXCLUDE
        ${without_torch})
set(libraries core)
if(TUTTI_INSTALL_TORCH)
  list(APPEND libraries torch image dlrm transformer gpt)
endif()
foreach(library ${libraries})
  install(TARGETS tutti_${library} EXPORT tutti-${library}-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
  install(EXPORT tutti-${library}-targets NAMESPACE tutti:: DESTINATION ${TUTTI_CMAKE_DIR})
endforeach()

foreach(program tutti train_image train_dlrm pretrain_gpt)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
  endif()
endforeach()

# Manual pages of the programs that were built, from their help texts.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${PROJECT_SOURCE_DIR}/scripts/docs-command-line\" --man \"${CMAKE_BINARY_DIR}\" OUTPUT_QUIET RESULT_VARIABLE code)
if(NOT code MATCHES \"^(0|77)$\")  # 77: the command was not built
  message(WARNING \"the manual pages were not written\")
endif()")
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL FILES_MATCHING PATTERN "*.1")
endif()
install(FILES completions/tutti.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME tutti)
install(FILES completions/_tutti DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES completions/tutti.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

configure_package_config_file(cmake/tutti-config.cmake.in ${CMAKE_BINARY_DIR}/tutti-config.cmake
                              INSTALL_DESTINATION ${TUTTI_CMAKE_DIR} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tutti-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tutti-config.cmake ${CMAKE_BINARY_DIR}/tutti-config-version.cmake DESTINATION ${TUTTI_CMAKE_DIR})

# pkg-config files find their prefix from where they lie, so an install tree may be moved.
file(RELATIVE_PATH TUTTI_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" TUTTI_PC_PREFIX "${TUTTI_PC_PREFIX}")
configure_file(cmake/tutti-core.pc.in ${CMAKE_BINARY_DIR}/tutti-core.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tutti-core.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TUTTI_INSTALL_TORCH)
  set(TUTTI_TORCH_PC_CFLAGS "")
  set(TUTTI_TORCH_PC_LIBS "")
  foreach(folder ${TORCH_INCLUDE_DIRS})
    if(NOT folder STREQUAL "/usr/include")
      string(APPEND TUTTI_TORCH_PC_CFLAGS " -isystem ${folder}")
    endif()
  endforeach()
  # TORCH_LIBRARIES lists CMake targets and paths; a linker needs the folder and the three names.
  get_target_property(torch_file torch IMPORTED_LOCATION)
  if(torch_file)
    get_filename_component(torch_folder ${torch_file} DIRECTORY)
    set(TUTTI_TORCH_PC_LIBS "-L${torch_folder} -ltorch -ltorch_cpu -lc10")
  else()
    set(TUTTI_TORCH_PC_LIBS "-ltorch -ltorch_cpu -lc10")
  endif()
  configure_file(cmake/tutti.pc.in ${CMAKE_BINARY_DIR}/tutti.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  foreach(TUTTI_MODEL image dlrm transformer gpt)
    set(TUTTI_MODEL_REQUIRES tutti)
    if(TUTTI_MODEL STREQUAL gpt)
      set(TUTTI_MODEL_REQUIRES tutti-transformer)
    endif()
    configure_file(cmake/tutti-model.pc.in ${CMAKE_BINARY_DIR}/tutti-${TUTTI_MODEL}.pc @ONLY)
    # Only beside its library: the target may not have been built.
    install(CODE "if(EXISTS \"$<TARGET_FILE:tutti_${TUTTI_MODEL}>\")
  file(INSTALL \"${CMAKE_BINARY_DIR}/tutti-${TUTTI_MODEL}.pc\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig\")
endif()")
  endforeach()
endif()
