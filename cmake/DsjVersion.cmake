# dsj_version_source(OUT): a generated source with the release, the commit and libtorch's version. It is written when CMake
# runs, which scripts/build.sh does before each build and ninja after each commit, and keeps its time while nothing changes.
function(dsj_version_source OUT)
  find_package(Git QUIET)
  set(DSJ_COMMIT)
  set(DSJ_DESCRIBE v${PROJECT_VERSION})
  if(Git_FOUND)
    # safe.directory: a container's checkout belongs to somebody else. A prefix: the sources lie inside another checkout.
    set(git ${GIT_EXECUTABLE} -c safe.directory=* -C ${CMAKE_SOURCE_DIR})
    execute_process(COMMAND ${git} rev-parse --show-prefix RESULT_VARIABLE failed OUTPUT_VARIABLE prefix ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed AND prefix STREQUAL "")
      execute_process(COMMAND ${git} rev-parse --verify HEAD OUTPUT_VARIABLE DSJ_COMMIT ERROR_QUIET
        OUTPUT_STRIP_TRAILING_WHITESPACE)
      execute_process(COMMAND ${git} rev-parse --path-format=absolute --git-path logs/HEAD OUTPUT_VARIABLE moves ERROR_QUIET
        OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(EXISTS "${moves}")
        set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${moves})
      endif()
    endif()
    if(DSJ_COMMIT)
      execute_process(COMMAND ${git} describe --tags "--match=v[0-9]*" --dirty --abbrev=12 RESULT_VARIABLE failed
        OUTPUT_VARIABLE described ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(failed)  # no release has a tag yet, or the clone is shallow
        execute_process(COMMAND ${git} describe --always "--match=v[0-9]*" --dirty --abbrev=12 OUTPUT_VARIABLE described
          OUTPUT_STRIP_TRAILING_WHITESPACE)
        set(described v${PROJECT_VERSION}-g${described})
      endif()
      set(DSJ_DESCRIBE ${described})
    endif()
  endif()
  set(DSJ_TORCH_VERSION)
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(DSJ_ENGINE AND EXISTS ${DSJ_TORCH_ROOT}/include/${header} AND NOT DSJ_TORCH_VERSION)
      file(STRINGS ${DSJ_TORCH_ROOT}/include/${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
      list(TRANSFORM lines REPLACE ".* ([0-9]+)$" "\\1")
      list(JOIN lines . DSJ_TORCH_VERSION)
    endif()
  endforeach()
  if(DSJ_ENGINE AND NOT DSJ_TORCH_VERSION)
    message(FATAL_ERROR "no version of libtorch in ${DSJ_TORCH_ROOT}/include")
  endif()
  set(source ${CMAKE_BINARY_DIR}/generated/this_build.cc)
  configure_file(${CMAKE_SOURCE_DIR}/common/version/this_build.cc.in ${source} @ONLY)
  set(${OUT} ${source} PARENT_SCOPE)
endfunction()
