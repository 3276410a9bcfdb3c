#!/usr/bin/env python3
"""What is known of libdsj_cuda.so without a GPU: what its kernels take, what it asks of others, who loads it.

Usage: cuda_check.py REPOSITORY BUILD CUDA_ROOT GTEST_REPORT   exit 1 on a failure
       cuda_check.py REPOSITORY BUILD CUDA_ROOT --write        writes tests/engine/kernels/cuda/resources.txt

Where CUDA's compiler could not be fetched there is no such library, and every case is skipped, loudly.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, Skip, expect  # noqa: E402

TABLE = "tests/engine/kernels/cuda/resources.txt"
HEADER = """# What each CUDA kernel takes, read off libdsj_cuda.so: registers of a thread, bytes of shared memory of a block (of which
# newer GPUs keep 1024 for themselves). Stack and spills are 0. More registers mean fewer threads at once: look at a change
# here. tests/run/cuda_check.py compares, and writes it with --write.
# GPU      registers  shared  kernel
"""
GPUS = {"sm_80", "sm_90a", "sm_100"}
# Libraries of CUDA that the plugin may name. dsj-train names none of them.
CUDA_LIBRARIES = {"libtorch_cuda.so", "libc10_cuda.so", "libnccl.so.2", "libcudart.so.13"}


class Libraries:
    def __init__(self, repository, build, cuda):
        self.repository, self.build, self.cuda = repository, build, cuda
        self.plugin = os.path.join(build, "bin/libdsj_cuda.so")
        self.program = os.path.join(build, "bin/dsj-train")

    def need_plugin(self):
        if not os.access(os.path.join(self.cuda, "bin/nvcc"), os.X_OK):
            raise Skip(f"CUDA's compiler is not in {self.cuda}: NOT RUN (DSJ_SETUP_CUDA=1 scripts/setup.sh fetches it)")
        expect(os.path.exists(self.plugin), f"{self.plugin} is not built")


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def resources(libraries):
    """{(GPU, kernel): (registers, shared, stack + local)} of everything in the library."""
    tool = os.path.join(libraries.cuda, "bin/cuobjdump")
    text = subprocess.run(["c++filt"], input=output(tool, "--dump-resource-usage", libraries.plugin),
                          capture_output=True, text=True, check=True).stdout
    found, gpu, kernel = {}, None, None
    for line in text.splitlines():
        if match := re.match(r"arch = (sm_\w+)", line):
            gpu = match[1]
        elif match := re.match(r"\s*Function (.*):$", line):
            kernel = re.sub(r"\(.*", "", match[1].replace("(anonymous namespace)::", "")).removeprefix("void ")
            kernel = kernel.replace("dsj::optim::", "").replace("dsj::kernels::cuda::", "").replace("dsj::kernels::", "")
        elif match := re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            found[gpu, kernel] = (int(match[1]), int(match[3]), int(match[2]) + int(match[4]))
    return found


def table(found):
    rows = [f"{gpu:<10} {registers:>9}  {shared:>6}  {kernel}\n"
            for (gpu, kernel), (registers, shared, _) in sorted(found.items())]
    return HEADER + "".join(rows)


def kernels_take_what_the_table_says(libraries):
    libraries.need_plugin()
    found = resources(libraries)
    expect({gpu for gpu, _ in found} == GPUS, f"made for {sorted({gpu for gpu, _ in found})}, expected {sorted(GPUS)}")
    kernels = {kernel for _, kernel in found}
    expect(all((gpu, kernel) in found for gpu in GPUS for kernel in kernels), "every kernel for every GPU")
    spills = [f"{kernel} on {gpu}: {local} bytes" for (gpu, kernel), (_, _, local) in found.items() if local]
    expect(not spills, f"stack or spills: {spills}")
    with open(os.path.join(libraries.repository, TABLE), encoding="utf-8") as file:
        want, got = file.read(), table(found)
    changed = sorted(set(want.splitlines()) ^ set(got.splitlines()))
    expect(not changed, f"{TABLE} is another: {changed[:10]} (--write writes it anew)")
    print(f"result: cuda: {len(kernels)} kernels for {len(GPUS)} GPUs, most registers "
          f"{max(registers for registers, _, _ in found.values())}, no spills")


# KEPT values at a time. Where two blocks of 1,024 threads share a processor, a thread has 32 registers.
SPILLER = """__global__ void __launch_bounds__(1024, 2) planted(float* x) {
  float kept[KEPT];
#pragma unroll
  for (int i = 0; i < KEPT; ++i) kept[i] = x[1024 * i + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < KEPT; ++i) x[1024 * i + threadIdx.x] = kept[i] * kept[(7 * i + 1) % KEPT];
}
"""


def a_kernel_that_spills_does_not_compile(libraries):
    """By the words that the build compiles our kernels with. One that keeps a few values does."""
    libraries.need_plugin()
    with open(os.path.join(libraries.build, "build.ninja"), encoding="utf-8") as file:
        words = re.search(r"&& (\S*/nvcc .*?) -MMD .*?elementwise\.cu", file.read())[1].split()
    with tempfile.TemporaryDirectory() as room:
        for kept, spills in ((64, True), (4, False)):
            text = os.path.join(room, "planted.cu")
            with open(text, "w", encoding="utf-8") as file:
                file.write(SPILLER.replace("KEPT", str(kept)))
            done = subprocess.run([*words, "-c", text, "-o", os.path.join(room, "planted.o")], capture_output=True, text=True, check=False)
            said = done.stdout + done.stderr
            expect((done.returncode != 0) == spills and ("spilled to local memory" in said) == spills, f"{kept}: {done.returncode} {said}")


# What is built for the GPU half alone, by where its outputs lie.
HALF = re.compile(r"^(cuda/\w+\.o$|engine/cuda/|(engine|tests)\b.*\b(dsj_cuda|cuda_kernels_tests|cuda_tests|dsj_simulated|"
                  r"simulated_tests|gpu_tests|fake_cuda_driver)|bin/(libdsj_cuda|(gpu|simulated|cuda|cuda_kernels)_tests))")


def what_it_costs_to_build_is_told(libraries):
    """Seconds of compilers when each was last made; what came out of ccache took next to none."""
    libraries.need_plugin()
    seconds = {}
    with open(os.path.join(libraries.build, ".ninja_log"), encoding="utf-8") as file:
        for line in file.readlines()[1:]:
            begin, end, _, made, _ = line.split("\t")
            if HALF.match(made):
                seconds[made] = (int(end) - int(begin)) / 1000
    kernels = sum(took for made, took in seconds.items() if made.startswith("cuda/"))
    expect(kernels > 0, f"no kernel in {sorted(seconds)}")
    print(f"result: cuda: the GPU half and its tests took {sum(seconds.values()):.0f} s of one core to build, nvcc {kernels:.0f} s of it")


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", path)))


def only_the_plugin_names_cudas_libraries(libraries):
    expect(not needed(libraries.program) & CUDA_LIBRARIES, f"dsj-train would load {needed(libraries.program)}")
    libraries.need_plugin()
    expect(CUDA_LIBRARIES <= needed(libraries.plugin), f"the plugin names {sorted(needed(libraries.plugin))}")
    size = os.path.getsize(libraries.plugin) / 1e6
    print(f"result: cuda: libdsj_cuda.so {size:.2f} MB, dsj-train {os.path.getsize(libraries.program) / 1e6:.2f} MB")
    expect(size < 20, f"{size:.1f} MB")


def symbols(path, *words):
    return {line.split()[-1].split("@")[0] for line in output("nm", "-D", *words, path).splitlines()}


def every_symbol_is_somewhere(libraries):
    libraries.need_plugin()
    open_ones = symbols(libraries.plugin, "--undefined-only")
    for name in symbols(libraries.program, "--defined-only"):
        open_ones.discard(name)
    found = re.findall(r"=> (/\S+)", output("ldd", libraries.program))
    runtime = [os.path.join(libraries.cuda, "lib/libcudart.so.13")]
    for path in found + runtime:
        open_ones -= symbols(path, "--defined-only")
    with open(os.path.join(libraries.repository, "engine/comm/nccl_shim/nccl.h"), encoding="utf-8") as file:
        nccl = set(re.findall(r"\b(nccl[A-Z]\w+)\(", file.read()))
    # What only libc10_cuda has is declared by libtorch's own headers, and named for CUDA; the weak ones are the linker's.
    left = {name for name in open_ones - nccl if "c10" not in name or "4cuda" not in name}
    left -= {"__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
    left = {name for name in left if not re.match(r"_ZN?K?3c104cuda|_ZTIN3c104cuda|_ZTVN3c104cuda", name)}
    expect(not left, f"nobody has {sorted(left)[:10]}")
    expect("dsj_cuda_plugin" in symbols(libraries.plugin, "--defined-only"), "its entry is exported")


# Both headers as one program sees them: sizes, places, numbers, and what each function takes.
HEADER_PROBE = r"""
#include <nccl.h>
#include <cstdio>
#include <type_traits>
#ifdef NCCL_CONFIG_INITIALIZER
ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
#else
ncclConfig_t config;
#endif
using R = ncclResult_t; using C = ncclComm_t; using S = cudaStream_t; using T = ncclDataType_t; using O = ncclRedOp_t;
#define TAKES(function, ...) static_assert(std::is_convertible_v<decltype(&function), __VA_ARGS__>)
TAKES(ncclGetUniqueId, R (*)(ncclUniqueId*));
TAKES(ncclCommInitRankConfig, R (*)(C*, int, ncclUniqueId, int, ncclConfig_t*));
TAKES(ncclCommFinalize, R (*)(C));
TAKES(ncclCommDestroy, R (*)(C));
TAKES(ncclCommAbort, R (*)(C));
TAKES(ncclCommGetAsyncError, R (*)(C, R*));
TAKES(ncclGetErrorString, const char* (*)(R));
TAKES(ncclGetLastError, const char* (*)(C));
TAKES(ncclGroupStart, R (*)());
TAKES(ncclGroupEnd, R (*)());
TAKES(ncclAllReduce, R (*)(const void*, void*, size_t, T, O, C, S));
TAKES(ncclBroadcast, R (*)(const void*, void*, size_t, T, int, C, S));
TAKES(ncclReduceScatter, R (*)(const void*, void*, size_t, T, O, C, S));
TAKES(ncclAllGather, R (*)(const void*, void*, size_t, T, C, S));
TAKES(ncclSend, R (*)(const void*, size_t, T, int, C, S));
TAKES(ncclRecv, R (*)(void*, size_t, T, int, C, S));
#define FIELD(name) std::printf(#name " at %zu, %zu bytes\n", offsetof(ncclConfig_t, name), sizeof config.name)
int main() {
  std::printf("config %zu, id %zu, magic %x, version %u\n", sizeof config, sizeof(ncclUniqueId), config.magic, config.version);
  FIELD(size); FIELD(magic); FIELD(version); FIELD(blocking); FIELD(cgaClusterSize); FIELD(minCTAs); FIELD(maxCTAs);
  FIELD(netName); FIELD(splitShare); FIELD(trafficClass); FIELD(commName); FIELD(collnetEnable); FIELD(CTAPolicy);
  FIELD(shrinkShare); FIELD(nvlsCTAs); FIELD(nChannelsPerNetPeer); FIELD(nvlinkCentricSched);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&config);
  for (size_t i = 0; i < sizeof config; ++i) std::printf("%02x", bytes[i]);
  std::printf("\n%d %d %d %d | %d %d | %d %d %d %d %d\n", ncclSuccess, ncclInternalError, ncclInvalidUsage, ncclInProgress, ncclSum,
              ncclMax, ncclInt64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16);
}
"""


def our_words_of_nccl_are_nccls(libraries):
    """engine/comm/nccl_shim/nccl.h against NCCL's own header, which comes with CUDA's run-time libraries."""
    libraries.need_plugin()
    runtime = os.environ.get("DSJ_CUDA_RUNTIME") or os.path.join(
        os.environ.get("DSJ_CACHE") or os.path.expanduser("~/.cache/dsj"), "cuda-runtime-2.11.0-2")
    real = os.path.join(runtime, "nvidia/nccl/include")
    if not os.path.exists(os.path.join(real, "nccl.h")):
        raise Skip(f"NCCL's header is not in {real}: NOT RUN (DSJ_SETUP_CUDA=runtime scripts/setup.sh fetches it, and 2.3 GB)")
    seen = []
    with tempfile.TemporaryDirectory() as room:
        text, program = os.path.join(room, "probe.cc"), os.path.join(room, "probe")
        with open(text, "w", encoding="utf-8") as file:
            file.write(HEADER_PROBE)
        for header in (real, os.path.join(libraries.repository, "engine/comm/nccl_shim")):
            subprocess.run(["g++", "-std=c++23", "-I" + header, "-isystem", os.path.join(libraries.cuda, "include"), text, "-o", program],
                           check=True)
            seen.append(output(program))
    expect(seen[0] == seen[1], f"NCCL's: {seen[0]}ours: {seen[1]}")


def main():
    libraries = Libraries(*sys.argv[1:4])
    if sys.argv[4] == "--write":
        with open(os.path.join(libraries.repository, TABLE), "w", encoding="utf-8") as file:
            file.write(table(resources(libraries)))
        return 0
    report = Report("Cuda", sys.argv[4])
    for case in (kernels_take_what_the_table_says, a_kernel_that_spills_does_not_compile, what_it_costs_to_build_is_told,
                 only_the_plugin_names_cudas_libraries, every_symbol_is_somewhere, our_words_of_nccl_are_nccls):
        report.run(case.__name__, lambda case=case: case(libraries))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
