// The one precompiled header of the torch targets: what nearly every torch file needs, and nothing
// of ours.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
