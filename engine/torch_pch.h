// The precompiled header of the torch targets: what nearly every torch file includes, without our
// own headers.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
