# One library per room, one test program per room: dsj_room(), dsj_program(), dsj_test().
# A room is a folder; its sources are the *.cc files directly in it (main*.cc belong to programs).

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# -O2: half of -O3's compile time; the kernels ask for -O3 themselves.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)

add_library(dsj_options INTERFACE)
target_include_directories(dsj_options INTERFACE ${CMAKE_SOURCE_DIR})
# GCC 12 warns of std::string's own code when it is inlined (its bugs 105651, 105329, 105762).
target_compile_options(dsj_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers -Wno-restrict
  -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
  $<$<BOOL:${DSJ_WERROR}>:-Werror>)
if(DSJ_SANITIZE)
  target_compile_options(dsj_options INTERFACE -fsanitize=${DSJ_SANITIZE} -fno-omit-frame-pointer -g -O1)
  target_link_options(dsj_options INTERFACE -fsanitize=${DSJ_SANITIZE})
  if(DSJ_SANITIZE MATCHES undefined)
    target_compile_options(dsj_options INTERFACE -fno-sanitize=vptr)  # cpprestsdk takes streams of char for bytes
  endif()
  if(DSJ_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(dsj_options INTERFACE -Wno-tsan)  # Asio's fences; what they order is locked, too
  endif()
endif()

find_program(DSJ_CCACHE ccache)
if(DSJ_CCACHE)
  # base_dir and hash_dir: a clean clone in another folder hits the same entries; sloppiness: precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${DSJ_CCACHE})
  add_compile_options(-fpch-preprocess)
endif()

# dsj_room(NAME [TORCH] [FOLDER dir] DEPS targets...)
function(dsj_room NAME)
  cmake_parse_arguments(R "TORCH" "FOLDER" "DEPS" ${ARGN})
  set(folder ${CMAKE_CURRENT_SOURCE_DIR})
  if(R_FOLDER)
    set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${R_FOLDER})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main[^/]*\\.cc$")
  if(sources)
    add_library(${NAME} STATIC ${sources})
    target_link_libraries(${NAME} PUBLIC dsj_options ${R_DEPS})
    if(R_TORCH)
      dsj_use_torch(${NAME})
    endif()
  else()
    add_library(${NAME} INTERFACE)
    target_link_libraries(${NAME} INTERFACE dsj_options ${R_DEPS})
  endif()
endfunction()

# The precompiled header is made once, by dsj_torch_pch, and reused by every torch target.
function(dsj_use_torch NAME)
  target_link_libraries(${NAME} PUBLIC torch::cpu)
  if(NOT TARGET dsj_torch_pch)
    file(WRITE ${CMAKE_BINARY_DIR}/dsj_torch_pch.cc "")
    add_library(dsj_torch_pch STATIC ${CMAKE_BINARY_DIR}/dsj_torch_pch.cc)
    target_link_libraries(dsj_torch_pch PUBLIC dsj_options torch::cpu nlohmann_json::nlohmann_json)
    target_precompile_headers(dsj_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/engine/torch_pch.h)
  endif()
  target_link_libraries(${NAME} PUBLIC nlohmann_json::nlohmann_json)
  target_precompile_headers(${NAME} REUSE_FROM dsj_torch_pch)
endfunction()

# dsj_program(NAME MAIN file DEPS targets...)
function(dsj_program NAME)
  cmake_parse_arguments(P "TORCH" "MAIN" "DEPS" ${ARGN})
  add_executable(${NAME} ${P_MAIN})
  target_link_libraries(${NAME} PRIVATE dsj_options ${P_DEPS})
  if(P_TORCH)
    dsj_use_torch(${NAME})
  endif()
endfunction()

# dsj_test(NAME [TORCH] [CLUSTER api|full] FOLDER dir LABEL label [TIMEOUT s] DEPS targets...): all *_test.cc of a folder as
# one program. CLUSTER: it runs on a Kubernetes control plane that tests/cluster brings up for it alone.
function(dsj_test NAME)
  cmake_parse_arguments(T "TORCH" "FOLDER;LABEL;TIMEOUT;CLUSTER" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${T_FOLDER}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${NAME} ${sources})
  target_link_libraries(${NAME} PRIVATE dsj_options ${T_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(NOT T_TORCH)  # a precompiled header holds for one -O only
    target_compile_options(${NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  target_compile_definitions(${NAME} PRIVATE DSJ_SOURCE_DIR="${CMAKE_SOURCE_DIR}" DSJ_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  if(T_TORCH)
    dsj_use_torch(${NAME})
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  set(runner)
  if(T_CLUSTER)
    set(runner ${CMAKE_COMMAND} -E env DSJ_CLUSTER_STATE=${CMAKE_BINARY_DIR}/cluster/${NAME}
      APISERVER_FLAGS=--etcd-compaction-interval=5s ${CMAKE_SOURCE_DIR}/tests/cluster/cluster.py run
      $<$<STREQUAL:${T_CLUSTER},api>:--api>)
  endif()
  add_test(NAME ${NAME} COMMAND ${runner} $<TARGET_FILE:${NAME}>
    --gtest_output=json:${CMAKE_BINARY_DIR}/test-reports/${NAME}.json COMMAND_EXPAND_LISTS)
  set_tests_properties(${NAME} PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT})
endfunction()
