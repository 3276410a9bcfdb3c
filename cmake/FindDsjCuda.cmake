# What nccl.cc needs: the CUDA half of the libtorch in DSJ_TORCH_ROOT, cudart and NCCL, from the wheels beside it
# (pip's layout: <site>/torch, <site>/nvidia/...) or from the system. Gives dsj::cuda. No CUDA compiler is involved.
# Never configured or linked so far (no GPU was at hand): scripts/check_cuda_compiles.sh keeps the sources compiling.
get_filename_component(DSJ_CUDA_SITE ${DSJ_TORCH_ROOT} DIRECTORY)
set(DSJ_CUDA_HINTS ${DSJ_CUDA_SITE}/nvidia/cu13 ${DSJ_CUDA_SITE}/nvidia/nccl /usr/local/cuda)
find_path(DsjCuda_RUNTIME_INCLUDE cuda_runtime_api.h HINTS ${DSJ_CUDA_HINTS} PATH_SUFFIXES include)
find_path(DsjCuda_NCCL_INCLUDE nccl.h HINTS ${DSJ_CUDA_HINTS} PATH_SUFFIXES include)
find_library(DsjCuda_CUDART NAMES cudart libcudart.so.13 HINTS ${DSJ_CUDA_HINTS} PATH_SUFFIXES lib lib64)
find_library(DsjCuda_NCCL NAMES nccl libnccl.so.2 HINTS ${DSJ_CUDA_HINTS} PATH_SUFFIXES lib lib64)
find_library(DsjCuda_C10 c10_cuda HINTS ${DSJ_TORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(DsjCuda_TORCH torch_cuda HINTS ${DSJ_TORCH_ROOT}/lib NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DsjCuda REQUIRED_VARS DsjCuda_TORCH DsjCuda_C10 DsjCuda_NCCL DsjCuda_CUDART
  DsjCuda_NCCL_INCLUDE DsjCuda_RUNTIME_INCLUDE)

if(DsjCuda_FOUND AND NOT TARGET dsj::cuda)
  add_library(dsj::cuda INTERFACE IMPORTED)
  target_compile_definitions(dsj::cuda INTERFACE DSJ_CUDA USE_CUDA)
  target_include_directories(dsj::cuda SYSTEM INTERFACE ${DsjCuda_RUNTIME_INCLUDE} ${DsjCuda_NCCL_INCLUDE})
  # torch_cuda registers its kernels when it is loaded; nothing of ours names a symbol of it.
  target_link_libraries(dsj::cuda INTERFACE -Wl,--no-as-needed ${DsjCuda_TORCH} -Wl,--as-needed
    ${DsjCuda_C10} ${DsjCuda_NCCL} ${DsjCuda_CUDART})
endif()
