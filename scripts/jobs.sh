#!/usr/bin/env bash
# jobs.sh cores|compilers [ROOT]: how many programs can run at once here. ROOT is a prefix of /proc and /sys, for tests.
#   cores      cores that the scheduler and the quotas of this process's control groups allow (nproc in a container of 2
#              processors on a machine of 64 shows 64)
#   compilers  as many of these as memory allows: six sources that include libtorch's headers, compiled as one, take 1.14 GiB
set -euo pipefail
what="$1" root="${2:-}"
number='^[0-9]+$'
each=$((1250 << 10))  # kilobytes per compiler

# Prints version and folder of one controller's groups, from this process's own to the outermost.
groups_of() {
  local list group mount version
  [ -r "$root/proc/self/cgroup" ] || return 0
  while IFS=: read -r _ list group; do
    case ",$list," in
      ,,) version=2 mount="$root/sys/fs/cgroup" ;;
      *",$1,"*) version=1 mount="$root/sys/fs/cgroup/$1" ;;
      *) continue ;;
    esac
    while :; do
      echo "$version $mount${group%/}"
      [ "${group%/}" ] || break
      group="${group%/*}"
    done
  done <"$root/proc/self/cgroup"
}

words_of() { if [ -r "$1" ]; then tr '\n' ' ' <"$1"; fi; }

cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
while read -r version folder; do
  if [ "$version" = 2 ]; then
    read -r quota period <<<"$(words_of "$folder/cpu.max")" || true
  else
    read -r quota period <<<"$(words_of "$folder/cpu.cfs_quota_us")$(words_of "$folder/cpu.cfs_period_us")" || true
  fi
  if [[ "${quota:-}" =~ $number && "${period:-}" =~ $number ]] && [ "$quota" -gt 0 ] && [ "$period" -gt 0 ]; then
    worth=$((quota / period > 1 ? quota / period : 1))
    cores=$((worth < cores ? worth : cores))
  fi
done < <(groups_of cpu)
if [ "$what" = cores ]; then echo "$cores"; exit; fi

kilobytes=$(awk '/^MemAvailable:/ { print $2 }' "$root/proc/meminfo" 2>/dev/null || true)
kilobytes="${kilobytes:-$((cores * each))}"
while read -r version folder; do
  limit=$(words_of "$folder/$([ "$version" = 2 ] && echo memory.max || echo memory.limit_in_bytes)")
  limit="${limit%% *}"
  if [[ "$limit" =~ $number ]] && [ $((limit >> 10)) -lt "$kilobytes" ]; then kilobytes=$((limit >> 10)); fi
done < <(groups_of memory)
compilers=$((kilobytes / each > 1 ? kilobytes / each : 1))
echo $((compilers < cores ? compilers : cores))
