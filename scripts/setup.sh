#!/usr/bin/env bash
# Sets up a build machine: apt packages and libtorch. Safe to run again: it installs only what is missing.
# DSJ_SETUP_CUDA=1 also fetches CUDA's compiler, for libdsj_cuda.so. DSJ_SETUP_CUDA=runtime also fetches 2.2 GB of run-time
# libraries, for the worker image for GPUs (scripts/image.sh). No build or test needs those.
# DSJ_SETUP_CLUSTER=1 also builds the programs of the test cluster (tests/cluster) in the background: they take minutes, use
# the time of the downloads, and only the last tests need them. As root it includes the programs and apt packages of real
# nodes; without root no node can run, and tests that need one are skipped with a message.
# DSJ_SETUP_CLUSTER=nodes: with real nodes in any case.
# DSJ_SETUP_BROWSER=1 also installs a headless Chromium, if apt has one (Debian), for the test of the page of `dsj plot`,
# and zsh, fish and groff for the test of completions and manual pages.
# Needs Debian 12 or Ubuntu 24.04, and root or sudo. Downloads are cached in ${DSJ_CACHE:-~/.cache/dsj}.
set -euo pipefail

cache="${DSJ_CACHE:-$HOME/.cache/dsj}"
torch_version=2.11.0
# name version sha256 platform-tag; libtorch_cpu.so needs libcudart and libcupti to load, even with no GPU.
wheels=(
  "torch $torch_version 0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756"
  "nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "nvidia-cuda-cupti 13.0.85 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
)
# Arrow's libraries and headers, for reading Parquet and Arrow files (engine/data/arrow).
arrow_version=26.0.1
arrow_wheels=(
  "pyarrow 26.0.1 c718bf97a92a6dea97fd1062c3b9f9e2e83cb9cc926e752289fa4ffff41738f9"
)
# CUDA's compiler and headers (104 MB), to build libdsj_cuda.so. That needs no GPU, driver or run-time library.
cuda_version=13.0
cuda_wheels=(
  "nvidia-cuda-nvcc 13.0.88 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03"
  "nvidia-nvvm 13.0.88 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0"
  "nvidia-cuda-crt 13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"
  "nvidia-cuda-cccl 13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649"
  "nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "nvidia-cuda-cuobjdump 13.2.78 394087411405b846bf43aa52ca2ff603bbe18b3b8a1257cda0903e23c17bdbf3"
)
# The libraries that a CUDA build of libtorch loads, in the versions that it requires. Each list has its own folder: after a
# change, increment runtime_list here and the folder's number in image.sh.
runtime_list=2
runtime_wheels=(
  "torch $torch_version 0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756"
  "nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "nvidia-cublas 13.1.0.3 ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171"
  "nvidia-cuda-nvrtc 13.0.88 ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575"
  "nvidia-cufile 1.15.1.6 08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44"
  "nvidia-cudnn-cu13 9.19.0.56 d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf"
  "nvidia-cufft 12.0.0.61 6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3"
  "nvidia-curand 10.4.0.35 1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc"
  "nvidia-cusparse 12.6.3.3 2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b"
  "nvidia-cusparselt-cu13 0.8.0 25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd"
  "nvidia-nccl-cu13 2.28.9 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42"
  "nvidia-nvshmem-cu13 3.4.5 290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80"
  "nvidia-nvjitlink 13.0.88 13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b"
)
apt_packages=(
  g++ cmake ninja-build make ccache git ca-certificates python3 python3-pip unzip
  libboost-dev libyaml-cpp-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libssl-dev
  libgtest-dev libgmock-dev libcli11-dev libpcre2-dev libutf8proc-dev libxxhash-dev libminizip-dev zlib1g-dev libzstd-dev
  liburing-dev libdw-dev prometheus-cpp-dev openssl lua5.4
)

[ "${DSJ_SETUP_CLUSTER:-}" != 1 ] || [ "$(id -u)" -ne 0 ] || DSJ_SETUP_CLUSTER=nodes
if [ "${DSJ_SETUP_CLUSTER:-}" = nodes ]; then
  apt_packages+=(containerd runc containernetworking-plugins nftables iproute2 buildah)
fi

# shellcheck source=scripts/apt.sh
. "$(dirname "$0")/apt.sh"
sudo_options=()

say() { printf '  %s\n' "$*" >&2; }

refuse() { say "$@"; exit 3; }

# Checks what this script cannot fix, before anything is installed.
check_machine() {
  [ "$(uname -m)" = x86_64 ] ||
    refuse "this machine is $(uname -m); libtorch and the kernels need x86_64 (in Docker: --platform linux/amd64)"
  command -v apt-get >/dev/null || refuse "no apt-get here; this needs Debian 12 or Ubuntu 24.04 (a container of one will do)"
  if ! mkdir -p "$cache" 2>/dev/null || [ ! -w "$cache" ]; then  # an earlier `sudo make` made root its owner
    refuse "$cache cannot be written: give it to $(id -un) (sudo chown -R), or name another folder in DSJ_CACHE"
  fi
  local free; free=$(df --output=avail -k "$cache" | tail -n1)
  [ -e "$cache/libtorch-$torch_version/.complete" ] || [ "$free" -ge $((3 << 20)) ] ||
    refuse "$cache has $((free >> 10)) MB free; libtorch needs 3 GB while it is unpacked (DSJ_CACHE names another folder)"
}

old_compiler() {  # old_compiler VERSION WHERE
  refuse "g++ $2 version $1; C++23 needs 12 or later, as Debian 12 and Ubuntu 24.04 have it"
}

# An older distribution installs a compiler that cannot compile the code.
check_compiler() {
  local version; version=$(g++ -dumpversion)
  [ "${version%%.*}" -ge 12 ] || old_compiler "$version" is
}

# The same check before thirty packages are installed in vain.
check_offer() {
  if command -v g++ >/dev/null; then check_compiler; return; fi
  local version; version=$(LC_ALL=C apt-cache policy g++ | sed -n 's/^ *Candidate: \([0-9]*:\)\?\([0-9][0-9.]*\).*/\2/p')
  [ -z "$version" ] || [ "${version%%.*}" -ge 12 ] || old_compiler "$version" "comes here in"
}

# install_apt PACKAGE...: exits 3 if one cannot be installed.
install_apt() {
  local missing=()
  for package in "$@"; do
    [[ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" == *'ok installed'* ]] || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return; fi
  can_be_root || refuse "apt packages are missing (${missing[*]}): run as root or install sudo"
  say "apt: ${#missing[@]} packages are missing (log: $cache/apt.log)"
  # A machine that has just booted may still be updating itself: wait for its locks.
  local tries=0
  until apt_update >"$cache/apt.log" 2>&1 || [ $((++tries)) -ge 6 ]; do sleep 10; done
  check_offer
  if ! apt_install "${missing[@]}" >>"$cache/apt.log" 2>&1; then
    tail -n 20 "$cache/apt.log" >&2
    refuse "apt could not install: ${missing[*]}"
  fi
}

# Unpacks only the headers and the libraries that a CPU program loads: about 0.6 of the wheel's 1.8 GB.
unpack() {  # unpack NAME WHEEL DIRECTORY
  case "$1" in
    torch) unzip -q -o "$2" 'torch/include/*' 'torch/lib/libtorch_cpu.so' 'torch/lib/libc10.so' 'torch/lib/libgomp*' \
             'torch-*.dist-info/licenses/*' -d "$3" ;;
    *)     unzip -q -o "$2" 'nvidia/cu13/lib/*' -d "$3" ;;
  esac
}

# Unpacks 62 of the wheel's 170 MB.
unpack_arrow() {  # unpack_arrow NAME WHEEL DIRECTORY
  unzip -q -o "$2" 'pyarrow/include/*' 'pyarrow/libarrow.so.*' 'pyarrow/libparquet.so.*' 'pyarrow-*.dist-info/licenses/*' -d "$3"
}

unpack_all() {  # unpack_all NAME WHEEL DIRECTORY
  unzip -q -o "$2" 'nvidia/cu13/*' -d "$3"
}

# Includes NCCL's header, with which nccl_shim is compared.
unpack_runtime() {  # unpack_runtime NAME WHEEL DIRECTORY
  case "$1" in
    nvidia-nccl-cu13) unzip -q -o "$2" 'nvidia/*.so*' 'nvidia/nccl/include/nccl.h' -d "$3" ;;
    torch) unzip -q -o "$2" 'torch/lib/libtorch_cuda*.so' 'torch/lib/libc10_cuda.so' 'torch/lib/libtorch_nvshmem*' -d "$3" || [ $? -eq 11 ] ;;
    nvidia-cuda-nvrtc) unzip -q -o "$2" 'nvidia/*.so*' -x '*.alt.so*' -d "$3" ;;
    *)     unzip -q -o "$2" 'nvidia/*.so*' -d "$3" ;;
  esac
}

install_wheels() {  # install_wheels WHAT ROOT UNPACK ROWS...: installs all of them, with checksums verified, or none
  local what="$1" root="$2" unpack="$3" staging name version sha256 wheel
  if [ -e "$root/.complete" ]; then return; fi
  mkdir -p "$cache/wheels"; staging="$(mktemp -d "$root.XXXXXX")"
  # shellcheck disable=SC2064
  trap "rm -rf $(printf %q "$staging")" EXIT
  for row in "${@:4}"; do
    read -r name version sha256 <<<"$row"
    wheel=("$cache/wheels/${name//-/_}-$version-"*.whl)
    if [ ! -e "${wheel[0]}" ]; then
      say "$what: downloading $name $version"
      PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip download -q --no-deps --only-binary=:all: \
        --python-version 3.12 --implementation cp --abi cp312 --abi none \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_25_x86_64 \
        --platform manylinux_2_18_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 -d "$cache/wheels" "$name==$version" ||
        { say "$what: $name $version was not downloaded: look at the network, https_proxy and pip's own settings, then run again"; return 3; }
      wheel=("$cache/wheels/${name//-/_}-$version-"*.whl)
    fi
    if ! printf '%s  %s\n' "$sha256" "${wheel[0]}" | sha256sum --check --status; then
      say "$what: ${wheel[0]} does not have the pinned checksum $sha256; it is removed, run again"
      rm -f "${wheel[0]}"; return 3
    fi
    "$unpack" "$name" "${wheel[0]}" "$staging" || return 3
    rm -f "${wheel[0]}"
  done
  touch "$staging/.complete"
  rm -rf "$root"; mv "$staging" "$root"
}

install_libtorch() {
  install_wheels libtorch "$cache/libtorch-$torch_version" unpack "${wheels[@]}" || exit 3
}

# Optional: without it Parquet files are refused with a message.
install_arrow() {
  install_wheels Arrow "$cache/pyarrow-$arrow_version" unpack_arrow "${arrow_wheels[@]}" ||
    say "Arrow could NOT be fetched: libdsj_columns.so is NOT built, Parquet and Arrow files are refused, their tests are SKIPPED"
}

# Optional: without it the GPU tests are skipped with a message.
install_cuda() {
  if ! install_wheels "CUDA's compiler" "$cache/cuda-$cuda_version" unpack_all "${cuda_wheels[@]}"; then
    say "CUDA's compiler could NOT be fetched: libdsj_cuda.so is NOT built, and its tests are SKIPPED"
  fi
}

install_cuda_runtime() {
  install_wheels "CUDA's run-time libraries" "$cache/cuda-runtime-$torch_version-$runtime_list" unpack_runtime "${runtime_wheels[@]}" ||
    { say "CUDA's run-time libraries could NOT be fetched: there is no worker image for GPUs without them"; exit 3; }
}

build_cluster_programs() {
  local programs=(api tools)
  if [ "$DSJ_SETUP_CLUSTER" = nodes ]; then
    programs=(etcd kube-apiserver kubectl helm kube-controller-manager kube-scheduler kubelet kube-proxy coredns)
  fi
  mkdir -p "$cache/cluster"
  # Runs in its own session, because the kernel's autogroup sets the CPU share per session: a third, so that the programs are
  # ready when the compilers are done. With less, the last tests would wait for them while cores are idle.
  setsid sh -c 'echo 3 >/proc/self/autogroup; exec nice -n 3 "$@"' sh \
    "$(dirname "$0")/../tests/cluster/cluster.py" build "${programs[@]}" >"$cache/cluster/build.log" 2>&1 </dev/null &
  say "test cluster: its programs are built in the background (log: $cache/cluster/build.log)"
}

# promtool checks the chart's alerts and dashboards. The package is unpacked, not installed, because it would start a server.
fetch_promtool() {
  [ ! -x "$cache/promtool/promtool" ] || return 0
  mkdir -p "$cache"
  local staging; staging="$(mktemp -d "$cache/promtool.XXXXXX")"
  if (cd "$staging" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb .) >>"$cache/apt.log" 2>&1; then
    mkdir -p "$cache/promtool"; mv "$staging/usr/bin/promtool" "$cache/promtool/"
  else
    say "promtool could not be fetched (log: $cache/apt.log); the tests of the alerts will be skipped"
  fi
  rm -rf "$staging"
}

# A browser for one test. If apt has none, the test looks for one on PATH.
install_browser() {
  apt-cache show chromium-headless-shell >/dev/null 2>&1 && (install_apt chromium-headless-shell python3-pil) ||
    say "apt has no headless Chromium here; the test of the page of dsj plot may be skipped"
}

install_shells() {
  (install_apt zsh fish groff-base) || say "zsh, fish or groff could not be installed; the tests of completions may be skipped"
}

check_machine
install_apt "${apt_packages[@]}"
[ -z "${DSJ_SETUP_BROWSER:-}" ] || { install_browser; install_shells; }
check_compiler
[ -z "${DSJ_SETUP_CLUSTER:-}" ] || fetch_promtool
[ -z "${DSJ_SETUP_CLUSTER:-}" ] || build_cluster_programs
[ "${DSJ_SETUP_TORCH:-yes}" = no ] || { install_libtorch; install_arrow; }
[ -z "${DSJ_SETUP_CUDA:-}" ] || install_cuda
[ "${DSJ_SETUP_CUDA:-}" != runtime ] || install_cuda_runtime
