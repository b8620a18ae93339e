# The CUDA language and toolkit, for VOXRT_WITH_CUDA. At the top level, because a language belongs to the directory that enables it.
include_guard()
# Machine code for each card family; nothing is compiled at start. On one machine: -DCMAKE_CUDA_ARCHITECTURES=native.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 120-real)
endif()
if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
# CMake 3.25 does not know the flag for C++20 of newer compilers: targets give it themselves.
set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
set(CMAKE_CUDA_EXTENSIONS OFF)
enable_language(CUDA)
# The kernels of compute capability 9.0 use instructions that sm_90a alone has.
if(CMAKE_CUDA_ARCHITECTURES STREQUAL "native" AND CMAKE_CUDA_ARCHITECTURES_NATIVE)
  set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
endif()
list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^90(-real|-virtual)?$" "90a\\1")
find_package(CUDAToolkit REQUIRED)

