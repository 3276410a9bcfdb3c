#!/usr/bin/env bash
# Root file systems and images of our programs: only the programs, the loader and the libraries that ldd lists.
#   image.sh root TARGET BUILD ROOT           assembles ROOT from BUILD/bin (replacing ROOT); prints its size
#   image.sh build TARGET BUILD NAME:TAG FILE the same as an image archive (oci_archive.py), for `docker load`, `ctr images
#                                             import`, `kind load image-archive` or skopeo; prints the image's digest
#   image.sh runtime                          prints the folder of CUDA's run-time libraries, or nothing if it does not exist
# TARGET: operator (dsj-operator), worker (dsj-agent, dsj-train, dsj, dsj-make-quickstart), worker-cuda (the same plus
# libdsj_cuda.so and the libraries that libtorch loads on a GPU; the driver is the host's), agent (dsj-agent: enough for
# launcher: Command) or cli (dsj, which is the kubectl plugin). The Dockerfile uses `root` in its build stage.
# /opt/dsj/sbom.spdx.json in the image lists every file with its checksums and package (sbom.py).
# DSJ_CUDA_RUNTIME: CUDA's run-time libraries (default: where DSJ_SETUP_CUDA=runtime scripts/setup.sh puts them).
# SOURCE_DATE_EPOCH: the image's time (default: 0).
set -euo pipefail
umask 022                  # the images' user reads files of the builder's user
lib=lib/x86_64-linux-gnu   # a default folder of the loader: no LD_LIBRARY_PATH or cache needed
user=65532
runtime="${DSJ_CUDA_RUNTIME:-${DSJ_CACHE:-$HOME/.cache/dsj}/cuda-runtime-2.11.0-2}"
# Libraries that cuBLASLt opens by name. The loader finds the others.
opened=(libnvrtc.so.13 libnvrtc-builtins.so.13.0)

fail() { printf 'image: %s\n' "$*" >&2; exit 2; }

programs_of() {
  case "$1" in
    operator) echo dsj-operator ;;
    worker | worker-cuda) echo dsj-agent dsj-train dsj dsj-make-quickstart ;;
    agent) echo dsj-agent ;;
    cli) echo dsj ;;
    *) fail "the target is operator, worker, worker-cuda, agent or cli, not \"$1\"" ;;
  esac
}

copy_as_it_is() {  # copy_as_it_is FILE ROOT PLACE: for libraries without symbols
  cp --reflink=auto "$1" "$2/$3"
  chmod 0755 "$2/$3"
  printf '%s\t%s\n' "$3" "$1" >>"$2.sources"
}

copied() {  # copied SYMBOLS FILE ROOT PLACE: strips all symbols (all) or only debug information (debug); records its origin
  strip "--strip-$1" -o "$3/$4" "$2"
  chmod 0755 "$3/$4"
  printf '%s\t%s\n' "$4" "$2" >>"$3.sources"
}

copy_stripped() {  # copy_stripped FILE ROOT PLACE
  copied all "$@"
}

# dsj debug --stacks needs the symbols of a rank's program for function names.
copy_program() {  # copy_program PROGRAM ROOT PLACE
  if [ "$(basename "$1")" = dsj-train ]; then copied debug "$@"; else copied all "$@"; fi
}

copy_libraries() {  # copy_libraries PROGRAM ROOT: the libraries that the loader finds, under their sonames
  local name path
  if ldd "$1" | grep -q 'not found'; then fail "$1: $(ldd "$1" | grep 'not found')"; fi
  while read -r name path; do
    [ -e "$2/$lib/$name" ] || copy_stripped "$(readlink -f "$path")" "$2" "$lib/$name"
  done < <(ldd "$1" | sed -n 's/^\t\([^ /]*\) => \(\/[^ ]*\) .*/\1 \2/p')
}

need_cuda() {  # need_cuda BUILD: fails before anything is written
  [ -e "$1/bin/libdsj_cuda.so" ] ||
    fail "$1/bin/libdsj_cuda.so is not built: DSJ_SETUP_CUDA=1 scripts/setup.sh, then build dsj_cuda"
  [ -d "$runtime" ] || fail "CUDA's run-time libraries are not in $runtime: DSJ_SETUP_CUDA=runtime scripts/setup.sh fetches" \
    "2.3 GB; the image is then 2.7 GB"
}

needed_by() {  # needed_by FILE: the sonames that it needs
  readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
}

# The run-time libraries that the plugin needs, directly or indirectly. Unneeded ones are left out: cuDNN's engines,
# libtorch's dense solvers, NVSHMEM's transports. The engine uses none of their operations (docs/gpu.md).
reached() {  # reached PLUGIN: prints their paths
  local -A file_of=() seen=()
  local file name
  while read -r file; do file_of["$(basename "$file")"]="$file"; done \
    < <(find "$runtime" -name '*.so' -o -name '*.so.[0-9]*')
  local queue=("${opened[@]}")
  mapfile -t -O "${#queue[@]}" queue < <(needed_by "$1")
  while [ ${#queue[@]} -gt 0 ]; do
    name="${queue[0]}"
    queue=("${queue[@]:1}")
    if [ -n "${seen[$name]:-}" ] || [ -z "${file_of[$name]:-}" ]; then continue; fi
    seen["$name"]=1
    echo "${file_of[$name]}"
    mapfile -t -O "${#queue[@]}" queue < <(needed_by "${file_of[$name]}")
  done
}

copy_cuda() {  # copy_cuda BUILD ROOT: the plugin and the libraries that it needs
  local file name missing
  while read -r file; do
    name="$(basename "$file")"
    [ -e "$2/$lib/$name" ] || copy_as_it_is "$file" "$2" "$lib/$name"
  done < <(reached "$1/bin/libdsj_cuda.so" | sort)
  copy_stripped "$1/bin/libdsj_cuda.so" "$2" opt/dsj/bin/libdsj_cuda.so
  # The driver's own libraries come from the host.
  missing="$(LD_LIBRARY_PATH="$2/$lib" ldd "$2/opt/dsj/bin/libdsj_cuda.so" "$2/$lib"/libtorch_cuda.so |
    sed -n 's/^\t\(.*\) => not found/\1/p' | grep -v -e '^libcuda\.so' -e '^libnvidia-' | sort -u || true)"
  [ -z "$missing" ] || fail "libraries that neither $runtime nor the programs bring: $(tr '\n' ' ' <<<"$missing")"
}

assemble() {  # assemble TARGET BUILD ROOT
  local target="$1" bin="$2/bin" root="$3" program
  if [ "$target" = worker-cuda ]; then need_cuda "$2"; fi
  rm -rf "$root" "$root.sources"
  mkdir -p "$root/$lib" "$root/lib64" "$root/opt/dsj/bin" "$root/etc/dsj" "$root/run/dsj" "$root/var" "$root/tmp" \
    "$root/dev" "$root/proc" "$root/sys"
  chmod 1777 "$root/tmp"
  ln -s /run "$root/var/run"
  for program in $(programs_of "$target"); do
    [ -x "$bin/$program" ] || fail "$bin/$program is not built"
    copy_libraries "$bin/$program" "$root"
    copy_program "$bin/$program" "$root" "opt/dsj/bin/$program"
  done
  # The reader of Parquet and Arrow files, if it was built.
  if [[ " $(programs_of "$target" | tr '\n' ' ') " = *" dsj-train "* ]] && [ -e "$bin/libdsj_columns.so" ]; then
    copy_libraries "$bin/libdsj_columns.so" "$root"
    copy_stripped "$bin/libdsj_columns.so" "$root" opt/dsj/bin/libdsj_columns.so
  fi
  if [ "$target" = worker-cuda ]; then copy_cuda "$2" "$root"; fi
  copy_stripped "$(readlink -f /lib64/ld-linux-x86-64.so.2)" "$root" lib64/ld-linux-x86-64.so.2
  printf 'root:x:0:0::/:/nologin\ndsj:x:%s:%s::/tmp:/nologin\n' "$user" "$user" >"$root/etc/passwd"
  printf 'root:x:0:\ndsj:x:%s:\n' "$user" >"$root/etc/group"
  printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
  "$(dirname "$0")/sbom.py" "$target" "$root" "$root.sources" >"$root.spdx.json" || fail "the SBOM is incomplete"
  mv "$root.spdx.json" "$root/opt/dsj/sbom.spdx.json"
  rm "$root.sources"
  find "$root" -newermt @0 -exec touch -h -d @0 {} +  # so that the same programs give the same image
  du -sb --apparent-size "$root" | awk -v t="$target" '{ printf "image: %s: %.1f MB\n", t, $1 / 1e6 }'
}

build() {  # build TARGET BUILD NAME ARCHIVE
  local environment=(--env PATH=/opt/dsj/bin) size
  # The driver libraries that the container runtime of a GPU node adds from the host.
  if [ "$1" = worker-cuda ]; then environment+=(--env NVIDIA_DRIVER_CAPABILITIES=compute,utility); fi
  room="$(mktemp -d)"
  trap 'rm -rf "$room"' EXIT
  assemble "$1" "$2" "$room/root" >/dev/null
  digest="$("$(dirname "$0")/oci_archive.py" "$room/root" "$3" "$4" --user "$user:$user" "${environment[@]}" \
    --entrypoint "/opt/dsj/bin/$(programs_of "$1" | cut -d' ' -f1)" --created "${SOURCE_DATE_EPOCH:-0}")"
  size="$(stat -c %s "$4" | awk '{ printf "%.1f", $1 / 1e6 }')"
  printf 'image: %s: %s MB, %s\n' "$3" "$size" "$digest"
}

case "${1-} $#" in
  "root 4") programs_of "$2" >/dev/null; assemble "$2" "$3" "$4" ;;
  "runtime 1") if [ -d "$runtime" ]; then echo "$runtime"; fi ;;
  "build 5") programs_of "$2" >/dev/null; build "${@:2}" ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
