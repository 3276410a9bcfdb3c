# Functions for scripts that install apt packages; source this file. Uses root, or sudo with `sudo_options`.
apt_options=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)

can_be_root() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }

as_root() {  # as_root COMMAND...
  if [ "$(id -u)" -eq 0 ]; then "$@"; return; fi
  # sudo drops proxy variables of the user's environment. --preserve-env keeps their password out of the process list.
  local proxy=()
  [ -z "${http_proxy:-}${https_proxy:-}" ] || proxy=(--preserve-env=http_proxy,https_proxy,no_proxy)
  sudo "${sudo_options[@]}" "${proxy[@]}" "$@"
}

apt_update() { as_root apt-get "${apt_options[@]}" update -qq; }

apt_install() {  # apt_install PACKAGE...
  as_root env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}" install -y -qq --no-install-recommends "$@"
}
