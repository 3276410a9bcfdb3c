# Functions for the scripts that install apt packages; to be sourced. As root, or by sudo with `sudo_options`.
apt_options=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)

can_be_root() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }

as_root() {  # as_root COMMAND...
  if [ "$(id -u)" -eq 0 ]; then "$@"; return; fi
  # sudo drops the proxy that only the user's environment names. As an option its password is in no list of processes.
  local proxy=()
  [ -z "${http_proxy:-}${https_proxy:-}" ] || proxy=(--preserve-env=http_proxy,https_proxy,no_proxy)
  sudo "${sudo_options[@]}" "${proxy[@]}" "$@"
}

apt_update() { as_root apt-get "${apt_options[@]}" update -qq; }

apt_install() {  # apt_install PACKAGE...
  as_root env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}" install -y -qq --no-install-recommends "$@"
}
