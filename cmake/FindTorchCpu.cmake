# libtorch from a wheel's torch/ folder (DSJ_TORCH_ROOT), without Caffe2Config, which asks for a CUDA toolkit.
# Gives torch::cpu. What was found before is forgotten: the folder may be another now, of a newer libtorch or in another cache.
unset(TorchCpu_INCLUDE CACHE)
unset(TorchCpu_LIBRARY CACHE)
unset(TorchCpu_C10 CACHE)
find_path(TorchCpu_INCLUDE torch/csrc/api/include/torch/torch.h HINTS ${DSJ_TORCH_ROOT}/include NO_DEFAULT_PATH)
find_library(TorchCpu_LIBRARY torch_cpu HINTS ${DSJ_TORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(TorchCpu_C10 c10 HINTS ${DSJ_TORCH_ROOT}/lib NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchCpu REQUIRED_VARS TorchCpu_LIBRARY TorchCpu_C10 TorchCpu_INCLUDE)

if(TorchCpu_FOUND AND NOT TARGET torch::cpu)
  add_library(torch::cpu INTERFACE IMPORTED)
  # DT_RPATH, not RUNPATH: libtorch_cpu.so itself looks for libcudart through the loader's search path. CMake adds the path.
  target_link_options(torch::cpu INTERFACE -Wl,--allow-shlib-undefined -Wl,--disable-new-dtags)
  target_include_directories(torch::cpu SYSTEM INTERFACE ${TorchCpu_INCLUDE} ${TorchCpu_INCLUDE}/torch/csrc/api/include)
  target_compile_definitions(torch::cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  # at::parallel_for is a template over OpenMP's pragmas: without this it is a plain loop in our translation units. The
  # run-time library is libtorch's own, below.
  target_compile_options(torch::cpu INTERFACE -fopenmp)
  target_link_libraries(torch::cpu INTERFACE ${TorchCpu_LIBRARY} ${TorchCpu_C10})
  file(GLOB TorchCpu_GOMP ${DSJ_TORCH_ROOT}/lib/libgomp*.so*)
  if(TorchCpu_GOMP)
    list(GET TorchCpu_GOMP 0 TorchCpu_GOMP)
    target_link_libraries(torch::cpu INTERFACE ${TorchCpu_GOMP})
  endif()
endif()
