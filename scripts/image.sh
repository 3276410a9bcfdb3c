#!/usr/bin/env bash
# Root file systems and images of our programs: nothing but the programs, the loader and what ldd says they need.
#   image.sh root TARGET BUILD ROOT           assembles ROOT (made anew) from BUILD/bin; prints its size
#   image.sh build TARGET BUILD NAME [FILE]   the same as an image, by buildah, without a registry; FILE: its archive
# TARGET: operator (dsj-operator), worker (dsj-agent, dsj-train, dsj) or agent (dsj-agent: enough for launcher: Command). The Dockerfile uses `root` in its build stage.
# DSJ_BUILDAH: buildah with its options (default: buildah --storage-driver vfs).
set -euo pipefail
lib=lib/x86_64-linux-gnu   # on the loader's own list: no LD_LIBRARY_PATH, no cache
user=65532

fail() { printf 'image: %s\n' "$*" >&2; exit 2; }

programs_of() {
  case "$1" in
    operator) echo dsj-operator ;;
    worker) echo dsj-agent dsj-train dsj ;;
    agent) echo dsj-agent ;;
    *) fail "the target is operator, worker or agent, not \"$1\"" ;;
  esac
}

copy_stripped() {  # copy_stripped FILE PLACE
  strip --strip-all -o "$2" "$1"
  chmod 0755 "$2"
}

copy_libraries() {  # copy_libraries PROGRAM ROOT: what the loader finds for it, by the names it asks for
  local name path
  if ldd "$1" | grep -q 'not found'; then fail "$1: $(ldd "$1" | grep 'not found')"; fi
  while read -r name path; do
    [ -e "$2/$lib/$name" ] || copy_stripped "$(readlink -f "$path")" "$2/$lib/$name"
  done < <(ldd "$1" | sed -n 's/^\t\([^ /]*\) => \(\/[^ ]*\) .*/\1 \2/p')
}

assemble() {  # assemble TARGET BUILD ROOT
  local target="$1" bin="$2/bin" root="$3" program
  rm -rf "$root"
  mkdir -p "$root/$lib" "$root/lib64" "$root/opt/dsj/bin" "$root/etc/dsj" "$root/run/dsj" "$root/var" "$root/tmp" \
    "$root/dev" "$root/proc" "$root/sys"
  chmod 1777 "$root/tmp"
  ln -s /run "$root/var/run"
  for program in $(programs_of "$target"); do
    [ -x "$bin/$program" ] || fail "$bin/$program is not built"
    copy_libraries "$bin/$program" "$root"
    copy_stripped "$bin/$program" "$root/opt/dsj/bin/$program"
  done
  copy_stripped "$(readlink -f /lib64/ld-linux-x86-64.so.2)" "$root/lib64/ld-linux-x86-64.so.2"
  printf 'root:x:0:0::/:/nologin\ndsj:x:%s:%s::/tmp:/nologin\n' "$user" "$user" >"$root/etc/passwd"
  printf 'root:x:0:\ndsj:x:%s:\n' "$user" >"$root/etc/group"
  printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
  find "$root" -newermt @0 -exec touch -h -d @0 {} +  # the same programs give the same image
  du -sb --apparent-size "$root" | awk -v t="$target" '{ printf "image: %s: %.1f MB\n", t, $1 / 1e6 }'
}

build() {  # build TARGET BUILD NAME [ARCHIVE]
  local buildah="${DSJ_BUILDAH:-buildah --storage-driver vfs}" container
  command -v "${buildah%% *}" >/dev/null || fail "buildah is missing: apt-get install buildah"
  room="$(mktemp -d)"
  trap 'rm -rf "$room"' EXIT
  assemble "$1" "$2" "$room/root"
  container="$($buildah from scratch)"
  $buildah add -q "$container" "$room/root" / >/dev/null
  $buildah config --user "$user:$user" --env PATH=/opt/dsj/bin --workingdir /tmp \
    --entrypoint "[\"/opt/dsj/bin/$(programs_of "$1" | cut -d' ' -f1)\"]" "$container"
  $buildah commit -q --rm "$container" "$3" >/dev/null
  if [ -n "${4:-}" ]; then
    rm -f "$4"
    $buildah push -q "$3" "docker-archive:$4:$3" >/dev/null
    printf 'image: %s: archive of %s MB\n' "$3" "$(stat -c %s "$4" | awk '{ printf "%.1f", $1 / 1e6 }')"
  fi
}

case "${1-} $#" in
  "root 4") programs_of "$2" >/dev/null; assemble "$2" "$3" "$4" ;;
  "build 4" | "build 5") programs_of "$2" >/dev/null; build "${@:2}" ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
