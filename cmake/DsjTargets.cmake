# One library per room, one test program per room: dsj_room(), dsj_program(), dsj_test().
# A room is a folder; its sources are the *.cc files directly in it (main*.cc belong to programs).
# Precompiled headers are what keeps the build short (scripts/build_cost.py): one per kind of target, none with a header of
# ours that changes daily, so that one changed file still compiles alone.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# -O2: half of -O3's compile time; the kernels ask for -O3 themselves. What only reads, decides and waits (CONTROL) and the
# tests take -O1: three quarters of -O2's compile time, and no loop in them is hot.
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
  target_compile_options(dsj_options INTERFACE -fsanitize=${DSJ_SANITIZE} -fno-omit-frame-pointer -g -O1
    # GCC 12 sees uninitialized members in std::regex once the sanitizers keep it from inlining.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(dsj_options INTERFACE -fsanitize=${DSJ_SANITIZE})
  if(DSJ_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(dsj_options INTERFACE -Wno-tsan)  # Asio's fences; what they order is locked, too
  endif()
endif()

find_program(DSJ_CCACHE ccache)
if(DSJ_CCACHE)
  # base_dir and hash_dir: a clean clone in another folder hits the same entries; sloppiness: precompiled headers.
  # The inode cache: libtorch's precompiled header, 400 MB, is hashed once and not for every file.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_INODECACHE=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${DSJ_CCACHE})
  add_compile_options(-fpch-preprocess)
endif()

# GCC collects its garbage whenever its heap has grown by a third: a sixth of the time of a file without libtorch, for
# 60 MB less at the peak (430 to 490 MB; with libtorch 850 MB either way). From 1 GB on it collects as ever.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>)
endif()

# Several sources of a target are compiled as one: GCC writes a precompiled header before it makes the bodies of the
# templates that the header uses, and makes them again in every translation unit (0.8 s; with libtorch 2.7 s). So names in
# anonymous namespaces are unique within a target. Off: each source alone, as clangd wants it and as missing includes show.
option(DSJ_UNITY "Compile six sources of a target at a time" ON)
set(CMAKE_UNITY_BUILD ${DSJ_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 6)
if(DSJ_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # a .cc is no header, though it is included
endif()

# dsj_precompile(NAME FROM target HEADER file DEPS targets...): NAME uses the precompiled header of `target`, which is made
# with the first. A precompiled header holds for one -O only.
option(DSJ_PCH "Precompiled headers" ON)
function(dsj_precompile NAME)
  cmake_parse_arguments(P "O1" "FROM;HEADER" "DEPS" ${ARGN})
  if(P_O1)
    target_compile_options(${NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(NOT DSJ_PCH OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  if(NOT TARGET ${P_FROM})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${P_FROM}.cc CONTENT "")  # keeps its time when it is there
    add_library(${P_FROM} STATIC ${CMAKE_BINARY_DIR}/${P_FROM}.cc)
    target_link_libraries(${P_FROM} PUBLIC dsj_options ${P_DEPS})
    if(P_O1)
      target_compile_options(${P_FROM} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
    target_precompile_headers(${P_FROM} PRIVATE ${CMAKE_SOURCE_DIR}/${P_HEADER})
  endif()
  target_precompile_headers(${NAME} REUSE_FROM ${P_FROM})
endfunction()

# The precompiled header of a target without libtorch; its instances of nlohmann/json lie in dsj_common.
function(dsj_use_common_pch NAME CONTROL)
  target_link_libraries(${NAME} PUBLIC nlohmann_json::nlohmann_json)
  if(CONTROL)
    dsj_precompile(${NAME} O1 FROM dsj_control_pch HEADER common/pch.h DEPS nlohmann_json::nlohmann_json)
  else()
    dsj_precompile(${NAME} FROM dsj_common_pch HEADER common/pch.h DEPS nlohmann_json::nlohmann_json)
  endif()
endfunction()

function(dsj_use_torch NAME)
  target_link_libraries(${NAME} PUBLIC torch::cpu nlohmann_json::nlohmann_json)
  dsj_precompile(${NAME} O1 FROM dsj_torch_pch HEADER engine/torch_pch.h DEPS torch::cpu nlohmann_json::nlohmann_json)
endfunction()

# dsj_room(NAME [TORCH | CONTROL | PLAIN] [FOLDER dirs...] DEPS targets...)
# TORCH: sees libtorch; its loops over elements are those of engine/kernels and ATen, so -O1 is enough. CONTROL: no hot
# loop. PLAIN: includes nothing that a precompiled header would spare.
function(dsj_room NAME)
  cmake_parse_arguments(R "TORCH;CONTROL;PLAIN" "" "FOLDER;DEPS" ${ARGN})
  if(NOT R_FOLDER)
    set(R_FOLDER .)
  endif()
  list(TRANSFORM R_FOLDER REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*.cc")
  file(GLOB sources CONFIGURE_DEPENDS ${R_FOLDER})
  list(SORT sources COMPARE FILE_BASENAME)  # a file that moves stays with its neighbours (DSJ_UNITY)
  list(FILTER sources EXCLUDE REGEX "/main[^/]*\\.cc$")
  add_library(${NAME} STATIC ${sources})
  target_link_libraries(${NAME} PUBLIC dsj_options ${R_DEPS})
  if(R_TORCH)
    dsj_use_torch(${NAME})
  elseif(NOT R_PLAIN)
    dsj_use_common_pch(${NAME} ${R_CONTROL})
  endif()
endfunction()

# dsj_program(NAME [TORCH] [EXPORTS] [HERE] MAIN file DEPS targets...). EXPORTS: what it opens at run time calls back into it.
# HERE: it is never installed. NAME-dist is the same program as users install it, in dist/bin (scripts/dist.py): its RPATH
# knows no folder of this machine. It finds the libraries that come with it in ../lib, libtorch in ../torch/lib (make install) or in the folder torch beside
# its own (pip's site-packages). DT_RPATH holds for the libraries of libraries, too.
set(DSJ_DIST_RPATH "$ORIGIN/../lib;$ORIGIN/../torch/lib;$ORIGIN/../../torch/lib")
function(dsj_program NAME)
  cmake_parse_arguments(P "TORCH;EXPORTS;HERE" "MAIN" "DEPS" ${ARGN})
  add_executable(${NAME} ${P_MAIN})
  target_link_libraries(${NAME} PRIVATE dsj_options ${P_DEPS})
  if(P_TORCH)
    dsj_use_torch(${NAME})
  endif()
  set_target_properties(${NAME} PROPERTIES ENABLE_EXPORTS ${P_EXPORTS})
  if(P_HERE)
    return()
  endif()
  add_executable(${NAME}-dist $<TARGET_OBJECTS:${NAME}>)
  target_link_libraries(${NAME}-dist PRIVATE $<TARGET_PROPERTY:${NAME},LINK_LIBRARIES>)
  target_link_options(${NAME}-dist PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${NAME}-dist PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME ${NAME}
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/dist/bin BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${DSJ_DIST_RPATH}")
  set_target_properties(${NAME}-dist PROPERTIES ENABLE_EXPORTS ${P_EXPORTS})
endfunction()

# The precompiled header of a test program, or of a fake that tests share, without libtorch.
function(dsj_use_test_pch NAME)
  target_link_libraries(${NAME} PRIVATE dsj_common GTest::gtest GTest::gmock)
  target_include_directories(${NAME} PRIVATE ${CMAKE_BINARY_DIR}/generated)
  dsj_precompile(${NAME} O1 FROM dsj_test_pch HEADER tests/pch.h
    DEPS nlohmann_json::nlohmann_json GTest::gtest GTest::gmock)
endfunction()

# Where this checkout lies, for the tests that read its files: a header, not a definition on every command line, so that
# ccache finds the other files' objects in a clone that lies elsewhere.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/test_paths.h CONTENT [[
#pragma once
#define DSJ_SOURCE_DIR "${CMAKE_SOURCE_DIR}"
#define DSJ_BIN_DIR "${CMAKE_BINARY_DIR}/bin"
]])

# dsj_test(NAME [TORCH] [CLUSTER api|full] FOLDER dir LABEL label [TIMEOUT s] DEPS targets...): all *_test.cc of a folder as
# one program. CLUSTER: it runs on a Kubernetes control plane that tests/cluster brings up for it alone.
function(dsj_test NAME)
  cmake_parse_arguments(T "TORCH" "LABEL;TIMEOUT;CLUSTER" "DEPS;FOLDER" ${ARGN})
  list(TRANSFORM T_FOLDER REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*_test.cc")
  file(GLOB sources CONFIGURE_DEPENDS ${T_FOLDER})
  if(NOT sources)
    return()
  endif()
  add_executable(${NAME} ${sources})
  target_link_libraries(${NAME} PRIVATE dsj_options ${T_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${NAME} PRIVATE ${CMAKE_BINARY_DIR}/generated)
  if(T_TORCH)
    target_link_libraries(${NAME} PRIVATE torch::cpu nlohmann_json::nlohmann_json)
    dsj_precompile(${NAME} O1 FROM dsj_torch_test_pch HEADER tests/torch_pch.h
      DEPS torch::cpu nlohmann_json::nlohmann_json GTest::gtest GTest::gmock)
  else()
    dsj_use_test_pch(${NAME})
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 1200)
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
